"""Declared labels: rules, counts and probabilities."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.errors import remedy_text
from calibrank.evidence import impressions, naive, soft_evidence
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.labels import Counts, Soft, Threshold, declaration_for, parse_rule
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("rating >= 4", Threshold("rating", ">=", 4)),
        ("rating>3", Threshold("rating", ">", 3)),
        ("my column == 1", Threshold("my column", "==", 1)),
        ("dwell != 0", Threshold("dwell", "!=", 0)),
        ("distance < -1e-3", Threshold("distance", "<", -1e-3)),
    ],
)
def test_rules_are_parsed(text: str, rule: Threshold) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize("text", ["rating", ">= 4", "rating >= high", "rating = 4", "a >= nan", ""])
def test_other_rules_are_refused(text: str) -> None:
    with pytest.raises(cr.DataError, match='Write it as "rating >= 4"'):
        parse_rule(text)


@pytest.mark.parametrize("sign", [">=", "<=", "==", "!=", ">", "<"])
def test_a_rule_compares_like_python(sign: str) -> None:
    values = np.array([1.0, 2.0, 3.0])
    expected = eval(f"values {sign} 2")  # noqa: S307  (the reference is Python itself)
    found, counts = Threshold("x", sign, 2).labels({"x": values})
    assert found.tolist() == expected.astype(int).tolist()
    assert counts is None


def write(path: Path, **columns: object) -> Table:
    pq.write_table(pa.table(columns), path / "log.parquet")
    return Table.find(str(path / "log.parquet"))


def test_counts_equal_one_row_per_impression(tmp_path: Path) -> None:
    table = write(tmp_path, score=[0.1, 0.5, 0.9], c=[1, 2, 3], n=[4, 2, 5])
    columns = Columns("score", "c", impressions, label_rule=Counts("c", "n"))
    found = aggregate(table, columns, Rules(skip=False)).summary
    scores = np.repeat([0.1, 0.5, 0.9], [4, 2, 5])
    labels = [1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0]
    expected = cr.Summary.of(scores, impressions(labels))
    np.testing.assert_allclose(found.positive, expected.positive)
    np.testing.assert_allclose(found.total, expected.total)
    direct = cr.Platt().fit([0.1, 0.5, 0.9], cr.Evidence([1, 2, 3], [4, 2, 5]))
    assert cr.Platt().fit_summary(found).parameters == pytest.approx(direct.parameters)


def test_more_clicks_than_impressions_are_refused(tmp_path: Path) -> None:
    table = write(tmp_path, score=[0.1, 0.5], c=[1, 3], n=[4, 2])
    columns = Columns("score", "c", impressions, label_rule=Counts("c", "n"))
    with pytest.raises(cr.DataError, match="c must be at most n, got 3 clicks of 2 impressions"):
        aggregate(table, columns, Rules(skip=False))


def test_probabilities_are_used_as_shares(tmp_path: Path) -> None:
    judged = np.random.default_rng(0).random(50)
    scores = np.linspace(-1, 1, 50)
    table = write(tmp_path, score=scores, p=judged)
    columns = Columns("score", "p", naive, label_rule=Soft("p"))
    found = aggregate(table, columns, Rules(skip=False)).summary
    expected = cr.Platt().fit(scores, cr.Evidence(judged, np.ones(50)))
    assert cr.Platt().fit_summary(found).parameters == pytest.approx(expected.parameters)
    table = write(tmp_path, score=[0.1, 0.5], p=[0.5, 1.5])
    with pytest.raises(cr.DataError, match=r"a probability in \[0, 1\], as it was declared"):
        aggregate(table, columns, Rules(skip=False))


@pytest.mark.parametrize("function", [cr.naive, cr.ips, cr.positive_ips, cr.impressions])
def test_soft_evidence_of_binary_labels_is_the_evidence(function: object) -> None:
    labels, propensity, weights = [1, 0, 1], [0.5, 0.2, 1.0], [1, 2, 3]
    soft = soft_evidence(function, labels, propensity, weights)
    arguments = (labels,) if function is cr.naive else (labels, propensity)
    expected = function(*arguments, weights=weights)
    np.testing.assert_allclose(soft.positive, expected.positive)
    np.testing.assert_allclose(soft.total, expected.total)


@pytest.mark.parametrize(
    ("values", "declaration"),
    [
        ([1.0, 2.0, 5.0], "label='y >= 4'"),
        ([0, 2, 4], "label='y >= 3'"),
        ([0, 3, 87], "label='y / IMPRESSIONS'"),
        ([0.5, 12.5, 31.0], "label='y > 30'"),
        ([0.0, 0.5, 1.0], "label='probability(y)'"),
        ([-1, 1, 1], "label='y >= 1'"),
    ],
)
def test_refusals_name_the_declaration_that_would_be_valid(
    tmp_path: Path, values: list[float], declaration: str
) -> None:
    array = np.array(values)
    named = [remedy_text(remedy) for remedy in declaration_for("y", array)]
    assert declaration in " ".join(named)
    table = write(tmp_path, score=[0.1, 0.5, 0.9], y=values)
    with pytest.raises(cr.DataError, match="y must be 0 or 1") as error:
        aggregate(table, Columns("score", "y", naive), Rules(skip=False))
    assert declaration in str(error.value)
