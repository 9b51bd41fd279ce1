"""The site agrees with the code, needs no network, and its search works when opened from disk."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import calibrank
from calibrank.curves import Calibrator
from calibrank.registry import CALIBRATORS
from tests.docs.building import DOCS, ROOT, load_script

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs", reason="the site needs mkdocs-material")
    return load_script("hooks")


@pytest.mark.parametrize("member", CALIBRATORS.values(), ids=lambda member: member.name)
def test_the_table_of_methods_agrees_with_the_calibrators(member: Calibrator) -> None:
    page = (DOCS / "methods.md").read_text(encoding="utf-8")
    rows = re.findall(
        rf"^\| `{member.name}` \| (yes|no) \| (yes|no) \| (yes|no) \|", page, re.MULTILINE
    )
    assert rows == [tuple("yes" if met else "no" for met in member.meets)]


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    targets = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    documented = {target.rsplit(".", 1)[1] for target in targets}
    assert set(calibrank.__all__) <= documented


def test_every_public_name_has_one_stability_level() -> None:
    page = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    table = page.split("## Stability")[1]
    rows = re.findall(r"^\| (?:stable|provisional):[^|]*\| (.*) \|$", table, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(names) == sorted(calibrank.__all__)


def test_every_page_of_the_reference_has_a_stability_level() -> None:
    page = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    modules = re.findall(r"^\| \[`(calibrank\.\w+)`\]", page, re.MULTILINE)
    table = page.split("## Stability")[1]
    assert len(modules) > 6
    for module in modules:
        assert table.count(f"`{module}`") == 1


def test_every_command_and_option_is_in_the_reference(hooks: ModuleType) -> None:
    from calibrank.cli.app import COMMANDS

    text = "\n".join(hooks.reference())
    names = [name for name, each in COMMANDS.items() if not each.members]
    assert {"fit", "anchor", "search fit", "search apply"} <= set(names)
    assert re.findall(r"^## calibrank (.+)$", text, re.MULTILINE) == names
    assert "| `--out`, `-o` | Where to save the map (JSON). [default: map.json] |" in text
    file = "A Parquet or CSV file, a folder of them, or a quoted glob."
    assert f"| `TABLE` | {file} [required] |" in text
    assert "One of error, skip. [default: error] |" in text


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_commands_on_pages_exist_with_their_options(hooks: ModuleType, page: Path) -> None:
    options = _options_by_command("\n".join(hooks.reference()))
    text = page.read_text(encoding="utf-8")
    shell = "".join(re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL))
    commands = re.findall(r"^calibrank (.*)$", shell, re.MULTILINE)
    for line in commands + re.findall(r"`calibrank ([^`]*)`", text):
        words = re.sub(r"'[^']*'", "", line.partition("#")[0]).split()
        known = [name for name in options if words[: len(name.split())] == name.split()]
        if words and not words[0].startswith("-") and words != ["search"]:
            assert known, line
            used = {word for word in words if word.startswith("-")}
            assert used <= options[known[0]] | {"--help"}, line


def _options_by_command(reference: str) -> dict[str, set[str]]:
    found = {}
    for part in reference.split("## calibrank ")[1:]:
        table = "".join(line for line in part.splitlines() if line.startswith("| `-"))
        found[part.partition("\n")[0]] = set(re.findall(r"`(--?[a-z][a-z-]*)`", table))
    return found


def test_a_page_that_loads_from_another_host_is_reported(
    hooks: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    local = '<script src="a.js"></script><a href="https://example.org">a link</a>'
    assert hooks.on_post_page(local, page=page) == local
    assert not caplog.records
    hooks.on_post_page('<img src="https://example.org/a.png">', page=page)
    assert "page.md loads from another host" in caplog.text


def test_remote_scripts_of_notebooks_are_removed(
    hooks: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="notebook.ipynb"))
    remote = '<script src="https://example.org/a.js" async></script>'
    local = "<script>local()</script>"
    assert hooks.on_post_page(f"<p>1</p>{remote}<p>2</p>{local}", page=page) == (
        f"<p>1</p><p>2</p>{local}"
    )
    module = '<script type="module">\nimport x from "https://example.org/x.mjs"; x();</script>'
    assert hooks.on_post_page(f"{module}<p>3</p>", page=page) == "<p>3</p>"
    assert not caplog.records


def test_figures_of_the_reproduction_are_shown(hooks: ModuleType) -> None:
    page = (
        "1. First: [a](x/a.png),\n   [b](x/b.png).\n2. Second: [c](x/c.png).\n\n"
        "After [d](x/d.png).\n"
    )
    shown = re.findall(r"!\[(\w)\]\(x/\w\.png\)", hooks.with_figures(page))
    assert shown == ["a", "b", "c"]


def test_docstring_examples_become_code_blocks() -> None:
    pytest.importorskip("griffe", reason="the site needs mkdocstrings")
    fenced = load_script("doctests").fenced("Text.\n\n>>> 1 + 1\n2\n\nMore text.\n\n>>> f()")
    assert fenced == (
        "Text.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore text.\n\n```pycon\n>>> f()\n```\n"
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built with warnings as errors."""
    pytest.importorskip("mkdocs", reason="the site needs mkdocs-material")
    pytest.importorskip("mkdocs_jupyter", reason="the site needs mkdocs-jupyter")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_search_works_on_pages_opened_from_disk(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium to open the site in")  # a system part; .ci/run installs it
    requests: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "api" / "maps.html").as_uri())
        page.click(".md-search__input")
        page.keyboard.type("isotonic")
        page.wait_for_selector(".md-search-result__item")
        links = page.eval_on_selector_all(
            ".md-search-result__link", "links => links.map(link => link.href)"
        )
        browser.close()
    assert any("calibrators.html" in link for link in links)
    assert requests
    assert all(url.startswith("file:") for url in requests)


def test_every_benchmark_is_in_the_table_of_benchmarks() -> None:
    folder = ROOT / "benchmarks"
    listed = set(re.findall(r"`(\w+\.py)`", (folder / "README.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in folder.glob("*.py")}
