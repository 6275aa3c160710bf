"""Makes ggml_blocks.bin: random blocks of every type of ggml that halfbyte-k-quants has, and what they decode to.

The weights are those of the `gguf` Python package (`pip install gguf numpy`). Q1_0 and Q2_0, which it does not decode, are
decoded by llama.cpp's `ggml-quants.c` alone; the weights of all other types are compared with its, too. The library is
built from the sources that `llama-cpp-python` has in `vendor/llama.cpp/ggml/src`:

    sed 's/@[A-Z_]*@/0/' ggml-version.h.in > ggml-version.h
    for f in critical_section_start critical_section_end backend_tensor_set backend_tensor_memset \
        backend_buffer_get_usage; do echo "void ggml_$f(void) {}"; done > unused.c
    gcc -O2 -fPIC -shared -D_GNU_SOURCE -I../include -I. ggml-quants.c ggml.c unused.c -lm -o libggml-quants.so

Run from this directory: python make_ggml_blocks.py libggml-quants.so

The file is a list of records, one a type, all numbers little-endian:

    name                16 bytes of ASCII, padded with zeros
    weights, bytes      of a block, u32 each
    blocks, shown       u32 each
    the blocks          blocks * bytes
    decoded             shown * weights f32: the weights of the first blocks
    hashes              blocks u64: FNV-1a of the bytes of all a block's weights, where any NaN is 0x7fc00000
"""

import ctypes
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType, dequantize
from gguf.constants import GGML_QUANT_SIZES

SEED = 20261201
BLOCKS = 96
SHOWN = 4
# Blocks whose scales are any bits, NaN and infinities among them.
WILD = 24

# Where the f16 scales of each type are, in bytes; IQ1_M's is spread over four numbers.
HALVES = {
    "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [], "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0],
    "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "TQ1_0": [52], "TQ2_0": [64], "Q1_0": [0], "Q2_0": [0],
}
SIZES = {"Q1_0": (128, 18), "Q2_0": (64, 18)}

# f16 numbers: zeros of both signs, infinities, NaN, the smallest and the largest number.
SPECIAL = [0x0000, 0x8000, 0x7C00, 0xFC00, 0x7E01, 0x0001, 0x7BFF]

rng = np.random.default_rng(SEED)


def scales(n):
    """f16 numbers of either sign, of magnitude 2^-20 to 16."""
    magnitude = 2.0 ** rng.uniform(-20, 4, n) * rng.choice([-1, 1], n)
    return magnitude.astype("<f2").view(np.uint8).reshape(n, 2)


def random_blocks(name, size):
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    tame = BLOCKS - WILD
    for at in HALVES[name]:
        blocks[:tame, at : at + 2] = scales(tame)
        for i, bits in enumerate(SPECIAL):
            blocks[tame + i, at : at + 2] = [bits & 255, bits >> 8]
    if name == "IQ1_M":
        for k in range(4):
            nibble = scales(tame).view("<u2")[:, 0] >> (4 * k) & 15 if k < 3 else rng.integers(0, 5, tame)
            blocks[:tame, 49 + 2 * k] = blocks[:tame, 49 + 2 * k] & 15 | (nibble << 4).astype(np.uint8)
            for i, bits in enumerate(SPECIAL):
                blocks[tame + i, 49 + 2 * k] = blocks[tame + i, 49 + 2 * k] & 15 | (bits >> (4 * k) & 15) << 4
    if name == "MXFP4":
        blocks[tame : tame + 4, 0] = [0, 1, 254, 255]
    if name == "NVFP4":
        blocks[tame, :4], blocks[tame + 1, :4] = [0, 0x7F, 0x80, 0xFF], [1, 7, 8, 0x7E]
    return blocks


def by_ggml(lib, name, blocks, weights):
    out = np.full((len(blocks), weights), np.nan, dtype=np.float32)
    # Rows of a block each, so that a wrong stride would show.
    decode = getattr(lib, {"K": f"dequantize_row_{name[:-1].lower()}K"}.get(name[-1], f"dequantize_row_{name.lower()}"))
    for block, row in zip(blocks, out):
        decode(block.ctypes.data_as(ctypes.c_void_p), row.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(weights))
    return out


def canonical(weights):
    bits = weights.astype("<f4").view("<u4").copy()
    bits[np.isnan(weights)] = 0x7FC00000
    return bits


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % (1 << 64)
    return h


lib = ctypes.CDLL(sys.argv[1])

with open("ggml_blocks.bin", "wb") as file:
    for name in HALVES:
        weights, size = SIZES.get(name) or GGML_QUANT_SIZES[GGMLQuantizationType[name]]
        blocks = random_blocks(name, size)
        bits = canonical(by_ggml(lib, name, blocks, weights))
        if name not in SIZES:
            with np.errstate(all="ignore"):
                assert (canonical(dequantize(blocks, GGMLQuantizationType[name])) == bits).all(), name
        finite = (bits & 0x7F800000 != 0x7F800000).all(axis=1).sum()
        assert BLOCKS - WILD <= finite <= BLOCKS, (name, finite)
        file.write(struct.pack("<16s4I", name.encode(), weights, size, BLOCKS, SHOWN))
        file.write(blocks.tobytes() + bits[:SHOWN].astype("<u4").tobytes())
        file.write(b"".join(struct.pack("<Q", fnv(row.astype("<u4").tobytes())) for row in bits))
        print(name, weights, size, f"{finite} of {BLOCKS} blocks are finite")
