"""`calibrank diagnose`: each planted problem must be reported, and a valid table must not be."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrank.anchoring import ExpectedError
from calibrank.data.score_world import make_world
from calibrank.diagnosis.diagnose import check_label_plan
from calibrank.evidence import naive
from calibrank.tables import row_partitions
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rows import IdCounts
from calibrank.tabular.rules import Rules
from tests.cli.running import one_line, run_here


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
    code, output, errors = run_here("diagnose", path, "--json", *options)
    assert code == 0, errors
    return json.loads(output)


def _messages(diagnosis, severity="warning"):
    found = [finding for finding in diagnosis["findings"] if finding["severity"] == severity]
    return " ".join(finding["message"] for finding in found)


@pytest.fixture(scope="module")
def world():
    return make_world(20_000, seed=5)


@pytest.mark.whole_plan
def test_a_valid_log_has_only_the_base_rate_as_a_warning(tmp_path, world):
    diagnosis = _diagnose(tmp_path, _table(world), "--item", "item")
    findings = diagnosis["findings"]
    warnings = [finding["subject"] for finding in findings if finding["severity"] == "warning"]
    assert warnings == ["base rate"]
    assert "Base-rate source: assumed." in _messages(diagnosis)
    assert "does not identify the base rate" in _messages(diagnosis)
    assert "300 labels of randomly shown pairs would reduce the expected ECE from about" in (
        _messages(diagnosis, "note")
    )
    errors = [step["error"] for step in diagnosis["label_plan"]]
    assert errors[0] > errors[3] > errors[5]
    rates = [decile["preference"] for decile in diagnosis["deciles"]]
    assert len(rates) == 10
    assert rates[-1] == max(rates) > 10 * rates[0]
    low, high = diagnosis["sensitivity"]["low_rate"], diagnosis["sensitivity"]["high_rate"]
    assert low < world.base_rate < high


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda s: np.where(np.arange(len(s)) % 9 == 0, -3.4e38, s),
            "beyond 1e30 (probably padding)",
        ),
        (lambda s: np.where(np.arange(len(s)) % 9 == 0, -np.inf, s), "infinite (probably masked"),
        (
            lambda s: np.where(np.arange(len(s)) % 9 == 0, np.nan, s),
            "missing (probably never scored)",
        ),
        (lambda s: np.where(np.arange(len(s)) % 9 == 0, -999.0, s), "may be a sentinel value"),
        (lambda s: np.minimum(s, 1.0), "look clipped"),
        (lambda s: np.where(np.arange(len(s)) % 9 == 0, 0.25, s), "ties or padding"),
        (lambda s: -s, "negate"),
        (
            lambda s: np.random.default_rng(0).normal(size=len(s)),
            "hardly separate positives from negatives",
        ),
    ],
)
def test_suspicious_scores_are_reported(tmp_path, world, change, expected):
    assert expected in _messages(
        _diagnose(tmp_path, _table(world, score=change(world.scores)), "--item", "item")
    )


def test_scores_between_0_and_1_are_not_taken_for_probabilities(tmp_path, world):
    diagnosis = _diagnose(
        tmp_path, _table(world, score=1 / (1 + np.exp(-world.scores))), "--item", "item"
    )
    assert "this is not inferred" in _messages(diagnosis, "note")


def test_truncated_lists_are_reported_and_complete_ones_are_not(tmp_path, world):
    order = np.lexsort([-world.scores, world.users])
    first = np.searchsorted(world.users[order], world.users[order])
    top = order[np.arange(len(order)) - first < 10]
    cut = {name: values[top] for name, values in _table(world).items()}
    assert "exactly 10 rows, sorted by score" in _messages(
        _diagnose(tmp_path, cut, "--item", "item")
    )
    assert "exactly" not in _messages(_diagnose(tmp_path, _table(world), "--item", "item"))


def test_dominant_weights_are_reported(tmp_path, world):
    tiny = np.where(world.labels == 1, np.where(np.arange(len(world)) % 50 == 0, 1e-5, 0.5), 0.5)
    words = _messages(
        _diagnose(tmp_path, _table(world, propensity=tiny), "--propensity", "propensity")
    )
    assert "a few rows dominate" in words
    assert "above 1" in words


def test_labels_without_propensities_are_used_as_they_are(tmp_path, world):
    shown = _table(world, label=world.preferences.astype(np.int8), propensity=None)
    diagnosis = _diagnose(tmp_path, shown)
    assert "correct if the pairs were shown at random" in _messages(diagnosis, "note")
    assert "declare --log interactions" in _messages(diagnosis, "note")
    assert diagnosis["sensitivity"] is None


def test_impressions_with_propensities_identify_the_base_rate(tmp_path, world):
    policy = _table(world, label=world.preferences.astype(np.int8))
    options = ["--propensity", "propensity", "--log", "policy"]
    diagnosis = _diagnose(tmp_path, policy, *options)
    assert "This identifies the base rate" in _messages(diagnosis, "ok")


def test_a_tiny_table_is_not_said_to_give_a_flat_map(tmp_path):
    labels = np.isin(np.arange(30), [14, 20, 27, 29]).astype(int)
    tiny = {"score": np.arange(30.0), "label": labels}
    assert "too few to tell" in _messages(_diagnose(tmp_path, tiny, "--log", "impressions"))


def test_a_table_without_a_valid_row_is_rejected(tmp_path, world):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table(_table(world, score=np.full(len(world), np.nan))), path)
    _, _, errors = run_here("diagnose", path, "--item", "item")
    assert "must hold at least one valid row" in errors


def test_the_text_output_has_bars_and_tables(tmp_path, world):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table(_table(world)), path)
    _, shown, _ = run_here("diagnose", path, "--item", "item")
    for words in ("Weighted mean label by tenths", "half the negatives", "expected ECE", "█"):
        assert words in shown
    # The caveat first, and once.
    assert shown.startswith("warning base rate: Base-rate source: assumed.")
    assert one_line(shown).count("stand for all pairs, at least") == 1


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.date32(), pa.dictionary(pa.int32(), pa.string())]
)
def test_users_may_be_of_any_type(tmp_path, world, kind):
    names = pa.array([str(user) for user in world.users])
    users = (
        pa.array(world.users.astype(np.int32)).cast(kind)
        if kind == pa.date32()
        else names.cast(kind)
    )
    assert "users with up to" in _messages(
        _diagnose(tmp_path, _table(world, user=users), "--item", "item"), "ok"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"score": np.ones(20_000)}, "scores must differ"),
        ({"label": np.zeros(20_000, dtype=np.int8)}, "labels must hold"),
        (
            {"propensity": np.where(np.arange(20_000) % 2, np.nan, 0.5)},
            "10,000 rows have an invalid propensity",
        ),
    ],
)
def test_tables_without_a_fit_are_still_diagnosed(tmp_path, world, change, expected):
    diagnosis = _diagnose(tmp_path, _table(world, **change), "--propensity", "propensity")
    assert expected in _messages(diagnosis)
    assert "AUC 0.000" not in json.dumps(diagnosis)


def test_the_range_of_base_rates_is_worded_with_its_assumption(tmp_path, world):
    words = _messages(_diagnose(tmp_path, _table(world), "--item", "item"))
    assert "This log cannot tell how many more: up to 100.00% if exposure depends only on" in words
    assert "item popularity, give or take a factor of 10 for users and preference. 300" in words
    assert "300 labels of randomly shown pairs would determine it to within 6 percentage" in words
    assert "compatible" not in words
    words = _messages(_diagnose(tmp_path, _table(world), "--propensity", "propensity"))
    assert "if the propensities are right up to a factor and a power" in words


def test_a_plan_never_argues_against_labels():
    plan = tuple(ExpectedError(labels, 0.001 + labels / 1e6) for labels in (0, 100, 300, 1000))
    shown, finding = check_label_plan(plan)
    assert shown == ()
    assert "would replace the assumption about exposure by a measurement" in finding.message
    assert "too few" not in finding.message


def test_two_distinct_scores_are_enough_for_a_label_plan(tmp_path, world):
    diagnosis = _diagnose(
        tmp_path, _table(world, score=(world.scores > 1).astype(float)), "--item", "item"
    )
    assert "would reduce the expected ECE" in _messages(diagnosis, "note")


def test_ids_are_counted_in_whatever_type_files_store_them() -> None:
    tally = IdCounts()
    for ids in ([1, 2, 2], ["2", "x", None], [None, None], [2.0]):
        tally.add(pa.array(ids))
    tally.add(pa.array([2**63], pa.uint64()))
    assert tally.of(pa.array(["2"])).tolist() == [4]
    assert sorted(tally.counts.tolist()) == [1, 1, 1, 3, 4]
    assert len(IdCounts().counts) == 0
    alike = IdCounts()
    for ids in (pa.array([1, 1], pa.int32()), pa.array([1, 5], pa.int64())):
        alike.add(ids)
    assert alike.of(pa.array([1, 5, 7])).tolist() == [3, 1, 0]


def test_folds_without_users_split_the_rows_of_the_whole_table(tmp_path: Path) -> None:
    for number in range(40):
        pq.write_table(
            pa.table({"score": [float(number)], "label": [number % 2]}),
            tmp_path / f"{number:02d}.parquet",
        )
    table = Table.find(str(tmp_path))
    columns = Columns("score", "label", naive)
    parts = aggregate(table, columns, Rules(skip=False), folds=5).folds
    # Each file has one row: numbers that start anew in every file would put all in one fold.
    assert [part.rows for part in parts] == np.bincount(row_partitions(0, 40, 5)).tolist()


def _findings(found, subject):
    return [each for each in found["findings"] if each["subject"] == subject]


@pytest.mark.parametrize("factor", [1.0, 0.4])
def test_known_exposure_tests_propensities_and_balance(tmp_path, factor):
    """Right propensities pass; wrong ones are found, and leave a column unbalanced."""
    rng = np.random.default_rng(0)
    price = rng.normal(size=20_000)
    truth = 1 / (1 + np.exp(2 - price))
    exposed = np.where(rng.random(20_000) < 0.5, rng.random(20_000) < truth, np.nan)
    columns = {
        "user": np.arange(20_000) % 500,
        "score": rng.normal(size=20_000),
        "label": (rng.random(20_000) < 0.3).astype(np.int8),
        "w": truth**factor,
        "price": price,
        "shown": exposed,
    }
    options = ["--log", "policy", "--propensity", "w", "--balance", "price", "--exposed", "shown"]
    found = _diagnose(tmp_path, columns, *options)
    expected = "ok" if factor == 1 else "warning"
    (exposure,) = _findings(found, "exposure")
    (balance,) = _findings(found, "balance")
    assert (exposure["severity"], balance["severity"]) == (expected, expected)
    assert "price has a mean of" in balance["message"]


def test_without_known_exposure_both_means_are_reported(tmp_path):
    rng = np.random.default_rng(0)
    columns = _table(make_world(pairs=5_000), price=rng.normal(size=5_000))
    found = _diagnose(tmp_path, columns, "--propensity", "propensity", "--balance", "price")
    (balance,) = _findings(found, "balance")
    positives = columns["label"] == 1
    weights = 1 / columns["propensity"][positives]
    mean = np.average(columns["price"][positives], weights=weights)
    assert f"and {mean:.4g} with weights: compare" in balance["message"]
    assert run_here("diagnose", tmp_path / "table.parquet", "--balance", "price")[0] == 2
