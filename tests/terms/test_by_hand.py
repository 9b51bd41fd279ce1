"""Steps of the fits of terms against results that were computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.evidence import naive
from calibrank.maps import LevelTerm
from calibrank.maps.level import SlopeErrors
from calibrank.terms._design import Group
from calibrank.terms._groups import GroupedRows, fit_mixed_model
from calibrank.terms.group import CONSTANT, GroupFit, matching_level
from calibrank.terms.level import LevelTable, SegmentCells, Start, _errors_at
from calibrank.terms.rows import NumberBlock, _hat_moments, fit_rows

SCORES = np.linspace(-2, 2, 40)
LABELS = (np.arange(40) * 7 % 40 < np.arange(40)).astype(float)


def test_products_of_neighbouring_knots_lie_beside_the_diagonal() -> None:
    # At 0.25 the first two knots weigh 3/4 and 1/4; at 2 the third weighs all; at 4 (beyond) too.
    x, weights = np.array([0.25, 2.0, 4.0]), np.array([1.0, 2.0, 1.0])
    means, products = _hat_moments(x, np.array([0.0, 1.0, 2.0]), weights)
    assert means.tolist() == [0.75, 0.25, 3.0]
    expected = [[0.5625, 0.1875, 0], [0.1875, 0.0625, 0], [0, 0, 3]]
    assert products.tolist() == expected


def test_columns_of_a_function_are_centred_and_of_unit_spread() -> None:
    x, total = np.arange(9.0) ** 2, np.arange(1.0, 10.0)
    line = NumberBlock.of(cr.Smooth("x", knots=2), {"x": x}, total)
    assert line.groups(3) == [Group(slice(3, 4), line)]
    curve = NumberBlock.of(cr.Smooth("x", knots=5), {"x": x}, total)
    # At -1.28, -0.64, 0, 0.64 and 1.28 in the normal score: a tenth is beyond either end.
    assert curve.knots.tolist() == [1, 4, 16, 36, 49]
    rate = curve.groups(3)[1].rate
    assert curve.groups(3) == [Group(slice(3, 4), curve), Group(slice(4, 7), curve, rate)]
    for block in (line, curve):
        columns = block.columns(slice(0, 9))
        np.testing.assert_allclose(total @ columns, 0, atol=1e-12)
        spreads = np.sqrt(total @ columns**2 / total.sum())
        assert spreads[0] == pytest.approx(1)
        # The deviations share a scale.
        assert len(spreads) == 1 or spreads[1:].mean() == pytest.approx(1)
    # The first column is a line between the ends, the others have one second difference each.
    share = total / 45
    line_of_rows = np.clip(x, 1, 49)
    centred = line_of_rows - share @ line_of_rows
    expected = centred / np.sqrt(share @ centred**2)
    np.testing.assert_allclose(line.columns(slice(0, 9))[:, 0], expected)
    seconds = np.diff(curve.to_values[:, 1:], n=2, axis=0)
    np.testing.assert_allclose(seconds, seconds[0, 0] * np.eye(3), atol=1e-12)


def test_the_level_reaches_rates_near_one() -> None:
    # All but half a row are positive: the level must be such that the mean probability says so.
    evidence = cr.Evidence(np.r_[np.ones(9), 0.5], np.ones(10), "given")
    rows = GroupedRows(np.zeros(10), evidence, np.arange(10), tuple(range(10)))
    level = matching_level(np.zeros(10), 1e-3, rows)
    assert 1 / (1 + np.exp(-level)) == pytest.approx(0.95, abs=1e-6)


@pytest.mark.parametrize(("far", "bound"), [(60, -50), (-200, 50)])
def test_intercepts_of_the_random_intercept_model_are_bounded(far: float, bound: float) -> None:
    # A curve this far from the labels needs a level that no probability needs.
    model = fit_mixed_model(far + SCORES, LABELS, np.ones(40), np.arange(40) % 8)
    assert model.intercept == bound


def test_candidates_of_a_random_intercept_start_with_the_constant() -> None:
    rows = GroupedRows.of(SCORES, LABELS, np.arange(40) % 10)
    constant = GroupFit((cr.Platt(),))._curves(rows)[CONSTANT]
    np.testing.assert_allclose(constant.probabilities(SCORES), LABELS.mean())


def found(keys: list[tuple[str, ...]], *changes: tuple[float, float]) -> LevelTable:
    """Levels with an intercept and a slope each."""
    rest = np.zeros((4, len(keys)))
    return LevelTable(
        keys, np.vstack([np.array(changes).reshape(len(keys), 2).T, rest]), center=0.0
    )


def test_segments_start_from_their_parents() -> None:
    top = found([]).expected([("a",), ("b",)])
    assert top.tolist() == [[0, 0], [1, 1]]
    known = found([("a",), ("a", "b")], (0.5, 2.0), (0.25, 3.0))
    below = known.expected([("a", "b", "c"), ("a", "b", "d")])
    assert below.tolist() == [[0.25, 0.25], [3, 3]]


@pytest.mark.parametrize(
    ("intercepts", "slopes", "expected"),
    [
        ([0.0, 0.0], [1.0, 1.0], [1, 2, 4]),
        ([0.0, 0.0], [2.0, 3.0], [2, 4, 12]),
        ([0.5, 0.0], [1.0, 1.0], [1.5, 2.5, 4]),
        ([0.5, 1.0], [2.0, 1.0], [2.5, 4.5, 5]),
    ],
)
def test_cells_have_the_log_odds_of_their_parent(
    intercepts: list[float], slopes: list[float], expected: list[float]
) -> None:
    column, log_odds = np.ones(3), np.array([1.0, 2.0, 4.0])
    cells = SegmentCells(
        column, column, log_odds, np.array([0, 2, 3]), np.ones((3, 2)), is_weighted=False
    )
    changed = cells.changed_log_odds(np.array(intercepts), np.array(slopes))
    assert changed.tolist() == expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], (2, 5)),
        ([(0, 2), (1, 3), (2, 4)], (0, 4)),
        ([(0, 2), (1, 3), (1.5, 4)], (1.5, 2)),
        ([(1, 1), (2, 2), (3, 3)], (1, 3)),
    ],
)
def test_three_groups_reach_the_supported_scores(
    ends: list[tuple[float, float]], expected: tuple[float, float]
) -> None:
    """Where no range is left between the third lowest and the third highest, it is the whole."""
    scores = np.array(ends, dtype=float).ravel()
    rows = GroupedRows.of(scores, np.arange(len(scores)) % 2, np.arange(len(scores)) // 2)
    assert rows.supported_range() == expected


def test_levels_start_from_what_is_expected_of_them() -> None:
    """Half of a term's changes: of parents those found, of children the expected difference."""
    keys = (("a",), ("a", "b"))
    numbers = [(1.0, 3.0), (1.0, 2.0), (0.0, 0.0), (1, 1)]
    term = LevelTerm(("x", "y"), keys, *numbers, spreads=(0, 0), typical=0.4)
    start = Start(term, 0.5)
    assert start.change(("a", "b")) == (1.5, 1.5)
    assert start.change(("a", "?")) == (0.5, 1.0)
    assert start.change(("?",)) == (0.2, 1.0)
    top = found([]).expected([("a",), ("?",)], start)
    assert top.tolist() == [[0.5, 0.2], [1, 1]]
    below = found([("a",)], (0.8, 1.25)).expected([("a", "b")], start)
    # From a to b the term expects 1.5 - 0.5 more, and a slope of 0.5 more.
    assert below.tolist() == [[1.8], [1.75]]


