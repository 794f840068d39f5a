"""Throughput and memory of a job of many ranks: ``python -m tests.ranks.bench [RANKS] [--scheduler ADDRESS]``.

One rank fails first, ten follow, one holds a planted leak; the snapshots are made of the recorded run healthy-steady.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .make import job


def memory(pid: int) -> int:
    """Bytes of a process and all below it, shared pages counted in part (Linux)."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            total += sum(memory(int(child)) for child in children.read_text().split())
    except OSError:  # it has just ended
        pass
    return total


def main(count: int, options: list[str]) -> None:
    """Makes the job, diagnoses it, prints what it took."""
    first, leaking = count * 5 // 8, count // 12
    special: dict[int, dict[str, int]] = {first: {"oom_after_us": 1000}, leaking: {"leak": 40}}
    for rank in range(first + 1, min(first + 11, count)):
        special[rank] = {"oom_after_us": 1_000_000 + 1000 * rank}
    with tempfile.TemporaryDirectory() as folder:
        job(Path(folder), range(count), special)
        began, peak = time.monotonic(), 0
        with open(Path(folder) / "report.out", "w+", encoding="utf-8") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "oomctl", "diagnose", folder, "--json", *options], stdout=out
            )
            while child.poll() is None:
                peak = max(peak, memory(child.pid))
                time.sleep(0.2)
            took = time.monotonic() - began
            out.seek(0)
            found = json.load(out)["job"]
    named = [row["rank"] for row in found["rows"] if row["role"] == "first"] + [o["rank"] for o in found["outliers"]]
    print(f"{count} ranks in {took:.1f} s, {count / took:.1f} a second, {peak / 2**20:.0f} MiB in all processes")
    print(f"named {named}, planted {[first, leaking]}: {found['headline']}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 512, arguments)
