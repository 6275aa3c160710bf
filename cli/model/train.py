"""Train the tiny model: `python train.py --minutes 55`, from anywhere; results go to `target/model/`.

A Llama of 3.5 M parameters in float32 JAX on the CPU; AdamW; a cosine schedule over the elapsed share of the time box,
so that any machine ends at the bottom of it (and no two runs are equal to the bit, though batches and initial weights are
seeded). Parameters have their GGUF names and shapes (outputs, inputs) from the start. A running average of the weights
is checkpointed every two minutes: stop the run at any time and export what is there.
"""

import argparse
import json
import math
import os
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus

VOCAB, WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FF = 2048, 256, 4, 4, 2, 64, 704
CONTEXT, THETA, EPS = 512, 10000.0, 1e-5
END = "<|endoftext|>"

Params = dict[str, jax.Array]


def train_tokenizer(text: list[str]) -> Tokenizer:
    """Byte-level BPE with GPT-2's pre-tokenizer: all 256 bytes, learned merges, and one control token, id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def initial(key: jax.Array) -> Params:
    """Normal weights of deviation 0.02, less on the way into the residual stream; norms at one."""
    shapes = {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (WIDTH,),
            f"blk.{i}.attn_q.weight": (HEADS * HEAD_DIM, WIDTH),
            f"blk.{i}.attn_k.weight": (KV_HEADS * HEAD_DIM, WIDTH),
            f"blk.{i}.attn_v.weight": (KV_HEADS * HEAD_DIM, WIDTH),
            f"blk.{i}.attn_output.weight": (WIDTH, HEADS * HEAD_DIM),
            f"blk.{i}.ffn_norm.weight": (WIDTH,),
            f"blk.{i}.ffn_gate.weight": (FF, WIDTH),
            f"blk.{i}.ffn_up.weight": (FF, WIDTH),
            f"blk.{i}.ffn_down.weight": (WIDTH, FF),
        }
    params = {}
    for name, shape in shapes.items():
        key, sub = jax.random.split(key)
        into_residual = "attn_output" in name or "ffn_down" in name
        deviation = 0.02 / math.sqrt(2 * LAYERS) if into_residual else 0.02
        params[name] = jnp.ones(shape) if len(shape) == 1 else deviation * jax.random.normal(sub, shape)
    return params


def rms_norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPS) * weight


def rope(x: jax.Array) -> jax.Array:
    """Rotate the adjacent pairs (2i, 2i + 1) of each head; x is (batch, time, heads, HEAD_DIM)."""
    angles = jnp.arange(x.shape[1])[:, None] * THETA ** (-jnp.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    cos, sin = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def attention(p: Params, layer: str, x: jax.Array) -> jax.Array:
    """Causal attention; query head h reads key head h // (HEADS / KV_HEADS).

    The query heads that share a key head are stacked into one matrix: XLA's CPU backend is fast on 3-d products only.
    """
    batch, length, _ = x.shape
    group = HEADS // KV_HEADS

    def heads(name: str, count: int) -> jax.Array:
        return (x @ p[f"{layer}attn_{name}.weight"].T).reshape(batch, length, count, HEAD_DIM)

    def by_head(y: jax.Array) -> jax.Array:
        return y.transpose(0, 2, 1, 3).reshape(batch * KV_HEADS, -1, HEAD_DIM)

    q, k, v = by_head(rope(heads("q", HEADS))), by_head(rope(heads("k", KV_HEADS))), by_head(heads("v", KV_HEADS))
    scores = (q @ k.transpose(0, 2, 1) / math.sqrt(HEAD_DIM)).reshape(batch * KV_HEADS, group, length, length)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    out = jax.nn.softmax(scores).reshape(batch * KV_HEADS, group * length, length) @ v
    out = out.reshape(batch, HEADS, length, HEAD_DIM).transpose(0, 2, 1, 3)
    return out.reshape(batch, length, HEADS * HEAD_DIM) @ p[layer + "attn_output.weight"].T


def loss(p: Params, tokens: jax.Array) -> jax.Array:
    """Mean nats per predicted token of windows (batch, time + 1)."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = p["token_embd.weight"][inputs]
    for i in range(LAYERS):
        layer = f"blk.{i}."
        x = x + attention(p, layer, rms_norm(x, p[layer + "attn_norm.weight"]))
        h = rms_norm(x, p[layer + "ffn_norm.weight"])
        gate = jax.nn.silu(h @ p[layer + "ffn_gate.weight"].T)
        x = x + (gate * (h @ p[layer + "ffn_up.weight"].T)) @ p[layer + "ffn_down.weight"].T
    logits = rms_norm(x, p["output_norm.weight"]) @ p["token_embd.weight"].T
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


