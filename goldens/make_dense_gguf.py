"""Small random GGUF files of dense architectures, and their logits by llama.cpp.

    pip install gguf==0.19.0 llama-cpp-python==0.3.36 numpy
    python goldens/make_dense_gguf.py

Writes goldens/dense_<case>.gguf (F32, which llama.cpp multiplies without rounding activations; no tokenizer) and goldens/dense_gguf.json: for each case the token ids,
the room of the session and the logits after each token, with an f32 KV cache and without flash attention. Rooms are
multiples of 256, which llama.cpp rounds them up to. llama.cpp takes GELU from a table of f16, so the logits of gemma
models are computed here, in float64, and have to be within 1e-2 of llama.cpp's.
"""

import ctypes
import json
import zlib
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

HERE = Path(__file__).parent
VOCAB, WIDTH, FEED_FORWARD = 48, 32, 32
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
IDS = [5, 17, 3, 40, 41, 41, 0, 27, 12, 45, 33, 8, 2, 19, 19, 36, 7, 30, 1, 22, 44, 11, 25, 6]

BEFORE, AFTER = ["attn_norm", "ffn_norm"], ["post_attention_norm", "post_ffw_norm"]
SPLIT = [("attn_q", HEADS * HEAD_DIM), ("attn_k", KV_HEADS * HEAD_DIM), ("attn_v", KV_HEADS * HEAD_DIM)]
FUSED = [("attn_qkv", (HEADS + 2 * KV_HEADS) * HEAD_DIM)]
GATED = [("ffn_gate", FEED_FORWARD), ("ffn_up", FEED_FORWARD)]
STACKED = [("ffn_up", 2 * FEED_FORWARD)]
HEAD_NORMS = {"attn_q_norm": HEAD_DIM, "attn_k_norm": HEAD_DIM}
ALL_NORMS = {"attn_q_norm": HEADS * HEAD_DIM, "attn_k_norm": KV_HEADS * HEAD_DIM}


