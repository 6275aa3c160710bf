"""Small random directories of dense architectures in Hugging Face's format, and their logits by mlx-lm in float32.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2 numpy
    python goldens/make_dense_models.py

Writes goldens/dense/<case>/ (config.json, safetensors in bfloat16, no tokenizer) and goldens/dense.json: the token ids,
and for each case the room that a session has and the logits after each token. All of mlx-lm's models but the ones named
below compute what transformers computes:

- gemma has the GELU by erf in mlx-lm, and by tanh in transformers and llama.cpp, as it was trained: it is replaced here.
- gemma2 has no window in mlx-lm: the text is shorter than the window of the file. Windows are in make_dense_gguf.py.
- gemma3 rounds the factor of embeddings to bfloat16 whatever the weights are in mlx-lm, and to the type of the weights
  in transformers: the width is 64, whose root is exact in both.
- phi3 takes LongRoPE's long factors always in mlx-lm: the room is longer than the original context, so they are in use.
- mistral has a window in all layers, which mlx-lm's ministral3 has in those that it is told to.
"""

import importlib.util
import json
import shutil
import sys
import types
import zlib
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten


def mlx_model(name: str):
    """A module of mlx-lm's models, without the rest of the package, which needs more than is used here."""
    if "mlx_lm" not in sys.modules:
        spec = importlib.util.find_spec("mlx_lm")
        package = types.ModuleType("mlx_lm")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["mlx_lm"] = package
    return importlib.import_module(f"mlx_lm.models.{name}")


HERE = Path(__file__).parent / "dense"
VOCAB, WIDTH = 48, 32
IDS = [5, 17, 3, 40, 41, 41, 0, 27, 12, 45, 33, 8, 2, 19, 19, 36, 7, 30, 1, 22, 44, 11, 25, 6]
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
}
GELU = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "head_dim": 8}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
MINISTRAL = {
    "head_dim": 16,
    "tie_word_embeddings": False,
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "num_hidden_layers": 3,
    "rope_parameters": YARN
    | {"rope_theta": 1000.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}
    | {"original_max_position_embeddings": 8, "factor": 8.0},
}
FACTORS = {
    "type": "longrope",
    "short_factor": [1.0, 1.1],
    "long_factor": [1.3, 5.5],
}

# What config.json has beside COMMON, and optionally: mlx-lm's module, fields for it alone, the room of the session.
CASES = {
    "gemma": (GELU | {"model_type": "gemma", "tie_word_embeddings": True}, {}),
    "gemma2": (
        GELU
        | {"model_type": "gemma2", "query_pre_attn_scalar": 12, "attn_logit_softcapping": 2.0}
        | {"final_logit_softcapping": 12.0, "sliding_window": 32},
        {},
    ),
    "gemma3_text": (
        GELU
        | {"model_type": "gemma3_text", "hidden_size": 64, "query_pre_attn_scalar": 12, "sliding_window": 6, "num_hidden_layers": 4}
        | {"sliding_window_pattern": 3, "rope_theta": 100000.0, "rope_local_base_freq": 500.0}
        | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {},
    ),
    "gemma3": (
        GELU
        | {"model_type": "gemma3_text", "hidden_size": 64, "sliding_window": 6, "num_hidden_layers": 3, "query_pre_attn_scalar": 8}
        | {"rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        }, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        {
            "module": "gemma3_text",
            "only_mlx": {"rope_theta": 100000.0, "rope_local_base_freq": 500.0, "sliding_window_pattern": 2}
            | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            "within": ("gemma3", "model.language_model."),
        },
    ),
    "mistral": (
        {"model_type": "mistral", "sliding_window": 7, "tie_word_embeddings": False, "head_dim": 8},
        {
            "module": "ministral3",
            "only_mlx": {
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}
                | {"original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.0},
                "layer_types": ["sliding_attention", "full_attention"],
            },
        },
    ),
    "mistral3": (
        {"model_type": "ministral3"} | MINISTRAL,
        {"module": "ministral3", "within": ("mistral3", "language_model.")},
    ),
    "phi3": (
        {"model_type": "phi3", "partial_rotary_factor": 0.5, "original_max_position_embeddings": 16}
        | {"rope_scaling": FACTORS, "tie_word_embeddings": True},
        {},
    ),
    "smollm3": ({"model_type": "smollm3", "num_hidden_layers": 5, "tie_word_embeddings": True}, {}),
    "granite": (
        {"model_type": "granite", "embedding_multiplier": 6.0, "attention_multiplier": 0.2}
        | {"residual_multiplier": 0.4, "logits_scaling": 2.5, "attention_bias": True, "mlp_bias": True}
        | {"tie_word_embeddings": True},
        {},
    ),
    "olmo2": ({"model_type": "olmo2", "tie_word_embeddings": False}, {}),
    "olmo3": (
        {"model_type": "olmo3", "sliding_window": 6, "num_hidden_layers": 4, "rope_scaling": YARN}
        | {"tie_word_embeddings": False},
        {},
    ),
    "glm4": (
        {"model_type": "glm4", "head_dim": 16, "attention_bias": True, "partial_rotary_factor": 0.5}
        | {"tie_word_embeddings": False},
        {},
    ),
    "seed_oss": (
        {"model_type": "seed_oss", "head_dim": 16, "attention_bias": True, "attention_out_bias": False}
        | {"tie_word_embeddings": False}
        | {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 0.4, "beta_fast": 8.0, "beta_slow": 2.0}},
        {},
    ),
    "exaone": (
        {"model_type": "exaone", "num_layers": 2, "layer_norm_epsilon": 1e-5, "activation_function": "silu"}
        | {"max_position_embeddings": 12, "rope_scaling": {"rope_type": "dynamic", "factor": 3.0}}
        | {"tie_word_embeddings": True},
        {"without": ["num_hidden_layers", "rms_norm_eps", "hidden_act"], "context": len(IDS)},
    ),
    "exaone4": (
        {"model_type": "exaone4", "head_dim": 8, "sliding_window": 6, "sliding_window_pattern": "LLG"}
        | {"num_hidden_layers": 3, "tie_word_embeddings": False, "rope_scaling": None},
        {},
    ),
}


