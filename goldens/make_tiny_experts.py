"""Small random models with experts in Hugging Face's and MLX's layouts, and their logits by mlx-lm.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2 numpy
    python goldens/make_tiny_experts.py

Writes goldens/experts/<case>/ (config.json, model.safetensors, no tokenizer) and goldens/experts.json: the token ids, and for
each case the logits after each of them. All arithmetic is float32; scales and biases of quantized weights are widened first.
Weights have few bits, so that every type of the files holds them exactly.
"""

import importlib
import importlib.util
import json
import shutil
import sys
import types
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np

HERE = Path(__file__).parent / "experts"
IDS = [5, 17, 3, 40, 41, 41, 0, 27, 12, 45, 33, 8]
COMMON = {"vocab_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 64, "hidden_act": "silu"}
COMMON |= {"hidden_size": 32, "num_attention_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "intermediate_size": 64}

# config.json, and the bits and groups of an MLX directory
CASES = {
    "hf_mixtral": (
        {"model_type": "mixtral", "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
        | {"tie_word_embeddings": False},
        None,
    ),
    "hf_qwen2_moe": (
        {"model_type": "qwen2_moe", "num_key_value_heads": 2, "num_experts": 5, "num_experts_per_tok": 3}
        | {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "norm_topk_prob": False}
        | {"tie_word_embeddings": False},
        None,
    ),
    "hf_qwen3_moe": (
        {"model_type": "qwen3_moe", "num_key_value_heads": 1, "head_dim": 32, "num_experts": 6, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 64, "norm_topk_prob": True, "tie_word_embeddings": True}
        | {"decoder_sparse_step": 1, "mlp_only_layers": [1]},
        None,
    ),
    "hf_olmoe": (
        {"model_type": "olmoe", "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2}
        | {"intermediate_size": 32, "norm_topk_prob": False, "tie_word_embeddings": False},
        None,
    ),
    "hf_granitemoe": (
        {"model_type": "granitemoe", "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 3}
        | {"intermediate_size": 32, "tie_word_embeddings": True, "logits_scaling": 2.5, "attention_bias": False}
        | {"embedding_multiplier": 6.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4},
        None,
    ),
    "mlx_gpt_oss": (
        {"model_type": "gpt_oss", "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
        | {"intermediate_size": 32, "head_dim": 32, "sliding_window": 6, "tie_word_embeddings": False}
        | {"layer_types": ["sliding_attention", "full_attention"]}
        | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}},
        (4, 32),
    ),
    "mlx_qwen3_moe": (
        {"model_type": "qwen3_moe", "num_key_value_heads": 1, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 32, "norm_topk_prob": True, "tie_word_embeddings": True}
        | {"decoder_sparse_step": 1, "mlp_only_layers": []},
        (4, 32),
    ),
}


def weights(config: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights under the names of Hugging Face's checkpoints."""
    kind, width, heads = config["model_type"], config["hidden_size"], config["num_attention_heads"]
    kv, dim = config["num_key_value_heads"], config.get("head_dim", width // heads)
    out = {}

    def add(name: str, *shape: int, around: float = 0.0, spread: float = 0.25) -> None:
        values = np.round(spread * rng.standard_normal(shape) * 64) / 64
        out[name] = np.clip(around + values, -1.96875, 1.96875).astype(np.float32)

    def network(name: str, hidden: int, parts: tuple = ("gate_proj", "up_proj", "down_proj")) -> None:
        gate, up, down = parts
        add(f"{name}.{gate}.weight", hidden, width)
        add(f"{name}.{up}.weight", hidden, width)
        add(f"{name}.{down}.weight", width, hidden)

    add("model.embed_tokens.weight", config["vocab_size"], width, spread=0.6)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        add(layer + "input_layernorm.weight", width, around=1.0)
        add(layer + "post_attention_layernorm.weight", width, around=1.0)
        for part, n in (("q", heads), ("k", kv), ("v", kv)):
            add(f"{layer}self_attn.{part}_proj.weight", n * dim, width)
            if kind in ("qwen2_moe", "gpt_oss"):
                add(f"{layer}self_attn.{part}_proj.bias", n * dim, spread=0.5)
        if kind == "qwen3_moe":
            add(layer + "self_attn.q_norm.weight", dim, around=1.0)
            add(layer + "self_attn.k_norm.weight", dim, around=1.0)
        if kind == "olmoe":
            add(layer + "self_attn.q_norm.weight", heads * dim, around=1.0)
            add(layer + "self_attn.k_norm.weight", kv * dim, around=1.0)
        add(layer + "self_attn.o_proj.weight", width, heads * dim)
        hidden = config.get("moe_intermediate_size", config["intermediate_size"])
        n = config.get("num_experts", config.get("num_local_experts"))
        if kind == "gpt_oss":
            add(layer + "self_attn.o_proj.bias", width, spread=0.5)
            add(layer + "self_attn.sinks", heads, spread=1.0)
            add(layer + "mlp.router.weight", n, width, spread=0.5)
            add(layer + "mlp.router.bias", n)
            for part, rows, cols in (("gate", hidden, width), ("up", hidden, width), ("down", width, hidden)):
                # Wide enough for the bounds of 7 to be reached.
                add(f"{layer}mlp.experts.{part}_proj.weight", n, rows, cols, spread=0.8)
                add(f"{layer}mlp.experts.{part}_proj.bias", n, rows, spread=0.5)
            continue
        if kind == "granitemoe":
            add(layer + "block_sparse_moe.router.layer.weight", n, width, spread=0.5)
            add(layer + "block_sparse_moe.input_linear.weight", n, 2 * hidden, width)
            add(layer + "block_sparse_moe.output_linear.weight", n, width, hidden)
            continue
        if i in config.get("mlp_only_layers", []):
            network(layer + "mlp", config["intermediate_size"])
            continue
        block = layer + ("block_sparse_moe" if kind == "mixtral" else "mlp")
        add(block + ".gate.weight", n, width, spread=0.5)
        for e in range(n):
            parts = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
            network(f"{block}.experts.{e}", hidden, parts)
        if "shared_expert_intermediate_size" in config:
            network(block + ".shared_expert", config["shared_expert_intermediate_size"])
            add(block + ".shared_expert_gate.weight", 1, width, spread=0.5)
    add("model.norm.weight", width, around=1.0)
    if not config["tie_word_embeddings"]:
        add("lm_head.weight", config["vocab_size"], width)
    return out


def model_of(config: dict) -> nn.Module:
    """mlx-lm's model without the rest of the package."""
    if "mlx_lm" not in sys.modules:
        package = types.ModuleType("mlx_lm")
        found = importlib.util.find_spec("mlx_lm")
        package.__path__ = list(found.submodule_search_locations)
        sys.modules["mlx_lm"] = package
    module = importlib.import_module("mlx_lm.models." + config["model_type"])
    return module.Model(module.ModelArgs.from_dict(config))


def make(name: str, seed: int) -> list:
    config, quantized = CASES[name]
    config = COMMON | config
    tensors = {key: mx.array(value) for key, value in weights(config, np.random.default_rng(seed)).items()}
    path = HERE / name
    path.mkdir(parents=True)
    model = model_of(config)
    if quantized is None:
        half = {key: value.astype(mx.bfloat16) for key, value in tensors.items()}
        mx.save_safetensors(str(path / "model.safetensors"), half, metadata={"format": "pt"})
        model.load_weights(list(model.sanitize(dict(tensors)).items()))
    else:
        bits, group = quantized
        model.load_weights(list(model.sanitize(dict(tensors)).items()))
        model.set_dtype(mx.bfloat16)
        # Routers take 8 bits, as mlx-lm's own conversions have them.
        eight = {"group_size": 32, "bits": 8}
        routers = {path for path, _ in model.named_modules() if path.endswith(("mlp.gate", "mlp.router"))}
        choose = lambda path, module: hasattr(module, "to_quantized") and (eight if path in routers else True)
        nn.quantize(model, group_size=group, bits=bits, class_predicate=choose)
        from mlx.utils import tree_flatten

        stored = dict(tree_flatten(model.parameters()))
        mx.save_safetensors(str(path / "model.safetensors"), stored, metadata={"format": "mlx"})
        config["quantization"] = {"group_size": group, "bits": bits} | {router: eight for router in sorted(routers)}
    (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([IDS]))[0]).tolist()


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    cases = {name: [[round(v, 5) for v in row] for row in make(name, seed)] for seed, name in enumerate(CASES)}
    note = "random models by make_tiny_experts.py; logits by mlx-lm (float32)"
    (HERE.parent / "experts.json").write_text(json.dumps({"note": note, "ids": IDS, "logits": cases}) + "\n")


if __name__ == "__main__":
    main()
