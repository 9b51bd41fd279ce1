"""`calibrank inspect --card`."""

import os
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from tests.cli.conftest import Call
from tests.cli.running import one_line


def gaussian_map() -> cr.CalibrationMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=500)
    return cr.Gaussian().fit(scores, rng.random(500) < 1 / (1 + np.exp(1 - scores)))


def test_a_card_with_the_metrics_of_evaluate(call: Call, folder: Path, tmp_path: Path) -> None:
    map_file = tmp_path / "map.json"
    gaussian_map().save(map_file)
    evaluated = call("evaluate", folder / "test.parquet", "--map", map_file, "--json")
    metrics = tmp_path / "evaluation.json"
    metrics.write_text(evaluated[1])
    given = ("inspect", map_file, "--metrics", metrics, "--card")
    code, printed, error = call(*given, tmp_path / "card.md")
    assert code == 0, error
    assert printed.startswith("Card: ")
    text = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert text.startswith("# Gaussian calibration map")
    assert "| LogLoss |" in text
    assert "Test of calibration: p = " in text
    other = tmp_path / "other.json"
    cr.MinMax().fit([0.0, 1.0], [0, 1]).save(other)
    code, _, error = call("inspect", other, "--metrics", metrics, "--card", tmp_path / "other.md")
    assert code == 3
    assert "evaluation must be of this map (sha256:" in one_line(error)
    assert call(*given, tmp_path / "card.html")[0] == 0
    assert "<td>LogLoss</td>" in (tmp_path / "card.html").read_text(encoding="utf-8")


@pytest.mark.skipif(os.name == "nt", reason="needs a named pipe in a folder")  # not on Windows
def test_wrong_files_are_refused(call: Call, tmp_path: Path) -> None:
    map_file = tmp_path / "map.json"
    gaussian_map().save(map_file)
    code, _, error = call("inspect", map_file, "--card", tmp_path / "card.pdf")
    assert code == 2
    assert "--card must end in .md or .html" in one_line(error)
    (tmp_path / "text.json").write_text("not JSON")
    given = ("inspect", map_file, "--card", tmp_path / "x.md")
    code, _, error = call(
        "inspect", map_file, "--card", "x.md", "--metrics", tmp_path / "text.json"
    )
    assert code == 3
    assert "text.json must be JSON, got damaged text" in one_line(error)
    for text in ("[" * 50_000, '{"a": ' + "9" * 5000 + "}"):
        (tmp_path / "text.json").write_text(text)
        code, _, error = call(
            "inspect", map_file, "--card", "x.md", "--metrics", tmp_path / "text.json"
        )
        assert code == 3
        assert "text.json must be JSON, got damaged text" in one_line(error)
    # Reading a pipe that nobody writes to would never end.
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ""):
        code, _, error = call(*given, "--metrics", tmp_path / name)
        assert code == 3
        assert "must be the file of --metrics, got a" in one_line(error)
    (tmp_path / "list.json").write_text("[]")
    assert call(*given, "--metrics", tmp_path / "list.json")[0] == 3
