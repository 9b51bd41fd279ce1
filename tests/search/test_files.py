"""Files of runs and judgements as other programs write, pack and damage them."""

import gzip
import json
from pathlib import Path

import pytest

import calibrank as cr
from calibrank.search import read_qrels, read_run

LAYOUTS = {
    "q.trec": "q1 0 a 1\nq1 0 b 0\n",
    "q.tsv": "query-id\tcorpus-id\tscore\nq1\ta\t1\n\nq1\tb\t0\n",
    "q.csv": 'qid,doc,rel\nq1,"a",1\nq1,b,0\nq1,c,\n',
    "q.json": json.dumps({"q1": {"a": 1, "b": 0}}, indent=1) + "\n",
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_line_ends_and_byte_order_marks_change_nothing(
    tmp_path: Path, name: str, is_packed: bool, line_end: str, encoding: str
) -> None:
    content = LAYOUTS[name].replace("\n", line_end).encode(encoding)
    file = tmp_path / (f"{name}.gz" if is_packed else name)
    file.write_bytes(gzip.compress(content) if is_packed else content)
    assert read_qrels(str(file)) == {("q1", "a"): 1, ("q1", "b"): 0}


def test_a_byte_order_mark_of_a_saved_map_changes_nothing(tmp_path: Path) -> None:
    fitted = cr.Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    fitted.save(tmp_path / "map.json")
    marked = tmp_path / "marked.json"
    marked.write_text((tmp_path / "map.json").read_text(), encoding="utf-8-sig")
    assert cr.load(marked).predict(0.5) == fitted.predict(0.5)


@pytest.mark.parametrize("name", ["run.trec.gz", "run.json.gz"])
def test_a_file_that_was_not_copied_to_its_end_is_incomplete(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(b"q Q0 d 1 0.5 t\n" * 100)[:-9])
    with pytest.raises(
        cr.DataError, match="must be a complete file that gzip packed, got Compressed file ended"
    ):
        read_run(str(file))


def test_packed_text_needs_the_ending_of_packed_text(tmp_path: Path) -> None:
    file = tmp_path / "run.trec"
    file.write_bytes(gzip.compress(b"q Q0 d 1 0.5 t\n"))
    with pytest.raises(cr.DataError, match=r"a name that ends in \.gz, got text packed by gzip"):
        read_run(str(file))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["run.trec", "run.json", "run.tsv"])
def test_utf_16_is_called_by_its_name(tmp_path: Path, encoding: str, name: str) -> None:
    file = tmp_path / name
    file.write_text("q Q0 d 1 0.5 t\n", encoding=encoding)
    with pytest.raises(cr.DataError, match=r"got UTF-16\. Convert it: iconv -f utf16 -t utf8"):
        read_run(str(file))


def test_other_encodings_are_refused_at_their_first_byte(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"q": {"é": 1}}', encoding="latin1")
    with pytest.raises(cr.DataError, match="must be UTF-8 text, got another byte at 8"):
        read_run(str(file))


def test_a_missing_file_does_not_have_to_be_a_table(tmp_path: Path) -> None:
    for read, what in ((read_run, "a run"), (read_qrels, "judgements")):
        with pytest.raises(cr.DataError, match=rf"must be {what} \(TREC, .*\), got no such file"):
            read(str(tmp_path / "nosuch.trec"))


def test_a_run_and_judgements_that_are_exchanged_are_recognized(tmp_path: Path) -> None:
    run, qrels = tmp_path / "run", tmp_path / "qrels"
    run.write_text("q Q0 d 1 0.5 t\n")
    qrels.write_text("q 0 d -1\n")
    with pytest.raises(cr.DataError, match="These look like judgements: give them as such"):
        read_run(str(qrels))
    with pytest.raises(cr.DataError, match="This looks like a run: exchange it and the judgements"):
        read_qrels(str(run))
    qrels.write_text("q d 1 0.5\n")
    with pytest.raises(cr.DataError, match="Other layouts have other endings"):
        read_run(str(qrels))
