"""Small random models of LFM2's architectures in three kinds of files, and their logits by mlx-lm and llama.cpp.

    pip install gguf==0.19.0 mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2 transformers==5.23.0 llama-cpp-python==0.3.36
    python goldens/make_lfm2_models.py

Writes goldens/lfm2/ and goldens/lfm2.json: the token ids and the logits after each of them. The dense model and the one with
experts are there as Hugging Face keeps them, as MLX directories of 4 bits with other sizes, and as GGUF files of the first
weights; a second GGUF file of the dense model has a window. mlx-lm computes all in float32; llama.cpp computes the GGUF files,
and the two have to agree where there is no window.

Only mlx-lm's models are imported: the rest of the package needs more than is used here.
"""

import importlib
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
from make_hybrid_models import IDS, VOCAB, llama_logits
from mlx.utils import tree_flatten, tree_unflatten

HERE = Path(__file__).parent
OUT = HERE / "lfm2"
WINDOW = 5


def config(width: int, layers: list[str], taps: int, biases: bool) -> dict:
    """A configuration as the first models have it: a list of the layers with attention, and a width before its adjustment."""
    return {
        "model_type": "lfm2",
        "vocab_size": VOCAB,
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "conv_bias": biases,
        "conv_L_cache": taps,
        "full_attn_idxs": [i for i, kind in enumerate(layers) if kind == "full_attention"],
        "block_dim": width,
        # 2/3 of it are 48, 1.2 times that are 57, and the next multiple of 32 is 64.
        "block_ff_dim": 72,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.2,
        "block_auto_adjust_ff_dim": True,
        "tie_embedding": True,
    }


def newer(c: dict, layers: list[str]) -> dict:
    """The same as newer files have it: a type for each layer, the width itself, rotations in an object."""
    gone = ("full_attn_idxs", "rope_theta", "tie_embedding")
    c = {name: value for name, value in c.items() if name not in gone and not name.startswith("block_")}
    c |= {"layer_types": layers, "intermediate_size": 64, "block_auto_adjust_ff_dim": False}
    rope = {"rope_theta": 1000000.0, "rope_type": "default"}
    return c | {"tie_word_embeddings": True, "rope_parameters": rope}


