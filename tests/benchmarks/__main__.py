"""Time and peak memory of both engines, as the table in README.

usage: python -m tests.benchmarks [--sizes 22000,200000,1000000] [--repeats 5] [--keep DIR] [--write]

Each command is a process of its own and the commands take turns, so that a busy machine slows all of them alike. The
snapshots are made first (about a minute for each million of events) and stay in the folder that --keep names.
--write puts the table into README.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from oomctl import _native
from oomctl.allocator.whatif import SEARCH
from tests.benchmarks import synthetic

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- benchmarks -->\n", "<!-- end of benchmarks -->\n"
LOAD: Final = "import gc, pickle, sys; gc.disable(); pickle.load(open(sys.argv[1], 'rb')); __import__('os')._exit(0)"
DECODE: Final = (
    "import sys; from oomctl import load; s = load(sys.argv[1]).snapshots[0]; assert s.devices[0].trace is not None; "
    "__import__('os')._exit(0)"
)
SETTINGS: Final = SEARCH[:6]
SLOWEST_PURE: Final = 2_000_000
"""Events from which on the pure engine is left out: it would need more memory than most machines have."""


class Task(NamedTuple):
    """One row of the table."""

    name: str
    arguments: tuple[str, ...]
    engine: str


class Cost(NamedTuple):
    """Of one run: seconds from start to end, and the most memory in bytes."""

    seconds: float
    memory: int


def tasks() -> list[Task]:
    """All rows, the one that the others are compared with first."""
    found = [Task("`pickle.load`, gc off", ("-c", LOAD), "")]
    settings = tuple(word for text in SETTINGS for word in ("--conf", text))
    for engine in ("compiled", "pure") if _native.engine() == "compiled" else ("pure",):
        found += [
            Task("decode", ("-c", DECODE), engine),
            Task("`diagnose --json`", ("-m", "oomctl", "diagnose", "--json"), engine),
            Task("`diagnose --html`", ("-m", "oomctl", "diagnose", "--json", "--html", os.devnull + ".html"), engine),
            Task("`whatif`, six settings", ("-m", "oomctl", "whatif", *settings), engine),
        ]
    return found


def measured(task: Task, path: Path, folder: Path) -> Cost:
    """One run of a task.

    Raises:
        RuntimeError: It failed.
    """
    arguments = [a.replace(os.devnull + ".html", str(folder / "page.html")) for a in task.arguments]
    environment = {**os.environ, _native.ENGINE_VARIABLE: task.engine}
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments, str(path)],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{task.name} ({task.engine}) on {path.name}: exit code {process.returncode}")
    return Cost(seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def medians(path: Path, events: int, repeats: int, folder: Path) -> dict[Task, Cost]:
    """Medians of all tasks on one file."""
    chosen = [task for task in tasks() if task.engine != "pure" or events <= SLOWEST_PURE]
    costs: dict[Task, list[Cost]] = {task: [] for task in chosen}
    for turn in range(repeats):
        for task in chosen:
            print(f"{events:,} events, turn {turn + 1} of {repeats}: {task.name} {task.engine}", file=sys.stderr)
            costs[task].append(measured(task, path, folder))
    return {
        task: Cost(statistics.median(c.seconds for c in found), int(statistics.median(c.memory for c in found)))
        for task, found in costs.items()
    }


def table(results: dict[int, dict[Task, Cost]]) -> str:
    """The results as a markdown table: seconds and MiB, and how they stand to `pickle.load`."""
    sizes = sorted(results)
    lines = [
        "| | engine | " + " | ".join(f"{size:,} events" for size in sizes) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for task in dict.fromkeys(task for size in sizes for task in results[size]):
        cells = []
        for size in sizes:
            first = next(iter(results[size].values()))
            cost = results[size].get(task)
            if cost is None:
                cells.append("")
                continue
            cell = f"{cost.seconds:.2f} s, {cost.memory / 2**20:,.0f} MiB"
            if cost is not first:
                cell += f" ({cost.seconds / first.seconds:.2f}x, {cost.memory / first.memory:.2f}x)"
            cells.append(cell)
        lines.append(f"| {task.name} | {task.engine} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="22000,200000,1000000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(asked.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results = {}
        for events in map(int, asked.sizes.split(",")):
            path = folder / f"events_{events}.pickle"
            if not path.exists():
                synthetic.main([str(events), str(path)])
            results[events] = medians(path, events, asked.repeats, Path(scratch))
    text = table(results)
    print(text)
    if asked.write:
        readme = ROOT / "README.md"
        whole = readme.read_text(encoding="utf-8")
        pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
        readme.write_text(pattern.sub(lambda _: BEGIN + text + END, whole), encoding="utf-8")


if __name__ == "__main__":
    main()
