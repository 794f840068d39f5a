"""Prefixes, tracebacks, repeats, series and table remarks, case by case."""

from __future__ import annotations

import pytest

from oomctl.diagnosis.from_text import conclude
from oomctl.diagnosis.table_rows import notes
from oomctl.diagnosis.text_series import judge
from oomctl.model.log import MemorySummary, Series, SummaryCell
from oomctl.sources.text import read_text
from oomctl.sources.text.normalise import clean_line
from oomctl.units import GIB, MIB, format_size
from tests.text.logs import evidence

OLD = (
    "CUDA out of memory. Tried to allocate {x}.00 MiB (GPU 0; 10.76 GiB total capacity; 9.77 GiB already allocated; "
    "9.25 MiB free; 9.90 GiB reserved in total by PyTorch)"
)


NEW = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total {} of 8.00 GiB of which 1.00 MiB is free."


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ("[rank7]: boom", 7, "boom"),
        ("[default3]:[rank3]: boom", 3, "boom"),
        ("[1,12]<stderr>:boom", 12, "boom"),
        ("12: boom", 12, "boom"),
        ("(VllmWorker rank=3 pid=1090) ERROR 06-05 06:18:13 [multiproc_executor.py:470] boom", 3, "boom"),
        ("2024-01-01 10:00:00,123 - my.mod - boom", None, "boom"),
        ("\x1b[36m(Task pid=4)\x1b[0m boom", None, "boom"),
        ("> > boom", None, "boom"),
        (">>> boom", None, ">>> boom"),
        ("\u2502 boom   \u2502", None, "boom"),
        ("E       boom", None, "boom"),
        ("[W320 01:57:14.472868074 ProcessGroupNCCL.cpp:1553] boom", None, "boom"),
        ("    boom", None, "    boom"),
        ('{"rank": 5, "message": "boom"}', 5, "boom"),
        ('{"log": "boom\\n", "stream": "stderr"}', None, "boom"),
    ],
)
def test_prefixes(line: str, rank: int | None, text: str) -> None:
    first = clean_line(line, 1)[0]
    assert (first.rank, first.text) == (rank, text)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (r"C:\new\net.py", r"C:\new\net.py"),
        (r'File "D:\x\lib\site-packages\torch\nn\modules\conv.py"', r"\nn\modules"),
    ],
)
def test_windows_paths_are_no_line_ends(path: str, kept: str) -> None:
    (line,) = clean_line(path, 1)
    assert kept in line.text


@pytest.mark.parametrize(
    ("log", "count"),
    [
        (f"ERROR failed: {OLD}\nTraceback (most recent call last):\n  File 'a'\nRuntimeError: {OLD}", 1),
        (f"RuntimeError: {OLD}\n\nDuring handling of the above exception, another\n\nRuntimeError: {OLD}", 1),
        (f"[rank0]: RuntimeError: {OLD}\n[rank1]: RuntimeError: {OLD}", 2),
        (f"trial#3 failed: {OLD}\ntrial#4 failed: {OLD}", 2),
        (f"2024-01-01 10:00:00 batch: {OLD}\n2024-01-01 10:05:00 batch: {OLD}", 2),
        (f"RuntimeError: {OLD[:90]}\nRuntimeError: {OLD}", 1),
    ],
)
def test_repeats_are_one_failure_and_others_are_not(log: str, count: int) -> None:
    assert len(read_text([log.format(x=88).encode()]).oom_events) == count


def test_innermost_frame_comes_first_with_its_source() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "/a/train.py", line 9, in <module>\n'
        "    main()\n"
        '  File "/a/model.py", line 31, in forward\n'
        "    scores = q @ k.transpose(-2, -1)\n"
        "             ~~^^^^^\n"
        f"RuntimeError: {OLD.format(x=88)}\n"
    )
    (event,) = read_text([log.encode()]).oom_events
    assert [f.name for f in event.traceback] == ["forward", "<module>"]
    assert event.code == ("scores = q @ k.transpose(-2, -1)", "main()")


def test_a_failure_that_the_program_survived() -> None:
    log = f"step 10 loss 1\nOOM: {OLD.format(x=88)}\nstep 11 loss 1\nstep 12 loss 1\nRuntimeError: {OLD.format(x=90)}\n"
    first, second = read_text([log.encode()]).oom_events
    assert (first.recovered, second.recovered) == (True, False)


