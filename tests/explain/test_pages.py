"""The pages themselves: names that are found, links that lead somewhere, examples that work."""

from __future__ import annotations

import ast
import shlex
import textwrap

import pytest

from oomctl.api import explanations
from oomctl.cli.prose import page_lines
from oomctl.cli.registry import COMMANDS
from oomctl.diagnosis.codes import CODES
from oomctl.model.pages import Page, exact_page

PAGES: list[Page] = [page for _, pages in explanations() for page in pages]


def literals(page: Page) -> list[str]:
    """Literal blocks of a page, each without its indentation; blank lines within one do not end it."""
    found: list[str] = []
    inside = False
    for block in page.text.split("\n\n"):
        literal = all(line.startswith("    ") for line in block.split("\n"))
        if literal and inside:
            found[-1] += "\n\n" + block
        elif literal:
            found.append(block)
        inside = literal
    return [textwrap.dedent(block) for block in found]


def python_blocks() -> list[str]:
    found = [block for page in PAGES for block in literals(page)]
    return [block for block in found if "import torch" in block or "for batch" in block]


def commands() -> list[str]:
    lines = [line for page in PAGES for block in literals(page) for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith("oomctl ")})


def test_names_are_unique() -> None:
    names = [page.slug.replace("-", "_").lower() for page in PAGES]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.slug)
def test_page(page: Page) -> None:
    assert exact_page(PAGES, page.slug) is page
    assert exact_page(PAGES, page.slug.replace("_", " ").upper()) is page
    assert page.title
    assert page.text.strip()
    for slug in page.see:
        assert exact_page(PAGES, slug) is not None, slug
    for line in page_lines(page):
        assert len(line) <= 80 or line.startswith("    ") or " " not in line.strip("- "), line


def test_every_verdict_has_a_page() -> None:
    for code in CODES.values():
        page = exact_page(PAGES, code.lower())
        assert page is not None, code
        assert page.code == code


@pytest.mark.parametrize("command", commands())
def test_commands_exist(command: str) -> None:
    name = shlex.split(command)[1]
    assert name in {entry.name for entry in COMMANDS if entry.exists()}


@pytest.mark.parametrize("code", python_blocks())
def test_python_parses(code: str) -> None:
    ast.parse(code)


def test_snapshot_recipe_names_real_functions() -> None:
    torch = pytest.importorskip("torch")
    recipe = next(code for code in python_blocks() if "_dump_snapshot" in code)
    for node in ast.walk(ast.parse(recipe)):
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
            target = torch
            for name in ast.unparse(node).split(".")[1:]:
                target = getattr(target, name)
