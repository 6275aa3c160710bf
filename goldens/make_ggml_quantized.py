"""Makes ggml_quantized.bin: rows of weights, and what llama.cpp's own quantizers make of them, with an imatrix and without.

The library is that of `make_ggml_blocks.py`. Run from this directory: python make_ggml_quantized.py libggml-quants.so

The file has all numbers little-endian:

    rows, columns       u32 each
    each row            16 bytes of name, padded with zeros; the weights, f32; the importances of its columns, f32
    each type, twice    16 bytes of ggml's name; bytes of a row, u32; 1 with importances, else 0, u32; the bytes of the rows
"""

import ctypes
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES

SEED = 20261202
COLUMNS = 1024
TYPES = ["Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]

rng = np.random.default_rng(SEED)
outliers = rng.normal(0, 0.02, COLUMNS)
outliers[rng.choice(COLUMNS, COLUMNS // 64, replace=False)] *= 15
scaled = rng.normal(0, 1, COLUMNS) * np.repeat(2.0 ** rng.uniform(-6, 0, COLUMNS // 32), 32)
rows = {
    "gauss": rng.normal(0, 0.03, COLUMNS),
    "laplace": rng.laplace(0, 0.02, COLUMNS),
    "outliers": outliers,
    "heavy": rng.standard_t(3, COLUMNS) * 0.01,
    "uneven": scaled,
    "shifted": rng.normal(0.02, 0.02, COLUMNS),
    "uniform": rng.uniform(-1, 1, COLUMNS),
}

lib = ctypes.CDLL(sys.argv[1])
lib.ggml_quantize_chunk.restype = ctypes.c_size_t


def pointer(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def quantize(name, x, importance):
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    out = np.zeros(COLUMNS // weights * size, dtype=np.uint8)
    ty = ctypes.c_int(GGMLQuantizationType[name].value)
    args = ctypes.c_int64(0), ctypes.c_int64(1), ctypes.c_int64(COLUMNS), pointer(importance)
    assert lib.ggml_quantize_chunk(ty, pointer(x), pointer(out), *args) == len(out)
    return out


def name16(name):
    return struct.pack("<16s", name.encode())


weights = {name: x.astype("<f4") for name, x in rows.items()}
importances = {name: (rng.lognormal(0, 1, COLUMNS) ** 2).astype("<f4") for name in rows}
with open("ggml_quantized.bin", "wb") as file:
    file.write(struct.pack("<2I", len(rows), COLUMNS))
    for name in rows:
        file.write(name16(name) + weights[name].tobytes() + importances[name].tobytes())
    for ty in TYPES:
        for weighted in [0, 1]:
            blocks = [quantize(ty, weights[name], importances[name] if weighted else None) for name in rows]
            file.write(name16(ty) + struct.pack("<2I", len(blocks[0]), weighted) + b"".join(b.tobytes() for b in blocks))
