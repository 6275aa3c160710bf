"""The models that are compared, made where they are absent: their makers put a file in its place when it is complete."""

import sys
from pathlib import Path

from .process import Failed, run

TYPES = ["f32", "f16", "q8_0", "q4_0", "q4_1"]
# Name and how people call it.
MODELS = {f"smollm2-{ty}": f"SmolLM2-135M {ty.upper()}" for ty in TYPES} | {
    f"1b-{ty}": f"random 1B {ty.upper()}" for ty in ["q4_0", "q8_0"]
}


def label(name: str) -> str:
    return MODELS.get(name, name)


def prepare(name: str, halfbyte: Path, random_model: Path, source: Path, folder: Path) -> Path:
    """The file of model `name`; one that is there already stays."""
    if name not in MODELS:
        path = Path(name)
        if not path.is_file():
            raise Failed(f"{name}: expected a file, or one of {', '.join(MODELS)}")
        return path
    path = folder / f"{name}.gguf"
    if path.is_file():
        return path
    if not source.is_file():
        raise Failed(f"{name} is made from {source}, which is missing: `cargo xtask fetch-model` fetches it")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"making {path}", file=sys.stderr)
    family, ty = name.rsplit("-", 1)
    if family == "smollm2":
        run([halfbyte, "quantize", source, path, "--type", ty])
        return path
    if not random_model.is_file():
        build = "cargo build --release -p halfbyte-benches --examples"
        raise Failed(f"{name} needs {random_model}: `{build}` builds it")
    run([random_model, source, path, ty])
    return path
