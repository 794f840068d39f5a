"""Who may import whom: data flows one way, and heavy libraries stay where they are needed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "oomctl"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)

LEAVES = {"", "errors", "units", "progress", "files"}
"""Modules without dependencies that every room may use; "" is the package itself, for its version."""

MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "sources": {"model", "_native"},
    "analysis": {"model", "_native"},
    "allocator": {"model", "_native"},
    "diagnosis": {"model", "analysis", "allocator"},
    "remedies": {"model", "allocator"},
    "report": {"model", "_resources"},
    "recorder": {"model"},
    "_native": set(),
    "fleet": set(),
    "ranks": {"api", "model", "sources", "analysis", "diagnosis", "fleet", "report"},
    "tables": {"model", "analysis"},
    "exports": {"model", "analysis", "allocator", "tables"},
    "_resources": set(),
    "errors": set(),
    "units": set(),
    "progress": set(),
    "files": set(),
    "__init__": {"api", "recorder"},
    "__main__": {"cli"},
    "api": {
        "model",
        "sources",
        "analysis",
        "allocator",
        "diagnosis",
        "remedies",
        "report",
        "tables",
        "_resources",
        "fleet",
        "ranks",
        "exports",
    },
    "cli": {"api", "model", "_resources", "recorder", "tables", "_native"},
}
"""Room -> rooms that it may import, besides itself and the leaves."""

THIRD_PARTY: dict[str, set[str]] = {
    "model": {"numpy"},
    "sources": {"numpy", "zstandard", "fsspec"},
    "fleet": {"distributed"},
    "analysis": {"numpy"},
    "allocator": {"numpy"},
    "diagnosis": {"numpy"},
    "remedies": {"numpy"},
    "report": {"numpy", "rich", "jinja2", "markupsafe"},
    "recorder": {"torch"},
    "tables": {"numpy", "pandas"},
    "exports": {"numpy", "pandas", "pyarrow"},
    "api": {"numpy"},
    "cli": {"typer", "rich", "mcp"},
}
"""Room -> third-party packages that it may import."""

HEAVY = {"numpy", "pandas", "pyarrow", "jinja2", "rich", "torch", "markupsafe", "mcp"}
"""Packages that only functions may import in `cli/` and at the tops of packages: listing the help needs none."""

NUMPY_ROOMS = {"model", "sources", "analysis", "allocator", "diagnosis", "remedies", "exports"}
"""Rooms whose modules may import numpy at their top, once they are needed at all."""

STDLIB = sys.stdlib_module_names | {"compression"}
"""With what later versions of Python bring."""

IMPURE = {"time", "random", "secrets", "os", "io", "pathlib", "socket", "subprocess", "datetime", "shutil", "tempfile"}
"""The standard library's clocks, dice and files, which a simulation has no use for."""


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Every import with the dotted name that it is about, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the room"
            module = node.module or ""
            if module == "oomctl":
                yield from ((node, f"oomctl.{alias.name}") for alias in node.names)
            else:
                yield node, module


def typing_only(tree: ast.AST) -> set[ast.stmt]:
    """Statements that only a type checker sees."""
    guards = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING")]
    return {stmt for guard in guards for stmt in ast.walk(guard) if isinstance(stmt, ast.stmt)}


def at_top(tree: ast.Module) -> set[ast.stmt]:
    """Statements that run when the module is imported."""
    inside = {
        stmt
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for stmt in ast.walk(function)
        if isinstance(stmt, ast.stmt) and stmt is not function
    }
    return {stmt for stmt in ast.walk(tree) if isinstance(stmt, ast.stmt)} - inside - typing_only(tree)


@pytest.fixture(params=FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def source(request: pytest.FixtureRequest) -> tuple[Path, ast.Module]:
    return request.param, ast.parse(request.param.read_text(encoding="utf-8"))


def target_room(name: str) -> str:
    """The room of a dotted name; "" for a name in the package itself."""
    part = name.partition(".")[2].partition(".")[0]
    return part if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").exists() else ""


def test_rooms(source: tuple[Path, ast.Module]) -> None:
    path, tree = source
    room = room_of(path)
    allowed = MAY_IMPORT[room] | LEAVES | {room}
    found = {target_room(name) for _, name in imports(tree) if name.split(".")[0] == "oomctl"}
    assert found <= allowed, f"{room} imports {sorted(found - allowed)}"


def test_third_party(source: tuple[Path, ast.Module]) -> None:
    path, tree = source
    room = room_of(path)
    found = {name.split(".")[0] for _, name in imports(tree)} - {"oomctl", "__future__"} - STDLIB
    allowed = THIRD_PARTY.get(room, set())
    assert found <= allowed, f"{room} imports {sorted(found - allowed)}"


def test_heavy_imports_wait(source: tuple[Path, ast.Module]) -> None:
    path, tree = source
    room = room_of(path)
    is_top = path.name == "__init__.py" or path.parent == PACKAGE or room == "cli"
    free = {"numpy"} if room in NUMPY_ROOMS and not is_top else set()
    if room == "tables":
        return  # loaded by name only, and pandas is all that it is about
    if room == "exports" and not is_top:
        free = {"numpy", "pandas"}  # a table is what most of them write; pyarrow is an extra
    if room == "report" and not is_top:
        free = {"numpy", "rich", "jinja2", "markupsafe"}
    early = at_top(tree)
    found = {name.split(".")[0] for node, name in imports(tree) if node in early} & HEAVY
    assert found <= free, f"imported at module top: {sorted(found - free)}"


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) == "allocator"], ids=lambda p: p.name)
def test_the_simulation_is_pure(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {name.split(".")[0] for _, name in imports(tree)} & IMPURE


QUIET = [p for p in FILES if room_of(p) not in {"cli", "recorder", "__main__", "_native"}]
"""`_native` alone reads one variable, which says whether its kernels may be used."""
FORBIDDEN = {"print", "input", "exit", "quit", "sys.exit", "os._exit", "sys.argv", "os.environ", "os.getenv"}


@pytest.mark.parametrize("path", QUIET, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_library_neither_prints_nor_reads_its_surroundings(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    named = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not (called | named) & FORBIDDEN


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) in {"report", "model", "allocator"}], ids=str)
def test_no_files_are_opened(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "open" not in called


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pickles_are_never_plainly_loaded(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # exec("") runs nothing; it makes CPython forget an interrupt.
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node) != "exec('')"]
    called = {ast.unparse(node.func) for node in calls}
    assert not called & {"pickle.load", "pickle.loads", "eval", "exec", "marshal.loads"}
