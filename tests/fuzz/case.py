"""One mutated input through one command, watched: exit code, time, memory, what it did and what it printed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oomctl.cli.main import main
from tests.fuzz import logs, reports, seeds, snapshots
from tests.fuzz.names import MARK

MIB: Final = 1 << 20
KINDS: Final = {"snapshots": snapshots.mutated, "logs": logs.mutated, "reports": reports.mutated}
PATIENCE: Final = 60
"""Seconds of wall clock after which a case counts as hanging."""
SLOWEST: Final = 10.0
"""Seconds of processor that an input under 5 MB may take."""
MEMORY_FACTOR: Final = 12
MEMORY_FLOOR: Final = 150 * MIB
"""Peak memory of the process may be the uncompressed input times this, and this."""
FRESH: Final = 80 * MIB
"""Resident bytes of a process that has imported what a report takes and read nothing yet."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]")
_MARKUP: Final = (f"<script>{MARK}", "<img src=x", f"</script><script>{MARK}", f"<!-- {MARK}")
_FORBIDDEN: Final = frozenset(
    ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "socket.__new__",
     "socket.connect", "pickle.find_class", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link",
     "os.chmod", "os.truncate", "shutil.rmtree", "shutil.move", "ctypes.dlopen", "webbrowser.open", "os.kill",
     "ftplib.connect", "urllib.Request")
)  # fmt: skip


class HangingError(BaseException):
    """Raised by the alarm; no `except Exception` swallows it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        kind: Key of `KINDS`.
        number: Of the case; with kind and seed it makes the same input again.
        command: Arguments after the program's name.
        code: Exit code.
        seconds: Of processor.
        size: Uncompressed bytes of the input.
        peak: Most resident bytes of the process.
        problem: What is wrong, or "".
    """

    kind: str
    number: int
    command: str
    code: int
    seconds: float
    size: int
    peak: int
    problem: str


def made(kind: str, seed: int, number: int) -> tuple[bytes, random.Random]:
    """The input of a case, and the dice to go on with."""
    rng = random.Random(f"{kind}/{seed}/{number}")
    return KINDS[kind](rng), rng


def arguments(rng: random.Random, kind: str, path: str) -> list[str]:
    """A command for an input."""
    if rng.random() < 0.25:
        return ["diagnose", "--json", path]
    fmt = rng.choice(("terminal", "terminal", "text", "json", "html", "markdown"))
    shown = ["-f", fmt]
    if rng.random() < 0.3:
        shown.append(rng.choice(("--redact=all", "--redact=paths", "--redact=none")))
    if rng.random() < 0.3:
        shown.append("-v")
    if kind == "snapshots" and rng.random() < 0.3:
        pristine = str(seeds.FIXTURES / "captures" / seeds.snapshot(rng) / "snapshot.pickle.gz")
        at = rng.choice(("oom", "peak", "end", "0", "17", "-1", "99999999999999999999"))
        return rng.choice(
            (
                ["culprits", path, "--at", at, "--by", rng.choice(("stack", "frame", "size"))],
                ["culprits", path, "--json"],
                ["whatif", path, *rng.choice(([], ["--fit"], ["--json"], ["--limit", "1GiB"], ["--conf", ""]))],
                ["diff", *rng.sample([path, pristine], 2), *shown],
                ["diff", path, path, "--at", rng.choice(("oom", "end")), "--fail-if-grown", "2%", *shown],
                ["diagnose", path, pristine, *shown],
            )
        )
    if kind == "logs" and rng.random() < 0.2:
        pristine = str(seeds.FIXTURES / "captures" / "crowded-early" / "snapshot.pickle.gz")
        return rng.choice(
            (
                ["diagnose", pristine, path, *shown],
                ["summary", "-", *shown],
                ["diagnose", path, "--fail-on", "any", *shown],
            )
        )
    return ["diagnose", path, *shown]


def run(kind: str, seed: int, number: int, folder: Path) -> Outcome:
    """Makes a case, runs it in this process and judges it."""
    data, rng = made(kind, seed, number)
    return run_on(data, rng, folder, kind, number)