def weights(model, offset: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights of at most 8 significant bits, which bfloat16 holds exactly. Those of norms are around 1, or 0 where
    `offset`, 1, is added to them."""
    out = {}
    for name, value in tree_flatten(model.parameters()):
        if name.endswith("_freqs"):
            continue
        norm = value.ndim == 1 and name.endswith("weight")
        spread = 0.6 if "embed" in name or "wte" in name else 0.25
        values = np.round(spread * rng.standard_normal(value.shape) * 64) / 64
        around = 1.0 - offset if norm else 0.0
        out[name] = np.clip(around + values, -1.96875, 1.96875).astype(np.float32)
    return out


def make(name: str, special: dict, how: dict, rng: np.random.Generator) -> list:
    config = {k: v for k, v in (COMMON | special).items() if k not in how.get("without", [])}
    module = mlx_model(how.get("module", special["model_type"]))
    args = module.ModelArgs.from_dict({**config, **how.get("only_mlx", {})})
    model = module.Model(args)
    if name == "gemma":
        module.nn.gelu = module.nn.gelu_approx
    if name == "mistral":
        for layer in model.layers:
            layer.use_sliding = True
    tied = config.get("tie_word_embeddings", True) and hasattr(model, "lm_head")
    if tied and special["model_type"].startswith("gemma"):
        model.sanitize({})
    tensors = weights(model, float(special["model_type"].startswith("gemma")), rng)
    tensors = {k: v for k, v in tensors.items() if not (tied and k.startswith("lm_head"))}
    model.update(tree_unflatten([(k, mx.array(v)) for k, v in tensors.items()]))
    logits = np.array(model(mx.array([IDS]))[0])
    path = HERE / name
    path.mkdir(parents=True)
    if "within" in how:
        outer, prefix = how["within"]
        tensors = {renamed(k, prefix): v for k, v in tensors.items()}
        tensors["vision_tower.patch.weight"] = np.zeros((2, 2), np.float32)
        tensors["multi_modal_projector.linear.weight"] = np.zeros((2, 2), np.float32)
        config = {"model_type": outer, "text_config": config, "vision_config": {"hidden_size": 2}}
    stored = {k: mx.array(v).astype(mx.bfloat16) for k, v in tensors.items()}
    mx.save_safetensors(str(path / "model.safetensors"), stored, metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return [[round(float(v), 5) for v in row] for row in logits]


def renamed(name: str, prefix: str) -> str:
    """A tensor's name in a directory that has more than a text model."""
    if prefix.startswith("model."):
        return prefix + name.removeprefix("model.") if name.startswith("model.") else name
    return prefix + name


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    cases = {}
    for name, (special, how) in CASES.items():
        logits = make(name, special, how, np.random.default_rng(zlib.crc32(name.encode())))
        cases[name] = {"context": how.get("context", 64), "logits": logits}
        print(name, np.abs(np.array(logits)).max())
    note = "random models by make_dense_models.py; logits by mlx-lm 0.32.2 (float32)"
    path = HERE.parent / "dense.json"
    path.write_text(json.dumps({"note": note, "ids": IDS, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
