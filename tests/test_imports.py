"""What a command loads: read from sys.modules in a fresh interpreter, not from a clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oomctl import __version__

HEAVY = ("numpy", "pandas", "jinja2", "torch", "rich.console")


def loaded(code: str) -> set[str]:
    """Modules in a fresh interpreter after running code."""
    script = f"import sys, io\n{code}\nsys.stderr.write('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def run_main(*args: str) -> str:
    return f"from oomctl.cli.main import main; main({list(args)!r})"


@pytest.mark.parametrize("args", [["--help"], ["diagnose", "--help"], ["summary", "-h"], ["demo"], []], ids=str)
def test_help_is_light(args: list[str]) -> None:
    modules = loaded(run_main(*args))
    assert "typer" in modules
    assert not modules & set(HEAVY)


def test_version_needs_no_typer() -> None:
    modules = loaded(run_main("--version"))
    assert not modules & {"typer", *HEAVY}


def test_the_package_is_lazy() -> None:
    assert not loaded("import oomctl") & {"typer", "oomctl.api", *HEAVY}


def test_the_public_names_resolve() -> None:
    assert {"oomctl.api"} <= loaded("import oomctl; [getattr(oomctl, name) for name in oomctl.__all__]")


def test_unknown_names_are_refused() -> None:
    import oomctl

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = oomctl.nothing  # type: ignore[attr-defined]


def test_no_torch_needed() -> None:
    """Everything but recording works where torch is not installed."""
    code = "import sys; sys.modules['torch'] = None\n" + run_main("demo", "kv-cat", "--json")
    assert "oomctl.api" in loaded(code)


def test_python_m() -> None:
    done = subprocess.run([sys.executable, "-m", "oomctl", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout in {f"oomctl {__version__} ({engine})\n" for engine in ("compiled", "pure")}
