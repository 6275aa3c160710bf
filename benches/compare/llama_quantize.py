"""llama.cpp's quantizer on a GGUF file, every matrix in one type, with or without an imatrix.

    python3 -m venv venv
    CMAKE_ARGS=-DGGML_NATIVE=ON venv/bin/pip install --no-binary llama-cpp-python -r benches/compare/requirements.txt
    venv/bin/python benches/compare/llama_quantize.py F32.gguf Q4_0.gguf --type q4_0 --imatrix F32.imatrix.gguf

`cargo xtask quantizers --llama venv/bin/python` runs it. The imatrix is a GGUF one, as `halfbyte imatrix` writes it;
llama.cpp's library takes what its tool makes of such a file, the mean squares of each matrix, by name. Printed is one
line of JSON: the seconds that `llama_model_quantize` took, reading and writing included, and the package's version.
"""

import argparse
import ctypes
import json
import sys
import time

import llama_cpp
import numpy as np

TYPES = {"q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1}
SUMS, COUNTS = ".in_sum2", ".counts"
ERROR_LEVEL = 4


def mean_squares(path: str) -> dict[str, np.ndarray]:
    """The mean squared activation of each column, by the matrix's name."""
    from gguf import GGUFReader

    tensors = {tensor.name: np.array(tensor.data, dtype=np.float64) for tensor in GGUFReader(path).tensors}
    means = {}
    for name, sums in tensors.items():
        if not name.endswith(SUMS):
            continue
        matrix = name.removesuffix(SUMS)
        counts = tensors[matrix + COUNTS].reshape(-1)
        if counts.size != 1 or counts[0] <= 0:
            raise SystemExit(f"{path}: {matrix}: expected one count of rows above 0, got {counts}")
        means[matrix] = np.ascontiguousarray(sums.reshape(-1) / counts[0], dtype=np.float32)
    if not means:
        raise SystemExit(f"{path} has no {SUMS} tensors: it is no imatrix in GGUF")
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--type", choices=TYPES, required=True)
    parser.add_argument("--imatrix")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()

    llama_cpp.llama_backend_init()

    @llama_cpp.llama_log_callback
    def log(level, text, _):
        # The rest is a line for each tensor.
        if level == ERROR_LEVEL:
            print(text.decode(errors="replace"), end="", file=sys.stderr)

    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = TYPES[args.type]
    params.pure = True
    params.nthread = args.threads
    if args.imatrix:
        means = mean_squares(args.imatrix)
        entry = llama_cpp.llama_model_imatrix_data
        # An entry without a name ends the array.
        entries = (entry * (len(means) + 1))()
        for i, (name, values) in enumerate(means.items()):
            entries[i].name = name.encode()
            entries[i].data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            entries[i].size = values.size
        params.imatrix = entries

    start = time.perf_counter()
    code = llama_cpp.llama_model_quantize(args.input.encode(), args.output.encode(), ctypes.byref(params))
    if code != 0:
        raise SystemExit(f"llama_model_quantize of {args.input} failed with {code}")
    print(json.dumps({"seconds": time.perf_counter() - start, "version": llama_cpp.__version__}))


if __name__ == "__main__":
    main()
