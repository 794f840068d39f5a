"""Every name hashed: what is the user's in no format, what is public software's in every one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oomctl.model.alloc_conf import ConfIssue
from oomctl.model.common import InputFile, VersionRange
from oomctl.model.diff import Diff, DiffRow, DiffSide, DiffSteps, SettingChange, StepPair
from oomctl.model.holdings import HoldingRow, Holdings
from oomctl.model.log import OomEvent
from oomctl.model.ranks import Job, Outlier, OutlierPlace, RankRow
from oomctl.model.report import Culprit, Device, EvidenceItem, Mark, Report, StackLine, StepRow
from oomctl.model.stacks import Frame
from oomctl.report import render
from oomctl.report.base import Options
from oomctl.report.diff import render_diff
from oomctl.report.holdings import render_holdings
from oomctl.report.redact import redact

from .samples import leak

FORMATS = ("terminal", "text", "json", "markdown", "html")
SITE = "/opt/env/lib/python3.12/site-packages"

FRAMES = [
    (f"{SITE}/acme_secret/core.py", "secret_algorithm", False),
    (f"{SITE}/secret.py", "secret", False),
    (f"{SITE}\\secret\\core.py", "secret_algorithm", False),
    ("/home/ada/secret/secret.py", "secret_fn", False),
    ("C:\\Users\\ada\\my secret\\secret.py", "Secret.secret_fn", False),
    ("/opt/secret/lib/python3.12/secret.py", "secret_fn", False),
    (f"{SITE}/torch/../secret/secret.py", "secret_fn", False),
    ("??", "secret::kernel<float>(at::Tensor)", False),
    ("??", "std::function<void (Secret)>", False),
    (f"{SITE}/torch/nn/modules/linear.py", "public_name", True),
    (f"{SITE}/transformers/trainer.py", "public_name", True),
    ("/usr/lib/python3/dist-packages/numpy/core.py", "public_name", True),
    ("/usr/lib/python3.12/threading.py", "public_name", True),
    ("C:\\Python311\\Lib\\threading.py", "public_name", True),
    ("<frozen runpy>", "public_name", True),
    ("??", "at::native::empty_cuda(c10::ArrayRef<long>)", True),
]


def at(file: str, function: str) -> Report:
    """A report in which a frame is everywhere that a frame can be."""
    base = leak()
    label = f"{file.replace(chr(92), '/').rpartition('/')[2]}:7 {function}"
    row = Culprit(1, file, 7, function, 1 << 30, 1, 0.5, "held", stack=(StackLine(file, 7, function),), source="secret")
    said = f"{function} at {file}:7 asked ({label})"
    verdict = replace(base.verdict, headline=said, evidence=(EvidenceItem(said),))
    event = OomEvent(backend="cuda", traceback=(Frame(file, 7, function),), code=("secret",), text="secret")
    return replace(base, culprits=(row, *base.culprits[1:]), verdict=verdict, oom_events=(event,))


@pytest.mark.parametrize(("file", "function", "public"), FRAMES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_frames(file: str, function: str, public: bool, fmt: str) -> None:
    text = render(at(file, function), fmt, redact="all")
    assert "secret" not in text.lower()
    if public and fmt == "json":
        assert f'"function": "{function}"' in text
    if fmt == "json":
        assert (redact(at(file, function), "all").culprits[0].function == function) is public


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_name_that_a_library_has_too(fmt: str) -> None:
    base = at("/home/ada/secret.py", "secret_name")
    library = StackLine(f"{SITE}/torch/secret.py", 9, "secret_name", "library")
    both = replace(base, culprits=(replace(base.culprits[0], stack=(*base.culprits[0].stack, library)),))
    hashed = redact(both, "all")
    own, theirs = hashed.culprits[0].stack
    assert own.function.startswith("fn-")
    assert own.file.startswith("file-")
    assert (theirs.file, theirs.function) == ("…/site-packages/torch/secret.py", "secret_name")
    assert "secret" not in hashed.verdict.headline
    assert "fn-" in render(both, fmt, redact="all")


@pytest.mark.parametrize(
    ("label", "hashed"),
    [
        ("ProfilerStep#12", "ProfilerStep#12"),
        ("Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step"),
        ("Optimizer.zero_grad#SGD.zero_grad", "Optimizer.zero_grad#SGD.zero_grad"),
        ("step 3", "step 3"),
        ("Optimizer.step#SecretOpt.step", None),
        ("SECRETann Optimizer.step#AdamW.step", None),
        ("secret_phase 12", None),
    ],
)
@pytest.mark.parametrize("fmt", FORMATS)
def test_marks(label: str, hashed: str | None, fmt: str) -> None:
    base = leak()
    assert base.steps is not None
    assert base.timeline is not None
    row = StepRow(0, label, 0, 10, 1, 2)
    steps = replace(base.steps, name=label, rows=(row, *base.steps.rows[1:]))
    marked = replace(base, steps=steps, timeline=replace(base.timeline, steps=(Mark(5, label),)))
    marked = replace(marked, verdict=replace(base.verdict, headline=f"grows from {label} on"))
    found = redact(marked, "all")
    assert found.steps is not None
    assert found.steps.name == (hashed or found.steps.name)
    assert found.steps.name.startswith("mark-") is (hashed is None)
    assert "secret" not in render(marked, fmt, redact="all").lower()


CONFS = [
    ("expandable_segments:True,max_split_size_mb:128", "expandable_segments:True,max_split_size_mb:128"),
    ("roundup_power2_divisions:[256:1,512:2,>:4],backend:cudaMallocAsync", None),
    ("garbage_collection_threshold:0.8,max_split_size_mb:128MB", None),
    ("secretkey:1,max_split_size_mb:64", "conf-ad165b11:1,max_split_size_mb:64"),
    ("max_split_size_mb:/home/ada/secret", "max_split_size_mb:conf-"),
    ("secret words here", "conf-"),
]


@pytest.mark.parametrize(("conf", "start"), CONFS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_settings(conf: str, start: str | None, fmt: str) -> None:
    from oomctl.model.alloc_conf import check_conf

    base = leak()
    issues = (*check_conf(conf).issues, ConfIssue("error", "secretkey", "no option 'secretkey' (secretkey:VALUE)"))
    issues = tuple(replace(i, key=i.key.replace("secretkey", conf.split(":", maxsplit=1)[0])) for i in issues)
    issues = issues if "secretkey" in conf else issues[:-1]
    found = replace(base, alloc_conf=conf, conf_issues=issues)
    assert "secret" not in render(found, fmt, redact="all").lower()
    shown = redact(found, "all").alloc_conf or ""
    assert shown.startswith(start if start is not None else conf)


def test_processes() -> None:
    base = leak()
    said = "Process 12 /opt/secretco/secretproc: 3.00 GiB", "Process 13 secretproc: 3.00 GiB", "Process 14 python3: 1 B"
    found = replace(base, verdict=replace(base.verdict, evidence=tuple(map(EvidenceItem, said))))
    hashed = [item.statement for item in redact(found, "all").verdict.evidence]
    assert "secret" not in " ".join(hashed)
    assert hashed[2] == said[2]


FILE, FUNCTION = f"{SITE}/acme_secret/core.py", "secret_algorithm"
STACK = (StackLine(FILE, 7, FUNCTION), StackLine("/home/ada/secret.py", 3, "secret_train"))
INPUT = InputFile("/data/secret/secret.pickle", "snapshot", "pickle", VersionRange(), None, 10)


@pytest.mark.parametrize("fmt", FORMATS)
def test_comparisons(fmt: str) -> None:
    side = DiffSide((INPUT,), Device(), VersionRange(), "secretkey:1", "peak", 5, 10, 1, 20, 10, 20, False)
    row = DiffRow("new", 5, 0, 5, 0, 1, FILE, 7, FUNCTION, stack=STACK)
    pair = StepPair("secret_phase 1", 1, 2, 1, 2)
    found = Diff(
        "0.1.0", side, replace(side, allocated=15), "stack", "allocated", 5, f"core.py:7 {FUNCTION} grew", (row,), 0, 0,
        settings=(SettingChange("secretkey", "1", "secretvalue"), SettingChange("max_split_size_mb", "64", "128")),
        steps=DiffSteps("secret_phase", (pair,), 1, 1, 1, 1, 0, 0),
    )  # fmt: skip
    text = render_diff(found, fmt, Options(redact="all", verbose=True))
    assert "secret" not in text.lower()
    assert "max_split_size_mb" in text.replace("\\", "").replace("\u2060", "")


@pytest.mark.parametrize("fmt", ["terminal", "json"])
def test_holdings(fmt: str) -> None:
    row = HoldingRow(10, 1, 1.0, FILE, 7, FUNCTION, STACK)
    found = Holdings((INPUT,), Device(), "peak", 5, 10, None, "stack", 10, 0, 20, 1, (row,))
    assert "secret" not in render_holdings(found, fmt, verbose=True, redact="all")


@pytest.mark.parametrize("fmt", FORMATS)
def test_jobs(fmt: str) -> None:
    outlier = Outlier("rank 1", 1, 10, 5, 5, (OutlierPlace(FILE, 7, FUNCTION, 10, 5, 5),))
    row = RankRow("rank 1", 1, "outlier", "leak", "secret-host-3", headline=f"core.py:7 {FUNCTION} leaks")
    job = Job(f"rank 1 holds more at core.py:7 {FUNCTION}", 1, 1, 0, "", (row,), (outlier,))
    assert "secret" not in render(replace(leak(), job=job), fmt, redact="all")
