"""`Auto` chooses the simplest method that is as good as the best, and records why."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.curves.auto import HeldOutLosses, held_out_losses
from calibrank.errors import FlatMapWarning, SmallTableWarning
from calibrank.maps import CandidateLoss, Selection
from calibrank.summary import Summary
from calibrank.tables import row_partitions

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=6_000)
LINEAR = (RNG.random(6_000) < expit(1.5 * SCORES - 1)).astype(int)
# Flat, then steep: no line in the score is close.
CURVED = (RNG.random(6_000) < expit(np.where(SCORES < 0, -3, 6 * SCORES - 3))).astype(int)


def folds_of(labels: np.ndarray, count: int = 5) -> list[Summary]:
    fold = row_partitions(0, len(SCORES), count)
    return [Summary.of(SCORES[fold == k], labels[fold == k]) for k in range(count)]


def test_a_line_is_chosen_where_the_log_odds_are_linear() -> None:
    fitted = cr.Auto().fit(SCORES, LINEAR)
    assert fitted.method == "Platt"
    assert fitted.predict(SCORES) == pytest.approx(cr.Platt().fit(SCORES, LINEAR).predict(SCORES))
    selection = fitted.record.selection
    assert selection is not None
    assert selection.folds == 5
    assert [each.name for each in selection.candidates] == [
        "Platt",
        "Gaussian",
        "Beta",
        "Gamma",
        "Spline",
        "Isotonic",
    ]


def test_a_curve_is_chosen_where_it_is_needed() -> None:
    fitted = cr.Auto().fit(SCORES, CURVED)
    selection = fitted.record.selection
    assert selection is not None
    assert fitted.method != "Platt"
    assert selection.chosen == fitted.method
    assert selection.margins["Platt"] > 0.005


def test_the_loss_is_the_log_loss_of_held_out_rows() -> None:
    folds = folds_of(LINEAR, 3)
    probabilities, positive, total = [], [], []
    for k, held_out in enumerate(folds):
        others = folds[:k] + folds[k + 1 :]
        fitted = cr.Isotonic().fit_summary(others[0] + others[1])
        probabilities.append(fitted.predict(held_out.scores))
        positive.append(held_out.positive)
        total.append(held_out.total)
    expected = cr.LogLoss()(np.concatenate(probabilities), np.concatenate(positive))
    assert held_out_losses(cr.Isotonic(), folds).mean == pytest.approx(expected)


def test_the_standard_error_is_that_of_paired_differences() -> None:
    totals = np.full(4, 10.0)
    first = HeldOutLosses(np.array([5.0, 6.0, 7.0, 9.0]), totals)
    second = HeldOutLosses(np.array([4.0, 6.0, 5.0, 8.0]), totals)
    differences = np.array([0.1, 0.0, 0.2, 0.1])
    expected = differences.std(ddof=1) / np.sqrt(4)
    assert first.error_of_difference(second) == pytest.approx(expected)
    assert first.error_of_difference(first) == 0


def test_the_first_within_one_standard_error_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = np.full(4, 10.0)
    best = np.array([5.0, 6.0, 7.0, 8.0])
    sums = {
        "Platt": best
        + np.array([3, 3, 3, 3.1]),  # worse in every fold, by much more than the error
        "Gaussian": best + np.array([3, -3, 3, -2]),  # worse on average, by less than the error
        "Spline": best,
    }
    monkeypatch.setattr(
        "calibrank.curves.auto.held_out_losses",
        lambda calibrator, *_: HeldOutLosses(sums[calibrator.name], totals),
    )
    auto = cr.Auto(candidates=(cr.Platt(), cr.Gaussian(), cr.Spline()))
    calibrator, selection, _ = auto.choose(folds_of(LINEAR, 4))
    assert calibrator == cr.Gaussian()
    assert selection.chosen == "Gaussian"
    text = selection.description
    assert text.startswith("Gaussian, chosen by 4-fold cross-validation: log loss 0.67500; Platt")
    assert "Spline -0.02500 (within one standard error, 0.1" in text


def test_users_are_never_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Summary] = []
    users = np.arange(6_000) % 300
    by_user = np.arange(300.0)[users]  # the score names the user

    def keep(_: cr.Calibrator, folds: list[Summary], *__: object) -> HeldOutLosses:
        seen[:] = folds
        return HeldOutLosses(np.ones(5), np.ones(5))

    monkeypatch.setattr("calibrank.curves.auto.held_out_losses", keep)
    labels = RNG.random(6_000) < by_user / 300
    cr.Auto().fit(by_user, labels, users=users)
    distinct = np.concatenate([summary.scores for summary in seen])
    assert len(distinct) == 300
    assert sum(summary.rows for summary in seen) == 6_000


def test_the_choice_is_that_of_folds_given_as_summaries() -> None:
    weights = RNG.integers(0, 3, 6_000).astype(float)
    whole = cr.Auto().fit(SCORES, cr.naive(CURVED, weights=weights))
    fold = row_partitions(0, 6_000, 5)
    summaries = [
        Summary.of(SCORES[fold == k], cr.naive(CURVED[fold == k], weights=weights[fold == k]))
        for k in range(5)
    ]
    calibrator, selection, _ = cr.Auto().choose(summaries)
    assert (calibrator.name, selection) == (whole.method, whole.record.selection)


def test_lists_of_equal_length_have_positives_in_every_fold() -> None:
    labels = (np.arange(6_000) % 50 == 0).astype(int)
    fitted = cr.Auto(candidates=(cr.Platt(),)).fit(SCORES + labels, labels)
    assert fitted.method == "Platt"


def test_a_method_without_a_fit_is_recorded_and_not_chosen() -> None:
    auto = cr.Auto(candidates=(_Unfittable(), cr.Platt()))
    selection = auto.fit(SCORES, LINEAR).record.selection
    assert selection is not None
    assert selection.chosen == "Platt"
    assert selection.candidates[0] == CandidateLoss("_Unfittable", None, None)
    assert "_Unfittable has no fit" in selection.description


class _Unfittable(cr.Platt):
    def _problem(self, summary: Summary) -> Any:
        raise cr.FitError("no fit")


def test_the_selection_is_saved_with_the_map(tmp_path: Path) -> None:
    fitted = cr.Auto().fit(SCORES, LINEAR)
    fitted.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json").record == fitted.record
    assert fitted.to_dict()["record"]["selection"]["chosen"] == "Platt"


def test_what_cannot_be_selected_is_said() -> None:
    with pytest.raises(cr.DataError, match=r"Auto must be fitted on folds, got one summary"):
        cr.Auto().fit_summary(Summary.of(SCORES, LINEAR))
    with pytest.raises(cr.DataError, match=r"candidates must be one or more different methods"):
        cr.Auto(candidates=(cr.Platt(), cr.Platt()))
    with pytest.raises(cr.DataError, match=r"folds must be a whole number, 2 to 1,000, got 1\."):
        cr.Auto(folds=1)
    with pytest.raises(cr.FitError, match=r"labels must hold both classes, got no positive"):
        cr.Auto().fit(SCORES, np.zeros(6_000))
    with pytest.raises(cr.FitError, match=r"the log loss must be 0 or more to select by, got -"):
        cr.Auto().fit(SCORES, cr.ips(LINEAR, np.full(6_000, 0.2)))
    with pytest.raises(cr.FitError, match=r"got none of _Unfittable\."):
        cr.Auto(candidates=(_Unfittable(),)).fit(SCORES, LINEAR)
    with pytest.raises(cr.DataError, match=r"the chosen method must be a candidate"):
        Selection("Beta", 5, (CandidateLoss("Platt", 0.1, 0.0),))


@pytest.mark.parametrize(("rows", "positives"), [(30, 4), (200, 40), (6_000, 12)])
def test_a_small_table_gets_the_simplest_method(rows: int, positives: int) -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=rows)
    labels = np.zeros(rows)
    labels[np.argsort(-scores - 2 * rng.normal(size=rows))[:positives]] = 1
    said = "Platt, because none could be chosen: each of the 5 folds must have 10 or more"
    with pytest.warns(SmallTableWarning, match=said):
        fitted = cr.Auto().fit(scores, labels)
    assert fitted == cr.Platt().fit(scores, labels)
    with pytest.warns(SmallTableWarning, match="there must be 2 or more folds with rows"):
        cr.Auto().fit(scores, labels, users=np.ones(rows, dtype=int))
    # Terms beside it do not change that.
    with pytest.warns(SmallTableWarning):
        both = (cr.Auto() + cr.Level("c")).fit(scores, labels, {"c": np.arange(rows) % 2})
    assert both.method == "Platt + c"


def test_many_bins_are_merged_to_choose_but_not_to_fit() -> None:
    rng = np.random.default_rng(8)
    scores = rng.normal(size=60_000)
    labels = (rng.random(60_000) < 1 / (1 + np.exp(1 - scores))).astype(float)
    fitted = cr.Auto(candidates=(cr.Platt(), cr.Spline())).fit(scores, labels)
    folds = row_partitions(0, len(scores), 5)
    summaries = [Summary.of(scores[folds == fold], labels[folds == fold]) for fold in range(5)]
    assert min(map(len, summaries)) > 8192
    assert fitted.record.selection is not None
    for found, method in zip(
        fitted.record.selection.candidates, (cr.Platt(), cr.Spline()), strict=True
    ):
        assert found.loss == pytest.approx(held_out_losses(method, summaries).mean, abs=1e-5)
    expected = cr.Platt().fit(scores, labels).predict(scores)
    np.testing.assert_allclose(fitted.predict(scores), expected, rtol=1e-9)


@pytest.mark.parametrize("method", [cr.Auto(), cr.Isotonic(), cr.Spline()], ids=repr)
def test_reversed_scores_are_said_to_be_reversed(method: cr.Calibrator) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=5_000)
    labels = rng.random(5_000) < 1 / (1 + np.exp(1 + scores))
    with pytest.warns(FlatMapWarning, match="hardly rises.*if lower is better"):
        method.fit(scores, labels)
    with warnings.catch_warnings(action="error"):
        method.fit(-scores, labels)
