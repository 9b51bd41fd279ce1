"""The site says what the code says, and loads nothing from elsewhere. `mkdocs build --strict` does the rest."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import calibrank
from calibrank.calibrators import Calibrator
from calibrank.registry import CALIBRATORS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def loaded(name: str) -> ModuleType:
    """A script of the site's build, as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs", reason="the site needs mkdocs-material")
    return loaded("hooks")


@pytest.mark.parametrize("member", CALIBRATORS.values(), ids=lambda member: member.name)
def test_the_table_of_methods_is_true(member: Calibrator) -> None:
    page = (DOCS / "methods.md").read_text(encoding="utf-8")
    rows = re.findall(
        rf"^\| `{member.name}` \| (yes|no) \| (yes|no) \| (yes|no) \|", page, re.MULTILINE
    )
    assert rows == [tuple("yes" if met else "no" for met in member.meets)]


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    named = {target.rsplit(".", 1)[1] for target in re.findall(r"^::: (\S+)$", pages, re.MULTILINE)}
    assert set(calibrank.__all__) <= named


def test_every_command_and_option_is_in_the_reference(hooks: ModuleType) -> None:
    from calibrank.cli.app import make_app

    words = "\n".join(hooks.reference())
    names = [command.callback.__name__ for command in make_app().registered_commands]
    assert re.findall(r"^## calibrank (\S+)$", words, re.MULTILINE) == names
    assert "| `--out`, `-o` | `map.json` | Where to save the map (JSON). |" in words
    assert "| `TABLE` | required | Parquet or CSV file, folder, or glob in quotes. |" in words
    assert "One of `naive`, `ips`, `positive-ips`, `impressions`." in words


def test_a_page_that_loads_from_elsewhere_is_told(
    hooks: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    near = '<script src="a.js"></script><a href="https://example.org">a link</a>'
    assert hooks.on_post_page(near, page=page) == near
    assert not caplog.records
    hooks.on_post_page('<img src="https://example.org/a.png">', page=page)
    assert "page.md loads from elsewhere" in caplog.text


def test_what_notebooks_would_load_is_taken_out(
    hooks: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="notebook.ipynb"))
    far = '<p>1</p><script src="https://example.org/a.js" async></script><p>2</p><script>near()</script>'
    assert hooks.on_post_page(far, page=page) == "<p>1</p><p>2</p><script>near()</script>"
    module = (
        '<script type="module">\nimport x from "https://example.org/x.mjs"; x();</script><p>3</p>'
    )
    assert hooks.on_post_page(module, page=page) == "<p>3</p>"
    assert not caplog.records


def test_figures_of_the_reproduction_are_shown(hooks: ModuleType) -> None:
    page = "1. First: [a](x/a.png),\n   [b](x/b.png).\n2. Second: [c](x/c.png).\n\nAfter [d](x/d.png).\n"
    shown = re.findall(r"!\[(\w)\]\(x/\w\.png\)", hooks.with_figures(page))
    assert shown == ["a", "b", "c"]


def test_examples_become_code() -> None:
    pytest.importorskip("griffe", reason="the site needs mkdocstrings")
    fenced = loaded("doctests").fenced("Words.\n\n>>> 1 + 1\n2\n\nMore words.\n\n>>> f()")
    assert (
        fenced == "Words.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore words.\n\n```pycon\n>>> f()\n```\n"
    )
