"""Makes k_quants.json: random Q4_K and Q6_K super-blocks and the weights that the `gguf` Python package
(`pip install gguf numpy`) decodes from them.

Run from this directory: python make_k_quants.py
"""

import json
from importlib.metadata import version

import numpy as np
from gguf import GGMLQuantizationType, dequantize

SEED = 20240607
BLOCKS = 4
rng = np.random.default_rng(SEED)


def f16_bytes(low, high):
    """BLOCKS positive or negative f16 values of magnitude low..high, as two bytes each."""
    magnitude = rng.uniform(low, high, BLOCKS)
    return (magnitude * rng.choice([-1, 1], BLOCKS)).astype(np.float16).view(np.uint8).reshape(BLOCKS, 2)


def random_bytes(n):
    return rng.integers(0, 256, (BLOCKS, n), dtype=np.uint8)


# Every bit pattern of scales and codes is valid; only the f16 units have to be finite.
blocks = {
    "Q4_K": np.hstack([f16_bytes(1e-5, 1e-2), f16_bytes(1e-5, 1e-2), random_bytes(12), random_bytes(128)]),
    "Q6_K": np.hstack([random_bytes(128), random_bytes(64), random_bytes(16), f16_bytes(1e-5, 1e-2)]),
}

out = {
    "note": f"Random blocks (numpy default_rng({SEED})), bytes in hex, and the f32 weights decoded by the gguf "
    f"Python package {version('gguf')}, as the hex of their little-endian bytes. Made by make_k_quants.py."
}
for name, data in blocks.items():
    weights = dequantize(data, GGMLQuantizationType[name]).astype("<f4")
    assert weights.shape == (BLOCKS, 256) and np.isfinite(weights).all()
    out[name] = [{"bytes": b.tobytes().hex(), "weights": w.tobytes().hex()} for b, w in zip(data, weights)]

with open("k_quants.json", "w") as file:
    json.dump(out, file, indent=1)
    file.write("\n")
