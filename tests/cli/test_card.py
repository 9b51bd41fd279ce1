"""`calibrank card`."""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.running import one_line
from tests.maps.samples import gaussian_map, min_max_map


def test_a_card_with_the_metrics_of_evaluate(call: Call, folder: Path, tmp_path: Path) -> None:
    map_file = tmp_path / "map.json"
    gaussian_map().save(map_file)
    evaluated = call("evaluate", folder / "test.parquet", "--map", map_file, "--json")
    metrics = tmp_path / "evaluation.json"
    metrics.write_text(evaluated[1])
    code, text, error = call("card", map_file, "--metrics", metrics)
    assert code == 0, error
    assert text.startswith("# Gaussian calibration map")
    assert "| LogLoss |" in text
    assert "Test of calibration: p = " in text
    other = tmp_path / "other.json"
    min_max_map().save(other)
    code, _, error = call("card", other, "--metrics", metrics)
    assert code == 3
    assert "evaluation must be of this map (sha256:" in one_line(error)
    for name in ("card.md", "card.html"):
        assert call("card", map_file, "--metrics", metrics, "-o", tmp_path / name)[0] == 0
    assert (tmp_path / "card.md").read_text(encoding="utf-8") == text
    assert "<td>LogLoss</td>" in (tmp_path / "card.html").read_text(encoding="utf-8")


@pytest.mark.skipif(os.name == "nt", reason="needs a named pipe in a folder")  # not on Windows
def test_wrong_files_are_refused(call: Call, tmp_path: Path) -> None:
    map_file = tmp_path / "map.json"
    gaussian_map().save(map_file)
    code, _, error = call("card", map_file, "-o", tmp_path / "card.pdf")
    assert code == 2
    assert "--out must end in .md or .html" in one_line(error)
    (tmp_path / "text.json").write_text("not JSON")
    code, _, error = call("card", map_file, "--metrics", tmp_path / "text.json")
    assert code == 3
    assert "text.json must be JSON, got damaged text" in one_line(error)
    for text in ("[" * 50_000, '{"a": ' + "9" * 5000 + "}"):
        (tmp_path / "text.json").write_text(text)
        code, _, error = call("card", map_file, "--metrics", tmp_path / "text.json")
        assert code == 3
        assert "text.json must be JSON, got damaged text" in one_line(error)
    # Reading a pipe that nobody writes to would never end.
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ""):
        code, _, error = call("card", map_file, "--metrics", tmp_path / name)
        assert code == 3
        assert "must be the file of --metrics, got a" in one_line(error)
    (tmp_path / "list.json").write_text("[]")
    assert call("card", map_file, "--metrics", tmp_path / "list.json")[0] == 3
