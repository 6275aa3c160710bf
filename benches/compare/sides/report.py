"""Figures as Markdown tables."""

import statistics

from .figures import ENGINES
from .models import MODELS, label

RATES = ("prompt", "decode")
# Those of the README.
SHORT = ["smollm2-q4_0", "smollm2-q4_1", "smollm2-q8_0", "1b-q4_0"]


def spread(values: list[float], digits: int) -> str:
    """Median, least and most."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def ratios(values: dict[str, list[float]], peer: str) -> list[float]:
    """halfbyte / peer, of the runs that were side by side."""
    return [ours / theirs for ours, theirs in zip(values["halfbyte"], values.get(peer, []))]


def _rank(entry: dict) -> tuple:
    names = list(MODELS)
    model = entry["model"]
    work = entry["work"].split()
    long = len(work) > 2 or int(work[1]) > 1024 if work[0] in RATES else False
    return (names.index(model) if model in names else len(names), model, long, work[0] != "prompt", entry["threads"])


def _entries(data: dict, kinds: tuple[str, ...]) -> list[dict]:
    chosen = [e for e in data["entries"] if e["work"].split()[0] in kinds and "halfbyte" in e["values"]]
    return sorted(chosen, key=_rank)


def _peers(entries: list[dict]) -> list[str]:
    return [peer for peer in ENGINES[1:] if any(peer in e["values"] for e in entries)]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def _side_by_side(data: dict, kinds: tuple[str, ...], unit: str, digits: int, scale: float = 1.0) -> str:
    """A row for each entry: every engine's values, and halfbyte's ratio to each peer's."""
    entries = _entries(data, kinds)
    if not entries:
        return ""
    peers = _peers(entries)
    head = ["model", "work", "threads", f"halfbyte{unit}"]
    for peer in peers:
        head += [f"{peer}{unit}", f"halfbyte / {peer}"]
    rows = []
    for entry in entries:
        values = entry["values"]
        row = [label(entry["model"]), entry["work"], str(entry["threads"])]
        row.append(spread([v * scale for v in values["halfbyte"]], digits))
        for peer in peers:
            if peer in values:
                row += [spread([v * scale for v in values[peer]], digits), spread(ratios(values, peer), 2)]
            else:
                row += ["-", "-"]
        rows.append(row)
    return _table(head, rows)


def _bandwidth(data: dict) -> str:
    threads = sorted({b["threads"] for b in data["bandwidth"]})
    rows = []
    for pages in ("normal", "huge"):
        found = {b["threads"]: b for b in data["bandwidth"] if b["pages"] == pages}
        cells = [spread([found[t][k] / 1e9 for k in ("min", "median", "max")], 1) for t in threads if t in found]
        if cells:
            rows.append([f"{pages} pages", *cells])
    return _table(["streaming read, GB/s", *(f"{t} threads" if t > 1 else "1 thread" for t in threads)], rows)


def _shares(data: dict) -> str:
    """Bytes of weights a second in decoding, and what part of the streaming read that is."""
    limit = {b["threads"]: b["median"] for b in data["bandwidth"] if b["pages"] == "huge"}
    entries = [
        e
        for e in _entries(data, ("decode",))
        if " at " not in e["work"] and e["threads"] in limit and e["model"] in data["bytes_per_token"]
    ]
    if not entries:
        return ""
    engines = ["halfbyte", *_peers(entries)]
    rows = []
    for entry in entries:
        size = data["bytes_per_token"][entry["model"]]
        row = [label(entry["model"]), str(entry["threads"]), f"{size / 1e6:.0f}"]
        for engine in engines:
            values = entry["values"].get(engine)
            if values:
                read = statistics.median(values) * size
                row.append(f"{read / 1e9:.1f} ({100 * read / limit[entry['threads']]:.0f}%)")
            else:
                row.append("-")
        rows.append(row)
    return _table(["model", "threads", "MB a token", *(f"{e}, GB/s (share)" for e in engines)], rows)


def _heading(data: dict) -> str:
    versions = "; ".join(f"{name}: {data['versions'][name]}" for name in ENGINES if name in data["versions"])
    return f"{data['machine']}; {data['date']}. {versions}.\n"


def full(data: dict) -> str:
    """Every table there are figures for."""
    parts = [
        _heading(data),
        _side_by_side(data, RATES, ", tokens/s", 1),
        _bandwidth(data) if data["bandwidth"] else "",
        _shares(data),
        _side_by_side(data, ("first",), ", ms", 0, 1e3),
        _side_by_side(data, ("peak",), ", MB", 0, 1e-6),
    ]
    return "\n".join(part for part in parts if part)


def _short(data: dict) -> list[dict]:
    """The rates of some models at prompts of the usual length, beside llama.cpp alone."""
    chosen = []
    for entry in _entries(data, RATES):
        if entry["model"] in SHORT and not _rank(entry)[2]:
            values = {k: v for k, v in entry["values"].items() if k != "candle"}
            chosen.append({**entry, "values": values})
    return chosen


def short(data: dict) -> str:
    """The table of what `_short` chooses."""
    chosen = {**data, "entries": _short(data)}
    return _heading(data) + "\n" + _side_by_side(chosen, RATES, ", tokens/s", 1)


def bars(data: dict) -> dict:
    """What `_short` chooses, for the plot: {machine, date, bars: [{work, name, values}]}."""
    rows = []
    for entry in _short(data):
        work, tokens = entry["work"].split()
        threads = f"{entry['threads']} thread{'s' if entry['threads'] > 1 else ''}"
        name = f"{label(entry['model'])}, {tokens} tokens, {threads}"
        rows.append(dict(work=work, name=name, values=entry["values"]))
    isa = data["versions"].get("halfbyte", "").partition(", ")[2]
    return dict(machine=f"{data['machine']}, {isa}", date=data["date"], bars=rows)
