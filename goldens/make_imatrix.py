"""Makes imatrix.gguf, imatrix.dat and imatrix.json: an imatrix of two matrices and one tensor of three experts, the
last of which no token went through, in both of llama.cpp's formats, and the mean squares that they hold.

    pip install gguf==0.19.0 numpy
    python goldens/make_imatrix.py

The GGUF file is written by the gguf package, the older one by `struct`, each laid out as llama-imatrix does it.
"""

import json
import struct
from pathlib import Path

import gguf
import numpy as np

HERE = Path(__file__).parent
SEED = 20241130
CHUNK_SIZE, CHUNKS = 64, 3
DATASETS = ["first.txt", "größer.txt"]

rng = np.random.default_rng(SEED)
# Sums of squares, one row a matrix, and the rows of activations in each.
entries = {
    "blk.0.attn_q.weight": (rng.gamma(0.5, 100.0, (1, 8)), [192]),
    "blk.0.ffn_down_exps.weight": (rng.gamma(0.5, 30.0, (3, 4)), [130, 62, 0]),
    "output.weight": (rng.gamma(0.5, 1e4, (1, 6)), [192]),
}
entries["blk.0.ffn_down_exps.weight"][0][2] = 0
entries = {name: (sums.astype(np.float32), counts) for name, (sums, counts) in entries.items()}

w = gguf.GGUFWriter(HERE / "imatrix.gguf", "")
# The package writes an architecture of its own accord, which an imatrix does not have.
w.kv_data[0].clear()
w.add_type("imatrix")
w.add_array(gguf.Keys.IMatrix.DATASETS, DATASETS)
w.add_uint32(gguf.Keys.IMatrix.CHUNK_COUNT, CHUNKS)
w.add_uint32(gguf.Keys.IMatrix.CHUNK_SIZE, CHUNK_SIZE)
for name, (sums, counts) in entries.items():
    one = len(counts) == 1
    w.add_tensor(name + ".in_sum2", sums[0] if one else sums)
    # llama.cpp drops the dimensions of size 1 at the end.
    w.add_tensor(name + ".counts", np.array(counts if one else [[n] for n in counts], dtype=np.float32))
    # Some versions write the sums of the activations themselves as well.
    w.add_tensor(name + ".in_sum", rng.standard_normal(sums.shape if not one else sums.shape[1:]).astype(np.float32))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()


def text(s: str) -> bytes:
    return struct.pack("<i", len(s.encode())) + s.encode()


means, dat = {}, struct.pack("<i", len(entries))
for name, (sums, counts) in entries.items():
    mean = np.array([s / n if n else np.ones_like(s) for s, n in zip(sums.astype(np.float64), counts)]).reshape(-1)
    means[name] = mean.tolist()
    calls = -(-max(counts) // CHUNK_SIZE)
    dat += text(name) + struct.pack(f"<ii{mean.size}f", calls, mean.size, *(mean * calls))
dat += struct.pack("<i", CHUNKS) + text(DATASETS[-1])
(HERE / "imatrix.dat").write_bytes(dat)

out = {
    "note": f"What imatrix.gguf and imatrix.dat hold (numpy default_rng({SEED})). Made by make_imatrix.py.",
    "datasets": DATASETS,
    "chunk_count": CHUNKS,
    "chunk_size": CHUNK_SIZE,
    "sums": {name: sums.astype(np.float64).reshape(-1).tolist() for name, (sums, _) in entries.items()},
    "counts": {name: counts for name, (_, counts) in entries.items()},
    "means": means,
}
(HERE / "imatrix.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
