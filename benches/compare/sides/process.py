"""Running a program and watching its memory."""

import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path


class Failed(Exception):
    """A program could not do what it was asked for; the message says which and why."""


@dataclass
class Peak:
    """The most that a process had in memory, bytes; zeros where the system has no /proc."""

    # With pages of mapped files: the kernel's own high-water mark.
    resident: int = 0
    # Without them: what no other process could share and the system could not drop. Sampled.
    anonymous: int = 0


def run(command: list, env: dict | None = None) -> str:
    """What `command` prints."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env, check=False)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise Failed(f"{' '.join(map(str, command[:3]))}: {last[0]}")
    return done.stdout


def run_watched(command: list, env: dict | None = None) -> tuple[str, Peak]:
    """What `command` prints, and its peak memory, looked at every two milliseconds."""
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
    ) as child:
        # Read elsewhere, so that a full pipe stops nothing.
        printed: list[str] = []
        reader = threading.Thread(target=lambda: printed.append(child.stdout.read()))
        reader.start()
        peak = Peak()
        status = Path(f"/proc/{child.pid}/status")
        while child.poll() is None:
            try:
                fields = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
                peak.resident = max(peak.resident, int(fields["VmHWM"].split()[0]) * 1024)
                peak.anonymous = max(peak.anonymous, int(fields["RssAnon"].split()[0]) * 1024)
            except (OSError, KeyError):
                # The process is on its way out, or there is no /proc.
                pass
            time.sleep(0.002)
        reader.join()
    if child.returncode:
        raise Failed(f"{' '.join(map(str, command[:3]))}: exit code {child.returncode}")
    return printed[0], peak


def seconds_to_output(command: list) -> float:
    """From the start of `command` to the first byte that it prints."""
    start = time.perf_counter()
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        first = child.stdout.read(1)
        seconds = time.perf_counter() - start
        child.stdout.read()
    if child.returncode or not first:
        raise Failed(f"{' '.join(map(str, command[:3]))}: exit code {child.returncode}, nothing printed")
    return seconds
