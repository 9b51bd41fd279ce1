"""MkDocs hooks: the reproduction, the command line reference, and a check for network use."""

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
from typer import Typer
from typer.models import ArgumentInfo, ParameterInfo

from calibrank.cli.app import make_app

log = get_plugin_logger("hooks")
ROOT = Path(__file__).parents[1]
REPRODUCTION = ROOT / "reproduce" / "aaai22"
SCHEMA = ROOT / "src" / "calibrank" / "maps" / "schema.json"
COMMANDS = "<!-- commands -->"
# What of the reproduction's folder belongs on the site.
_SHOWN = {".md", ".png", ".toml", ".csv"}
# Tags that make a browser load something from another host.
_LOADS = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
# Scripts from another host, by address or by an import in their text.
_REMOTE_SCRIPT = re.compile(
    r"<script\b(?:[^>]*\bsrc=\"https?://|[^>]*>\s*import [^<]*https?://).*?</script>", re.DOTALL
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reproduction, which is kept beside its specs, and the schema of saved maps."""
    for path in sorted(REPRODUCTION.rglob("*")):
        if path.suffix in _SHOWN:
            uri = f"reproduction/{path.relative_to(REPRODUCTION).as_posix()}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    files.append(File.generated(config, "map-schema.json", abs_src_path=str(SCHEMA)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Adapt links that differ between the repository and the site."""
    markdown = markdown.replace("](../reproduce/aaai22/", "](reproduction/")
    markdown = markdown.replace("](../src/calibrank/maps/schema.json", "](map-schema.json")
    if page.file.src_uri == "reproduction/README.md":
        return with_figures(markdown)
    return markdown.replace(COMMANDS, "\n".join(reference()))


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Resolve links in notebooks to pages of the site, which MkDocs does for Markdown only."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def link(found: re.Match[str]) -> str:
        path = found[1].replace("../../reproduce/aaai22/", "../reproduction/")
        uri = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), path))
        file = files.get_file_from_path(uri)
        if file is None:
            log.warning("%s links to %s, which does not exist", page.file.src_uri, found[1])
            return found[0]
        return f'href="{file.url_relative_to(page.file)}{found[2]}"'

    return re.sub(r'href="([^":#]+\.(?:md|ipynb))(#[^"]*|)"', link, html)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Remove scripts that notebooks would load (for formulas and diagrams), warn of the rest."""
    output = _REMOTE_SCRIPT.sub("", output)
    for found in _LOADS.findall(output):
        if 'rel="canonical"' not in found:
            log.warning("%s loads from another host: %s", page.file.src_uri, found)
    return output


def with_figures(markdown: str) -> str:
    """Add each linked figure below the list item that links to it."""

    def item(found: re.Match[str]) -> str:
        figures = re.findall(r"\[([^\]]+)\]\((\S+\.png)\)", found[0])
        return found[0] + "".join(f"\n    ![{words}]({file})\n" for words, file in figures)

    return re.sub(r"^\d\. (?:.+\n)+?(?=\d\. |\n|\Z)", item, markdown, flags=re.MULTILINE)


def reference() -> Iterator[str]:
    """The command line reference in Markdown, from the commands' docstrings and options."""
    for name, callback in named_commands(make_app()):
        yield from _command(name, callback)


def named_commands(app: Typer) -> Iterator[tuple[str, Callable[..., None]]]:
    """All commands by name; those of a group, such as `search fit`, after its name."""
    for command in app.registered_commands:
        yield command.name or command.callback.__name__, command.callback
    for group in app.registered_groups:
        for name, callback in named_commands(group.typer_instance):
            yield f"{group.name} {name}", callback


def _command(name: str, callback: Callable[..., None]) -> Iterator[str]:
    description, example = inspect.getdoc(callback).split("\n\nExample: ")
    yield from (f"## calibrank {name}", "", description, "", "```sh", example.strip(), "```", "")
    yield from ("| option | default | description |", "|---|---|---|")
    for parameter in inspect.signature(callback, eval_str=True).parameters.values():
        # typer's context is no option.
        if get_args(parameter.annotation):
            yield _row(parameter)
    yield ""


def _row(parameter: inspect.Parameter) -> str:
    kind, info = get_args(parameter.annotation)
    default = parameter.default
    shown = "" if default is None or default is False else f"`{getattr(default, 'value', default)}`"
    if default is inspect.Parameter.empty:
        shown = "required"
    text = f"{info.help or ''}{_choices(kind)}".replace("|", "\\|")
    return f"| {_names(parameter.name, info)} | {shown} | {text} |"


def _names(name: str, info: ParameterInfo) -> str:
    if isinstance(info, ArgumentInfo):
        names = [info.metavar or name.upper()]
    else:
        # typer stores the first of several names as the default.
        given = (info.default, *(info.param_decls or ()))
        names = [each for each in given if isinstance(each, str)] or [f"--{name.replace('_', '-')}"]
    return ", ".join(f"`{each}`" for each in names)


def _choices(kind: Any) -> str:
    """The values that an option accepts, where they are the members of an Enum."""
    names: list[str] = []
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, Enum):
            names = [choice.value for choice in each]
    return f" One of {', '.join(f'`{name}`' for name in names)}." if names else ""
