"""Small random models in Hugging Face's and MLX's formats, and their logits by transformers and mlx-lm.

    pip install torch transformers==5.24.0 safetensors "mlx[cpu]==0.32.4" mlx-lm numpy
    python goldens/make_checkpoints.py

Writes goldens/checkpoints/<case>/ (config.json, safetensors, no tokenizer) and goldens/checkpoints.json: for each case
the token ids and the logits after each of them. Hugging Face cases are computed by transformers in float64, MLX cases by
mlx-lm with scales and biases widened to float32, so that nothing is rounded but what the file has rounded.
"""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np
import torch
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent / "checkpoints"
IDS = [5, 17, 3, 40, 41, 41, 0, 27, 12, 45, 33, 8]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
COMMON = {"vocab_size": 48, "num_hidden_layers": 1, "max_position_embeddings": 64, "hidden_act": "silu"}

# config.json, the type of the weights, files
HUGGING_FACE = {
    "hf_llama": (
        {"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2}
        | {"num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": LLAMA3}
        | {"tie_word_embeddings": False},
        torch.bfloat16,
        2,
    ),
    "hf_qwen2": (
        {"model_type": "qwen2", "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
        | {"num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
        | {"rope_scaling": {"type": "linear", "factor": 4.0}, "tie_word_embeddings": True},
        torch.float16,
        1,
    ),
    "hf_qwen3": (
        {"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "head_dim": 24}
        | {"num_key_value_heads": 1, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": True},
        torch.float32,
        1,
    ),
}

# the case that it is made from, or config.json; default bits and group; modules that differ; type of the scales
MLX = {
    "mlx_llama_4bit_g32": ("hf_llama", (4, 32), {}, mx.bfloat16),
    "mlx_llama_mixed_g64": (
        "hf_llama",
        (4, 64),
        {"model.embed_tokens": (8, 64), "model.layers.0.mlp.down_proj": (8, 32), "lm_head": (8, 64)},
        mx.float16,
    ),
    "mlx_qwen2_4bit_g128": (
        {"model_type": "qwen2", "hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4, "head_dim": 32}
        | {"num_key_value_heads": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True},
        (4, 128),
        {},
        mx.bfloat16,
    ),
}


def weights(config: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights of at most 8 significant bits, which every type of the files holds exactly."""
    width, ff, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv, dim = config["num_key_value_heads"], config.get("head_dim", width // heads)
    out = {}

    def add(name: str, *shape: int, around: float = 0.0, spread: float = 0.25) -> None:
        values = np.round(spread * rng.standard_normal(shape) * 64) / 64
        out[name] = np.clip(around + values, -1.96875, 1.96875).astype(np.float32)

    add("model.embed_tokens.weight", COMMON["vocab_size"], width, spread=0.6)
    for i in range(COMMON["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        add(layer + "input_layernorm.weight", width, around=1.0)
        for part, n in (("q", heads), ("k", kv), ("v", kv)):
            add(f"{layer}self_attn.{part}_proj.weight", n * dim, width)
            if config["model_type"] == "qwen2":
                add(f"{layer}self_attn.{part}_proj.bias", n * dim, spread=0.5)
        if config["model_type"] == "qwen3":
            add(layer + "self_attn.q_norm.weight", dim, around=1.0)
            add(layer + "self_attn.k_norm.weight", dim, around=1.0)
        add(layer + "self_attn.o_proj.weight", width, heads * dim)
        add(layer + "post_attention_layernorm.weight", width, around=1.0)
        add(layer + "mlp.gate_proj.weight", ff, width)
        add(layer + "mlp.up_proj.weight", ff, width)
        add(layer + "mlp.down_proj.weight", width, ff)
    add("model.norm.weight", width, around=1.0)
    if not config["tie_word_embeddings"]:
        add("lm_head.weight", COMMON["vocab_size"], width)
    return out


def write(path: Path, config: dict) -> None:
    (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def hugging_face(name: str, config: dict, tensors: dict, dtype: torch.dtype, files: int) -> list:
    path = HERE / name
    path.mkdir(parents=True)
    write(path, config)
    tensors = {k: torch.from_numpy(v).to(dtype) for k, v in tensors.items()}
    if files == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    else:
        names, file_of = sorted(tensors), {}
        for i in range(files):
            file = f"model-{i + 1:05}-of-{files:05}.safetensors"
            mine = names[i::files]
            save_file({k: tensors[k] for k in mine}, path / file, metadata={"format": "pt"})
            file_of |= dict.fromkeys(mine, file)
        index = {"metadata": {}, "weight_map": file_of}
        (path / "model.safetensors.index.json").write_text(json.dumps(index) + "\n")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager")
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0].numpy()
    return logits.tolist()


def mlx(name: str, config: dict, tensors: dict, default: tuple, others: dict, scales: mx.Dtype) -> list:
    path = HERE / name
    path.mkdir(parents=True)
    out, quantization = {}, {"group_size": default[1], "bits": default[0]}
    for key, value in tensors.items():
        value, module = mx.array(value), key.removesuffix(".weight")
        if value.ndim == 1:
            out[key] = value.astype(scales)
            continue
        bits, group = others.get(module, default)
        if module in others:
            quantization[module] = {"group_size": group, "bits": bits}
        codes, scale, bias = mx.quantize(value.astype(scales), group_size=group, bits=bits)
        out |= {key: codes, module + ".scales": scale, module + ".biases": bias}
    mx.save_safetensors(str(path / "model.safetensors"), out, metadata={"format": "mlx"})
    write(path, config | {"quantization": quantization, "quantization_config": quantization})
    model, _ = load_model(path)
    model.set_dtype(mx.float32)
    assert {v.dtype for _, v in tree_flatten(model.parameters())} == {mx.float32, mx.uint32}
    return np.array(model(mx.array([IDS]))[0]).tolist()


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    cases, made = {}, {}
    for seed, (name, (config, dtype, files)) in enumerate(HUGGING_FACE.items()):
        config = COMMON | config
        made[name] = config, weights(config, np.random.default_rng(seed))
        cases[name] = hugging_face(name, *made[name], dtype, files)
    for name, (source, default, others, scales) in MLX.items():
        if isinstance(source, dict):
            config = COMMON | source
            source = config, weights(config, np.random.default_rng(99))
        else:
            source = made[source]
        cases[name] = mlx(name, *source, default, others, scales)
    rounded = {name: [[round(v, 5) for v in row] for row in rows] for name, rows in cases.items()}
    note = "random models by make_checkpoints.py; logits by transformers (float64) and mlx-lm (float32)"
    path = HERE.parent / "checkpoints.json"
    path.write_text(json.dumps({"note": note, "ids": IDS, "logits": rounded}) + "\n")


if __name__ == "__main__":
    main()
