"""Several processes of one job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oomctl.recorder.rank import Rank, rank_of
from tests.recorder.running import FAKE, HERE, bundles, incident, python

JOBS = HERE / "jobs"


def test_gloo_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = python(
        *("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "oomctl", "run", "-d", "out", JOBS / "gloo.py"),
        cwd=tmp_path,
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stderr
    # Two processes share the stream: their lines may run into each other.
    assert sorted(re.findall(r"rank \d of 2: 3", done.stdout)) == ["rank 0 of 2: 3", "rank 1 of 2: 3"]
    assert bundles(tmp_path / "out") == []


def test_a_folder_for_each_rank(tmp_path: Path) -> None:
    """Each rank fails on its stand-in for a device, and survives, so that the launcher ends neither."""
    pytest.importorskip("torch")
    done = python(
        *("-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("-m", "oomctl", "run", "-d", "out", JOBS / "fill.py", "survive", "1"),
        cwd=tmp_path,
        OMP_NUM_THREADS="1",
        FAKE_TORCH=str(FAKE),
    )
    assert done.returncode == 0, done.stderr
    found = bundles(tmp_path / "out")
    assert sorted(b.name[-6:] for b in found) == ["-rank0", "-rank1"]
    facts = sorted((f["rank"], f["local_rank"], f["world_size"]) for f in map(incident, found))
    assert facts == [(0, 0, 2), (1, 1, 2)]
    assert "oomctl[rank 1]: out of memory" in done.stderr


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, Rank()),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, Rank(3, 1, 8)),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, Rank(0, 0, 1)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16"}, Rank(5, 1, 16)),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}, Rank()),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, Rank(2, None, 4)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "RANK": "1", "WORLD_SIZE": "2"}, Rank(1, None, 2)),
        ({"RANK": "one"}, Rank()),
        ({"RANK": "-1"}, Rank()),
        ({"RANK": "\u0661"}, Rank()),
    ],
    ids=str,
)
def test_rank_from_the_environment(environment: dict[str, str], rank: Rank) -> None:
    assert rank_of(environment) == rank
