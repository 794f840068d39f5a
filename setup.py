"""The parts of the build that pyproject.toml cannot express: mapped data folders and the optional kernels."""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, find_packages, setup

DATA = {"oomctl.templates": "templates", "oomctl.fixtures": "fixtures"}
"""Top-level data folders that become part of the package in a wheel."""


def kernels() -> list[Extension]:
    """Compiled kernels, when there are sources and Cython; without a compiler the build goes on without them."""
    sources = sorted(str(path) for path in Path("oomctl/_native").glob("*.pyx"))
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extensions = [Extension(f"oomctl._native.{Path(source).stem}", [source], optional=True) for source in sources]
    return cythonize(extensions, language_level=3) if extensions else []


setup(
    packages=[*find_packages(include=["oomctl", "oomctl.*"]), *DATA],
    package_dir=DATA,
    package_data={
        "oomctl": ["py.typed"],
        "oomctl.templates": ["**/*"],
        "oomctl.fixtures": ["README.md", "captures/*/*"],
    },
    include_package_data=False,
    ext_modules=kernels(),
)
