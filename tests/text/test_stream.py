"""Large inputs: what is far down is found on its line, and what is kept stays small."""

from __future__ import annotations

from collections.abc import Iterator

from oomctl.sources.text import read_text
from oomctl.sources.text.stream import STRETCH, Stretch, stretches

MESSAGE = (
    b"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %d.00 MiB. GPU 0 has a total capacity of "
    b"9.68 GiB of which 95.75 MiB is free. Including non-PyTorch memory, this process has 9.54 GiB memory in use. Of "
    b"the allocated memory 6.61 GiB is allocated by PyTorch, and 2.57 GiB is reserved by PyTorch but unallocated.\n"
)


def plain(lines: int) -> bytes:
    return b"".join(b"step=%d loss=%.3f lr=0.0003\n" % (i, 9 - i * 1e-5) for i in range(lines))


def chunked(data: bytes, size: int) -> Iterator[bytes]:
    for i in range(0, len(data), size):
        yield data[i : i + size]


def test_a_failure_far_down_is_found_on_its_line() -> None:
    data = plain(50_000) + MESSAGE % 388 + plain(50_000)
    found = read_text(chunked(data, 7_001))
    assert [e.line for e in found.oom_events] == [50_001]


def test_plain_lines_are_passed_over() -> None:
    assert list(stretches([plain(20_000)])) == []


def test_stretches_stay_small_however_much_hits() -> None:
    data = b"".join(MESSAGE % (i + 1) for i in range(6_000))
    pieces = [p for p in stretches(chunked(data, 1 << 16)) if isinstance(p, Stretch)]
    assert max(len(p.lines) for p in pieces) <= STRETCH


def test_every_failure_is_found_once_across_the_cuts() -> None:
    data = b"".join(MESSAGE % (i + 1) for i in range(1_900))
    found = read_text(chunked(data, 10_007))
    assert [e.tried_to_allocate for e in found.oom_events] == [(i + 1) << 20 for i in range(1_900)]


def test_what_is_not_kept_is_said() -> None:
    data = b"".join(MESSAGE % (i + 1) for i in range(2_500))
    found = read_text(chunked(data, 1 << 16))
    assert any("more messages" in s.what for s in found.skipped)


def test_a_long_series_is_thinned_and_keeps_its_ends() -> None:
    data = b"".join(b"step %d alloc=%.2fMB\n" % (i, 1000 + i * 0.25) for i in range(30_000))
    (series,) = read_text(chunked(data, 1 << 16)).series
    assert len(series.values) < 5_000
    assert series.values[0] == 1000 << 20
    assert abs(series.values[-1] - int((1000 + 29_999 * 0.25) * (1 << 20))) < 1 << 20


def test_a_line_without_end_is_read_in_pieces() -> None:
    data = b"x" * (3 << 20) + b" CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; "
    (event,) = read_text([data]).oom_events
    assert event.tried_to_allocate == 2 << 30
