"""The list of the documentation's figures."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = """
# Speed
| claim | number | made by |
|---|---|---|
| `x 1` in words | none | `make demo` |
| `calibrank fit` | 3 times | `python benchmarks/core.py` |
## Search
| | loss |
|---|---|
| a | .5 |
| b | .6 |

From `calibrank search fit`.
## Else
| a | 7 |
"""


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import figures

    return figures


def test_each_row_of_numbers_has_the_command_that_made_it(figures):
    lines = PAGE.splitlines()
    found = figures.figures_of(lines, [f"{place:02}" for place in range(len(lines))])
    assert found == [
        (6, "python benchmarks/core.py", 1, "05"),
        (10, "calibrank search fit", 2, "10"),
        (15, figures.NO_COMMAND, 1, "14"),
    ]


TEXT = """
A fit takes 3 ms, or `12 us`, in two minutes. Of 30%, 95% or 1% nothing was
measured; [here](measurements.md#speed) it was.

- It is 2.5 times as fast (`python benchmarks/core.py`).
- The loss is .123.

```
it took 17 s
```
Others: 7% of users, 10,000 rows, "18% predicted", 0.05 ± 0.01.
| a | 44% |
"""


def test_a_figure_in_a_text_needs_a_command_or_a_link_to_the_measurements(figures):
    lines = TEXT.splitlines()
    found = figures.figures_in_text(lines, [f"{place:02}" for place in range(len(lines))])
    assert found == [
        (2, "measurements.md#speed", 1, "01"),
        (5, "python benchmarks/core.py", 2, "05"),
        (11, figures.NO_COMMAND, 2, "11"),
    ]


def test_no_figure_is_without_a_command(figures):
    unknown = []
    for page in figures.pages():
        commits = [""] * len(page.read_text(encoding="utf-8").splitlines())
        found = figures.figures_on(page, commits)
        unknown += [(page.name, each) for each in found if each.command == figures.NO_COMMAND]
    assert not unknown, "measure it in docs/measurements.md, name its command, or leave it out"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the history")  # an sdist has none
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")  # dates come from it
def test_the_script_lists_the_measurements(figures):
    command = [sys.executable, figures.__file__, ROOT / "docs" / "measurements.md"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "python benchmarks/core.py" in run.stdout
    assert figures.NO_COMMAND not in run.stdout
