"""What is built is what is needed: wheel, source archive and editable install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from oomctl import __version__

ROOT = Path(__file__).resolve().parents[1]
TOP = {"pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE", "README.md", "CHANGELOG.md"}
FOLDERS = {"oomctl", "templates", "fixtures", "tests"}
BUILD = "import setuptools.build_meta as backend, sys; print(getattr(backend, 'build_' + sys.argv[1])(sys.argv[2]))"


def copy_of_the_tree(target: Path) -> Path:
    """Only what a fresh clone holds, so that leftovers of earlier builds cannot help."""
    target.mkdir()
    for name in TOP:
        shutil.copy(ROOT / name, target / name)
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "*.cpp", "*.egg-info")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    return target


class Built:
    """A tree, a virtual environment that can build, and what was built."""

    def __init__(self, folder: Path) -> None:
        self.tree = copy_of_the_tree(folder / "tree")
        self.dist = folder / "dist"
        self.dist.mkdir()
        venv.create(folder / "env", with_pip=True)
        self.python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
        self.run("-m", "pip", "install", "-q", "setuptools>=77")
        self.wheel = self.build("wheel", self.tree)
        self.sdist = self.build("sdist", self.tree)

    def run(self, *args: str, cwd: Path | None = None) -> str:
        env = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
        done = subprocess.run(
            [str(self.python), *args], cwd=cwd or self.dist, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def oomctl(self, *args: str, cwd: Path) -> str:
        """What the installed oomctl prints; the libraries that it needs come from the environment of the tests."""
        borrowed = [path for path in sys.path if path.endswith("site-packages")]
        code = "import sys; sys.path += {!r}; from oomctl.cli.main import main; sys.exit(main({!r}))"
        return self.run("-c", code.format(borrowed, list(args)), cwd=cwd)

    def build(self, kind: str, tree: Path) -> Path:
        return self.dist / self.run("-c", BUILD, kind, str(self.dist), cwd=tree).split()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("packaging"))


def data_files(tree: Path) -> set[str]:
    """Templates and recorded failures of a tree, as paths in the package."""
    folders = [tree / "templates", tree / "fixtures" / "captures"]
    return {f"oomctl/{path.relative_to(tree).as_posix()}" for f in folders for path in f.rglob("*") if path.is_file()}


def test_wheel_holds_the_package_and_its_data_and_nothing_else(built: Built) -> None:
    names = set(zipfile.ZipFile(built.wheel).namelist())
    modules = {path.relative_to(built.tree).as_posix() for path in (built.tree / "oomctl").rglob("*.py")}
    assert data_files(built.tree) | modules | {"oomctl/py.typed", "oomctl/fixtures/README.md"} <= names
    assert {name.split("/")[0] for name in names} == {"oomctl", f"oomctl-{__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert built.wheel.stat().st_size < 4 << 20


def test_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert {path.name for path in unpacked.iterdir()} >= TOP | FOLDERS
    before = built.wheel.read_bytes()
    again = built.build("wheel", unpacked)
    first = {i.filename: i.CRC for i in zipfile.ZipFile(_kept(tmp_path / "first.whl", before)).infolist()}
    second = {i.filename: i.CRC for i in zipfile.ZipFile(again).infolist()}
    assert second.keys() == first.keys()
    changed = {name for name in first if first[name] != second[name]}
    assert {name for name in changed if not name.endswith((".so", ".pyd", "/RECORD"))} == set()


def _kept(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_the_installed_wheel_works_anywhere(built: Built, tmp_path: Path) -> None:
    built.run("-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(built.wheel))
    where = built.run("-c", "import oomctl; print(oomctl.__file__)", cwd=tmp_path)
    assert built.python.parents[1] in Path(where.strip()).parents
    assert (built.python.parent / "oomctl").exists()
    assert built.oomctl("--version", cwd=tmp_path) == f"oomctl {__version__} (pure)\n"
    assert "kv-cat" in built.oomctl("demo", cwd=tmp_path)
    assert '"fragmentation"' in built.oomctl("demo", "kv-cat", "--json", cwd=tmp_path)
    page = tmp_path / "page.html"
    built.oomctl("demo", "kv-cat", "-o", str(page), cwd=tmp_path)
    assert page.stat().st_size > 10_000


def test_an_editable_install_is_live(built: Built, tmp_path: Path) -> None:
    built.run(
        "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--force-reinstall", "-e", str(built.tree)
    )
    where = "from oomctl import _resources as r; print(r.templates(), r.fixtures(), sep='\\n')"
    assert built.run("-c", where, cwd=tmp_path).split() == [
        str(built.tree / "templates"),
        str(built.tree / "fixtures"),
    ]
    (built.tree / "oomctl" / "fresh.py").write_text("ANSWER = 42\n")
    assert built.run("-c", "import oomctl.fresh as f; print(f.ANSWER)", cwd=tmp_path) == "42\n"


def test_the_top_level_is_as_agreed() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = {line.split("/")[0] for line in tracked.splitlines()} or TOP | FOLDERS
    assert {name for name in names if not name.startswith(".")} == TOP | FOLDERS


def test_python_versions_agree() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in ('requires-python = ">=3.10"', 'python_version = "3.10"', 'target-version = "py310"'):
        assert line in text
