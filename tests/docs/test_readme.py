"""The Python on our pages runs as it stands, and so do the quickstart's commands."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Recipe(NamedTuple):
    """A block of Python and what the page says it prints."""

    name: str
    code: str
    printed: str


def recipes(page: str) -> list[Recipe]:
    """The blocks of a page that show their output, each named by its section."""
    found = []
    for section in re.split(r"^#+ ", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE):
        name = f"{page}: {section.splitlines()[0] if section else ''}"
        blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", section, re.DOTALL)
        found += [Recipe(name, *block) for block in blocks]
    return found


PAGES = ("cookbook", "adapters", "methods", "random-labels")
RECIPES = [recipe for page in PAGES for recipe in recipes(f"docs/{page}.md")]


@pytest.mark.parametrize(
    ("page", "file"),
    [
        ("README.md", "map.json"),
        ("docs/index.md", "map.json"),
        ("docs/size.md", "monday.npz"),
        ("docs/export.md", "model.pt2"),
        ("docs/report.md", "report.html"),
    ],
)
def test_code_on_a_page_runs(
    page: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL
    ):
        exec(block, {})  # noqa: S102  (our own page)
    assert (tmp_path / file).exists()


def test_every_recipe_is_found() -> None:
    assert len(RECIPES) == 8


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_prints_what_its_page_says(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "implicit" in recipe.code:
        pytest.importorskip("implicit")
    monkeypatch.chdir(tmp_path)
    printed = StringIO()
    with redirect_stdout(printed):
        exec(recipe.code, {})  # noqa: S102  (our own page)
    assert printed.getvalue() == recipe.printed


def run_commands(lines: str) -> str:
    """What the `calibrank` commands of a block print; other commands (pip) are not ours to run."""
    printed = ""
    for line in lines.splitlines():
        if line.startswith("calibrank "):
            command = [sys.executable, "-m", *shlex.split(line)]
            done = subprocess.run(
                command,
                capture_output=True,
                check=True,
                encoding="utf-8",
                env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
            )
            printed += done.stdout
    return printed


def test_the_quickstart_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks build on one another; where lines are left out the page says `...`."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|sh)\n(.*?)```(?:\n\n```text\n(.*?)```)?", page, re.DOTALL)
    assert len(blocks) == 13
    names: dict[str, object] = {}
    for language, code, said in blocks:
        printed = StringIO()
        with redirect_stdout(printed):
            if language == "python":
                exec(code, names)  # noqa: S102  (our own page)
        got = printed.getvalue() if language == "python" else run_commands(code)
        assert not said or OutputChecker().check_output(
            said, got, ELLIPSIS | NORMALIZE_WHITESPACE
        ), f"{code}\n{got}"
    assert (tmp_path / "report.html").exists()
