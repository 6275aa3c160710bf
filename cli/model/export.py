"""Write a checkpoint of `train.py` as GGUF v3: `python export.py F16 halfbyte-tiny.gguf` makes the committed file.

Types: F32, F16, Q8_0, Q4_0. Norms stay F32; matrices take the type asked for, quantized by the `gguf` package, the tied
token embedding included. Rope pairs are adjacent in training already, so q and k need none of llama.cpp's permutation.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np

import corpus
import train


def write_metadata(writer: gguf.GGUFWriter, kind: gguf.GGMLQuantizationType) -> None:
    """Name and licence, the shape under `llama.*`, and the tokenizer."""
    writer.add_name("halfbyte tiny")
    writer.add_description(
        "A small English model for tests and demonstrations, trained from scratch by train.py of halfbyte's cli/model on"
        " the six novels of Jane Austen and on Herman Melville's Moby Dick, all in the public domain."
    )
    writer.add_license("MIT OR Apache-2.0")
    writer.add_languages(["en"])
    writer.add_file_type(gguf.LlamaFileType[{"F32": "ALL_F32"}.get(kind.name, f"MOSTLY_{kind.name}")])
    if kind.name.startswith("Q"):
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(train.VOCAB)
    writer.add_context_length(train.CONTEXT)
    writer.add_embedding_length(train.WIDTH)
    writer.add_block_count(train.LAYERS)
    writer.add_feed_forward_length(train.FF)
    writer.add_head_count(train.HEADS)
    writer.add_head_count_kv(train.KV_HEADS)
    writer.add_key_length(train.HEAD_DIM)
    writer.add_value_length(train.HEAD_DIM)
    writer.add_layer_norm_rms_eps(train.EPS)
    writer.add_rope_dimension_count(train.HEAD_DIM)
    writer.add_rope_freq_base(train.THETA)

    model = json.loads((corpus.WORK / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    assert len(tokens) == train.VOCAB and tokens[0] == train.END
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (len(tokens) - 1))
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def main() -> None:
    args = argparse.ArgumentParser(description="Write a checkpoint as GGUF.")
    args.add_argument("type", choices=["F32", "F16", "Q8_0", "Q4_0"])
    args.add_argument("path", type=Path)
    args.add_argument("--checkpoint", type=Path, default=corpus.WORK / "checkpoint.npz")
    opt = args.parse_args()

    kind = gguf.GGMLQuantizationType[opt.type]
    writer = gguf.GGUFWriter(opt.path, "llama")
    write_metadata(writer, kind)
    for name, weight in np.load(opt.checkpoint).items():
        if weight.ndim == 1:
            writer.add_tensor(name, weight.astype(np.float32))
        else:
            writer.add_tensor(name, gguf.quants.quantize(weight.astype(np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{opt.path}: {opt.path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
