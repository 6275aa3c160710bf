"""Small random GGUF files of architectures with experts, and their logits by llama.cpp.

    pip install gguf==0.19.0 llama-cpp-python==0.3.36 numpy
    python goldens/make_experts_gguf.py

Writes goldens/experts_<case>.gguf (F32, no tokenizer) and goldens/experts_gguf.json, as make_dense_gguf.py does.
"""

import json
import zlib
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from make_dense_gguf import HEAD_DIM, HEADS, HERE, IDS, KV_HEADS, VOCAB, WIDTH, YARN, logits

HIDDEN, ROOM = 32, 256
# What files have beside that which all have: architecture, layers, experts, how many are chosen, keys, and parts
CASES = {
    "mixtral": ("llama", 2, 4, 2, {}, set()),
    "qwen2moe": ("qwen2moe", 2, 5, 3, {"expert_shared_feed_forward_length": 64}, {"qkv_bias", "shared", "shared_gate"}),
    "qwen3moe": ("qwen3moe", 2, 6, 2, {}, {"head_norms"}),
    "olmoe": ("olmoe", 2, 4, 2, {"feed_forward_length": HIDDEN}, {"wide_norms"}),
    "granitemoe": (
        "granitemoe", 2, 4, 3,
        {"embedding_scale": 6.0, "attention.scale": 0.2, "residual_scale": 0.4, "logit_scale": 2.5}
        | {"expert_shared_feed_forward_length": 64, "feed_forward_length": HIDDEN},
        {"shared"},
    ),
    "gpt_oss": (
        "gpt-oss", 4, 5, 2,
        YARN | {"attention.sliding_window": 6, "rope.scaling.original_context_length": 8},
        {"all_biases", "sinks", "late_norm"},
    ),
}


def write(name: str, rng: np.random.Generator) -> Path:
    arch, layers, experts, chosen, special, parts = CASES[name]
    # OLMoE has as many heads of keys as of queries.
    kv_heads = HEADS if arch == "olmoe" else KV_HEADS
    path = HERE / f"experts_{name}.gguf"
    w = gguf.GGUFWriter(path, arch)
    w.add_tokenizer_model("none")
    keys = {
        "context_length": 256, "embedding_length": WIDTH, "block_count": layers, "vocab_size": VOCAB,
        "feed_forward_length": 64, "attention.head_count": HEADS, "attention.head_count_kv": kv_heads,
        "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM, "rope.dimension_count": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5, "expert_count": experts, "expert_used_count": chosen,
    }
    if name == "mixtral":
        keys["feed_forward_length"] = HIDDEN
    else:
        keys["expert_feed_forward_length"] = HIDDEN
    for key, value in (keys | special).items():
        add = {int: w.add_uint32, float: w.add_float32, str: w.add_string}[type(value)]
        add(f"{arch}.{key}", value)

    def tensor(tensor: str, *shape: int, around: float = 0.0, spread: float = 0.25) -> None:
        # Few bits a value: the file is exact in f32 whoever reads it.
        drawn = np.round(spread * rng.standard_normal(shape) * 64) / 64
        w.add_tensor(tensor, np.clip(around + drawn, -3.96875, 3.96875).astype(np.float32))

    biased = ("attn_q", "attn_k", "attn_v") if "qkv_bias" in parts else ()
    tensor("token_embd.weight", VOCAB, WIDTH, spread=0.6)
    for i in range(layers):
        blk = f"blk.{i}."
        tensor(blk + "attn_norm.weight", WIDTH, around=1.0)
        tensor(blk + ("post_attention_norm" if "late_norm" in parts else "ffn_norm") + ".weight", WIDTH, around=1.0)
        for part, rows, cols in (
            ("attn_q", HEADS * HEAD_DIM, WIDTH), ("attn_k", kv_heads * HEAD_DIM, WIDTH),
            ("attn_v", kv_heads * HEAD_DIM, WIDTH), ("attn_output", WIDTH, HEADS * HEAD_DIM),
        ):
            tensor(f"{blk}{part}.weight", rows, cols)
            if part in biased or "all_biases" in parts:
                tensor(f"{blk}{part}.bias", rows, spread=0.5)
        for part, heads in (("attn_q_norm", HEADS), ("attn_k_norm", kv_heads)):
            if "head_norms" in parts:
                tensor(f"{blk}{part}.weight", HEAD_DIM, around=1.0)
            if "wide_norms" in parts:
                tensor(f"{blk}{part}.weight", heads * HEAD_DIM, around=1.0)
        if "sinks" in parts:
            tensor(blk + "attn_sinks.weight", HEADS, spread=1.0)
        tensor(blk + "ffn_gate_inp.weight", experts, WIDTH, spread=0.5)
        if "all_biases" in parts:
            tensor(blk + "ffn_gate_inp.bias", experts)
        for part, rows, cols in (("gate", HIDDEN, WIDTH), ("up", HIDDEN, WIDTH), ("down", WIDTH, HIDDEN)):
            # Wide enough for gpt-oss's bounds of 7 to be reached.
            tensor(f"{blk}ffn_{part}_exps.weight", experts, rows, cols, spread=0.8 if "sinks" in parts else 0.25)
            if "all_biases" in parts:
                tensor(f"{blk}ffn_{part}_exps.bias", experts, rows, spread=0.5)
        if "shared" in parts:
            hidden = special["expert_shared_feed_forward_length"]
            for part, rows, cols in (("gate", hidden, WIDTH), ("up", hidden, WIDTH), ("down", WIDTH, hidden)):
                tensor(f"{blk}ffn_{part}_shexp.weight", rows, cols)
        if "shared_gate" in parts:
            tensor(blk + "ffn_gate_inp_shexp.weight", WIDTH, spread=0.5)
    tensor("output_norm.weight", WIDTH, around=1.0)
    tensor("output.weight", VOCAB, WIDTH)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def main() -> None:
    llama_cpp.llama_backend_init()
    cases = {}
    for name in CASES:
        path = write(name, np.random.default_rng(zlib.crc32(name.encode())))
        cases[name] = {"context": ROOM, "logits": logits(path, ROOM)}
        print(name, np.abs(np.array(cases[name]["logits"])).max(), path.stat().st_size)
    note = "random models by make_experts_gguf.py; logits by llama.cpp (llama-cpp-python 0.3.36), f32 KV cache"
    (HERE / "experts_gguf.json").write_text(json.dumps({"note": note, "ids": IDS, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
