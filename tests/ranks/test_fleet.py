"""Fleets: every task ends once; a death or a standstill costs its task and no other."""

from __future__ import annotations

import pytest

from oomctl.fleet.processes import Processes

from . import works


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_task_once(count: int) -> None:
    done = sorted(Processes(count).run(works.double, list(range(10))), key=lambda d: d.index)
    assert [(d.index, d.result, d.trouble) for d in done] == [(i, 2 * i, "") for i in range(10)]


def test_a_process_that_dies_costs_its_task() -> None:
    done = {d.index: d for d in Processes(2).run(works.deadly, list(range(8)))}
    assert sorted(done) == list(range(8))
    assert "SIGKILL" in done[3].trouble
    assert "code 7" in done[5].trouble
    assert all(d.result == 2 * i for i, d in done.items() if i not in (3, 5))


def test_a_task_that_takes_too_long_is_given_up() -> None:
    done = {d.index: d for d in Processes(2, seconds=1.5).run(works.slow, [0, 1, 2])}
    assert "took more than" in done[1].trouble
    assert (done[0].result, done[2].result) == (0, 4)


def test_a_limit_of_time_holds_for_one_process_too() -> None:
    done = {d.index: d for d in Processes(1, seconds=1.5).run(works.slow, [0, 1, 2])}
    assert [bool(done[i].trouble) for i in range(3)] == [False, True, False]


def test_no_task_and_an_end_before_all_are_done() -> None:
    assert list(Processes(2).run(works.double, [])) == []
    assert list(Processes(2, seconds=9).run(works.double, [])) == []
    running = Processes(2).run(works.double, list(range(50)))
    next(running)
    running.close()
