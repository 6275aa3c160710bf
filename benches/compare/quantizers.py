"""halfbyte's block quantizers beside llama.cpp's on the same rows, one thread each, in turns: A B A B ...

    cargo build --release -p halfbyte-benches --example quantizers
    python3 -m venv venv
    CMAKE_ARGS=-DGGML_NATIVE=ON venv/bin/pip install --no-binary llama-cpp-python -r benches/compare/requirements.txt
    venv/bin/python benches/compare/quantizers.py

The rows are Gaussian, the importances of the columns log-normal; rows and blocks fit in the cache. Each pair is a tenth
of a second of either, so the ratio of a pair holds when the machine's speed drifts. Printed: millions of weights a second
(median of all pairs), their ratio halfbyte / llama.cpp pair by pair (median, least, most), and how the squared errors of
what was written compare, decoded by the gguf package: weighted by the importances where these were given to both.

llama.cpp's quantizers are those of libggml-base, called with `ggml_quantize_chunk`. Its build gives instruction sets
beyond the baseline (SSE2 on x86-64) only to its CPU backend, even with native flags, so they use no more than that.
"""

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType, dequantize

ROWS, COLUMNS, SEED = 64, 4096, 20241130
LEAST_TIME = 0.1

# ours, the type, whether llama.cpp gets the importances too
PAIRS = [
    ("q4_row_max", "Q4_0", False),
    ("q4_0_fit", "Q4_0", False),
    ("q4_0_fit/avx2", "Q4_0", False),
    ("q4_row_fit_weighted", "Q4_0", True),
    ("q4_1_row", "Q4_1", False),
    ("q4_1_row_weighted", "Q4_1", True),
    ("q8_row", "Q8_0", False),
    ("q8_row_fit", "Q8_0", False),
]

BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}


class Ggml:
    """llama.cpp's quantizers, timed around calls of a whole matrix, some milliseconds each."""

    def __init__(self, x: np.ndarray, importance: np.ndarray):
        base = ctypes.CDLL(str(next(Path(llama_cpp.__file__).parent.glob("lib/libggml-base.*"))))
        self.quantize = base.ggml_quantize_chunk
        self.quantize.restype = ctypes.c_size_t
        pointer = ctypes.c_void_p
        size = ctypes.c_int64
        self.quantize.argtypes = [ctypes.c_int, pointer, pointer, size, size, size, pointer]
        self.x, self.importance = x, importance

    def measure(self, kind: str, weighted: bool) -> tuple[float, bytes]:
        out = np.zeros(self.x.size // 32 * BYTES[kind], dtype=np.uint8)
        importance = self.importance.ctypes.data if weighted else None
        rounds, start = 0, time.perf_counter()
        while time.perf_counter() - start < LEAST_TIME:
            n = self.quantize(
                GGMLQuantizationType[kind], self.x.ctypes.data, out.ctypes.data, 0, *self.x.shape, importance
            )
            assert n == out.size
            rounds += 1
        return rounds * self.x.size / (time.perf_counter() - start), out.tobytes()


class Halfbyte:
    """Our quantizers, in a process of their own that answers line by line."""

    def __init__(self, program: str, folder: Path, x: np.ndarray, importance: np.ndarray):
        x.astype("<f4").tofile(folder / "x")
        importance.astype("<f4").tofile(folder / "importance")
        self.out = folder / "out"
        command = [program, str(folder / "x"), str(folder / "importance")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, name: str) -> tuple[float, bytes]:
        self.process.stdin.write(f"{name} {self.out}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"no answer for {name}")
        return float(answer), self.out.read_bytes()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} .. {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halfbyte", default="target/release/examples/quantizers")
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()

    rng = np.random.default_rng(SEED)
    x = np.ascontiguousarray(0.02 * rng.standard_normal((ROWS, COLUMNS)), dtype=np.float32)
    importance = np.ascontiguousarray(rng.lognormal(0.0, 1.0, COLUMNS), dtype=np.float32)

    def error(kind: str, blocks: bytes, weighted: bool) -> float:
        data = np.frombuffer(blocks, dtype=np.uint8).reshape(ROWS, -1)
        squares = (dequantize(data, GGMLQuantizationType[kind]).astype(np.float64) - x) ** 2
        return float((squares * importance if weighted else squares).sum())

    with tempfile.TemporaryDirectory() as folder:
        ggml, halfbyte = Ggml(x, importance), Halfbyte(args.halfbyte, Path(folder), x, importance)
        print("| halfbyte | llama.cpp | halfbyte, M weights/s | llama.cpp, M weights/s | ratio, pair by pair | squared error, ratio |")
        print("|---|---|---|---|---|---|")
        for name, kind, weighted in PAIRS:
            halfbyte.measure(name), ggml.measure(kind, weighted)
            ours, theirs = [], []
            for _ in range(args.pairs):
                rate, our_blocks = halfbyte.measure(name)
                ours.append(rate / 1e6)
                rate, their_blocks = ggml.measure(kind, weighted)
                theirs.append(rate / 1e6)
            ratios = [a / b for a, b in zip(ours, theirs)]
            errors = [error(kind, blocks, weighted) for blocks in (our_blocks, their_blocks)]
            same = " (same bytes)" if our_blocks == their_blocks else ""
            print(
                f"| {name} | {kind}{' with importances' * weighted} | {statistics.median(ours):.0f} "
                f"| {statistics.median(theirs):.0f} | {spread(ratios)} | {errors[0] / errors[1]:.4f}{same} |",
                flush=True,
            )
        halfbyte.close()


if __name__ == "__main__":
    main()
