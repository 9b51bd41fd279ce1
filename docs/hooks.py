"""What the site is built with beyond Markdown: the reproduction, the command line, and no page that loads from afar."""

import inspect
import posixpath
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.models import ArgumentInfo, ParameterInfo

from calibrank.cli.app import make_app

log = get_plugin_logger("hooks")
ROOT = Path(__file__).parents[1]
REPRODUCTION = ROOT / "reproduce" / "aaai22"
COMMANDS = "<!-- commands -->"
_SHOWN = {".md", ".png", ".toml", ".csv"}
_LOADS = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
_FAR_SCRIPT = re.compile(
    r"<script\b(?:[^>]*\bsrc=\"https?://|[^>]*>\s*import [^<]*https?://).*?</script>", re.DOTALL
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reproduction, which lives beside its specs, as if it were a folder of the docs."""
    for path in sorted(REPRODUCTION.rglob("*")):
        if path.suffix in _SHOWN:
            uri = f"reproduction/{path.relative_to(REPRODUCTION).as_posix()}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Mend what differs between a repository's host and the site."""
    markdown = markdown.replace("](../reproduce/aaai22/", "](reproduction/")
    if page.file.src_uri == "reproduction/README.md":
        return with_figures(markdown)
    return markdown.replace(COMMANDS, "\n".join(reference()))


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Links of notebooks, which MkDocs does not look into, to the pages they mean."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def link(found: re.Match[str]) -> str:
        path = found[1].replace("../../reproduce/aaai22/", "../reproduction/")
        uri = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), path))
        file = files.get_file_from_path(uri)
        if file is None:
            log.warning("%s links to %s, which is not there", page.file.src_uri, found[1])
            return found[0]
        return f'href="{file.url_relative_to(page.file)}{found[2]}"'

    return re.sub(r'href="([^":#]+\.(?:md|ipynb))(#[^"]*|)"', link, html)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Take out what notebooks would load (formulas, diagrams: there are none), and warn of anything left."""
    output = _FAR_SCRIPT.sub("", output)
    for found in _LOADS.findall(output):
        if 'rel="canonical"' not in found:
            log.warning("%s loads from elsewhere: %s", page.file.src_uri, found)
    return output


def with_figures(markdown: str) -> str:
    """Links to figures, and the figures below them."""

    def item(found: re.Match[str]) -> str:
        figures = re.findall(r"\[([^\]]+)\]\((\S+\.png)\)", found[0])
        return found[0] + "".join(f"\n    ![{words}]({file})\n" for words, file in figures)

    return re.sub(r"^\d\. (?:.+\n)+?(?=\d\. |\n|\Z)", item, markdown, flags=re.MULTILINE)


def reference() -> Iterator[str]:
    """The command line in Markdown, as the commands describe themselves."""
    for command in make_app().registered_commands:
        yield from _command(command.callback)


def _command(callback: Callable[..., None]) -> Iterator[str]:
    words, example = inspect.getdoc(callback).split("\n\nExample: ")
    yield from (
        f"## calibrank {callback.__name__}",
        "",
        words,
        "",
        "```sh",
        example.strip(),
        "```",
        "",
    )
    yield from ("| | default | |", "|---|---|---|")
    yield from (
        _row(each) for each in inspect.signature(callback, eval_str=True).parameters.values()
    )
    yield ""


def _row(parameter: inspect.Parameter) -> str:
    kind, info = get_args(parameter.annotation)
    default = parameter.default
    shown = "" if default is None or default is False else f"`{getattr(default, 'value', default)}`"
    if default is inspect.Parameter.empty:
        shown = "required"
    words = f"{info.help or ''}{_choices(kind)}".replace("|", "\\|")
    return f"| {_names(parameter.name, info)} | {shown} | {words} |"


def _names(name: str, info: ParameterInfo) -> str:
    if isinstance(info, ArgumentInfo):
        names = [info.metavar or name.upper()]
    else:
        given = (
            info.default,
            *(info.param_decls or ()),
        )  # typer keeps the first name where a default would be
        names = [each for each in given if isinstance(each, str)] or [f"--{name.replace('_', '-')}"]
    return ", ".join(f"`{each}`" for each in names)


def _choices(kind: Any) -> str:
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, Enum):
            return f" One of {', '.join(f'`{choice.value}`' for choice in each)}."
    return ""
