"""What `calibrank fit --qrels` says about judgements that cannot be used, and about a wrong run."""

import gzip
from pathlib import Path

import pytest

import calibrank as cr
from tests.cli.conftest import Call
from tests.search_world import make_run, write_trec


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write_trec(tmp_path, make_run(3, 4))


@pytest.mark.parametrize("command", ["fit", "rerank"])
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--relevant", "9"], 4, "got none of 12 relevant, with grades 0 to 3"),
        (["--relevant", "0"], 4, "got all of 12 relevant, with grades 0 to 3"),
        (["--soft"], 3, "a judge's probabilities (--soft) must lie in [0, 1], got"),
    ],
)
def test_judgements_without_a_map_are_named(
    call: Call, files: tuple[Path, Path], command: str, options: list[str], code: int, message: str
) -> None:
    run, qrels = files
    out = run.parent / "out"
    found, _, error = call(command, run, "--qrels", qrels, *options, "-o", out)
    assert found == code
    assert f"{run} and {qrels}: " in error
    assert message in error
    assert "(--relevant" in error
    assert not out.exists()


def test_ids_that_differ_are_named_with_their_files(call: Call, files: tuple[Path, Path]) -> None:
    run, qrels = files
    qrels.write_text(qrels.read_text().replace("q", "0"))
    code, _, error = call("fit", run, "--qrels", qrels)
    assert code == 3
    assert f"{run} and {qrels}: the run and the judgements must share" in error
    assert "e.g. query 'q0' in the run and '00' in the judgements" in error


def test_a_fraction_is_named_with_its_file_and_document(
    call: Call, files: tuple[Path, Path]
) -> None:
    run, qrels = files
    qrels.write_text("q0 0 d0-0 1\nq0 0 d0-1 0.5\n")
    code, _, error = call("fit", run, "--qrels", qrels)
    assert code == 3
    assert f"{qrels}: grades must be whole numbers" in error
    assert "got 0.5 for query 'q0' and document 'd0-1'" in error


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_the_lowest_relevant_grade_is_a_finite_number(
    call: Call, files: tuple[Path, Path], value: str
) -> None:
    run, qrels = files
    code, _, error = call("fit", run, "--qrels", qrels, "--relevant", value)
    assert code == 2
    assert f"--relevant must be a finite number, got {value}" in error


@pytest.mark.parametrize("name", ["a.trec", "a.run", "a.txt", "a.trec.gz", "input.bm25"])
def test_a_run_is_no_table(call: Call, tmp_path: Path, name: str) -> None:
    saved, run, out = tmp_path / "map.json", tmp_path / name, tmp_path / "o.parquet"
    cr.Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]).save(saved)
    line = b"q Q0 d 1 0.5 t\n"
    run.write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    for command in (["apply", saved, run, "-o", out], ["fit", run, "-o", out]):
        code, _, error = call(*command)
        assert code == 3
        assert f"{run} must end in .parquet, .pq, .csv" in error
        assert "Runs of search systems are calibrated by calibrank rerank --map" in error
