"""The Python on our pages runs as it stands."""

import re
from contextlib import redirect_stdout
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


RECIPES = [*recipes("docs/cookbook.md"), *recipes("docs/adapters.md"), *recipes("docs/random-labels.md")]


@pytest.mark.parametrize(
    ("page", "file"),
    [
        ("README.md", "map.json"),
        ("docs/size.md", "monday.npz"),
        ("docs/export.md", "model.pt2"),
        ("docs/report.md", "report.html"),
    ],
)
def test_code_on_a_page_runs(page: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL):
        exec(block, {})  # noqa: S102  (our own page)
    assert (tmp_path / file).exists()


def test_every_recipe_is_found() -> None:
    assert len(RECIPES) == 7


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_prints_what_its_page_says(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "implicit" in recipe.code:
        pytest.importorskip("implicit")
    monkeypatch.chdir(tmp_path)
    printed = StringIO()
    with redirect_stdout(printed):
        exec(recipe.code, {})  # noqa: S102  (our own page)
    assert printed.getvalue() == recipe.printed
