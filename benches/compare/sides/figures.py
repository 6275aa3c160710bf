"""What was measured, as a JSON file that later runs add to."""

import json
import os
import platform
from datetime import date
from pathlib import Path

ENGINES = ["halfbyte", "llama.cpp", "candle"]


def machine() -> str:
    """The processor's name, its CPUs and the system."""
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{cpu}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"


class Figures:
    """Entries are (model, threads, work) with the values of each engine, one a round."""

    def __init__(self, path: Path | None):
        self.path = path
        self.data = dict(machine=machine(), date="", versions={}, bytes_per_token={}, bandwidth=[], entries=[])
        if path and path.is_file():
            self.data = json.loads(path.read_text(encoding="utf-8"))

    def start(self, versions: dict[str, str]) -> bool:
        """Forgets what other programs did, or another machine; says whether there was any of it."""
        before = self.data["versions"]
        same = all(before.get(name, version) == version for name, version in versions.items())
        other = self.data["machine"] != machine() or not same
        if other:
            self.data.update(machine=machine(), versions={}, bytes_per_token={}, bandwidth=[], entries=[])
        self.data["versions"].update(versions)
        return other

    def put(self, model: str, threads: int, work: str, values: dict[str, list[float]]) -> None:
        """Takes the place of older figures of the same work."""
        key = dict(model=model, threads=threads, work=work)
        self.data["entries"] = [e for e in self.data["entries"] if not key.items() <= e.items()]
        self.data["entries"].append({**key, "values": {name: v for name, v in values.items() if v}})
        self.save()

    def save(self) -> None:
        self.data["date"] = date.today().isoformat()
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            whole = self.path.with_suffix(".tmp")
            whole.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
            whole.replace(self.path)