class Case:
    def __init__(self, arch, layers, norms, inputs, hidden, keys, *, head_norms=None, tied=True, bias=(), extra=None,
                 room=256):
        self.arch, self.layers, self.norms, self.inputs, self.hidden = arch, layers, norms, inputs, hidden
        self.keys, self.head_norms, self.tied, self.bias = keys, head_norms or {}, tied, bias
        self.extra, self.room = extra or {}, room


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}
PARTIAL = {"rope.dimension_count": HEAD_DIM // 2}
FACTORS = {"rope_factors_short.weight": [1.0, 1.1], "rope_factors_long.weight": [1.3, 5.5]}
LONG = {"rope.scaling.original_context_length": 256, "rope.scaling.attn_factor": 1.19, "context_length": 1024}
CASES = {
    "gemma": Case("gemma", 2, BEFORE, SPLIT, GATED, {}),
    "gemma2": Case("gemma2", 3, BEFORE + AFTER, SPLIT, GATED, {
        "attention.sliding_window": 6, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 12.0,
    }),
    "gemma3": Case("gemma3", 7, BEFORE + AFTER, SPLIT, GATED, {
        "attention.sliding_window": 6, "rope.freq_base": 100000.0, "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    }, head_norms=HEAD_NORMS),
    "phi3_short": Case("phi3", 2, BEFORE, FUSED, STACKED, LONG | PARTIAL, extra=FACTORS, tied=False),
    "phi3_long": Case("phi3", 2, BEFORE, FUSED, STACKED, LONG | PARTIAL, extra=FACTORS, tied=False, room=512),
    "smollm3": Case("smollm3", 5, BEFORE, SPLIT, GATED, {}),
    "granite": Case("granite", 2, BEFORE, SPLIT, GATED, {
        "embedding_scale": 6.0, "attention.scale": 0.2, "residual_scale": 0.4, "logit_scale": 2.5,
    }, bias=["attn_q", "attn_k", "attn_v", "attn_output"]),
    "granite_nope": Case("granite", 1, BEFORE, SPLIT, GATED, {"logit_scale": 2.5, "rope.scaling.finetuned": False}),
    "olmo2": Case("olmo2", 2, AFTER, SPLIT, GATED, {}, head_norms=ALL_NORMS, tied=False),
    "olmo3": Case("olmo2", 5, AFTER, SPLIT, GATED, YARN | {"attention.sliding_window": 6}, head_norms=ALL_NORMS,
                  tied=False),
    "glm4": Case("glm4", 2, BEFORE + AFTER, SPLIT, STACKED, PARTIAL, tied=False, bias=["attn_q", "attn_k", "attn_v"]),
    "mistral3": Case("mistral3", 2, BEFORE, SPLIT, GATED, YARN | {
        "rope.scaling.original_context_length": 8, "rope.scaling.yarn_log_multiplier": 1.0,
        "attention.temperature_scale": 0.3, "rope.freq_base": 1000.0,
    }, tied=False),
    "seed_oss": Case("seed_oss", 2, ["attn_norm", "post_attention_norm"], SPLIT, GATED, YARN, tied=False,
                     bias=["attn_q", "attn_k", "attn_v"]),
    "exaone": Case("exaone", 2, BEFORE, SPLIT, GATED, {}, extra={"rope_freqs.weight": [1.0, 1.5, 3.0, 8.0]}),
    "exaone4": Case("exaone4", 2, AFTER, SPLIT, GATED, {}, head_norms=HEAD_NORMS, tied=False),
}


def write(name: str, rng: np.random.Generator) -> tuple[Path, dict[str, np.ndarray]]:
    case = CASES[name]
    path = HERE / f"dense_{name}.gguf"
    w = gguf.GGUFWriter(path, case.arch)
    tensors = {}

    def add_tensor(tensor: str, drawn: np.ndarray) -> None:
        w.add_tensor(tensor, drawn)
        tensors[tensor] = drawn.astype(np.float64)

    w.add_tokenizer_model("none")
    keys = {
        "context_length": 256, "embedding_length": WIDTH, "block_count": case.layers, "vocab_size": VOCAB,
        "feed_forward_length": FEED_FORWARD, "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM, "rope.dimension_count": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    for key, value in (keys | case.keys).items():
        add = {int: w.add_uint32, float: w.add_float32, str: w.add_string, bool: w.add_bool}[type(value)]
        add(f"{case.arch}.{key}", value)

    def values(*shape: int, around: float = 0.0, spread: float = 0.25) -> np.ndarray:
        # Few bits a value: the file is exact in f32 whoever reads it.
        drawn = np.round(spread * rng.standard_normal(shape) * 64) / 64
        return np.clip(around + drawn, -1.96875, 1.96875).astype(np.float32)

    def matrix(tensor: str, rows: int, cols: int, spread: float = 0.25) -> None:
        add_tensor(tensor, values(rows, cols, spread=spread))

    matrix("token_embd.weight", VOCAB, WIDTH, 0.6)
    for i in range(case.layers):
        blk = f"blk.{i}."
        for norm in case.norms:
            add_tensor(f"{blk}{norm}.weight", values(WIDTH, around=1.0))
        for norm, n in case.head_norms.items():
            add_tensor(f"{blk}{norm}.weight", values(n, around=1.0))
        for part, rows in case.inputs + case.hidden:
            matrix(f"{blk}{part}.weight", rows, WIDTH)
        matrix(f"{blk}attn_output.weight", WIDTH, HEADS * HEAD_DIM)
        matrix(f"{blk}ffn_down.weight", WIDTH, FEED_FORWARD)
        rows = dict(case.inputs) | {"attn_output": WIDTH}
        for part in case.bias:
            add_tensor(f"{blk}{part}.bias", values(rows[part]))
    add_tensor("output_norm.weight", values(WIDTH, around=1.0))
    if not case.tied:
        matrix("output.weight", VOCAB, WIDTH)
    for tensor, factors in case.extra.items():
        add_tensor(tensor, np.array(factors, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path, tensors


def gemma(case: Case, t: dict[str, np.ndarray]) -> np.ndarray:
    """The logits after each token of a gemma model, in float64."""
    n, positions = len(IDS), np.arange(len(IDS))
    window = case.keys.get("attention.sliding_window")

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * t[f"{name}.weight"]

    def cap(x: np.ndarray, key: str) -> np.ndarray:
        bound = case.keys.get(key)
        return x if bound is None else bound * np.tanh(x / bound)

    def rotated(x: np.ndarray, windowed: bool) -> np.ndarray:
        own = case.arch == "gemma3" and windowed
        base = 10000.0 if own else case.keys.get("rope.freq_base", 10000.0)
        scale = 1.0 if own else case.keys.get("rope.scaling.factor", 1.0)
        angles = positions[:, None] * base ** (-2.0 * np.arange(HEAD_DIM // 2) / HEAD_DIM) / scale
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    x = t["token_embd.weight"][IDS] * np.sqrt(WIDTH)
    for i in range(case.layers):
        blk = f"blk.{i}."
        windowed = window is not None and (i + 1) % {"gemma2": 2, "gemma3": 6}[case.arch] != 0
        h = norm(x, blk + "attn_norm")
        q, k, v = ((h @ t[f"{blk}{part}.weight"].T).reshape(n, -1, HEAD_DIM) for part, _ in SPLIT)
        if case.head_norms:
            q, k = norm(q, blk + "attn_q_norm"), norm(k, blk + "attn_k_norm")
        q, k = rotated(q, windowed), rotated(k, windowed)
        k, v = (np.repeat(kv, HEADS // KV_HEADS, axis=1) for kv in (k, v))
        scores = cap(np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD_DIM), "attn_logit_softcapping")
        distance = positions[:, None] - positions
        seen = (distance >= 0) & (distance < (window if windowed else n))
        weights = np.where(seen, np.exp(scores), 0.0)
        mixed = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v).reshape(n, -1)
        mixed = mixed @ t[blk + "attn_output.weight"].T
        x = x + (norm(mixed, blk + "post_attention_norm") if AFTER[0] in case.norms else mixed)
        h = norm(x, blk + "ffn_norm")
        gate, up = (h @ t[f"{blk}{part}.weight"].T for part, _ in GATED)
        gelu = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        down = (gelu * up) @ t[blk + "ffn_down.weight"].T
        x = x + (norm(down, blk + "post_ffw_norm") if AFTER[1] in case.norms else down)
    return cap(norm(x, "output_norm") @ t["token_embd.weight"].T, "final_logit_softcapping")


def logits(path: Path, room: int) -> list[list[float]]:
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads = room, 64, 1
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
    assert llama_cpp.llama_n_ctx(context) == room
    rows = []
    for token in IDS:
        batch = llama_cpp.llama_batch_get_one((llama_cpp.llama_token * 1)(token), 1)
        assert llama_cpp.llama_decode(context, batch) == 0
        values = ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
        rows.append([round(float(values[i]), 5) for i in range(VOCAB)])
    return rows


def main() -> None:
    llama_cpp.llama_backend_init()
    cases = {}
    for name, case in CASES.items():
        rng = np.random.default_rng(zlib.crc32(name.replace("_long", "_short").encode()))
        path, tensors = write(name, rng)
        rows = logits(path, case.room)
        if name.startswith("gemma"):
            exact = gemma(case, tensors)
            off = np.abs(exact - rows).max()
            assert off < 1e-2, off
            rows = [[round(float(v), 5) for v in row] for row in exact]
        cases[name] = {"context": case.room, "logits": rows}
        print(name, np.abs(np.array(rows)).max())
    note = "random models by make_dense_gguf.py; logits by llama.cpp (llama-cpp-python 0.3.36), gemma's by NumPy"
    (HERE / "dense_gguf.json").write_text(json.dumps({"note": note, "ids": IDS, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
