"""Planted faults: how often each is found, under which noise, and how often a healthy program is accused."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from oomctl.allocator.policy import UNLIMITED
from oomctl.analysis.incident import Incident, incident
from oomctl.diagnosis import conclude
from oomctl.model.evidence import Evidence
from oomctl.model.snapshot import Snapshot
from tests.allocator.machine import Machine
from tests.diagnosis.planted import MIB, NAMES, Program, stack_table

PROGRAMS = 60
HEALTHY = 250
VERDICTS = 12

LEAKS = {
    # name: (steps, percent of live memory a leaking step, steps between leaks, blocks a leak)
    "1 % a step, 5 steps": (5, 1.0, 1, 1),
    "1 % a step, 8 steps": (8, 1.0, 1, 1),
    "1 % a step in 16 blocks": (8, 1.0, 1, 16),
    "0.2 % a step, 12 steps": (12, 0.2, 1, 1),
    "1 % every third step": (15, 1.0, 3, 1),
    "1 % every fourth step": (24, 1.0, 4, 1),
}


def drawn(seed: int, **changes: object) -> Program:
    """A program with noise and an optimizer that are drawn from the seed."""
    r = random.Random(seed)
    steps = r.randint(5, 24)
    noise, rotating = r.choice((0.0, 0.2, 0.6)), r.random() < 0.4
    return replace(Program(seed, steps=steps, noise=noise, rotating=rotating), **changes)


def examined(program: Program) -> Incident:
    snapshot = program.run()
    return incident(snapshot, snapshot.devices[0])


def grown(found: Incident) -> set[str]:
    return {NAMES[int(s)] for s in found.growth.groups[found.growth.growing]}


def live_bytes(seed: int) -> int:
    """What the program of this seed holds at its peak."""
    return int(examined(drawn(seed, steps=5)).active.max())


@pytest.mark.parametrize("name", LEAKS)
def test_planted_leaks_are_found_and_nothing_else_is_blamed(name, capsys):
    steps, percent, every, blocks = LEAKS[name]
    found = others = 0
    for seed in range(PROGRAMS):
        leak = int(live_bytes(seed) * percent / 100)
        names = grown(examined(drawn(seed, steps=steps, leak=leak, leak_every=every, leak_blocks=blocks)))
        found += "leak" in names
        others += bool(names - {"leak"})
    with capsys.disabled():
        print(f"\n  planted leak, {name}: found {found}/{PROGRAMS}, something else blamed {others}/{PROGRAMS}")
    assert found >= 0.98 * PROGRAMS
    assert others <= 0.02 * PROGRAMS


def test_healthy_programs_are_not_accused(capsys):
    accused = [seed for seed in range(HEALTHY) if grown(examined(drawn(10_000 + seed)))]
    with capsys.disabled():
        print(f"\n  healthy programs accused of a leak: {len(accused)}/{HEALTHY}")
    assert len(accused) <= 0.01 * HEALTHY


def swiss(seed: int) -> Snapshot:
    """Half of the memory idle in holes between blocks that stay, and a request for more than any hole."""
    r = random.Random(seed)
    chunk, limit = r.choice((4, 5)) * MIB, r.randint(400, 900) * MIB  # four or five to a segment of 20 MiB
    machine = Machine(limit=limit)
    keys = []
    for number in range(int(0.9 * limit) // chunk):
        machine.stack = NAMES.index("pinning" if number % 2 else "activation")
        keys.append(machine.alloc(chunk))
    for key in keys[::2]:
        machine.free(key)
    machine.stack = NAMES.index("loss")
    machine.alloc(r.randint(80, 150) * MIB)
    return replace(machine.snapshot(), stacks=stack_table())


def leaking(seed: int) -> Snapshot:
    live = live_bytes(seed)
    return drawn(seed, steps=200, leak=live // 25, limit=live * 2).run()


def peaking(seed: int) -> Snapshot:
    live = live_bytes(seed)
    return drawn(seed, steps=9, peak=2 * live, limit=int(live * 2.2)).run()


def healthy(seed: int) -> Snapshot:
    return drawn(seed, limit=UNLIMITED).run()


PLANTED = {"leak": leaking, "transient_peak": peaking, "fragmentation": swiss, "no_oom": healthy}


@pytest.mark.parametrize("cls", PLANTED)
def test_the_verdict_names_what_was_planted(cls, capsys):
    verdicts = []
    for seed in range(VERDICTS):
        evidence = Evidence(snapshots=(PLANTED[cls](seed),))
        # Replays are slow and only fragmentation draws on them.
        verdicts.append(conclude(evidence, whatif=cls == "fragmentation")[0].report.verdict)
    right = sum(v.cls == cls for v in verdicts)
    sure = [v for v in verdicts if v.confidence == "high"]
    wrong = [v.cls for v in verdicts if v.cls != cls]
    with capsys.disabled():
        print(f"\n  planted {cls}: named {right}/{len(verdicts)}, otherwise {sorted(set(wrong))}; sure of {len(sure)}")
    assert right >= 0.9 * len(verdicts)
    assert all(v.cls == cls for v in sure)


@pytest.mark.parametrize("cls", ["leak", "fragmentation"])
def test_the_culprit_is_the_planted_line(cls):
    wanted = {"leak": "update", "fragmentation": "keep"}[cls]
    for seed in range(5):
        culprits = conclude(Evidence(snapshots=(PLANTED[cls](seed),)), whatif=False)[0].report.culprits
        assert culprits[0].function == wanted


def test_the_books_close_at_every_planted_moment():
    for plant in PLANTED.values():
        for seed in range(5):
            snapshot = plant(seed)
            found = incident(snapshot, snapshot.devices[0])
            b = found.budget
            parts = (b.requested, b.rounding, b.pending_free, b.idle_split, b.idle_whole_segments)
            assert b.reserved == sum(parts) + b.idle_other_streams + b.idle_private_pools
            assert b.reserved == int(found.reserved[found.moment.event])
            assert np.all(found.active <= found.reserved)
