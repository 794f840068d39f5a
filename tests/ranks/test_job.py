"""A job from end to end: the right ranks are named, whatever is missing, damaged or slow, and wherever it is read."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from oomctl import _resources, api
from oomctl.cli.main import main
from oomctl.diagnosis.ranks import conclude_job, notable
from oomctl.errors import OomctlError
from oomctl.model.ranks import Digest, Held, Job
from oomctl.model.report import Report

from .make import MIB, job

GIB = 1 << 30
SPECIAL = {3: {"oom_after_us": 1000}, 1: {"oom_after_us": 1_300_000}, 6: {"leak": 30}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine ranks of ten: 3 fails first, 1 follows, 6 leaks, 4 is missing, 7 is damaged."""
    made = job(tmp_path_factory.mktemp("job"), [0, 1, 2, 3, 5, 6, 7, 8, 9], SPECIAL)
    damaged = made / "rank7_memory_snapshot.pickle.gz"
    damaged.write_bytes(damaged.read_bytes()[:2000])
    (made / "rank9_memory_snapshot.pickle.gz").write_bytes(b"")
    return made


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    found = api.diagnose_job(str(folder), processes=2)
    assert found is not None
    return found


def roles(found: Job | None) -> dict[str, str]:
    assert found is not None
    return {row.name: row.role for row in found.rows}


EXPECTED = {
    "rank 0": "healthy", "rank 1": "followed", "rank 2": "healthy", "rank 3": "first", "rank 5": "healthy",
    "rank 6": "outlier", "rank 7": "healthy", "rank 8": "healthy", "rank 9": "unreadable",
}  # fmt: skip


def test_the_right_ranks_are_named(report: Report) -> None:
    found = report.job
    assert found is not None
    assert {k: v for k, v in roles(found).items() if k != "rank 7"} == {
        k: v for k, v in EXPECTED.items() if k != "rank 7"
    }
    assert (found.ranks, found.missing) == (9, ("4",))
    assert [o.name for o in found.outliers] == ["rank 6"]
    assert found.outliers[0].places[0].function == "remember"
    assert found.outliers[0].places[0].excess in range(25 * 16 * MIB, 30 * 16 * MIB + 1, 16 * MIB)  # by its peak
    assert next(r.lag_us for r in found.rows if r.role == "followed") == 1_299_000
    assert found.headline.startswith("rank 3 of 9 failed first")
    assert report.device.rank == 3
    assert {one.device.rank for one in report.others} >= {1, 6}
    assert any("rank 9" in limit.what for limit in found.limits)
    assert any("rank 7" in limit.what for limit in found.limits)


def test_the_result_is_the_same_in_this_process_and_in_an_archive(folder: Path, report: Report, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
    for path, count in ((str(folder), 1), (str(tmp_path / "all.zip"), 2), (f"{folder}/rank*", 2)):
        found = api.diagnose_job(path, processes=count, whatif=False)
        assert found is not None
        assert found.job is not None
        assert report.job is not None
        # Where a file lies is the only thing that may differ.
        assert [replace(r, headline="") for r in found.job.rows] == [replace(r, headline="") for r in report.job.rows]
        assert found.job.outliers == report.job.outliers


def test_one_rank_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(folder), "--rank", "6", "--json", "--no-whatif"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["device"]["rank"], data["job"]) == (6, None)
    with pytest.raises(OomctlError, match="nothing about rank 4"):
        api.diagnose_job(str(folder), rank=4)
    with pytest.raises(OomctlError, match="rank 9"):
        api.diagnose_job(str(folder), rank=9)


