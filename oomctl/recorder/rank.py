"""Which of the job's processes this is, as the launchers tell it through the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
_LOCAL: Final = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD: Final = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


@dataclass(frozen=True, slots=True)
class Rank:
    """Place of a process in its job; None where nothing tells it.

    Attributes:
        rank: Over all hosts.
        local: On this host.
        world: Processes of the job.
    """

    rank: int | None = None
    local: int | None = None
    world: int | None = None


def rank_of(environment: Mapping[str, str] = os.environ) -> Rank:
    """Reads the variables of torchrun (accelerate and DeepSpeed set the same), Slurm, Open MPI, PMI and MVAPICH.

    Slurm sets its variables in every shell of an allocation, so that a world of one is no rank at all.
    """
    found = Rank(_first(environment, _RANK), _first(environment, _LOCAL), _first(environment, _WORLD))
    if found.rank == 0 and (found.world or 1) == 1 and "RANK" not in environment:
        return Rank()
    return found


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    values = (environment.get(name, "") for name in names)
    return next((int(value) for value in values if value.isascii() and value.isdecimal()), None)
