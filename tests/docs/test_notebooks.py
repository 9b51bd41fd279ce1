"""The notebooks run, and print what their committed outputs show.

`python docs/pages.py` runs them and stores new outputs.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.docs.building import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
LARGEST = 300_000
# Per cell, on a machine that is busy with other tests; alone a whole notebook takes some ten.
SECONDS = 300


def printed(cell: Any) -> str:
    """The text that a cell printed; figures and HTML hold more digits than are comparable."""
    return "".join(_text(output) for output in cell.get("outputs", []))


def _text(output: Any) -> str:
    data = output.get("data", {})
    if {"text/html", "image/png"} & set(data):
        return ""
    return output.get("text") or data.get("text/plain", "")


def test_all_notebooks_are_found() -> None:
    names = [path.stem for path in NOTEBOOKS]
    assert names == [
        "a-threshold-for-a-reranker",
        "base-rate-sources",
        "calibrate-with-an-llm-judge",
        "from-scores-to-probabilities",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_completely_run_and_small(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="notebooks need nbclient and ipykernel")
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < LARGEST


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # Jupyter's
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ipykernel", reason="notebooks need nbclient and ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")
    import nbformat

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))  # without the user's own settings
    shown = nbformat.read(path, as_version=4)
    rerun = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(
        rerun, timeout=SECONDS, kernel_name="python3", resources=folder
    ).execute()
    assert [printed(cell) for cell in rerun.cells] == [printed(cell) for cell in shown.cells]
