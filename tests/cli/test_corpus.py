"""Input from a corpus of nasty cases: each is refused by name, and leaves nothing behind."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.monitor import Day, Store
from tests.cli.conftest import Call

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=60)
LABELS = (RNG.random(60) < 1 / (1 + np.exp(-SCORES))).astype(float)
COUNTRY = np.array(["de", "fr"] * 30)
RANK = np.tile(np.arange(1.0, 6), 12)
AGE = RNG.uniform(18, 80, size=60)


def table(**columns: object) -> pa.Table:
    usual = {"score": SCORES, "label": LABELS, "country": COUNTRY, "rank": RANK, "age": AGE}
    return pa.table({**usual, "user": np.repeat(np.arange(12), 5), **columns})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with tables, maps that use columns, a run and a store of days."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(table(), "t.parquet")
    pq.write_table(table(rank=RANK - 1), "from0.parquet")
    pq.write_table(table(age=np.where(np.arange(60) == 7, np.nan, AGE)), "gaps.parquet")
    pq.write_table(table(label=np.zeros(60)), "disliked.parquet")
    pq.write_table(table(**{f"column {place}": SCORES for place in range(300)}), "wide.parquet")
    platt = cr.Platt().fit(SCORES, LABELS)
    platt.save("map.json")
    by_country = cr.Platt() + cr.Level("country")
    by_country.fit(SCORES, LABELS, {"country": COUNTRY}).save("seg.json")
    (cr.Platt() + cr.Smooth("age")).fit(SCORES, LABELS, {"age": AGE}).save("age.json")
    top = cr.anchor(platt, SCORES, LABELS, {"rank": RANK}, terms=[cr.Position("rank", 2)])
    top.save("top.json")
    Path("run.trec").write_text("q1 Q0 d1 1 0.5 system\n")
    Store("damaged").add(Day.of(platt, SCORES, LABELS, date="2026-01-01"))
    (tmp_path / "damaged" / "2026-01-02-0.day.npz").write_bytes(b"x")
    return tmp_path


FIT = "fit t.parquet --log impressions --method platt -o o.json"
ADD = "--map map.json --date 2026-01-03 --add"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("apply top.json from0.parquet -o o.parquet", 3, "from0.parquet, row 0: rank must be a r"),
        ("evaluate from0.parquet --map top.json", 3, "from0.parquet, row 0: rank must be a rank"),
        ("apply age.json gaps.parquet -o o.parquet", 3, "row 7: age must be finite and within"),
        ("evaluate gaps.parquet --map age.json", 3, "gaps.parquet, row 7: age must be finite"),
        (
            "fit gaps.parquet --log impressions --feature age -o o.json",
            3,
            "gaps.parquet, row 7: age",
        ),
        ("monitor d --map age.json --add gaps.parquet --date 2026-01-01", 3, "row 7: age must be"),
        ("search apply seg.json run.trec -o o.trec", 3, "one of scores alone, got one that uses"),
        ("search apply top.json run.trec -o o.trec", 3, "that uses 'rank'"),
        (f"{FIT} --segment score", 3, "known before the label, got 'score', the score column"),
        (f"{FIT} --segment country --feature country", 3, "terms must be of different columns"),
        (f"{FIT.replace('platt', 'minmax')} --segment country", 3, "MinMax must not go with terms"),
        ("fit t.parquet --position nope --item user -o o.json", 3, "have a position column (nope)"),
        (
            "fit wide.parquet --score nope --log impressions -o o.json",
            3,
            "and 286 more. Name it with",
        ),
        (f"monitor damaged {ADD} t.parquet", 3, "must be a day that calibrank saved"),
        (f"monitor new {ADD} disliked.parquet --refit m2.json -o r.html", 4, "no positive in 60"),
        (
            f"monitor new {ADD.replace('map.', 'age.')} t.parquet --refit m2.json",
            3,
            "Smooth must not go with refit",
        ),
        ("apply map.json t.parquet -o /dev/null", 3, "/dev/null must be a file or a folder, got a"),
        (f"export map.json --to json -o {'x' * 300}", 3, "the output must be at most 255 bytes"),
        ("export map.json --to sql --dialect duckdb --score", 2, "--score must have a value, got"),
        ("export map.json", 2, "--to must be given, got none. See calibrank export --help."),
        ("export map.json --nope", 2, "options must be those of the command, got --nope."),
    ],
)
def test_refused_and_nothing_is_left(
    call: Call, here: Path, arguments: str, code: int, message: str
) -> None:
    before = sorted(here.rglob("*"))
    found, _, error = call(*arguments.split())
    assert message in error
    assert found == code
    assert sorted(here.rglob("*")) == before


def test_control_characters_in_an_exported_name_are_refused(call: Call, here: Path) -> None:
    assert here
    arguments = ["export", "map.json", "--to", "sql", "--dialect", "duckdb", "--score", "\x1b[31m"]
    code, printed, error = call(*arguments)
    assert (code, printed) == (2, "")
    assert "--score must be at most 255 printable characters, got '\\x1b[31m'" in error
