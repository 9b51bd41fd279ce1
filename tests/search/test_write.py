"""Runs with probabilities: every layout is read back as it was, and TREC's limits are said."""

from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank.search import Run, encode_run, read_run

RUN = Run(
    np.array(["b", "a", "b", "a", "c"]),
    np.array(["d1", "d2", "d3", "d4", "d5"]),
    np.array([1.0, 2.0, 3.0, 1.5, 0.0]),
)
# Two that differ in their last digits only, as flat maps give them.
PROBABILITIES = np.array([0.3, 0.7, np.nextafter(0.3, 1), 1 / 3, 1e-12])


def pairs(run: Run) -> dict[tuple[str, str], float]:
    names = zip(run.queries.tolist(), run.documents.tolist(), strict=True)
    return dict(zip(names, run.scores.tolist(), strict=True))


@pytest.mark.parametrize(
    "name", ["o.trec", "o.run.gz", "o.json", "o.json.gz", "o.tsv", "o.csv", "o.csv.gz", "o.parquet"]
)
@pytest.mark.parametrize("kept", [None, PROBABILITIES > 0.31])
def test_every_layout_is_read_back(tmp_path: Path, name: str, kept: np.ndarray | None) -> None:
    out = tmp_path / name
    content = encode_run(out, RUN, PROBABILITIES, kept)
    assert content == encode_run(out, RUN, PROBABILITIES, kept)
    out.write_bytes(content)
    expected = pairs(Run(RUN.queries, RUN.documents, PROBABILITIES))
    if kept is not None:
        expected = {pair: p for pair, p in expected.items() if p > 0.31}
    assert pairs(read_run(str(out))) == expected


def test_queries_stay_in_the_order_of_the_run_and_the_best_documents_come_first() -> None:
    lines = [
        line.split() for line in encode_run(Path("o"), RUN, PROBABILITIES).decode().splitlines()
    ]
    assert [(line[0], line[2], line[3]) for line in lines] == [
        ("b", "d3", "1"),
        ("b", "d1", "2"),
        ("a", "d2", "1"),
        ("a", "d4", "2"),
        ("c", "d5", "1"),
    ]
    assert float(lines[0][4]) > float(lines[1][4])


def test_a_query_whose_answer_is_nothing_is_in_a_json_file() -> None:
    content = encode_run(Path("o.json"), RUN, PROBABILITIES, PROBABILITIES > 0.5)
    assert content == b'{"b": {}, "a": {"d2": 0.7}, "c": {}}\n'


def test_nothing_kept_is_an_empty_table(tmp_path: Path) -> None:
    for name in ("o.csv", "o.parquet"):
        out = tmp_path / name
        out.write_bytes(encode_run(out, RUN, PROBABILITIES, PROBABILITIES > 2))
        with pytest.raises(cr.DataError, match="must hold at least one score"):
            read_run(str(out))


@pytest.mark.parametrize("name", ["what is economics", "", "a\tb", "line\nend"])
def test_ids_that_a_text_file_cannot_hold_are_refused(name: str) -> None:
    run = Run(np.array(["q"]), np.array([name]), np.array([1.0]))
    with pytest.raises(cr.DataError, match=r"ids must be words without spaces in a TREC file"):
        encode_run(Path("o.trec"), run, np.array([0.5]))
    if {"\t", "\n"} & set(name):
        with pytest.raises(cr.DataError, match=r"without tabs and line ends in a \.tsv file"):
            encode_run(Path("o.tsv"), run, np.array([0.5]))


def test_a_compressed_table_is_refused() -> None:
    with pytest.raises(cr.DataError, match=r"o\.parquet\.gz must not end in \.gz"):
        encode_run(Path("o.parquet.gz"), RUN, PROBABILITIES)
