"""The Python on our pages runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "file"), [("README.md", "map.json"), ("docs/size.md", "monday.npz"), ("docs/report.md", "report.html")]
)
def test_code_on_a_page_runs(page: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL):
        exec(block, {})  # noqa: S102  (our own page)
    assert (tmp_path / file).exists()
