"""Small random models of Qwen3.5's architecture in three kinds of files, and their logits by mlx-lm and llama.cpp.

    pip install gguf==0.19.0 mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2 transformers==5.23.0 llama-cpp-python==0.3.36
    python goldens/make_hybrid_models.py

Writes goldens/hybrid/ and goldens/hybrid.json: the token ids and the logits after each of them. Two key heads serve four
value heads in the first model, which is there as Hugging Face keeps it, inside a model that sees and drafts, and as a GGUF
file. The second has as many key heads as value heads, and is an MLX directory of 4 bits. The models called moe have experts in
the place of feed-forward networks, in the same three kinds of files. mlx-lm computes all in float32; llama.cpp computes the
GGUF files if it is installed, and the two have to agree.

Only mlx-lm's model is imported: the rest of the package needs more than is used here.
"""

import ctypes
import importlib.util
import json
import shutil
import sys
import types
from pathlib import Path

import gguf
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

HERE = Path(__file__).parent
OUT = HERE / "hybrid"
IDS = [5, 17, 3, 40, 41, 41, 0, 27, 12, 45, 33, 8, 17, 3, 40, 41, 2, 19, 46, 30, 30, 30, 7, 11]
VOCAB, LAYERS, DIM, HEAD = 48, 4, 16, 32
# The width of the expert that every token goes through.
SHARED = 64


def config(k_heads: int, v_heads: int, width: int, tied: bool, experts: int = 0) -> dict:
    rope = {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25}
    c = {
        "model_type": "qwen3_5_text",
        "vocab_size": VOCAB,
        "hidden_size": width,
        "intermediate_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": HEAD,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": DIM,
        "linear_value_head_dim": DIM,
        "linear_num_key_heads": k_heads,
        "linear_num_value_heads": v_heads,
        "rope_parameters": rope | {"mrope_interleaved": True, "mrope_section": [2, 1, 1]},
        "tie_word_embeddings": tied,
    }
    if experts:
        del c["intermediate_size"]
        # Two layers, one of each kind.
        c |= {"model_type": "qwen3_5_moe_text", "num_hidden_layers": 2, "full_attention_interval": 2}
        c |= {"num_experts": experts, "num_experts_per_tok": 2}
        c |= {"moe_intermediate_size": 32, "shared_expert_intermediate_size": SHARED}
    return c