@partial(jax.jit, donate_argnums=(0, 1, 2, 3))
def update(
    p: Params, m: Params, v: Params, average: Params, tokens: jax.Array, step: float, rate: float
) -> tuple[Params, Params, Params, Params, jax.Array]:
    """One AdamW step (betas 0.9 and 0.99, decay 0.1 on matrices, gradient norm at most 1) and the running average."""
    value, g = jax.value_and_grad(loss)(p, tokens)
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / norm), g)
    m = jax.tree.map(lambda a, x: 0.9 * a + 0.1 * x, m, g)
    v = jax.tree.map(lambda a, x: 0.99 * a + 0.01 * x * x, v, g)
    m_scale, v_scale = 1 / (1 - 0.9**step), 1 / (1 - 0.99**step)

    def new(w: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        decay = 0.1 * w if w.ndim == 2 else 0.0
        return w - rate * (a * m_scale / (jnp.sqrt(b * v_scale) + 1e-8) + decay)

    p = jax.tree.map(new, p, m, v)
    keep = jnp.minimum(0.995, step / (step + 10))
    return p, m, v, jax.tree.map(lambda a, w: keep * a + (1 - keep) * w, average, p), value


def windows(ids: np.ndarray, length: int) -> np.ndarray:
    """Consecutive windows that do not overlap; what is left over at the end is dropped."""
    return ids[: len(ids) // length * length].reshape(-1, length)


def save(params: Params, log: dict[str, float]) -> None:
    """Replace the checkpoint in one step, so that a reader never sees half of it."""
    arrays: dict[str, Any] = {k: np.asarray(w) for k, w in params.items()}
    np.savez(corpus.WORK / "new.npz", **arrays)
    os.replace(corpus.WORK / "new.npz", corpus.WORK / "checkpoint.npz")
    (corpus.WORK / "log.json").write_text(json.dumps(log) + "\n")


def main() -> None:
    args = argparse.ArgumentParser(description="Train the tiny model.")
    args.add_argument("--minutes", type=float, default=55)
    args.add_argument("--tokens", type=int, default=2048, help="tokens a step")
    args.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    train_text, validation_text = corpus.load()
    tokenizer = train_tokenizer(train_text)
    tokenizer.save(str(corpus.WORK / "tokenizer.json"))
    train_ids = np.array([i for e in tokenizer.encode_batch(train_text) for i in [0, *e.ids]], np.int32)
    joined = "\n\n".join(validation_text) + "\n"
    held_out = windows(np.array(tokenizer.encode(joined).ids, np.int32), CONTEXT)
    print(f"{len(train_ids)} training tokens, {held_out.size} for validation", flush=True)

    rng = np.random.default_rng(opt.seed)
    p = initial(jax.random.key(opt.seed))
    m, v, average = (jax.tree.map(jnp.zeros_like, p) for _ in range(3))
    evaluate = jax.jit(loss)
    start, reported, step, mean = time.time(), 0.0, 0, 0.0
    while (share := (time.time() - start) / (opt.minutes * 60)) < 1:
        step += 1
        rate = opt.rate * min(1.0, step / 100) * (0.525 + 0.475 * math.cos(math.pi * share))
        length = CONTEXT // 2 if share < 0.5 else CONTEXT  # short windows are cheaper and enough at first
        starts = rng.integers(0, len(train_ids) - length, opt.tokens // length)
        batch = np.stack([train_ids[s : s + length + 1] for s in starts])
        p, m, v, average, value = update(p, m, v, average, batch, float(step), rate)
        mean += (float(value) - mean) / min(step, 100)
        if step == 20 or share * opt.minutes - reported >= 2:
            reported = share * opt.minutes
            val = float(np.mean([evaluate(average, held_out[i : i + 4]) for i in range(0, 40, 4)]))
            log = {"minutes": reported, "steps": step, "tokens": step * opt.tokens, "train": mean, "validation_40": val}
            save(average, log)
            print(" ".join(f"{k} {x:.4g}" for k, x in log.items()), flush=True)
    val = float(np.mean([evaluate(average, w[None]) for w in held_out]))
    save(average, {"minutes": opt.minutes, "steps": step, "tokens": step * opt.tokens, "train": mean, "validation": val})
    print(f"{step} steps, train {mean:.4f}, validation {val:.4f} nats per token")


if __name__ == "__main__":
    main()
