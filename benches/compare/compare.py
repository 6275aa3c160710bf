"""halfbyte beside llama.cpp on the same GGUF file, threads and tokens, in turns: A B A B ...

    cargo build --release
    python3 -m venv venv
    CMAKE_ARGS=-DGGML_NATIVE=ON venv/bin/pip install --no-binary llama-cpp-python -r benches/compare/requirements.txt
    venv/bin/python benches/compare/compare.py --model models/SmolLM2-135M-Instruct.Q4_1.gguf

Each pair is one run of `halfbyte bench` and one of llama.cpp, so the ratio of a pair holds when the machine's
speed drifts. Printed: tokens a second (median of all pairs) and the ratio halfbyte / llama.cpp, pair by pair
(median, least, most). llama.cpp runs with flash attention, its default f16 cache and the build's native flags.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import time

import llama_cpp


class LlamaCpp:
    """A loaded model of llama.cpp, timed through its C API so that no Python lies in the measured loop."""

    def __init__(self, path: str, threads: int, n_prompt: int, n_gen: int):
        llama_cpp.llama_backend_init()
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp can't load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = max(n_prompt, n_gen) + 8
        params.n_batch = params.n_ubatch = max(n_prompt, 1)
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(vocab)

    def _decode(self, tokens: list[int]) -> None:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(tokens))) != 0:
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)

    def _token(self, i: int) -> int:
        return (i * 2654435761 + 12345) % self.n_vocab

    def rate(self, n_prompt: int, n_gen: int) -> float:
        """Tokens a second of one prompt, or of single tokens one after the other."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        tokens = [self._token(i) for i in range(max(n_prompt, n_gen))]
        start = time.perf_counter()
        if n_prompt:
            self._decode(tokens)
        else:
            for token in tokens:
                self._decode([token])
        return len(tokens) / (time.perf_counter() - start)


def halfbyte_rate(args: argparse.Namespace, threads: int, n_prompt: int, n_gen: int) -> float:
    command = [args.halfbyte, "bench", "--model", args.model, "-t", str(threads)]
    command += ["-p", str(n_prompt), "-n", str(n_gen), "--reps", "1", "--json", *args.halfbyte_args.split()]
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return next(r["tokens_per_second"]["median"] for r in out["results"])


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--halfbyte", default="target/release/halfbyte")
    parser.add_argument("--halfbyte-args", default="", help="further arguments of `halfbyte bench`, e.g. '--isa avx2'")
    parser.add_argument("-t", "--threads", default="1,2")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()

    print("| work | threads | halfbyte, tokens/s | llama.cpp, tokens/s | ratio, pair by pair |")
    print("|---|---|---|---|---|")
    for threads in map(int, args.threads.split(",")):
        llama = LlamaCpp(args.model, threads, args.prompt, args.generate)
        for name, work in (("prompt", (args.prompt, 0)), ("decode", (0, args.generate))):
            llama.rate(*work)
            ours, theirs = [], []
            for _ in range(args.pairs):
                ours.append(halfbyte_rate(args, threads, *work))
                theirs.append(llama.rate(*work))
            ratios = [a / b for a, b in zip(ours, theirs)]
            print(f"| {name} {sum(work)} | {threads} | {spread(ours, 1)} | {spread(theirs, 1)} | {spread(ratios, 2)} |", flush=True)


if __name__ == "__main__":
    main()
