"""Programs that run models: each measurement is a process of its own."""

import json
import os
import re
from pathlib import Path

from .process import Failed, Peak, run, run_watched, seconds_to_output

PROMPT = "The capital of France is"
CHILD = Path(__file__).with_name("llama_child.py")


def _rates(printed: str) -> dict[str, float]:
    """Tokens a second of the prompt and of decoding, as far as they were measured."""
    results = json.loads(printed)["results"]
    return {"decode" if r["n_gen"] else "prompt": r["tokens_per_second"]["median"] for r in results}


class Halfbyte:
    """`halfbyte bench` and `halfbyte run`."""

    name = "halfbyte"
    # Tokens that a context may hold.
    longest = 1 << 20

    def __init__(self, program: Path, arguments: list[str]):
        self.program, self.arguments = program, arguments
        version = run([program, "--version"]).split()[-1]
        isa = json.loads(self._bench(None, 1, 0, 1, 0))["isa"]
        self.version = f"{version}, isa {isa}"

    def _command(self, model, threads: int, n_prompt: int, n_gen: int, depth: int) -> list:
        command = [self.program, "bench", "-t", threads, "--threads", threads, "-p", n_prompt, "-n", n_gen]
        command += ["--depth", depth, "--reps", 1, "--json", *self.arguments]
        return command + (["--model", model] if model else [])

    def _bench(self, *work) -> str:
        return run(self._command(*work))

    def rates(self, model: Path, threads: int, n_prompt: int, n_gen: int, depth: int) -> dict[str, float]:
        return _rates(self._bench(model, threads, n_prompt, n_gen, depth))

    def bytes_per_token(self, model: Path) -> int:
        """Weights that each decoded token reads."""
        return json.loads(self._bench(model, 1, 0, 0, 0))["weight_bytes_per_token"]

    def peak(self, model: Path, threads: int) -> Peak:
        return run_watched(self._command(model, threads, 512, 16, 0))[1]

    def first_token(self, model: Path, threads: int) -> float:
        """Seconds from the start of the process."""
        command = [self.program, "run", "--model", model, "--prompt", PROMPT, "-n", 1, "--temperature", 0]
        return seconds_to_output([*command, "--ctx", 512, "--threads", threads, *self.arguments])

    def prompt_ids(self, model: Path) -> list[int]:
        command = [self.program, "run", "--model", model, "--prompt", PROMPT, "-n", 1, "--ctx", 512, "--json"]
        return json.loads(run(command))["prompt_ids"]


class LlamaCpp:
    """llama.cpp through its Python package."""

    name = "llama.cpp"
    longest = 1 << 20

    def __init__(self, python: Path):
        self.python = python
        ask = "import llama_cpp as l; print(l.__version__); print(l.llama_print_system_info().decode())"
        try:
            version, _, features = run([python, "-c", ask]).partition("\n")
            # Such as "CPU : SSE3 = 1 | AVX2 = 1 | ...".
            built = sorted(set(re.findall(r"(AVX\w*|FMA|F16C|NEON|SVE|DOTPROD) = 1", features)))
            self.version = f"llama-cpp-python {version} ({', '.join(built)})"
        except Failed as error:
            raise Failed(
                f"llama.cpp is left out: {error}\n  python3 -m venv target/peers && CMAKE_ARGS=-DGGML_NATIVE=ON "
                "target/peers/bin/pip install --no-binary llama-cpp-python -r benches/compare/requirements.txt\n"
                "  makes a Python for --peer-python: target/peers/bin/python"
            ) from error

    def _command(self, model: Path, threads: int, *work) -> list:
        return [self.python, CHILD, model, "--threads", threads, *work]

    def rates(self, model: Path, threads: int, n_prompt: int, n_gen: int, depth: int) -> dict[str, float]:
        return _rates(run(self._command(model, threads, "rates", n_prompt, n_gen, depth)))

    def peak(self, model: Path, threads: int) -> Peak:
        """Beyond what the process had before it opened the file."""
        printed, peak = run_watched(self._command(model, threads, "rates", 512, 16, 0))
        before = json.loads(printed)["before"]
        return Peak(peak.resident - before["resident"], peak.anonymous - before["anonymous"])

    def first_token(self, model: Path, threads: int) -> float:
        """Seconds from before the file was opened: Python's start does not count."""
        return json.loads(run(self._command(model, threads, "first", PROMPT)))["seconds"]


class Candle:
    """candle's quantized Llama, the package in `candle/`."""

    name = "candle"
    # candle-transformers makes tables for so many positions.
    longest = 4096

    def __init__(self, program: Path, ids):
        if not program.is_file():
            raise Failed(
                f"candle is left out: there is no {program}\n  RUSTFLAGS=-Ctarget-cpu=native cargo build --release "
                "--manifest-path benches/compare/candle/Cargo.toml\n  builds it"
            )
        self.program, self.ids = program, ids
        self.version = "candle-transformers 0.11.1"

    def _environment(self, threads: int) -> dict:
        return {**os.environ, "RAYON_NUM_THREADS": str(threads), "CANDLE_NUM_THREADS": str(threads)}

    def rates(self, model: Path, threads: int, n_prompt: int, n_gen: int, depth: int) -> dict[str, float]:
        return _rates(run([self.program, model, n_prompt, n_gen, depth], self._environment(threads)))

    def peak(self, model: Path, threads: int) -> Peak:
        return run_watched([self.program, model, 512, 16, 0], self._environment(threads))[1]

    def first_token(self, model: Path, threads: int) -> float:
        """Seconds from before the file was opened; the prompt comes tokenized."""
        ids = ",".join(map(str, self.ids(model)))
        return json.loads(run([self.program, model, "first", ids], self._environment(threads)))["seconds"]
