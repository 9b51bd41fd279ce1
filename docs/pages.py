"""The code on the documentation pages: runs it, and rewrites the outputs that pages show.

    python docs/pages.py              run all pages and notebooks, and rewrite their outputs
    python docs/pages.py quickstart   only this page (or notebook)

`tests/docs/test_readme.py` and `tests/docs/test_notebooks.py` run the same code and compare.
A line `...` in an output stands for lines that are left out; lines that are shown are replaced by
the most similar lines of the new output. What cannot be replaced is reported, to be edited by hand.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from difflib import SequenceMatcher
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calibrank.composition import REFUSED

DOCS = Path(__file__).parent

SELF_CONTAINED = (
    "cookbook",
    "adapters",
    "methods",
    "monitor",
    "intervals",
    "pytorch",
    "serving",
    "decisions",
    "plots",
)
"""Pages whose blocks with an output each run on their own."""

SEQUENTIAL = ("quickstart", "which-log", "anchor", "terms", "judges")
"""Pages whose blocks, Python and shell, build on one another."""

LEFT_OUT = "..."
_BLOCK = re.compile(r"```(python|sh)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
# Below this similarity a line of the new output is not the successor of a shown line.
_SIMILAR = 0.6
# The table of refused combinations on its page: from its first line to the last.
_TABLE = re.compile(r"^\| part \|.*?\|\n(?=\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code on a page, and the output below it (None if the page shows none)."""

    section: str
    language: str
    code: str
    shown: str | None
    start: int
    """Where the shown output starts in the page's text."""

    def agrees_with(self, printed: str) -> bool:
        """Whether the page shows what was printed."""
        return self.shown is None or agree(self.shown, printed)


def agree(shown: str, printed: str) -> bool:
    """Whether an output is as shown; `...` stands for any text."""
    if LEFT_OUT not in shown:
        return shown == printed
    # Lines of tables end in spaces, which a page should not.
    return OutputChecker().check_output(shown, printed, ELLIPSIS | NORMALIZE_WHITESPACE)


def read_blocks(text: str) -> list[Block]:
    """All blocks of a page, in order."""
    blocks = []
    for found in _BLOCK.finditer(text):
        headings = re.findall(r"^#+ (.*)$", text[: found.start()], re.MULTILINE)
        section = headings[-1] if headings else ""
        blocks.append(Block(section, found[1], found[2], found[3], found.start(3)))
    return blocks


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page that are run: on self-contained pages, those with an output."""
    blocks = read_blocks((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    if page in SEQUENTIAL:
        return blocks
    return [block for block in blocks if block.language == "python" and block.shown is not None]


def run_page(page: str) -> Iterator[tuple[Block, str]]:
    """Run a page's blocks in the current folder; each with what it printed."""
    names: dict[str, object] = {}
    for block in blocks_of(page):
        yield block, run_block(block, names if page in SEQUENTIAL else {})


def run_block(block: Block, names: dict[str, object]) -> str:
    """What a block prints; Python runs in the namespace `names`."""
    if block.language == "sh":
        return _run_commands(block.code)
    printed = StringIO()
    with redirect_stdout(printed):
        exec(block.code, names)  # noqa: S102  (the code of our own page)
    return printed.getvalue()


def _run_commands(lines: str) -> str:
    """What the `calibrank` commands print; others, such as pip, are not run."""
    environment = {**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    printed = ""
    for line in lines.splitlines():
        if line.startswith("calibrank "):
            command = [sys.executable, "-m", *shlex.split(line, comments=True)]
            done = subprocess.run(  # noqa: S603  (the commands of our own page)
                command, capture_output=True, check=True, encoding="utf-8", env=environment
            )
            printed += done.stdout
    return printed


def refreshed(shown: str, printed: str) -> str | None:
    """The output that a page should show now; None if that does not follow from the old one."""
    if LEFT_OUT not in shown:
        return printed
    text = _with_successors(shown.splitlines(), printed.splitlines())
    return text if text is not None and agree(text, printed) else None


def _with_successors(shown: list[str], fresh: list[str]) -> str | None:
    """Each shown line replaced by the most similar line of a fresh output."""
    lines = []
    position = 0
    for line in shown:
        if line == LEFT_OUT:
            lines.append(line)
            continue
        # Outputs keep their order, so a successor comes after the previous line's.
        candidates = range(position, len(fresh))
        likeness = [SequenceMatcher(None, line, fresh[at]).ratio() for at in candidates]
        if not likeness or max(likeness) < _SIMILAR:
            return None
        position += likeness.index(max(likeness))
        # A line that leaves out a part of itself, such as a file's size, stays as it is.
        lines.append(line if agree(line, fresh[position]) else fresh[position].rstrip())
        position += 1
    return "\n".join(lines) + "\n"


def refresh_page(page: str) -> list[str]:
    """Rewrite the outputs of a page; returns the sections that must be edited by hand."""
    path = DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8")
    by_hand = []
    with TemporaryDirectory() as folder, chdir(folder):
        results = list(run_page(page))
    # From the end, so that positions before a replacement stay valid.
    for block, printed in reversed(results):
        if block.agrees_with(printed) or block.shown is None:
            continue
        replacement = refreshed(block.shown, printed)
        if replacement is None:
            by_hand.append(f"{page}, section {block.section!r}. Now printed:\n{printed}")
        else:
            end = block.start + len(block.shown)
            text = text[: block.start] + replacement + text[end:]
    path.write_text(text, encoding="utf-8")
    return by_hand


def refused_table() -> str:
    """The table of refused combinations in Markdown, from `calibrank.composition`."""
    rows = ["| part | not with | because | instead |", "|---|---|---|---|"]
    for first, second, reason, remedy in REFUSED:
        rows.append(f"| {first} | {second} | {reason} | {remedy} |")
    return "\n".join(rows) + "\n"


def shown_table() -> str:
    """The same table as its page shows it."""
    return _TABLE.findall((DOCS / "composition.md").read_text(encoding="utf-8"))[0]


def refresh_table() -> None:
    """Rewrite the table of refused combinations on its page."""
    path = DOCS / "composition.md"
    text = path.read_text(encoding="utf-8").replace(shown_table(), refused_table())
    path.write_text(text, encoding="utf-8")


def refresh_notebook(path: Path) -> None:
    """Run a notebook and store its outputs, without times and versions, which change each time."""
    import nbclient  # noqa: PLC0415  (tests of the pages do not need it)
    import nbformat  # noqa: PLC0415  (likewise)

    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, record_timing=False, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times that nbconvert may have left
        _join_streams(cell)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)


def _join_streams(cell: Any) -> None:
    """Join what a cell printed; where it was split depends on the speed of the machine."""
    joined: list[Any] = []
    for output in cell.get("outputs", []):
        is_stream = output.output_type == "stream"
        if is_stream and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    if "outputs" in cell:
        cell.outputs = joined


def main(chosen: list[str]) -> None:
    """Refresh the chosen pages and notebooks, all if none is named."""
    by_hand = []
    refresh_table()
    for page in (*SEQUENTIAL, *SELF_CONTAINED):
        if not chosen or page in chosen:
            by_hand += refresh_page(page)
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        if not chosen or path.stem in chosen:
            refresh_notebook(path)
    for message in by_hand:
        print(f"Edit by hand: {message}", file=sys.stderr)  # noqa: T201  (a script)
    sys.exit(1 if by_hand else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
