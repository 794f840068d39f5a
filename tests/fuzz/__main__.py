"""Runs mutated inputs and says what came of them.

``python -m tests.fuzz --minutes 10`` takes another seed each time; a finding is made again with the line it names.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz import case
from tests.fuzz.case import KINDS, MIB, Outcome
from tests.fuzz.runner import BATCH, cases


class Tally:
    """Figures of many outcomes of one kind."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.count = 0
        self.problems = 0
        self.slowest: Outcome | None = None
        self.largest: Outcome | None = None

    def add(self, one: Outcome) -> None:
        """Counts one more."""
        self.count += 1
        self.codes[one.code] = self.codes.get(one.code, 0) + 1
        self.problems += bool(one.problem)
        if self.slowest is None or one.seconds > self.slowest.seconds:
            self.slowest = one
        if self.largest is None or _share(one) > _share(self.largest):
            self.largest = one

    def words(self) -> str:
        """One line for people."""
        if self.slowest is None or self.largest is None:
            return "none"
        codes = ", ".join(f"{count:,} x {code}" for code, count in sorted(self.codes.items()))
        slow, large = self.slowest, self.largest
        return (
            f"{self.count:,} inputs, {self.problems} findings; exit codes {codes}; slowest {slow.seconds:.2f} s of "
            f"processor (case {slow.number}, {slow.size:,} bytes); most memory {_share(large):.0%} of the bound: "
            f"{large.peak / MIB:.0f} MiB for {large.size:,} bytes (case {large.number})"
        )


def _share(one: Outcome) -> float:
    """Peak memory as a share of what is allowed."""
    return one.peak / (case.MEMORY_FLOOR + case.MEMORY_FACTOR * one.size)


def main() -> int:
    """Runs what the arguments ask for; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--cases", type=int, help="inputs of each kind")
    parser.add_argument("--kind", choices=[*KINDS], action="append", help="only these; all by default")
    parser.add_argument("--seed", type=int, help="repeat a series; another one each time by default")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--keep", type=Path, help="write inputs with findings into this folder")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else int(time.time())
    until = time.monotonic() + 60 * asked.minutes if asked.minutes else None
    wanted = asked.cases or (sys.maxsize if until else 500)
    kinds = asked.kind or list(KINDS)
    tallies = {kind: Tally() for kind in kinds}
    first = asked.first
    _warm_up()
    while first < asked.first + wanted and (until is None or time.monotonic() < until):
        count = min(BATCH, asked.first + wanted - first)
        for kind in kinds:
            for one in cases(kind, seed, first, count):
                tallies[kind].add(one)
                if one.problem:
                    _tell(one, seed, asked.keep)
        first += count
    for kind, tally in tallies.items():
        print(f"{kind}, seed {seed}: {tally.words()}", flush=True)
    return 1 if any(tally.problems for tally in tallies.values()) else 0


def _warm_up() -> None:
    """Loads here what every child needs, so that none of them has to."""
    import io

    from oomctl.cli.main import main as oomctl

    kept, sys.stdout = sys.stdout, io.StringIO()
    try:
        for fmt in ("terminal", "json", "html", "markdown"):
            oomctl(["demo", "crowded-early", "-f", fmt])
    finally:
        sys.stdout = kept


def _tell(one: Outcome, seed: int, keep: Path | None) -> None:
    print(
        f"FOUND --kind {one.kind} --seed {seed} --first {one.number} --cases 1: {one.command}: {one.problem}",
        flush=True,
    )
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{one.kind}-{seed}-{one.number}").write_bytes(case.made(one.kind, seed, one.number)[0])


if __name__ == "__main__":
    raise SystemExit(main())
