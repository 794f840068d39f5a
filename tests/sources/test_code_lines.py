"""Source lines are shown from the user's own files and from nowhere else."""

from __future__ import annotations

import pytest

from oomctl.sources.code_lines import code_line


@pytest.fixture
def project(tmp_path, monkeypatch):
    inside, outside = tmp_path / "project", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    (inside / "train.py").write_text("import torch\n    loss = model(x)  \n\n", encoding="utf-8")
    (outside / "other.py").write_text("secret = 1\n", encoding="utf-8")
    (inside / "notes.txt").write_text("secret\n", encoding="utf-8")
    (inside / "link.py").symlink_to(outside / "other.py")
    monkeypatch.chdir(inside)
    return inside


@pytest.mark.parametrize(
    ("file", "line", "text"),
    [
        ("train.py", 2, "loss = model(x)"),
        ("train.py", 3, None),
        ("train.py", 99, None),
        ("train.py", 0, None),
        ("notes.txt", 1, None),
        ("missing.py", 1, None),
        ("../elsewhere/other.py", 1, None),
        ("link.py", 1, None),
        ("\0.py", 1, None),
        ("/etc/passwd", 1, None),
    ],
)
def test_only_python_files_below_the_working_directory(project, file, line, text):
    assert code_line(file, line) == text


def test_a_folder_that_the_user_names_is_theirs(project):
    outside = project.parent / "elsewhere"
    assert code_line(str(outside / "other.py"), 1, (str(outside),)) == "secret = 1"