def run_on(data: bytes, rng: random.Random, folder: Path, kind: str, number: int) -> Outcome:
    """Runs given bytes."""
    path = folder / f"{kind}-{number}"
    path.write_bytes(data)
    args = arguments(rng, kind, str(path))
    size = _unpacked(data)
    encoding = rng.choice(("utf-8", "utf-8", "ascii", "cp1252"))
    environment = {
        "COLUMNS": rng.choice(("40", "80", "120")),
        "FORCE_COLOR": rng.choice(("0", "1")),
        "OOMCTL_DEBUG": "1",
    }
    trouble: list[str] = []
    out, err, code = "", "", -1
    _reset_peak()
    # What was resident before is the caller's (a test run's, say); a process of its own starts with `FRESH`.
    before = _resident("VmRSS")
    started = time.process_time()
    try:
        with _streams(data, encoding) as (stdout, stderr), _environment(environment), _watched(trouble), _alarm():
            code = main(args)
        out, err = stdout.getvalue().decode(encoding), stderr.getvalue().decode(encoding)
    except HangingError:
        trouble.append(f"hangs: more than {PATIENCE} s")
    except BaseException as error:  # main lets nothing through, so this is a finding whatever it is
        trouble.append(f"{type(error).__name__} came out of main: {error}")
    seconds = time.process_time() - started
    peak = max(_resident("VmHWM") - before, 0) + min(before, FRESH)
    path.unlink()
    trouble += _wrong(args, code, out, err)
    if left := [p.name for p in folder.iterdir()]:
        trouble.append(f"left behind {left}")
    if seconds > SLOWEST and size < 5 * MIB:
        trouble.append(f"took {seconds:.1f} s of processor for {size:,} bytes")
    if peak > MEMORY_FLOOR + MEMORY_FACTOR * size:
        trouble.append(f"took {peak / MIB:,.0f} MiB for {size:,} bytes")
    command = " ".join("INPUT" if arg == str(path) else arg for arg in args)
    return Outcome(kind, number, command, code, seconds, size, peak, "; ".join(trouble))


def _wrong(args: list[str], code: int, out: str, err: str) -> list[str]:
    """What is wrong with exit code and output."""
    if code not in (0, 1, 2):
        return [f"exit code {code}: {err.strip()[-2500:]}"]
    if code == 2:
        lines = err.splitlines()
        fine = out == "" and len(lines) in (1, 2) and lines[0].startswith("error: ")
        return [] if fine else [f"a refusal of another form: {err[:300]!r} {out[:100]!r}"]
    found = [] if not err else [f"remarks on stderr: {err[:300]!r}"]
    if "--json" in args or "json" in args:
        try:
            json.loads(out, parse_constant=_no_constant)
        except ValueError as error:
            found.append(f"no JSON: {error}")
        return found
    if "html" in args:
        return found + [f"markup {mark!r}" for mark in _MARKUP if mark in out]
    if (bad := _CONTROL.search(_COLOUR.sub("", out))) is not None:
        found.append(f"control character {bad[0]!r} in {out[max(0, bad.start() - 60) : bad.end() + 60]!r}")
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _unpacked(data: bytes) -> int:
    """Bytes inside; of what is no gzip its own, which only makes the bounds stricter."""
    if data[:3] != b"\x1f\x8b\x08":
        return len(data)
    with contextlib.suppress(zlib.error):
        return max(len(data), len(zlib.decompressobj(wbits=31).decompress(data, 64 * MIB)))
    return len(data)


@contextlib.contextmanager
def _streams(data: bytes, encoding: str) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(data))
    sys.stdout, sys.stderr = (io.TextIOWrapper(s, encoding, newline="\n", write_through=True) for s in (out, err))
    kept = sys.stdout, sys.stderr
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for stream in kept:
            stream.detach()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


_seen: list[list[str]] = []
_hooked: list[bool] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _seen:
        return
    if event in _FORBIDDEN or (event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)):
        _seen[-1].append(f"does {event}{args!r:.200}")


@contextlib.contextmanager
def _watched(trouble: list[str]) -> Iterator[None]:
    """Python's audit events while a case runs: nothing is started, connected, written or looked up by name."""
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    _seen.append(trouble)
    try:
        yield
    finally:
        _seen.pop()


def _hang(*_: object) -> None:
    raise HangingError


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _resident(field: str) -> int:
    """Resident bytes now (VmRSS) or at most since the reset (VmHWM); 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) << 10 if found else 0
    return 0
