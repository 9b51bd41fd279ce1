"""The notebooks run, and print what their committed outputs say.

To write new outputs: `jupyter nbconvert --to notebook --execute --inplace docs/notebooks/*.ipynb`.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LARGEST = 300_000
SECONDS = 300  # of a cell on a machine busy with other tests; alone a whole notebook takes some ten


def printed(cell) -> str:
    """What a cell printed, or showed as text alone; figures and cards hold more digits than a page should promise."""
    shown = [
        output.get("text") or _plain(output.get("data", {})) for output in cell.get("outputs", [])
    ]
    return "".join(shown)


def _plain(data) -> str:
    return "" if {"text/html", "image/png"} & set(data) else data.get("text/plain", "")


def test_both_are_found() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["from-scores-to-probabilities", "three-doors"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_whole_and_small(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="notebooks need nbclient and ipykernel")
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    assert path.stat().st_size < LARGEST


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning"
)  # Jupyter's own
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ipykernel", reason="notebooks need nbclient and ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")
    import nbformat

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))  # no one's own settings
    said = nbformat.read(path, as_version=4)
    done = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        done, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert [printed(cell) for cell in done.cells] == [printed(cell) for cell in said.cells]