def test_errors_of_levels_at_another_center_are_those_of_the_same_line() -> None:
    of = SlopeErrors(0.5, (0.2, 0.0), (-0.03, 0.0), (0.1,))
    term = LevelTerm(("x",), (("a",), ("b",)), (0, 0), (1, 1), (0.3, 0.4), (1, 1), (1.0,), 0.0, of)
    covariances = [np.array([[0.3**2, -0.03], [-0.03, 0.2**2]]), np.diag([0.4**2, 0])]
    for center in (-2.0, 0.5, 3.0):
        # The level at the new center, and the slope, as sums of the two numbers that were fitted.
        sums = np.array([[1, center - 0.5], [0, 1]])
        moved = np.array([sums @ covariance @ sums.T for covariance in covariances])
        expected = [np.sqrt(moved[:, 0, 0]), np.sqrt(moved[:, 1, 1]), moved[:, 0, 1]]
        assert _errors_at(term, center) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("offset", [None, np.zeros(400)])
def test_the_loss_of_a_joint_fit_is_that_of_its_probabilities(offset: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    scores, x = rng.normal(3, 1, 400), rng.normal(size=400)
    labels = (rng.random(400) < expit(2 * scores - 6 + x)).astype(float)
    # Half as steep as it should be, and far from even odds on average.
    straight = cr.Platt().fit(scores, labels)
    start = replace(straight, curve=straight.curve.moved(2.0, 0.5))
    fitted = fit_rows(start, [cr.Smooth("x")], scores, naive(labels), {"x": x}, offset=offset)
    found = fitted.predict(scores, {"x": x})
    losses = -np.log(np.where(labels == 1, found, 1 - found))
    assert fitted.record.loss == pytest.approx(losses.mean())
