"""Files that `halfbyte quantize` writes, read by others.

    cargo build --release -p halfbyte-cli
    python3 -m venv target/peers && target/peers/bin/pip install -r benches/compare/requirements.txt
    target/peers/bin/python benches/compare/roundtrip.py MODEL.gguf CALIBRATION.txt

For every type and method: the `gguf` package must find the same tensors, and what it decodes must be, bit for bit, what
`halfbyte quantize --type f32` makes of the same file. llama.cpp continues a few prompts with that F32 file, where it
rounds no activations, and halfbyte must choose the same tokens with the quantized one; where they part, halfbyte's two
best tokens may be no farther apart than GAP. Then llama.cpp runs the quantized file itself: how far its choices are
from halfbyte's best is printed, not judged, since the two round activations differently. Exit code 1 if anything
differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
from gguf import GGUFReader, dequantize

HALFBYTE = Path(__file__).parents[2] / "target/release/halfbyte"
PROMPTS = ["The capital of France is", "A hacker is a person who", "In 1969, the first message", "def add(a, b):"]
TOKENS = 24
# Logits; llama.cpp keeps keys and values in half precision.
GAP = 0.05


def halfbyte(*args):
    done = subprocess.run([HALFBYTE, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"halfbyte {' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def same_weights(quantized, decoded):
    """Whether the two files hold the same numbers, by name."""
    ours = {t.name: t for t in GGUFReader(decoded).tensors}
    theirs = GGUFReader(quantized).tensors
    if ours.keys() != {t.name for t in theirs}:
        return False
    for tensor in theirs:
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if values.tobytes() != numpy.ascontiguousarray(ours[tensor.name].data).tobytes():
            print(f"  {tensor.name} ({tensor.tensor_type.name}) differs")
            return False
    return True


def gaps(llama_model, model, activations):
    """For each prompt: how far llama.cpp's tokens fall behind halfbyte's best ones, in logits, at worst."""
    from llama_cpp import Llama

    llama = Llama(model_path=str(llama_model), n_ctx=256, n_threads=2, verbose=False)
    worst = []
    for prompt in PROMPTS:
        ids = llama.tokenize(prompt.encode(), add_bos=False, special=False)
        start = len(ids)
        llama.reset()
        for token in llama.generate(ids, temp=0.0, repeat_penalty=1.0):
            ids.append(token)
            if len(ids) == start + TOKENS:
                break
        # What halfbyte makes of llama.cpp's own tokens, so that one near tie does not count at every later place.
        listed = ",".join(map(str, ids))
        said = halfbyte("logits", "-m", model, "--ids", listed, "--top", 20, "--activations", activations, "--json")
        worst.append(0.0)
        for position in range(start, len(ids)):
            at = json.loads(said)["positions"][position - 1]
            logits = dict(zip(at["top_ids"], at["top_logits"]))
            worst[-1] = max(worst[-1], at["top_logits"][0] - logits.get(ids[position], -numpy.inf))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("calibration", type=Path)
    args = parser.parse_args()
    calibrate = ["--calibrate", args.calibration, "--calibrate-tokens", 2048]
    recipes = [
        ["--type", "f16"],
        ["--type", "q8_0"],
        ["--type", "q4_0", "--method", "max7"],
        ["--type", "q4_0", "--method", "max"],
        ["--type", "q4_0", "--method", "fit"],
        ["--type", "q4_0", "--method", "gptq", *calibrate],
        ["--type", "q4_1"],
        ["--type", "q4_1", "--method", "fit", *calibrate],
    ]
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        quantized, decoded = Path(directory) / "quantized.gguf", Path(directory) / "f32.gguf"
        for recipe in recipes:
            halfbyte("quantize", args.model, quantized, "--force", *recipe)
            halfbyte("quantize", quantized, decoded, "--force", "--type", "f32")
            weights = same_weights(quantized, decoded)
            exact = gaps(decoded, quantized, "f32")
            rounded = gaps(quantized, quantized, "int8")
            failed |= not (weights and max(exact) <= GAP)
            what = " ".join(str(part) for part in recipe if part not in calibrate)
            print(
                f"{what:32} weights {'equal' if weights else 'DIFFER'}, "
                f"{exact.count(0.0)} of {len(PROMPTS)} continuations equal, largest gap {max(exact):.3f}; "
                f"as quantized {rounded.count(0.0)}, {max(rounded):.3f}",
                flush=True,
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
