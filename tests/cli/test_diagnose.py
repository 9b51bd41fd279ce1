"""`calibrank diagnose`: each trouble is planted, and must be named; a sound table must not be warned about."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from calibrank.cli.app import make_app
from calibrank.data.score_world import make_world
from calibrank.evidence import naive
from calibrank.tabular.aggregate import Columns, summarize
from calibrank.tabular.profile import Tally
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

_RUN = CliRunner()


def _table(world, **changed):
    columns = {
        "user": world.users,
        "item": world.items,
        "score": world.scores,
        "label": world.labels.astype(np.int8),
        "propensity": world.propensity,
    }
    return {name: values for name, values in (columns | changed).items() if values is not None}


def _diagnose(folder, columns, *options):
    path = folder / "table.parquet"
    pq.write_table(pa.table(columns), path)
    result = _RUN.invoke(
        make_app(), ["diagnose", str(path), "--json", *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _words(diagnosis, tone="warning"):
    return " ".join(
        finding["words"] for finding in diagnosis["findings"] if finding["tone"] == tone
    )


@pytest.fixture(scope="module")
def world():
    return make_world(20_000, seed=5)


def test_a_sound_table_is_warned_only_of_its_door(tmp_path, world):
    diagnosis = _diagnose(tmp_path, _table(world), "--item", "item")
    warnings = [
        finding["about"] for finding in diagnosis["findings"] if finding["tone"] == "warning"
    ]
    assert warnings == ["door"]
    assert "not identified" in _words(diagnosis)
    assert "random impressions would cut the expected ECE from about" in _words(diagnosis, "note")
    errors = [step["error"] for step in diagnosis["plan"]]
    assert errors[0] > errors[3] > errors[5]
    rates = [band["preference"] for band in diagnosis["bands"]]
    assert len(rates) == 10
    assert rates[-1] == max(rates) > 10 * rates[0]
    low, high = diagnosis["sensitivity"]["low_rate"], diagnosis["sensitivity"]["high_rate"]
    assert low < world.base_rate < high


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: np.where(np.arange(len(s)) % 9 == 0, -3.4e38, s), "beyond 1e30: padding"),
        (lambda s: np.where(np.arange(len(s)) % 9 == 0, -np.inf, s), "infinite: masked"),
        (lambda s: np.where(np.arange(len(s)) % 9 == 0, np.nan, s), "missing: never scored"),
        (lambda s: np.where(np.arange(len(s)) % 9 == 0, -999.0, s), "looks like a sentinel"),
        (lambda s: np.minimum(s, 1.0), "look clipped"),
        (lambda s: np.where(np.arange(len(s)) % 9 == 0, 0.25, s), "ties or padding"),
        (lambda s: -s, "negate"),
        (lambda s: np.random.default_rng(0).normal(size=len(s)), "hardly tell"),
    ],
)
def test_odd_scores_are_named(tmp_path, world, change, expected):
    assert expected in _words(
        _diagnose(tmp_path, _table(world, score=change(world.scores)), "--item", "item")
    )


def test_scores_like_probabilities_are_noted_not_guessed(tmp_path, world):
    diagnosis = _diagnose(
        tmp_path, _table(world, score=1 / (1 + np.exp(-world.scores))), "--item", "item"
    )
    assert "nothing is guessed" in _words(diagnosis, "note")


def test_cut_lists_are_found_and_whole_ones_are_not(tmp_path, world):
    order = np.lexsort([-world.scores, world.users])
    first = np.searchsorted(world.users[order], world.users[order])
    top = order[np.arange(len(order)) - first < 10]
    cut = {name: values[top] for name, values in _table(world).items()}
    assert "exactly 10 rows, and sorted by score" in _words(
        _diagnose(tmp_path, cut, "--item", "item")
    )
    assert "exactly" not in _words(_diagnose(tmp_path, _table(world), "--item", "item"))


def test_exploding_weights_and_padded_items_are_found(tmp_path, world):
    tiny = np.where(world.labels == 1, np.where(np.arange(len(world)) % 50 == 0, 1e-5, 0.5), 0.5)
    words = _words(
        _diagnose(tmp_path, _table(world, propensity=tiny), "--propensity", "propensity")
    )
    assert "few of them decide" in words
    assert "more than all" in words
    padded = np.where(np.arange(len(world)) % 3 > 0, 0, world.items)
    assert "Item 0 holds" in _words(
        _diagnose(tmp_path, _table(world, item=padded), "--item", "item")
    )


def test_doors_are_told_apart(tmp_path, world):
    shown = _table(world, label=world.preferences.astype(np.int8), propensity=None)
    assert "identified (door 1)" in _words(_diagnose(tmp_path, shown), "note")
    policy = _table(world, label=world.preferences.astype(np.int8))
    exposed = _diagnose(tmp_path, policy, "--propensity", "propensity", "--loss", "impressions")
    assert "the base rate is identified" in _words(exposed, "fine")


def test_without_a_good_row_it_says_so(tmp_path, world):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table(_table(world, score=np.full(len(world), np.nan))), path)
    result = _RUN.invoke(make_app(), ["diagnose", str(path), "--item", "item"])
    assert "must hold at least one valid row" in str(result.exception)


def test_people_get_words_and_bars(tmp_path, world):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table(_table(world)), path)
    shown = _RUN.invoke(
        make_app(), ["diagnose", str(path), "--item", "item"], catch_exceptions=False
    ).stdout
    for words in ("mean Y/w by tenths", "half the negatives", "expected ECE", "█"):
        assert words in shown


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.date32(), pa.dictionary(pa.int32(), pa.string())]
)
def test_users_of_any_type(tmp_path, world, kind):
    names = pa.array([str(user) for user in world.users])
    users = (
        pa.array(world.users.astype(np.int32)).cast(kind)
        if kind == pa.date32()
        else names.cast(kind)
    )
    assert "users, up to" in _words(
        _diagnose(tmp_path, _table(world, user=users), "--item", "item"), "fine"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"score": np.ones(20_000)}, "scores must differ"),
        ({"label": np.zeros(20_000, dtype=np.int8)}, "labels must hold"),
        (
            {"propensity": np.where(np.arange(20_000) % 2, np.nan, 0.5)},
            "10,000 rows have a bad propensity",
        ),
    ],
)
def test_tables_that_cannot_be_fitted_are_still_explained(tmp_path, world, change, expected):
    diagnosis = _diagnose(tmp_path, _table(world, **change), "--propensity", "propensity")
    assert expected in _words(diagnosis)
    assert "AUC 0.000" not in json.dumps(diagnosis)


def test_two_scores_are_too_few_to_plan_with(tmp_path, world):
    diagnosis = _diagnose(
        tmp_path, _table(world, score=(world.scores > 1).astype(float)), "--item", "item"
    )
    assert "cannot be planned" in _words(diagnosis, "note")


def test_ids_are_counted_however_files_write_them() -> None:
    tally = Tally()
    for ids in ([1, 2, 2], ["2", "x", None], [None, None], [2.0]):
        tally.add(pa.array(ids))
    tally.add(pa.array([2**63], pa.uint64()))
    assert tally.most_frequent() == ("2", 4)
    assert sorted(tally.counts.tolist()) == [1, 1, 1, 3, 4]
    assert Tally().most_frequent() == (None, 0)
    assert len(Tally().counts) == 0
    alike = Tally()
    for ids in (pa.array([1, 1], pa.int32()), pa.array([1, 5], pa.int64())):
        alike.add(ids)
    assert alike.most_frequent() == (1, 3)


def test_folds_without_users_go_by_row_of_the_whole_table(tmp_path: Path) -> None:
    for number in range(40):
        pq.write_table(
            pa.table({"score": [float(number)], "label": [number % 2]}),
            tmp_path / f"{number:02d}.parquet",
        )
    table = Table.find(str(tmp_path))
    parts = summarize(table, Columns("score", "label", naive), Rules(skip=False), folds=5)
    assert [part.rows for part in parts] == [8] * 5