def with_experts(c: dict) -> dict:
    c = c | {"model_type": "lfm2_moe", "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    c |= {"num_dense_layers": 1, "use_expert_bias": True, "norm_topk_prob": True}
    return c | {"routed_scaling_factor": 1.0}


def attends(c: dict, i: int) -> bool:
    if "layer_types" in c:
        return c["layer_types"][i] == "full_attention"
    return i in c["full_attn_idxs"]


def weights(c: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights of few bits, which bfloat16 holds, under the names of Hugging Face's files. Taps are [channels, taps]."""
    width, heads, kv, taps = (c[f] for f in ("hidden_size", "num_attention_heads", "num_key_value_heads", "conv_L_cache"))
    head = width // heads
    out = {}

    def add(name: str, *shape: int, around: float = 0.0, spread: float = 0.25) -> None:
        drawn = np.round(spread * rng.standard_normal(shape) * 64) / 64
        out[name] = (around + np.clip(drawn, -0.984375, 0.984375)).astype(np.float32)

    add("model.embed_tokens.weight", VOCAB, width, spread=0.6)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        add(layer + "operator_norm.weight", width, around=1.0)
        if attends(c, i):
            for part, n in (("q", heads), ("k", kv), ("v", kv)):
                add(f"{layer}self_attn.{part}_proj.weight", n * head, width)
            for part in "qk":
                add(f"{layer}self_attn.{part}_layernorm.weight", head, around=1.0)
            add(layer + "self_attn.out_proj.weight", width, width)
        else:
            add(layer + "conv.in_proj.weight", 3 * width, width)
            add(layer + "conv.conv.weight", width, taps, spread=0.5)
            add(layer + "conv.out_proj.weight", width, width)
            if c["conv_bias"]:
                add(layer + "conv.in_proj.bias", 3 * width)
                add(layer + "conv.conv.bias", width)
                add(layer + "conv.out_proj.bias", width)
        add(layer + "ffn_norm.weight", width, around=1.0)
        network = layer + "feed_forward."
        if "num_experts" in c and i >= c["num_dense_layers"]:
            add(network + "gate.weight", c["num_experts"], width, spread=0.3)
            add(network + "expert_bias", c["num_experts"], spread=0.4)
            for expert in range(c["num_experts"]):
                for part in ("w1", "w3"):
                    add(f"{network}experts.{expert}.{part}.weight", c["moe_intermediate_size"], width)
                add(f"{network}experts.{expert}.w2.weight", width, c["moe_intermediate_size"])
        else:
            for part in ("w1", "w3"):
                add(f"{network}{part}.weight", 64, width)
            add(network + "w2.weight", width, 64)
    add("model.embedding_norm.weight", width, around=1.0)
    return out


def mlx_model(c: dict):
    if "mlx_lm" not in sys.modules:
        spec = importlib.util.find_spec("mlx_lm")
        for name, path in (("mlx_lm", ""), ("mlx_lm.models", "models")):
            package = types.ModuleType(name)
            package.__path__ = [str(Path(spec.submodule_search_locations[0]) / path)]
            sys.modules[name] = package
    module = importlib.import_module(f"mlx_lm.models.{c['model_type']}")
    blocks = {f"block_{name}": None for name in ("multiple_of", "ffn_dim_multiplier")}
    blocks["block_dim"] = c["hidden_size"]
    return module.Model(module.ModelArgs.from_dict(blocks | c))


def mlx_logits(model) -> list:
    # set_dtype leaves what is not a number alone, such as packed codes.
    model.set_dtype(mx.float32)
    whole = np.array(model(mx.array([IDS]))[0])
    cache = model.make_cache()
    steps = np.stack([np.array(model(mx.array([[id]]), cache=cache)[0, 0]) for id in IDS])
    print("whole and token by token differ by", np.abs(whole - steps).max(), "of", np.abs(whole).max())
    return whole.tolist()


def is_taps(name: str) -> bool:
    return name.endswith("conv.conv.weight")


def loaded(c: dict, tensors: dict):
    model = mlx_model(c)
    shaped = {n: mx.array(v[:, None, :] if is_taps(n) else v) for n, v in tensors.items()}
    model.load_weights(list(model.sanitize(shaped).items()))
    return model


def hugging_face(directory: str, c: dict, tensors: dict) -> list:
    path = OUT / directory
    path.mkdir(parents=True)
    stored = {}
    for name, value in tensors.items():
        value = mx.array(value[:, None, :] if is_taps(name) else value)
        stored[name] = value if name.endswith("expert_bias") else value.astype(mx.bfloat16)
    mx.save_safetensors(str(path / "model.safetensors"), stored, metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    return mlx_logits(loaded(c, tensors))


def mlx(directory: str, c: dict, tensors: dict) -> list:
    path = OUT / directory
    path.mkdir(parents=True)
    model = loaded(c, tensors)
    # Routers take 8 bits, as in mlx-lm's own conversions.
    eight = {"group_size": 64, "bits": 8}
    routers = {path for path, _ in model.named_modules() if path.endswith("feed_forward.gate")}
    choose = lambda path, module: hasattr(module, "to_quantized") and (eight if path in routers else True)
    nn.quantize(model, group_size=32, bits=4, class_predicate=choose)
    kept = dict(tree_flatten(model.parameters()))
    is_kept = lambda name, value: value.dtype == mx.uint32 or name.endswith("expert_bias")
    stored = {n: v if is_kept(n, v) else v.astype(mx.bfloat16) for n, v in kept.items()}
    mx.save_safetensors(str(path / "model.safetensors"), stored, metadata={"format": "mlx"})
    quantization = {"group_size": 32, "bits": 4} | {router: eight for router in sorted(routers)}
    (path / "config.json").write_text(json.dumps(c | {"quantization": quantization}, indent=1) + "\n")
    widened = {n: v if v.dtype == mx.uint32 else v.astype(mx.float32) for n, v in stored.items()}
    model.update(tree_unflatten(list(widened.items())))
    return mlx_logits(model)


NAMES = {
    "operator_norm.weight": "attn_norm.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.out_proj.weight": "attn_output.weight",
    "self_attn.q_layernorm.weight": "attn_q_norm.weight",
    "self_attn.k_layernorm.weight": "attn_k_norm.weight",
    "conv.conv.weight": "shortconv.conv.weight",
    "conv.in_proj.weight": "shortconv.in_proj.weight",
    "conv.out_proj.weight": "shortconv.out_proj.weight",
    "feed_forward.w1.weight": "ffn_gate.weight",
    "feed_forward.w2.weight": "ffn_down.weight",
    "feed_forward.w3.weight": "ffn_up.weight",
    "feed_forward.gate.weight": "ffn_gate_inp.weight",
    "feed_forward.expert_bias": "exp_probs_b.bias",
}


def write_gguf(name: str, c: dict, tensors: dict, window: int = 0) -> Path:
    arch = "lfm2moe" if "num_experts" in c else "lfm2"
    path = OUT / name
    w = gguf.GGUFWriter(path, arch)
    n_layers = c["num_hidden_layers"]
    w.add_context_length(64)
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(n_layers)
    w.add_feed_forward_length(64)
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv([c["num_key_value_heads"] if attends(c, i) else 0 for i in range(n_layers)])
    w.add_layer_norm_rms_eps(c["norm_eps"])
    w.add_vocab_size(VOCAB)
    w.add_tokenizer_model("none")
    w.add_rope_freq_base(1000000.0)
    w.add_shortconv_l_cache(c["conv_L_cache"])
    if window:
        w.add_sliding_window(window)
    if "num_experts" in c:
        w.add_expert_count(c["num_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        w.add_leading_dense_block_count(c["num_dense_layers"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    experts = {}
    for name, x in tensors.items():
        if name == "model.embed_tokens.weight":
            known = "token_embd.weight"
        elif name == "model.embedding_norm.weight":
            known = "token_embd_norm.weight"
        else:
            _, _, layer, rest = name.split(".", 3)
            if rest.startswith("feed_forward.experts."):
                experts.setdefault((layer, rest.split(".")[3]), []).append(x)
                continue
            known = f"blk.{layer}.{NAMES[rest]}"
        w.add_tensor(known, np.ascontiguousarray(x))
    for (layer, part), matrices in experts.items():
        stem = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}[part]
        w.add_tensor(f"blk.{layer}.{stem}.weight", np.stack(matrices))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    cases = {}
    conv, full = "conv", "full_attention"
    kinds = [conv, full, conv, full]
    dense = config(32, kinds, taps=3, biases=False)
    biased = newer(config(64, [full, conv], taps=4, biases=True), [full, conv])
    kinds_moe = [conv, full, conv]
    moe = with_experts(newer(config(32, kinds_moe, taps=3, biases=False), kinds_moe))
    moe_mlx = with_experts(newer(config(64, [conv, full], taps=3, biases=False), [conv, full]))
    for name, c, small, seed in (("lfm2", dense, biased, 62), ("lfm2moe", moe, moe_mlx, 64)):
        tensors = weights(c, np.random.default_rng(seed))
        known = f"hf_{name}"
        cases[known] = hugging_face(known, c, tensors)
        cases[f"mlx_{name}"] = mlx(f"mlx_{name}", small, weights(small, np.random.default_rng(seed + 1)))
        path = write_gguf(f"{name}.gguf", c, tensors)
        cases[path.name] = llama_logits(path)
        differences = np.abs(np.array(cases[path.name]) - np.array(cases[known]))
        print("the two programs differ by", differences.max())
        if name == "lfm2":
            path = write_gguf("lfm2_window.gguf", c, tensors, WINDOW)
            cases[path.name] = llama_logits(path)
            differences = np.abs(np.array(cases[path.name]) - np.array(cases[known])).max(axis=1)
            print("the window makes a difference from token", np.flatnonzero(differences > 1e-3)[0], "on")
    rounded = {name: [[round(v, 5) for v in row] for row in rows] for name, rows in cases.items()}
    note = "random models by make_lfm2_models.py; logits by mlx-lm (float32), those of the GGUF files by llama.cpp"
    (HERE / "lfm2.json").write_text(json.dumps({"note": note, "ids": IDS, "logits": rounded}) + "\n")


if __name__ == "__main__":
    main()