def test_outputs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, pages = tmp_path / "job.html", tmp_path / "pages"
    arguments = ["--html", str(target), "--pages", str(pages), "--no-whatif", "-v", "--fail-on", "any"]
    assert main(["diagnose", str(folder), *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("error[OOM")
    assert "rank 3 of 9 failed first" in printed.out.split("\n")[0]
    assert "rank 6" in printed.out
    assert printed.err.count("\nrank ") + printed.err.startswith("rank ") == 9
    page = target.read_text(encoding="utf-8")
    assert len(page) < 300_000
    links = set(re.findall(r'href="(pages/[^"]+)"', page))
    assert {"pages/rank-3.html", "pages/rank-6.html", "pages/rank-0.html"} <= links
    assert all((tmp_path / link).exists() for link in links)
    assert main(["diagnose", str(target), "--json"]) == 0  # the page is read back, the job with it
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, api.report_schema())
    assert [r["role"] for r in data["job"]["rows"] if r["rank"] == 3] == ["first"]


@pytest.mark.parametrize("page", ["javascript:alert(1)", "//host/a.html", "http://host/a.html", "/etc/a.html", "a.exe"])
def test_links_lead_to_files_beside_the_page(report: Report, page: str) -> None:
    assert report.job is not None
    rows = tuple(replace(row, page=page) for row in report.job.rows)
    shown = api.render(replace(report, job=replace(report.job, rows=rows)), "html")
    assert page not in re.findall(r'href="([^"]+)"', shown)


def test_markdown_and_redaction(report: Report) -> None:
    text = api.render(report, "markdown")
    assert text.startswith("### Rank 3 of 9 failed first")
    assert len(text) < 60_000
    assert "remember" not in api.render(report, "json", redact="all")
    assert report.job is not None
    row = replace(report.job.rows[0], name="gpu-farm-7", host="gpu-farm-7", rank=None)
    hosted = replace(report, job=replace(report.job, rows=(row,), headline="gpu-farm-7 failed first"))
    for fmt in ("json", "html", "markdown", "terminal"):
        assert "gpu-farm-7" not in api.render(hosted, fmt, redact="all")
        assert "gpu-farm-7" in api.render(hosted, fmt, redact="paths")


def test_a_folder_of_one_rank_is_one_incident(tmp_path: Path) -> None:
    made = job(tmp_path, [0, 1], {}, lambda r: f"iteration_{r}/rank0_memory_snapshot.pickle.gz")
    found = api.diagnose_job(str(made))
    assert found is not None
    assert (found.job, found.device.rank) == (None, 0)
    assert any("1 left aside" in limit.reason for limit in found.limits)
    assert len(api.load(str(made)).snapshots) == 1


def test_ranks_without_a_number_are_named_by_what_tells_them_apart(capsys: pytest.CaptureFixture[str]) -> None:
    captures = _resources.fixtures().joinpath("captures")
    assert main(["diagnose", *(str(captures.joinpath(name)) for name in ("load-weights", "kv-cat"))]) == 0
    out = capsys.readouterr().out
    assert "of 2 ranks, kv-cat failed first" in out
    assert "GPU 0, …/kv-cat/snapshot.pickle.gz in full" in out
    assert "GPU 0, …/load-weights/snapshot.pickle.gz: capacity: " in out


def test_a_folder_of_one_incident_is_diagnosed_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = job(tmp_path, [0], {}, lambda r: "snapshot.pickle.gz")
    assert main(["diagnose", str(made), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["job"] is None
    assert data["verdict"]["class"] == "no_oom"


LAST_WORDS = {
    "stopped": [
        "[rank1]:[E729 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout",
        "NCCL error in: NCCLUtils.cpp:77, remote process exited or there was a network error",
        "W0729 elastic/multiprocessing/api.py:900] Sending process 77 closing signal SIGTERM",
        "RuntimeError: [gloo/transport/tcp/pair.cc:525] Read error [10.0.0.1]:5: Connection reset by peer",
    ],
    "healthy": ["step 10 loss 2.5", "done"],
}


@pytest.mark.parametrize(("role", "words"), [(role, w) for role, several in LAST_WORDS.items() for w in several])
def test_last_words(role: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.00 GiB is free. Process 1 has 78.00 GiB memory in use. Of the allocated memory 77.00 GiB "
        "is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.\n"
    )
    (tmp_path / "rank1.log").write_text(f"step 9 loss 2.6\n{words}\n")
    found = api.diagnose_job(str(tmp_path), processes=1)
    assert found is not None
    assert roles(found.job) == {"rank 0": "first", "rank 1": role}


def digest(rank: int, **changes: object) -> Digest:
    base = Digest(
        f"rank {rank}", rank, cls="no_oom", code="OOM001", active=8 * GIB, reserved=9 * GIB, peak=8 * GIB,
        held=(Held((("m.py", 1, "f"),), 5 * GIB, 5), Held((("m.py", 2, "g"),), 2 * GIB, 2)), rest=GIB,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def failed(rank: int, time_us: int | None) -> Digest:
    return digest(rank, cls="leak", code="OOM201", failed=True, time_us=time_us)


NOTHING = Digest("rank 0", 0, trouble="damaged")
STOPPED = digest(1, stopped=True, cls="not_an_oom")
CASES = [
    ([digest(0), digest(1), digest(2)], {}, "none of the 3 ranks ran out of memory"),
    ([digest(0), failed(1, None), digest(2)], {1: "first"}, "rank 1 of 3 failed first"),
    ([failed(0, None), failed(1, None), digest(2)], {0: "failed", 1: "failed"}, "2 of 3 ranks ran out of memory, and"),
    ([failed(0, 50), failed(1, None), failed(2, 10)], {0: "followed", 1: "failed", 2: "first"}, "rank 2 of 3 failed"),
    (
        [failed(0, 50), failed(1, None)],
        {0: "first", 1: "failed"},
        "rank 0 of 2 failed first: leak; 1 more failed, at a time that is not known",
    ),
    (
        [failed(0, 50), digest(1, cls="uncertain")],
        {0: "first"},
        "rank 0 of 2 failed first: leak; no other rank is known to have run out of memory",
    ),
    ([failed(0, 50), STOPPED, digest(2)], {0: "first", 1: "stopped"}, "rank 0 of 3 failed first"),
    ([NOTHING, NOTHING], {0: "unreadable", 1: "unreadable"}, "none of the 2 ranks"),
]


@pytest.mark.parametrize(("digests", "expected", "headline"), CASES)
def test_order_of_failures(digests: list[Digest], expected: dict[int, str], headline: str) -> None:
    found = conclude_job(digests)
    assert {i: row.role for i, row in enumerate(found.rows)} == {
        i: expected.get(i, "healthy") for i in range(len(digests))
    }
    assert found.headline.startswith(headline)
    assert notable(found) == sorted(set(notable(found)), key=notable(found).index)


def test_stages_are_compared_within_themselves() -> None:
    """The last stage holds twice as much in every rank; that is imbalance, and no outlier."""
    digests = [
        digest(r, stage=(("pp", r // 4),), peak=(8 if r < 4 else 16) * GIB,
               held=(Held((("m.py", 1, "f"),), (7 if r < 4 else 15) * GIB, 5),))
        for r in range(8)
    ]  # fmt: skip
    digests[6] = replace(digests[6], peak=18 * GIB, held=(*digests[6].held, Held((("k.py", 9, "keep"),), 2 * GIB, 2)))
    found = conclude_job(digests)
    assert [o.name for o in found.outliers] == ["rank 6"]
    assert [(s.name, s.ranks, s.share) for s in found.stages] == [("pp 0", 4, 0.5), ("pp 1", 4, 1.0)]


def test_noise_is_no_outlier() -> None:
    chance = random.Random(7)
    digests = [
        digest(r, held=(Held((("m.py", 1, "f"),), 5 * GIB + chance.randrange(400 * MIB), 5),)) for r in range(64)
    ]
    assert conclude_job(digests).outliers == ()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers, processes of their own on the loopback."""
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    env = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "3"}
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    dask = [sys.executable, "-m"]
    scheduler = subprocess.Popen(
        [*dask, "distributed.cli.dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0"], env=env, **quiet
    )
    workers = [
        subprocess.Popen(
            [*dask, "distributed.cli.dask_worker", *common, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny"],
            env=env, cwd=Path(__file__).resolve().parents[2], **quiet,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        for _ in range(600):
            if file.exists() and file.stat().st_size:
                break
            time.sleep(0.1)
        yield json.loads(file.read_text())["address"], workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


@pytest.mark.parametrize("murder", [False, True])
def test_a_cluster_gives_the_same_result_also_when_a_worker_dies(
    murder: bool, folder: Path, report: Report, cluster: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    address, workers = cluster
    seen: list[str] = []

    def each(one: Digest) -> None:
        seen.append(one.name)
        if murder and len(seen) == 2:
            workers[0].send_signal(signal.SIGKILL)

    found = api.diagnose_job(str(folder), scheduler=address, whatif=False, each=each)
    assert found is not None
    assert found.job is not None
    assert report.job is not None
    assert found.job.rows == report.job.rows
    assert found.job.outliers == report.job.outliers
    assert sorted(seen) == sorted(EXPECTED)


def test_no_scheduler_there(folder: Path) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(OomctlError, match="no Dask scheduler at nowhere://x"):
        api.diagnose_job(str(folder), scheduler="nowhere://x")
