"""A float64 twin of the runner for this one model: everything is read back from the GGUF file, nothing from the checkpoint.

`reference.py MODEL --loss` gives the loss on validation.txt, `--sample PROMPT` 120 tokens of text at temperature 0.8, and
`--goldens OUT.json` logits that an implementation must reproduce.
"""

import argparse
import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

PROMPTS = ["It is a truth universally acknowledged, that", "Call me Ishmael. The whale", '"My dear Emma," said she,\n\n"I am']
WINDOW = 512


class Model:
    """Weights in float64 and the tokenizer of a GGUF file of architecture `llama` with tied embeddings."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.field = {name: f.contents() for name, f in reader.fields.items()}
        self.weight = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        self.tokens: list[str] = self.field["tokenizer.ggml.tokens"]
        vocab = {token: i for i, token in enumerate(self.tokens)}
        merges = [tuple(m.split(" ")) for m in self.field["tokenizer.ggml.merges"]]
        self.tokenizer = Tokenizer(models.BPE(vocab, merges))
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        self.tokenizer.decoder = decoders.ByteLevel()
        self.tokenizer.add_special_tokens([AddedToken(self.tokens[0], special=True)])

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        eps = self.field["llama.attention.layer_norm_rms_epsilon"]
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * self.weight[name]

    def heads(self, x: np.ndarray, name: str, rotate: bool) -> np.ndarray:
        """Project x (time, width) to (head, time, head_dim); `rotate` applies rope to adjacent pairs."""
        size = self.field["llama.rope.dimension_count"]
        y = (x @ self.weight[name].T).reshape(len(x), -1, size).transpose(1, 0, 2)
        if not rotate:
            return y
        angle = np.arange(len(x))[:, None] * self.field["llama.rope.freq_base"] ** (-np.arange(0, size, 2) / size)
        pairs = (y[..., 0::2] + 1j * y[..., 1::2]) * np.exp(1j * angle)
        return np.stack([pairs.real, pairs.imag], axis=-1).reshape(y.shape)

    def logits(self, ids: list[int]) -> np.ndarray:
        """Logits (time, vocab) of a sequence that starts at position 0."""
        x = self.weight["token_embd.weight"][ids]
        future = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
        for i in range(self.field["llama.block_count"]):
            b = f"blk.{i}."
            h = self.norm(x, b + "attn_norm.weight")
            q, k = self.heads(h, b + "attn_q.weight", True), self.heads(h, b + "attn_k.weight", True)
            v = self.heads(h, b + "attn_v.weight", False)
            k, v = (np.repeat(y, len(q) // len(y), axis=0) for y in (k, v))
            scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]) + future
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = scores / scores.sum(axis=-1, keepdims=True) @ v
            x = x + mixed.transpose(1, 0, 2).reshape(len(ids), -1) @ self.weight[b + "attn_output.weight"].T
            h = self.norm(x, b + "ffn_norm.weight")
            gate, up = h @ self.weight[b + "ffn_gate.weight"].T, h @ self.weight[b + "ffn_up.weight"].T
            x = x + gate / (1 + np.exp(-gate)) * up @ self.weight[b + "ffn_down.weight"].T
        return self.norm(x, "output_norm.weight") @ self.weight["token_embd.weight"].T


def logsumexp(x: np.ndarray) -> np.ndarray:
    top = x.max(axis=-1)
    return top + np.log(np.exp(x - top[..., None]).sum(axis=-1))


def validation_loss(model: Model, text: str) -> str:
    """Windows of 512 tokens that do not overlap, each from an empty cache; its first token is given, 511 are scored."""
    ids = model.tokenizer.encode(text).ids
    total, scored, size = 0.0, 0, 0
    for at in range(0, len(ids) - WINDOW + 1, WINDOW):
        window = ids[at : at + WINDOW]
        logits = model.logits(window[:-1])
        total += float(np.sum(logsumexp(logits) - logits[np.arange(WINDOW - 1), window[1:]]))
        scored += WINDOW - 1
        size += sum(len(model.tokens[i]) for i in window[1:])  # one character of a token is one byte
    return f"{total / scored:.4f} nats per token, {total / size:.4f} per byte ({scored} tokens, {size} bytes)"


def sample(model: Model, prompt: str, count: int = 120, temperature: float = 0.8) -> str:
    rng = np.random.default_rng(1)
    ids = model.tokenizer.encode(prompt).ids
    for _ in range(count):
        last = model.logits(ids)[-1] / temperature
        ids.append(int(rng.choice(len(last), p=np.exp(last - logsumexp(last)))))
    return model.tokenizer.decode(ids)


def golden(model: Model, prompt: str) -> dict:
    """Top ten logits, logsumexp and norm at each position, and 24 greedy tokens with the lead of each over the second."""
    ids = model.tokenizer.encode(prompt).ids
    positions = []
    for row in model.logits(ids):
        top = np.argsort(-row, kind="stable")[:10]
        positions.append(
            {
                "top_ids": top.tolist(),
                "top_logits": row[top].round(5).tolist(),
                "logsumexp": round(float(logsumexp(row)), 5),
                "l2": round(float(np.linalg.norm(row)), 4),
            }
        )
    text, gaps = list(ids), []
    for _ in range(24):
        row = model.logits(text)[-1]
        second, first = np.sort(row)[-2:]
        text.append(int(row.argmax()))
        gaps.append(round(float(first - second), 4))
    return {"prompt": prompt, "ids": ids, "positions": positions, "greedy_24": text[len(ids) :], "greedy_gaps": gaps}


def main() -> None:
    args = argparse.ArgumentParser(description="Run the tiny model in float64.")
    args.add_argument("model", type=Path)
    args.add_argument("--loss", action="store_true")
    args.add_argument("--sample", metavar="PROMPT")
    args.add_argument("--goldens", type=Path)
    opt = args.parse_args()

    model = Model(opt.model)
    if opt.loss:
        text = (Path(__file__).parent / "validation.txt").read_text(encoding="utf-8")
        print(validation_loss(model, text))
    if opt.sample:
        print(sample(model, opt.sample))
    if opt.goldens:
        digest = hashlib.sha256(opt.model.read_bytes()).hexdigest()
        note = f"{opt.model.name}, sha256 {digest}, all arithmetic in float64 from the stored weights"
        opt.goldens.write_text(json.dumps({"model": note, "completions": [golden(model, p) for p in PROMPTS]}) + "\n")


if __name__ == "__main__":
    main()
