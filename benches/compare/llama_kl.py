"""What rounding activations does to llama.cpp's predictions, and how many questions get recorded replies.

    python3 -m venv venv
    CMAKE_ARGS=-DGGML_NATIVE=ON venv/bin/pip install --no-binary llama-cpp-python -r benches/compare/requirements.txt
    venv/bin/python benches/compare/llama_kl.py Q4_1.gguf F32.gguf windows.json --questions goldens/questions.json

`cargo xtask activations --llama venv/bin/python` runs it. F32.gguf has the weights of the first file, decoded, so that
llama.cpp multiplies by them without rounding anything. windows.json is a list of token ids and of the first of them that
is scored, `[{"ids": [...], "first_scored": 257}, ...]`; every window starts from an empty context. Keys and values are f32
without flash attention, for both files. Printed is one line of JSON, in the names of `halfbyte kl --json`.
"""

import argparse
import ctypes
import json

import llama_cpp
import numpy as np

QUIET = llama_cpp.llama_log_callback(lambda *_: None)
# Tokens of a recorded reply at most, without the one that ends it.
REPLY = 30


class LlamaCpp:
    """A loaded model with an empty context."""

    def __init__(self, path: str, threads: int, context: int):
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp can't load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = context
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp can't make a context of {context} tokens")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.batch = llama_cpp.llama_batch_init(context, 0, 1)
        self.length = 0

    def forget(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        self.length = 0

    def logits(self, ids: list[int], first: int) -> np.ndarray:
        """Feeds `ids`; the logits after each of them from index `first` on, one row a token."""
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i] = token
            self.batch.pos[i] = self.length + i
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = i >= first
        if llama_cpp.llama_decode(self.context, self.batch) != 0:
            raise SystemExit("llama_decode failed")
        self.length += len(ids)
        rows = np.empty((len(ids) - first, self.n_vocab), dtype=np.float32)
        for row, i in zip(rows, range(first, len(ids))):
            row[:] = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, i), (self.n_vocab,))
        return rows

    def reply(self, prompt: list[int]) -> tuple[list[int], bool]:
        """The likeliest tokens after `prompt`, at most REPLY, and whether the model ended the reply by then."""
        self.forget()
        best, ids = int(self.logits(prompt, len(prompt) - 1)[0].argmax()), []
        while len(ids) < REPLY:
            if llama_cpp.llama_vocab_is_eog(self.vocab, best):
                return ids, True
            ids.append(best)
            best = int(self.logits([best], 0)[0].argmax())
        return ids, False


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def compare(model: LlamaCpp, base: LlamaCpp, windows: list[dict]) -> dict:
    kl, losses, base_losses, same = [], [], [], 0
    for window in windows:
        ids, first = window["ids"], window["first_scored"]
        # A token is predicted by the logits after the one before it.
        rows = []
        for side in (model, base):
            side.forget()
            rows.append(side.logits(ids[:-1], first - 1))
        for token, logits, base_logits in zip(ids[first:], *rows):
            q, p = log_softmax(logits), log_softmax(base_logits)
            kl.append(float((np.exp(p) * (p - q)).sum()))
            losses.append(-q[token])
            base_losses.append(-p[token])
            same += int(logits.argmax() == base_logits.argmax())
    return dict(
        base=dict(perplexity=float(np.exp(np.mean(base_losses)))),
        model=dict(perplexity=float(np.exp(np.mean(losses)))),
        tokens=len(kl),
        kl=dict(mean=float(np.mean(kl)), p99=float(np.quantile(kl, 0.99)), max=max(kl)),
        same_top_percent=100 * same / len(kl),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("base", help="the same weights as F32")
    parser.add_argument("windows", help="JSON")
    parser.add_argument("--questions", help="JSON with the ids of prompts and replies")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()

    llama_cpp.llama_log_set(QUIET, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    with open(args.windows, encoding="utf-8") as file:
        windows = json.load(file)
    if not windows:
        raise SystemExit(f"{args.windows}: expected at least one window")
    context = max(512, *(len(window["ids"]) for window in windows))
    model = LlamaCpp(args.model, args.threads, context)
    said = compare(model, LlamaCpp(args.base, args.threads, context), windows)
    if args.questions:
        with open(args.questions, encoding="utf-8") as file:
            questions = json.load(file)
        wanted = [(q["reply"], len(q["reply"]) < REPLY) for q in questions]
        said["equal_replies"] = sum(model.reply(q["ids"]) == want for q, want in zip(questions, wanted))
    print(json.dumps(dict(version=llama_cpp.__version__, **said)))


if __name__ == "__main__":
    main()
