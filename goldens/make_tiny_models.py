"""Small random models of every architecture that halfbyte runs, and their logits by llama.cpp.

    pip install gguf==0.19.0 llama-cpp-python==0.3.36 numpy
    python goldens/make_tiny_models.py

Writes goldens/tiny_<case>.gguf (F32 tensors, no tokenizer) and goldens/tiny_models.json: for each case the token ids
and the logits after each of them, computed with an f32 KV cache and without flash attention.
"""

import ctypes
import json
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

HERE = Path(__file__).parent
VOCAB, LAYERS, WIDTH, FEED_FORWARD, CONTEXT = 96, 2, 32, 64, 64
IDS = [5, 17, 3, 90, 41, 41, 0, 77, 12, 95, 33, 8]

# (architecture, heads, kv heads, head_dim, tied, what is special)
CASES = {
    "llama_factors": ("llama", 2, 1, 16, False, "rope_freqs.weight as Llama 3.1 has it, base 500000"),
    "llama_linear": ("llama", 4, 2, 8, True, "linear rope scaling by 4, tied output"),
    "qwen2": ("qwen2", 2, 1, 16, False, "biases on q, k and v"),
    "qwen3": ("qwen3", 2, 2, 24, True, "norms on q and k, heads wider than width / heads"),
}


def write(name: str, rng: np.random.Generator) -> Path:
    arch, heads, kv_heads, head_dim, tied, _ = CASES[name]
    path = HERE / f"tiny_{name}.gguf"
    w = gguf.GGUFWriter(path, arch)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(FEED_FORWARD)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCAB)
    w.add_tokenizer_model("none")
    w.add_rope_freq_base(500000.0 if name == "llama_factors" else 10000.0)
    w.add_rope_dimension_count(head_dim)
    if name == "llama_linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(4.0)

    def add(tensor: str, *shape: int, around: float = 0.0, spread: float = 0.25) -> None:
        values = around + spread * rng.standard_normal(shape)
        # Few bits a value: the file is exact in f32 whoever reads it.
        w.add_tensor(tensor, (np.round(values * 1024) / 1024).astype(np.float32))

    add("token_embd.weight", VOCAB, WIDTH, spread=1.0)
    for i in range(LAYERS):
        blk = f"blk.{i}."
        add(blk + "attn_norm.weight", WIDTH, around=1.0)
        for part, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            add(blk + f"attn_{part}.weight", n * head_dim, WIDTH)
            if arch == "qwen2":
                add(blk + f"attn_{part}.bias", n * head_dim, spread=0.5)
        if arch == "qwen3":
            add(blk + "attn_q_norm.weight", head_dim, around=1.0)
            add(blk + "attn_k_norm.weight", head_dim, around=1.0)
        add(blk + "attn_output.weight", WIDTH, heads * head_dim)
        add(blk + "ffn_norm.weight", WIDTH, around=1.0)
        add(blk + "ffn_gate.weight", FEED_FORWARD, WIDTH)
        add(blk + "ffn_up.weight", FEED_FORWARD, WIDTH)
        add(blk + "ffn_down.weight", WIDTH, FEED_FORWARD)
    add("output_norm.weight", WIDTH, around=1.0)
    if not tied:
        add("output.weight", VOCAB, WIDTH)
    if name == "llama_factors":
        factors = np.linspace(1.0, 8.0, head_dim // 2).astype(np.float32)
        w.add_tensor("rope_freqs.weight", factors)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def logits(path: Path) -> list[list[float]]:
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads = CONTEXT, CONTEXT, 1
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
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
    for seed, name in enumerate(CASES):
        path = write(name, np.random.default_rng(seed))
        cases[name] = {"about": CASES[name][-1], "ids": IDS, "logits": logits(path)}
    note = "random models by make_tiny_models.py; logits by llama.cpp (llama-cpp-python 0.3.36), f32 KV cache"
    (HERE / "tiny_models.json").write_text(json.dumps({"note": note, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
