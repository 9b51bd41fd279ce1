"""MkDocs hooks: the reproduction, the command line reference, and a check for network use."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from calibrank.cli.app import COMMANDS
from calibrank.cli.parse import Option

log = get_plugin_logger("hooks")
ROOT = Path(__file__).parents[1]
REPRODUCTION = ROOT / "reproduce" / "aaai22"
SCHEMA = ROOT / "src" / "calibrank" / "maps" / "schema.json"
REFERENCE = "<!-- commands -->"
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
    return markdown.replace(REFERENCE, "\n".join(reference()))


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
    """The command line reference in Markdown, from the commands' help and options."""
    for command in COMMANDS.values():
        if not command.members:
            description, _, example = command.text.partition("\n\nExample: ")
            yield from (f"## {command.title}", "", description, "", "```sh", example, "```", "")
            yield from ("| option | description |", "|---|---|")
            yield from map(_row, command.options)
            yield ""


def _row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    text = option.full_help.replace("|", "\\|")
    return f"| {names} | {text} |"
