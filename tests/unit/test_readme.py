"""The README's Python runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, {})  # noqa: S102  (our own README)
    assert (tmp_path / "map.json").exists()
