"""The code on the README and on the documentation pages runs, and prints what the pages show.

`python docs/pages.py` rewrites the outputs on the pages.
"""

import re
import warnings
from pathlib import Path

import pytest

from tests.docs.building import DOCS, ROOT, load_script

pages = load_script("pages")

# Packages of recipes that are skipped without them.
OPTIONAL = ("fastapi", "implicit", "mlflow")

RECIPES = {}
for page in pages.SELF_CONTAINED:
    for block in pages.blocks_of(page):
        RECIPES[f"{page}: {block.section}"] = block


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
def test_code_without_output_runs_and_writes_its_file(
    page: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(code, {})  # noqa: S102  (the code of our own page)
    assert (tmp_path / file).exists()


def test_every_recipe_has_a_section_of_its_own() -> None:
    found = [len(pages.blocks_of(page)) for page in pages.SELF_CONTAINED]
    assert min(found) > 0
    assert sum(found) == len(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_prints_what_its_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = RECIPES[name]
    for package in OPTIONAL:
        if f"import {package}" in block.code or f"from {package}" in block.code:
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        if name.startswith("serving"):
            warnings.simplefilter("ignore")  # those of FastAPI and MLflow about themselves
        assert pages.run_block(block, {}) == block.shown


@pytest.mark.parametrize("page", pages.SEQUENTIAL)
def test_a_page_of_steps_prints_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compared = 0
    for block, printed in pages.run_page(page):
        assert block.agrees_with(printed), f"{block.code}\n{printed}"
        compared += block.shown is not None
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert compared == text.count("```text\n") > 0


def test_the_table_of_refused_combinations_is_that_of_the_code() -> None:
    assert pages.shown_table() == pages.refused_table()


PAGE = "# Title\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```sh\nls\n```\n"


def test_blocks_know_their_output_and_where_it_is() -> None:
    first, second = pages.read_blocks(PAGE)
    assert (first.section, first.language, first.code, first.shown) == (
        "Title",
        "python",
        "print(1)\n",
        "1\n",
    )
    assert PAGE[first.start :].startswith("1\n```")
    assert second.shown is None
    assert first.agrees_with("1\n")
    assert not first.agrees_with("2\n")
    assert not first.agrees_with("1\n2\n")


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("old\n", "anything\n", "anything\n"),
        ("ECE 0.1\n...\nloss 0.3\n", "ECE 0.2\nx\nloss 0.4 \n", "ECE 0.2\n...\nloss 0.4\n"),
        ("...\nsize (... MB)\n", "x\nsize (0.3 MB)\n", "...\nsize (... MB)\n"),
        ("...\nsomething else\n", "x\ny\n", None),
        # The new output has a line between two shown ones: what to leave out is not known.
        ("...\nfirst 1\nsecond 1\n", "x\nfirst 2\nnew\nsecond 2\n", None),
    ],
)
def test_shown_lines_are_replaced_by_their_successors(
    shown: str, printed: str, expected: str | None
) -> None:
    assert pages.refreshed(shown, printed) == expected
