"""Which variable counts, and settings that a snapshot recorded."""

from __future__ import annotations

import pytest

from oomctl.model.alloc_conf import AllocConf, conf_from_recorded, env_name, env_names, export_line, name_issue
from oomctl.model.common import Version, VersionRange
from oomctl.model.snapshot import AllocatorSettings

CUDA, HIP, GENERIC = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


@pytest.mark.parametrize(
    ("torch", "backend", "names"),
    [
        ((1, 9), "cuda", ()),
        ((1, 10), "cuda", (CUDA,)),
        ((2, 7), "hip", (HIP,)),
        ((2, 8), "hip", (CUDA, HIP)),
        ((2, 9), "cuda", (CUDA,)),
        ((2, 10), "cuda", (CUDA, GENERIC)),
        ((2, 14), "hip", (CUDA, HIP, GENERIC)),
    ],
)
def test_names(torch: Version, backend: str, names: tuple[str, ...]) -> None:
    assert env_names(torch, backend) == names
    advised = env_name(VersionRange(torch, torch), backend)
    assert not names or advised in names
    for name in (CUDA, HIP, GENERIC):
        assert (name_issue(name, torch, backend) is None) == (name in names)


def test_trap_of_2_9() -> None:
    issue = name_issue(GENERIC, (2, 9))
    assert issue is not None
    assert issue.severity == "error"
    assert f"use {CUDA}" in issue.message


def test_export_line_survives_the_shell() -> None:
    assert export_line(CUDA, "expandable_segments:True") == f"export {CUDA}=expandable_segments:True"
    assert export_line(CUDA, "roundup_power2_divisions:[>:8]") == f"export {CUDA}='roundup_power2_divisions:[>:8]'"
    assert export_line(CUDA, "a:[>:8]", "windows") == f'set "{CUDA}=a:[>:8]"'


MIB = 1 << 20


@pytest.mark.parametrize(
    ("conf", "values", "expected"),
    [
        (None, {}, AllocConf()),
        ("expandable_segments:True", {"expandable_segments": True}, AllocConf(expandable_segments=True)),
        # The string is the last one parsed; the values are what was in effect.
        ("", {"expandable_segments": True, "max_split_size": 64 * MIB}, AllocConf(True, 64 * MIB)),
        ("max_split_size_mb:64", {"max_split_size": -1}, AllocConf()),
        ("", {"max_split_size": (1 << 64) - 1}, AllocConf()),
        ("", {"garbage_collection_threshold": 0.5}, AllocConf(garbage_collection_threshold=0.5)),
        (
            "max_non_split_rounding_mb:64",
            {"roundup_power2_divisions": {str(1 << i): 4 for i in range(16)}},
            AllocConf(max_non_split_rounding=64 * MIB, roundup_power2_divisions=(4,) * 16),
        ),
        # Hostile or unknown values are passed over.
        ("expandable_segments:True", {"expandable_segments": "yes", "max_split_size": "x"}, AllocConf(True)),
        ("", {"roundup_power2_divisions": {"1": "x", 2: -1}, "garbage_collection_threshold": True}, AllocConf()),
    ],
)
def test_recorded(conf: str | None, values: dict[str, object], expected: AllocConf) -> None:
    assert conf_from_recorded(AllocatorSettings(conf, values), (2, 11)) == expected


def test_nothing_recorded() -> None:
    assert conf_from_recorded(None, (2, 1)) == AllocConf()
