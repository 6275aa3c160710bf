"""halfbyte beside llama.cpp and candle on the same GGUF files, threads and tokens, in turns: A B C A B C ...

    cargo xtask compare --peer-python target/peers/bin/python

builds what is ours (with --candle candle, too), runs this and writes the tables into the documents. By hand:

    cargo build --release && cargo build --release -p halfbyte-benches --examples
    python3 -m venv target/peers
    CMAKE_ARGS=-DGGML_NATIVE=ON target/peers/bin/pip install --no-binary llama-cpp-python -r benches/compare/requirements.txt
    RUSTFLAGS=-Ctarget-cpu=native cargo build --release --manifest-path benches/compare/candle/Cargo.toml
    python3 benches/compare/compare.py --peer-python target/peers/bin/python

A peer that is not there is left out, with a line that says how to get it. Every run is a process of its own, and a
round has one of each engine, so the ratio of a round holds when the machine's speed drifts. Printed as Markdown: the
median of all rounds with the least and the most, and the ratios round by round in the same way.

--work says what is measured: `rates` (a prompt and decoding in an empty context), `long` (a prompt of --depth tokens,
and decoding behind it), `first` (from nothing to the first token), `memory` (peaks, of a prompt of 512 and 16 more) and
`bandwidth` (what reading memory in order gives, and how much of it decoding reaches).

An AVX2 machine on one that has more: --isa avx2 for us, and for llama.cpp another venv, made with
CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX512=OFF".
"""

import argparse
import json
import os
import sys
from pathlib import Path

from sides import models, report
from sides.engines import Candle, Halfbyte, LlamaCpp
from sides.figures import Figures
from sides.process import Failed, run

WORK = ["bandwidth", "rates", "long", "first", "memory"]


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def engines(args: argparse.Namespace) -> list:
    """halfbyte first, then the peers that are there."""
    ours = Halfbyte(args.halfbyte, ["--isa", args.isa] if args.isa else [])
    found = [ours]
    for make in (lambda: LlamaCpp(args.peer_python), lambda: Candle(args.candle, ours.prompt_ids)):
        try:
            found.append(make())
        except Failed as error:
            note(str(error))
    return found


def rounds(count: int, sides: list, measure) -> dict[str, dict[str, list[float]]]:
    """Runs `measure(engine)` in turns: {what: {engine: values}}. An engine that fails is left out from then on."""
    values: dict[str, dict[str, list[float]]] = {}
    failed = set()
    for _ in range(count):
        for engine in sides:
            if engine.name in failed:
                continue
            try:
                for what, value in measure(engine).items():
                    values.setdefault(what, {}).setdefault(engine.name, []).append(value)
            except Failed as error:
                note(f"{engine.name}: {error}")
                failed.add(engine.name)
    if "halfbyte" in failed:
        raise Failed("halfbyte failed: there is nothing to compare")
    for engine in failed:
        for of in values.values():
            of.pop(engine, None)
    return values


def measure(args: argparse.Namespace, figures: Figures, sides: list, name: str, path: Path) -> None:
    """All that is wanted of one model."""
    figures.data["bytes_per_token"][name] = sides[0].bytes_per_token(path)
    for threads in args.threads:

        def put(works: dict[str, str], measured, able=sides) -> None:
            for what, values in rounds(args.rounds, able, measured).items():
                figures.put(name, threads, works[what], values)
                shown = ", ".join(f"{engine} {report.spread(v, 3)}" for engine, v in values.items())
                note(f"{name}, {threads} threads, {works[what]}: {shown}")

        if "rates" in args.work:
            works = dict(prompt=f"prompt {args.prompt}", decode=f"decode {args.generate}")
            put(works, lambda e: e.rates(path, threads, args.prompt, args.generate, 0))
        if "long" in args.work:
            works = dict(prompt=f"prompt {args.depth}", decode=f"decode {args.deep_generate} at {args.depth}")
            able = [e for e in sides if args.depth + args.deep_generate <= e.longest]
            for engine in (e for e in sides if e not in able):
                note(f"{engine.name} holds {engine.longest} tokens at most: left out of the long context")
            put(works, lambda e: e.rates(path, threads, args.depth, args.deep_generate, args.depth), able)
        if "first" in args.work:
            for engine in sides:
                # The file is in the system's cache from here on, for all alike.
                engine.first_token(path, threads)
            put(dict(first="first token"), lambda e: dict(first=e.first_token(path, threads)))
        if "memory" in args.work:

            def peaks(engine) -> dict[str, float]:
                peak = engine.peak(path, threads)
                return dict(all=peak.resident, anonymous=peak.anonymous)

            put(dict(all="peak memory", anonymous="peak without file pages"), peaks)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).parents[2]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--models", type=words, default=list(models.MODELS), help="names with commas between, or files")
    parser.add_argument("--source", type=Path, default=root / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--folder", type=Path, default=target / "compare", help="where models are made")
    parser.add_argument("--halfbyte", type=Path, default=target / "release/halfbyte")
    parser.add_argument("--isa", help="our instruction set path instead of the fastest")
    parser.add_argument("--peer-python", type=Path, default=Path(sys.executable), help="a Python with llama-cpp-python")
    parser.add_argument("--candle", type=Path, help="the program of benches/compare/candle")
    parser.add_argument("--examples", type=Path, default=target / "release/examples", help="our programs of benches/")
    parser.add_argument("--work", type=words, default=WORK, help=f"some of {','.join(WORK)}")
    parser.add_argument("-t", "--threads", type=numbers, default=[1, 2])
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=128)
    parser.add_argument("-d", "--depth", type=int, default=4096)
    parser.add_argument("--deep-generate", type=int, default=32, help="tokens decoded behind --depth others")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of one small model: does everything work?")
    parser.add_argument("--json", type=Path, help="figures, kept and added to; others of this machine stay")
    parser.add_argument("--print", choices=["full", "short", "bars"], help="measure nothing: tables, bars, of --json")
    args = parser.parse_args()
    args.candle = args.candle or root / "benches/compare/candle/target/release/candle-compare"
    for work in args.work:
        if work not in WORK:
            parser.error(f"--work {work}: expected some of {','.join(WORK)}")
    if args.print and not args.json:
        parser.error("--print needs the figures: --json FILE")
    if args.quick:
        args.models, args.rounds, args.prompt, args.generate = ["smollm2-q4_0"], 1, 64, 16
        args.depth, args.deep_generate = 256, 16
    return args


def main() -> None:
    args = parse()
    figures = Figures(args.json)
    if not args.print:
        sides = engines(args)
        if figures.start({engine.name: engine.version for engine in sides}):
            note("other programs than before: the figures begin anew")
        if "bandwidth" in args.work:
            note("reading memory")
            probe = [args.examples / "bandwidth", *([64] if args.quick else [])]
            figures.data["bandwidth"] = json.loads(run(probe))["read"]
            figures.save()
        if set(args.work) - {"bandwidth"}:
            for name in args.models:
                path = models.prepare(name, args.halfbyte, args.examples / "random_model", args.source, args.folder)
                measure(args, figures, sides, name, path)
    show = dict(full=report.full, short=report.short, bars=lambda data: json.dumps(report.bars(data)))
    print(show[args.print or "full"](figures.data))


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(str(error))
