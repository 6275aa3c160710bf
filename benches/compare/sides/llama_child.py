"""llama.cpp on a GGUF file, in a process of its own, timed through its C API: no Python lies in what is timed.

    llama_child.py MODEL --threads T rates PROMPT GENERATE DEPTH
    llama_child.py MODEL --threads T first TEXT

`rates` prints the tokens a second in the form of `halfbyte bench --json`: of a prompt of PROMPT tokens in an empty
context, and of GENERATE single tokens after DEPTH others. `first` prints the seconds from a file that is not open to
the best token after TEXT. Both say how much memory the process had before the file was opened, since Python and its
packages are no part of llama.cpp.

Flash attention is on, keys and values are f16, the physical batch is 512: llama.cpp's own choices but for the first,
which makes it faster.
"""

import argparse
import ctypes
import json
import time

import llama_cpp

QUIET = llama_cpp.llama_log_callback(lambda *_: None)


def memory() -> dict[str, int]:
    """Bytes that this process has in memory: all, and those of no file; zeros where the system does not say."""
    fields = {"VmRSS": 0, "RssAnon": 0}
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name in fields:
                    fields[name] = int(value.split()[0]) * 1024
    except OSError:
        pass
    return {"resident": fields["VmRSS"], "anonymous": fields["RssAnon"]}


class LlamaCpp:
    """A loaded model with an empty context."""

    def __init__(self, path: str, threads: int, context: int):
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp can't load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context
        params.n_batch, params.n_ubatch = 2048, 512
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp can't make a context of {context} tokens")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def feed(self, tokens: list[int]) -> None:
        for start in range(0, len(tokens), 2048):
            part = tokens[start : start + 2048]
            array = (llama_cpp.llama_token * len(part))(*part)
            if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(part))) != 0:
                raise SystemExit("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)

    def keep(self, length: int) -> None:
        """Forgets all tokens but the first `length`."""
        if not llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self.context), 0, length, -1):
            raise SystemExit("llama_memory_seq_rm failed")

    def tokens(self, count: int) -> list[int]:
        """Spread over the vocabulary, the same every time."""
        return [(i * 2654435761 + 12345) % self.n_vocab for i in range(count)]

    def tokenize(self, text: str) -> list[int]:
        raw = text.encode()
        ids = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), True, False)
        if count < 1:
            raise SystemExit(f"llama.cpp can't tokenize {text!r}")
        return ids[:count]

    def best(self) -> int:
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        sampler = llama_cpp.llama_sampler_init_greedy()
        token = llama_cpp.llama_sampler_sample(sampler, self.context, -1) if logits else -1
        llama_cpp.llama_sampler_free(sampler)
        return token


def rates(path: str, threads: int, n_prompt: int, n_gen: int, depth: int) -> dict:
    llama = LlamaCpp(path, threads, max(n_prompt, depth + n_gen) + 8)
    # As `halfbyte bench` does, each test once for caches, page faults and clocks to settle.
    results = []
    if n_prompt:
        for _ in range(2):
            llama.keep(0)
            tokens = llama.tokens(n_prompt)
            start = time.perf_counter()
            llama.feed(tokens)
            seconds = time.perf_counter() - start
        results.append(dict(n_prompt=n_prompt, n_gen=0, tokens_per_second=dict(median=n_prompt / seconds)))
    if n_gen:
        # A prompt of as many tokens is there already.
        if depth and depth != n_prompt:
            llama.keep(0)
            llama.feed(llama.tokens(depth))
        for _ in range(2):
            llama.keep(depth)
            tokens = llama.tokens(depth + n_gen)[depth:]
            start = time.perf_counter()
            for token in tokens:
                llama.feed([token])
            seconds = time.perf_counter() - start
        results.append(dict(n_prompt=0, n_gen=n_gen, tokens_per_second=dict(median=n_gen / seconds)))
    return dict(results=results)


def first(path: str, threads: int, text: str) -> dict:
    start = time.perf_counter()
    llama = LlamaCpp(path, threads, 512)
    llama.feed(llama.tokenize(text))
    token = llama.best()
    return dict(seconds=time.perf_counter() - start, token=token)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    work = parser.add_subparsers(dest="work", required=True)
    command = work.add_parser("rates")
    for name in ("prompt", "generate", "depth"):
        command.add_argument(name, type=int)
    work.add_parser("first").add_argument("text")
    args = parser.parse_args()

    llama_cpp.llama_log_set(QUIET, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    before = memory()
    if args.work == "rates":
        said = rates(args.model, args.threads, args.prompt, args.generate, args.depth)
    else:
        said = first(args.model, args.threads, args.text)
    print(json.dumps(dict(version=llama_cpp.__version__, before=before, **said)))


if __name__ == "__main__":
    main()
