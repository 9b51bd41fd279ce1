"""The triples that users named, and consumers of whole tables: all see the same probabilities."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.adapters import from_lists
from calibrank.decisions import Precision, Predicted
from calibrank.evidence import naive
from calibrank.monitor import Day
from calibrank.report import report
from calibrank.tabular.columns import Columns
from calibrank.tabular.evaluate import evaluate
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from tests.laws.test_composition import COLUMNS, EVIDENCE, LABELS, SCORES
from tests.plain_map import reader

USERS = np.arange(len(SCORES)) // 30
RANDOM = {name: values[::3] for name, values in COLUMNS.items()}


def anchored(fitted: cr.CalibrationMap, **settings) -> cr.CalibrationMap:
    return cr.anchor(fitted, SCORES[::3], LABELS[::3], RANDOM, **settings)


def by_level() -> cr.CalibrationMap:
    model = cr.Gaussian() + cr.Level("country")
    return model.fit(SCORES, EVIDENCE["impressions"], COLUMNS)


def with_both() -> cr.CalibrationMap:
    model = cr.Gaussian() + cr.Level("country", "city") + cr.Smooth("price")
    return anchored(model.fit(SCORES, EVIDENCE["ips"], COLUMNS))


def with_rank() -> cr.CalibrationMap:
    return anchored(by_level(), terms=[cr.Position("rank", n=5)])


def by_query() -> cr.CalibrationMap:
    groups = {"query": USERS}
    fitted = (cr.Platt() + cr.Group("query")).fit(SCORES, LABELS, groups)
    return cr.anchor(fitted, SCORES[::3], LABELS[::3], groups=USERS[::3])


MAPS = {function.__name__: function for function in (by_level, with_both, with_rank, by_query)}


@pytest.fixture(params=MAPS)
def fitted(request) -> cr.CalibrationMap:
    return MAPS[request.param]()


def expected(fitted: cr.CalibrationMap) -> np.ndarray:
    """By the independent reader of the saved map."""
    probability = reader(fitted.to_dict())
    names = list(COLUMNS)
    rows = zip(*[COLUMNS[name] for name in names], strict=True)
    return np.array(
        [
            probability(score, dict(zip(names, row, strict=True)))
            for score, row in zip(SCORES.tolist(), rows, strict=True)
        ]
    )


def test_tables_are_evaluated_with_all_terms(fitted: cr.CalibrationMap, tmp_path) -> None:
    rows = {"score": SCORES, "label": LABELS, **{name: list(COLUMNS[name]) for name in COLUMNS}}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(rows), path)
    found = evaluate(
        Table.find(str(path)), Columns("score", "label", naive), fitted, Rules(skip=False)
    )
    loss = cr.LogLoss()(expected(fitted), LABELS)
    assert found.estimates["LogLoss"].value == pytest.approx(loss, rel=1e-9)


def test_a_day_of_the_monitor_has_the_predictions_of_all_terms(fitted: cr.CalibrationMap) -> None:
    day = Day.of(fitted, SCORES, LABELS, date="2026-01-31", users=USERS, columns=COLUMNS)
    assert day.sums[:, 2].sum() == pytest.approx(float(expected(fitted).sum()), rel=1e-9)


def test_promises_are_about_the_predictions_of_all_terms(fitted: cr.CalibrationMap) -> None:
    # All rows but one: those of the fit are refused.
    columns = {name: values[1:] for name, values in COLUMNS.items()}
    labelled = (LABELS[::-1][1:], USERS[1:], Precision(0.2))
    found = cr.control(Predicted(fitted, SCORES[1:], columns), *labelled)
    assert found == cr.control(expected(fitted)[1:], *labelled)


def test_the_report_is_about_the_predictions_of_all_terms(fitted: cr.CalibrationMap) -> None:
    made = report(fitted, SCORES, LABELS, COLUMNS, users=USERS)
    found = made.data["estimates"]["LogLoss"]["value"]
    assert found == pytest.approx(cr.LogLoss()(expected(fitted), LABELS), abs=1e-6)


def test_lists_pass_the_rank_and_take_the_level() -> None:
    fitted = with_rank()
    lists = SCORES[:60].reshape(2, 30)
    order = np.argsort(-lists, axis=1)
    scores = np.take_along_axis(lists, order, axis=1)
    made = from_lists(
        fitted, ["ann", "bob"], order.tolist(), scores.tolist(), columns={"country": ["NL", "DE"]}
    )
    probability = reader(fitted.to_dict())
    wanted = [
        probability(score, {"country": country, "rank": rank})
        for country, row in zip(["NL", "DE"], scores.tolist(), strict=True)
        for rank, score in enumerate(row, start=1)
    ]
    np.testing.assert_allclose(made.probabilities, wanted, rtol=1e-9)
