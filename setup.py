"""The parts of the build that pyproject.toml cannot express: mapped data folders and the optional kernels."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup

DATA = {"oomctl.templates": "templates", "oomctl.fixtures": "fixtures"}
"""Top-level data folders that become part of the package in a wheel."""


STABLE_ABI = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
"""Whether one build serves this version of Python and all later ones; earlier versions need a build of their own."""


def kernels() -> list[Extension]:
    """Compiled kernels, when there are sources and Cython; without a compiler the build goes on without them."""
    sources = sorted(str(path) for path in Path("oomctl/_native").glob("*.pyx"))
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extensions = [
        Extension(
            f"oomctl._native.{Path(source).stem}",
            [source],
            include_dirs=["oomctl/_native"],
            depends=sorted(str(path) for path in Path("oomctl/_native").glob("*.hpp")),
            language="c++",
            extra_compile_args=[] if sys.platform == "win32" else ["-std=c++17", "-O2"],
            define_macros=[("Py_LIMITED_API", "0x030b0000")] if STABLE_ABI else [],
            py_limited_api=STABLE_ABI,
        )
        for source in sources
    ]
    built = cythonize(extensions, language_level=3) if extensions else []
    for extension in built:
        extension.optional = True  # which the translation forgets
    return built


setup(
    packages=[*find_packages(include=["oomctl", "oomctl.*"]), *DATA],
    package_dir=DATA,
    package_data={
        "oomctl": ["py.typed", "skills/*/SKILL.md"],
        "oomctl.templates": ["**/*"],
        "oomctl.fixtures": ["README.md", "captures/*/*"],
    },
    include_package_data=False,
    ext_modules=kernels(),
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)