@pytest.mark.parametrize(
    ("hint", "torch"),
    [
        (OLD.format(x=2), "1.4-2.0"),
        (OLD.format(x=2) + " If reserved memory is >> allocated memory try setting max_split_size_mb", "1.10-2.0"),
        (OLD.format(x=2).replace("reserved in total by PyTorch", "cached"), "<=1.3"),
        (NEW.format("capacty"), "2.1"),
        (NEW.format("capacity"), ">=2.2"),
    ],
)
def test_versions_from_the_wording(hint: str, torch: str) -> None:
    assert str(read_text([hint.encode()]).torch) == torch


@pytest.mark.parametrize(
    ("values", "grows", "settles"),
    [
        ([10, 12, 14, 16, 18, 20], True, False),
        ([3, 8, 11, 11, 11, 11, 11], False, True),
        ([10, 30, 10, 30, 10, 30, 10], False, True),
        ([10, 10, 10, 10, 10], False, True),
        ([20, 18, 15, 12, 10], False, False),
        ([10, 15, 20, 25, 30, 30], True, False),
    ],
)
def test_growth_and_plateau(values: list[int], grows: bool, settles: bool) -> None:
    growth = judge(Series("alloc", "allocated", tuple(map(float, range(len(values)))), tuple(v * GIB for v in values)))
    assert growth is not None
    assert (growth.grows, growth.settles) == (grows, settles)


def test_a_high_water_mark_proves_no_leak() -> None:
    assert judge(Series("max_mem", "peak", (0.0, 1.0, 2.0, 3.0), (1, 2, 3, 4))) is None


def test_rows_are_explained_and_doubts_are_marked() -> None:
    def cell(cur: int, peak: int, total: int) -> dict[str, SummaryCell]:
        return {"all": SummaryCell(cur * MIB, peak * MIB, total * MIB, (total - cur) * MIB)}

    table = MemorySummary(
        0,
        1,
        3,
        False,
        {
            "Allocated memory": cell(1000, 4900, 89000),
            "Active memory": cell(1100, 4900, 89000),
            "Requested memory": cell(900, 4000, 80000),
            "GPU reserved memory": cell(12400, 12400, 12400),
            "Non-releasable memory": cell(6000, 6000, 9000),
        },
    )
    found = {note.row: note for note in notes((table,))}
    assert {row for row, note in found.items() if note.doubt} == {
        "CUDA OOMs",
        "cudaMalloc retries",
        "Allocated memory",
        "Active memory",
        "Requested memory",
        "GPU reserved memory",
        "Non-releasable memory",
    }
    assert "proves nothing" in found["GPU reserved memory"].text


FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 10.00 GiB "
    "of which 1.00 GiB is free. {}Of the allocated memory 5.00 GiB is allocated by PyTorch, and 500.00 MiB is reserved "
    "by PyTorch but unallocated."
)
OWN = "Including non-PyTorch memory, this process has {} GiB memory in use. "
NAMELESS = "Other processes, or this one outside PyTorch's allocator, hold"


@pytest.mark.parametrize(
    ("named", "says", "row"),
    [
        ("Process 12 has 3.00 GiB memory in use. " + OWN.format("6.00"), "Other processes hold", "other_processes"),
        (OWN.format("9.00"), "Outside PyTorch's allocator this process holds", "non_pytorch"),
        (OWN.format("6.00"), "Processes that the message does not name hold", "unexplained"),
        ("Process 12 has 1.00 GiB memory in use. " + OWN.format("6.00"), "Processes that the message", "unexplained"),
        ("Process 12 has 3.00 GiB memory in use. ", NAMELESS, "outside"),
        ("", NAMELESS, "outside"),
    ],
)
def test_who_holds_the_card_is_a_row_of_the_books(named: str, says: str, row: str) -> None:
    report = conclude(evidence(read_text([FULL.format(named).encode()])))
    held = getattr(report.budget, row)
    assert report.verdict.cls == "external"
    assert report.verdict.headline.startswith(says)
    assert f" {format_size(held)} of the 10.00 GiB;" in report.verdict.headline
    assert report.budget is not None
    told = {name: value for item in report.verdict.evidence for name, value in item.numbers}
    for name in ("other_processes", "non_pytorch"):
        assert told.get(name) == getattr(report.budget, name)