def weights(c: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights as they are multiplied, of few bits: bfloat16 holds them, and the weights of norms less 1."""
    width, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    keys, values = c["linear_num_key_heads"] * DIM, c["linear_num_value_heads"] * DIM
    out = {}

    def add(name: str, *shape: int, around: float = 0.0, spread: float = 0.25) -> None:
        drawn = np.round(spread * rng.standard_normal(shape) * 64) / 64
        out[name] = (around + np.clip(drawn, -0.984375, 0.984375)).astype(np.float32)

    add("model.embed_tokens.weight", VOCAB, width, spread=0.6)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        add(layer + "input_layernorm.weight", width, around=1.0)
        if (i + 1) % c["full_attention_interval"] == 0:
            for part, n in (("q", 2 * heads), ("k", kv), ("v", kv)):
                add(f"{layer}self_attn.{part}_proj.weight", n * HEAD, width)
            for part in "qk":
                add(f"{layer}self_attn.{part}_norm.weight", HEAD, around=1.0)
            add(layer + "self_attn.o_proj.weight", width, heads * HEAD)
        else:
            linear = layer + "linear_attn."
            add(linear + "in_proj_qkv.weight", 2 * keys + values, width, spread=0.4)
            add(linear + "in_proj_z.weight", values, width)
            add(linear + "in_proj_b.weight", values // DIM, width)
            add(linear + "in_proj_a.weight", values // DIM, width)
            add(linear + "conv1d.weight", 2 * keys + values, 4, spread=0.5)
            add(linear + "A_log", values // DIM, spread=0.8)
            add(linear + "dt_bias", values // DIM, around=-2.0, spread=1.0)
            add(linear + "norm.weight", DIM, around=1.0)
            add(linear + "out_proj.weight", width, values)
        add(layer + "post_attention_layernorm.weight", width, around=1.0)
        network, ff = layer + "mlp.", c.get("intermediate_size", SHARED)
        if experts := c.get("num_experts"):
            hidden = c["moe_intermediate_size"]
            add(network + "gate.weight", experts, width, spread=0.5)
            add(network + "experts.gate_up_proj", experts, 2 * hidden, width)
            add(network + "experts.down_proj", experts, width, hidden)
            add(network + "shared_expert_gate.weight", 1, width, spread=0.5)
            network += "shared_expert."
        for part in ("gate", "up"):
            add(f"{network}{part}_proj.weight", ff, width)
        add(network + "down_proj.weight", width, ff)
    add("model.norm.weight", width, around=1.0)
    if not c["tie_word_embeddings"]:
        add("lm_head.weight", VOCAB, width)
    return out


def is_shifted(name: str) -> bool:
    return name.endswith("norm.weight") and "linear_attn" not in name


def mlx_model(c: dict):
    if "mlx_lm" not in sys.modules:
        spec = importlib.util.find_spec("mlx_lm")
        for name, path in (("mlx_lm", ""), ("mlx_lm.models", "models")):
            package = types.ModuleType(name)
            package.__path__ = [str(Path(spec.submodule_search_locations[0]) / path)]
            sys.modules[name] = package
    module = importlib.import_module("mlx_lm.models.qwen3_5")
    return module.TextModel(module.TextModelArgs.from_dict({"intermediate_size": 0} | c))


def by_part(tensors: dict) -> dict:
    """`tensors` with experts as mlx-lm has them: gate and up in tensors of their own."""
    out = {}
    for name, value in tensors.items():
        stem = name.replace(".experts.", ".switch_mlp.")
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(value, 2, axis=1)
            stem = stem.removesuffix("gate_up_proj")
            out |= {stem + "gate_proj.weight": gate, stem + "up_proj.weight": up}
        elif name.endswith("experts.down_proj"):
            out[stem + ".weight"] = value
        else:
            out[name] = value
    return out


def mlx_logits(model) -> list:
    model.set_dtype(mx.float32)
    whole = np.array(model(mx.array([IDS]))[0])
    cache = model.make_cache()
    steps = np.stack([np.array(model(mx.array([[id]]), cache=cache)[0, 0]) for id in IDS])
    print("whole and token by token differ by", np.abs(whole - steps).max(), "of", np.abs(whole).max())
    return whole.tolist()


def hugging_face(directory: str, c: dict, tensors: dict) -> list:
    path = OUT / directory
    path.mkdir(parents=True)
    inside = {}
    for name, value in tensors.items():
        value = value[:, None, :] if name.endswith("conv1d.weight") else value - float(is_shifted(name))
        name = name if name.startswith("lm_head") else name.replace("model.", "model.language_model.", 1)
        inside[name] = mx.array(value).astype(mx.float32 if name.endswith("A_log") else mx.bfloat16)
    # What a text model leaves out.
    inside["model.visual.patch_embed.proj.weight"] = mx.zeros((4, 3))
    inside["mtp.fc.weight"] = mx.zeros((c["hidden_size"], 2 * c["hidden_size"]))
    mx.save_safetensors(str(path / "model.safetensors"), inside, metadata={"format": "pt"})
    outer = {"model_type": c["model_type"].removesuffix("_text"), "text_config": c}
    outer |= {"vision_config": {"depth": 1}, "tie_word_embeddings": False}
    (path / "config.json").write_text(json.dumps(outer, indent=1) + "\n")
    model = mlx_model(c)
    unshifted = {}
    for name, value in by_part(tensors).items():
        value = value[:, None, :] if name.endswith("conv1d.weight") else value - float(is_shifted(name))
        unshifted[name] = mx.array(value)
    model.load_weights(list(model.sanitize(unshifted).items()))
    return mlx_logits(model)


def mlx(directory: str, c: dict, tensors: dict) -> list:
    path = OUT / directory
    path.mkdir(parents=True)
    model = mlx_model(c)
    prepared = {n: v[:, :, None] if n.endswith("conv1d.weight") else v for n, v in by_part(tensors).items()}
    model.load_weights([(name, mx.array(value)) for name, value in prepared.items()])
    # Routers and the gates of shared experts take 8 bits, as in mlx-lm's own conversions.
    eight = {"group_size": 64, "bits": 8}
    routers = {path for path, _ in model.named_modules() if path.endswith(("mlp.gate", "shared_expert_gate"))}
    choose = lambda path, module: hasattr(module, "to_quantized") and (eight if path in routers else True)
    nn.quantize(model, group_size=32, bits=4, class_predicate=choose)
    kept = dict(tree_flatten(model.parameters()))
    stored = {n: v if v.dtype == mx.uint32 or n.endswith("A_log") else v.astype(mx.bfloat16) for n, v in kept.items()}
    mx.save_safetensors(str(path / "model.safetensors"), stored, metadata={"format": "mlx"})
    quantization = {"group_size": 32, "bits": 4} | {router: eight for router in sorted(routers)}
    (path / "config.json").write_text(json.dumps(c | {"quantization": quantization}, indent=1) + "\n")
    widened = {n: v if v.dtype == mx.uint32 else v.astype(mx.float32) for n, v in stored.items()}
    model.update(tree_unflatten(list(widened.items())))
    return mlx_logits(model)


NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tiled(x: np.ndarray, c: dict, axis: int, dim: int) -> np.ndarray:
    """Value heads along `axis` in GGUF's order: the key heads take turns."""
    k, v = c["linear_num_key_heads"], c["linear_num_value_heads"]
    x = np.moveaxis(x, axis, 0)
    heads = x.reshape(k, v // k, dim, *x.shape[1:])
    return np.moveaxis(heads.swapaxes(0, 1).reshape(x.shape), 0, axis)


def write_gguf(c: dict, tensors: dict) -> Path:
    arch = "qwen35moe" if c.get("num_experts") else "qwen35"
    path = OUT / f"{arch}.gguf"
    w = gguf.GGUFWriter(path, arch)
    keys = c["linear_num_key_heads"] * DIM
    w.add_context_length(64)
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    if c.get("num_experts"):
        w.add_expert_count(c["num_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    else:
        w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(VOCAB)
    w.add_tokenizer_model("none")
    w.add_rope_freq_base(10000000.0)
    w.add_rope_dimension_count(HEAD // 4)
    w.add_rope_dimension_sections([2, 1, 1, 0])
    w.add_ssm_conv_kernel(4)
    w.add_ssm_state_size(DIM)
    w.add_ssm_group_count(c["linear_num_key_heads"])
    w.add_ssm_time_step_rank(c["linear_num_value_heads"])
    w.add_ssm_inner_size(c["linear_num_value_heads"] * DIM)
    w.add_uint32(f"{arch}.full_attention_interval", c["full_attention_interval"])
    for name, x in tensors.items():
        if name == "model.embed_tokens.weight":
            known = "token_embd.weight"
        elif name == "model.norm.weight":
            known = "output_norm.weight"
        elif name == "lm_head.weight":
            known = "output.weight"
        else:
            _, _, layer, rest = name.split(".", 3)
            if rest == "linear_attn.A_log":
                known, x = f"blk.{layer}.ssm_a", tiled(-np.exp(x.astype(np.float64)).astype(np.float32), c, 0, 1)
            elif rest == "linear_attn.dt_bias":
                known, x = f"blk.{layer}.ssm_dt.bias", tiled(x, c, 0, 1)
            else:
                module = rest.removesuffix(".weight")
                known = f"blk.{layer}.{NAMES[module]}.weight"
                part = module.removeprefix("linear_attn.")
                if part in ("in_proj_qkv", "conv1d"):
                    x = np.concatenate([x[: 2 * keys], tiled(x[2 * keys :], c, 0, DIM)])
                elif part == "in_proj_z":
                    x = tiled(x, c, 0, DIM)
                elif part in ("in_proj_b", "in_proj_a"):
                    x = tiled(x, c, 0, 1)
                elif part == "out_proj":
                    x = tiled(x, c, 1, DIM)
                elif part == "mlp.shared_expert_gate":
                    x = x[0]
        w.add_tensor(known, np.ascontiguousarray(x))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def llama_logits(path: Path) -> list | None:
    try:
        import llama_cpp
    except ImportError:
        return None
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads = 64, 64, 1
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
    rows = []
    for token in IDS:
        batch = llama_cpp.llama_batch_get_one((llama_cpp.llama_token * 1)(token), 1)
        assert llama_cpp.llama_decode(context, batch) == 0
        values = ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
        rows.append([float(values[i]) for i in range(VOCAB)])
    return rows


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    cases = {}
    for moe, experts, seed in (("", 0, 35), ("moe", 5, 37)):
        grouped, equal = config(2, 4, 32, tied=False, experts=experts), config(2, 2, 64, tied=True, experts=experts)
        tensors = weights(grouped, np.random.default_rng(seed))
        known = f"hf_qwen35{moe}"
        cases[known] = hugging_face(known, grouped, tensors)
        known_mlx = f"mlx_qwen35{moe}"
        cases[known_mlx] = mlx(known_mlx, equal, weights(equal, np.random.default_rng(seed + 1)))
        path = write_gguf(grouped, tensors)
        by_llama = llama_logits(path)
        if by_llama is None:
            print("llama.cpp is not installed: the GGUF file's logits are mlx-lm's for the same weights")
            by_llama = cases[known]
        cases[path.name] = by_llama
        print("the two programs differ by", np.abs(np.array(by_llama) - np.array(cases[known])).max())
    rounded = {name: [[round(v, 5) for v in row] for row in rows] for name, rows in cases.items()}
    note = "random models by make_hybrid_models.py; logits by mlx-lm (float32), those of the GGUF files by llama.cpp"
    (HERE / "hybrid.json").write_text(json.dumps({"note": note, "ids": IDS, "logits": rounded}) + "\n")


if __name__ == "__main__":
    main()
