"""Records and bands: what is refused, where limits lie, and what sentences say."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit, logit
from calibrank.errors import AssumedRateWarning, ScoreShiftWarning
from calibrank.maps import (
    Anchoring,
    CandidateLoss,
    FitRecord,
    JudgementSource,
    LevelTerm,
    PiecewiseCurve,
    Population,
    PositionTerm,
    Selection,
    Sensitivity,
    StepCurve,
)
from calibrank.maps.record import require_rate_range
from calibrank.maps.training import require_both_classes, require_spread
from tests.maps.samples import RECORD, gaussian_map, level_term, map_of, smooth_term, step_map


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total": 0.0}, "total must be above 0, got 0.0"),
        ({"base_rate_source": "a guess"}, "base_rate_source must be one of assumed, random"),
        ({"score_quantiles": (1.0,)}, "score_quantiles must be two or more numbers in increasing"),
        ({"score_quantiles": (1.0, 0.0)}, "score_quantiles must be two or more numbers in incr"),
        ({"negatives_kept": 1.1}, r"negatives_kept must lie in \(0, 1\], got 1.1"),
        ({"negatives_kept": -0.1}, r"negatives_kept must lie in \(0, 1\], got -0.1"),
        ({"pooling_error": 1.1}, r"pooling_error must lie in \[0, 1\], got 1.1"),
        ({"pooling_error": -0.1}, r"pooling_error must lie in \[0, 1\], got -0.1"),
        ({"base_rate": 0.0}, r"base_rate must lie in \(0, 1\), got 0"),
        ({"base_rate": 1.0}, r"base_rate must lie in \(0, 1\), got 1"),
        ({"top_rate": 0.0}, r"top_rate must lie in \(0, 1\), got 0"),
        ({"base_rate_range": (0.0, 0.5)}, "be increasing between 0 and 1, got 0.0 to 0.5"),
        ({"base_rate_range": (0.5, 1.0)}, "be increasing between 0 and 1, got 0.5 to 1.0"),
        ({"base_rate_range": (0.5, 0.5)}, "be increasing between 0 and 1, got 0.5 to 0.5"),
        (
            {"anchoring": Anchoring(9, 9.0, 0.5, 0.5, 0.5, rate_range=(0.5, 0.4))},
            "be increasing between 0 and 1, got 0.5 to 0.4",
        ),
    ],
)
def test_impossible_records_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        replace(RECORD, **change)


@pytest.mark.parametrize("ends", [0.5, "ab", b"ab", (0.1,), (0.1, 0.2, 0.3), None])
def test_a_range_is_two_numbers(ends: object) -> None:
    with pytest.raises(cr.DataError, match="a range of base rates must be two numbers"):
        require_rate_range(ends)
    assert require_rate_range([0.1, 0.2]) == (0.1, 0.2)


def test_limits_of_a_record_are_allowed() -> None:
    for change in [
        {"negatives_kept": 1.0},
        {"pooling_error": 1.0},
        {"pooling_error": 0.0},
        {"score_quantiles": (1.0, 1.0)},
        {"base_rate_range": (1e-9, 1 - 1e-9)},
        {"base_rate": 1e-9, "top_rate": 1 - 1e-9},
    ]:
        for name, value in change.items():
            assert getattr(replace(RECORD, **change), name) == value


@pytest.mark.parametrize(
    ("source", "evidence", "rate", "is_known", "level_of", "interval"),
    [
        ("assumed", "naive", None, True, "the labels", "95% interval, at the level of the labels"),
        ("assumed", "naive", 0.2, False, None, "by chance alone: the level is not known"),
        ("assumed", "ips", None, False, None, "by chance alone: the level is not known"),
        ("known rate", "ips", 0.2, True, None, "95% interval"),
        ("known rate", "naive", 0.2, True, None, "95% interval"),
        ("random labels", "ips", None, True, None, "95% interval"),
        ("random labels", "naive", None, True, None, "95% interval"),
    ],
)
def test_whose_level_probabilities_have(
    source: str,
    evidence: str,
    rate: float | None,
    is_known: bool,
    level_of: str | None,
    interval: str,
) -> None:
    record = replace(RECORD, base_rate_source=source, evidence=evidence, base_rate=rate)
    assert record.is_base_rate_known == is_known
    assert record.level_of == level_of
    assert record.interval_name == interval
    judged = replace(record, population=Population("judged documents", None, 3))
    assert judged.level_of is None


def test_a_known_rate_is_described_with_its_range() -> None:
    known = replace(RECORD, base_rate_source="known rate", base_rate=0.1)
    assert known.base_rate_description.startswith("Moved to a base rate of 10.00% that is known")
    ranged = replace(known, base_rate_range=(0.05, 0.2))
    assert "a base rate of 10.00% (5.00% to 20.00%) that" in ranged.base_rate_description
    assumed = replace(ranged, base_rate_source="assumed")
    assert "of 10.00% (5.00% to 20.00%), assumed from how" in assumed.base_rate_description
    judged = replace(RECORD, population=Population("judged documents", None, 3))
    assert "that of the judged documents" in judged.base_rate_description
    unsaid = replace(RECORD, base_rate_source="random labels")
    assert unsaid.base_rate_description == (
        "The base rate comes from labels of randomly shown pairs."
    )


ANCHORING = Anchoring(300, 250.4, 0.9, 0.5, 0.25, 0.1, (0.05, 0.2), 0.5)


@pytest.mark.parametrize("absent", ["rate", "rate_range", "start_rate"])
def test_older_anchoring_has_no_rates(absent: str) -> None:
    anchoring = replace(ANCHORING, **{absent: None})
    record = replace(RECORD, base_rate_source="random labels", anchoring=anchoring)
    assert record.base_rate_description.endswith("comes from these random labels.")


@pytest.mark.parametrize(
    ("low", "said"),
    [
        (0.2, "60.0% of all pairs are liked (95% interval 20.0 to 70.0%); the log said 50.0%"),
        (0.012, "(95% interval 1.2 to 70.0%)"),
        (0.0099, "(95% interval 0.99 to 70.00%)"),
        (0.00042, "(95% interval 0.042 to 70.000%)"),
        (1e-12, "(95% interval 0.0000000 to 70.0000000%)"),
    ],
)
def test_the_low_end_has_two_digits(low: float, said: str) -> None:
    anchoring = replace(ANCHORING, rate=0.6, rate_range=(low, 0.7))
    record = replace(RECORD, base_rate_source="random labels", anchoring=anchoring)
    assert said in record.base_rate_description


def test_judgements_are_named() -> None:
    sources = (JudgementSource("a.txt", "grade >= 2"), JudgementSource("b.txt", "grade >= 1"))
    population = Population("judged documents", "grade >= 2", 1_500, sources=sources)
    assert population.description == (
        'For judged documents, 1,500 queries; relevant is "grade >= 2". Judgements: '
        "a.txt (grade >= 2) and b.txt (grade >= 1)."
    )
    last = (JudgementSource("c.txt", "grade >= 3"), JudgementSource("d.txt", "grade >= 4"))
    anchored = replace(population, anchored_on=last[:1], relevant=None)
    assert anchored.description.endswith(
        "; relevance is a judge's probability. Judgements: a.txt (grade >= 2) and b.txt "
        "(grade >= 1), anchored on c.txt (grade >= 3)."
    )
    record = replace(RECORD, base_rate_source="random labels", anchoring=ANCHORING)
    said = {
        (): "the map before said 50.0%. Anchored on 300 judgements (",
        last[:1]: "a.txt (grade >= 2) and b.txt (grade >= 1) said 50.0%. Anchored on 300 "
        "judgements of c.txt (grade >= 3) (effective number 250).",
        last: "c.txt (grade >= 3) said 50.0%. Anchored on 300 judgements of d.txt (grade >= 4)",
    }
    for anchored_on, text in said.items():
        named = sources if anchored_on else ()
        of = replace(population, sources=named, anchored_on=anchored_on)
        description = replace(record, population=of).base_rate_description
        assert text in description
        assert description.startswith("10.0% of all such documents are relevant (95%")


def selection(chosen: str, *, averaged: bool = False, **losses: float | None) -> Selection:
    candidates = [CandidateLoss(name, loss, 0.02) for name, loss in losses.items()]
    return Selection(chosen, 5, tuple(candidates), averaged)


BY = "by 5-fold cross-validation"
SELECTIONS = {
    f"A, chosen {BY}: log loss 0.50000": selection("A", A=0.5),
    f"A, chosen {BY}: log loss 0.50000; B +0.00000, C +0.25000": selection(
        "A", A=0.5, B=0.5, C=0.75
    ),
    f"B, chosen {BY}: log loss 0.25000; A +0.25000, C -0.12500 (within one standard error, 0.02000)"
    ", D has no fit": selection("B", A=0.5, B=0.25, C=0.125, D=None),
    f"mean of 2 curves, weighted {BY}; the best one is B: log loss 0.25000": selection(
        "B", averaged=True, A=0.5, B=0.25
    ),
}


def test_a_selection_says_what_it_compared() -> None:
    for text, made in SELECTIONS.items():
        assert made.description == text


def test_the_chosen_method_has_a_loss() -> None:
    assert selection("A", A=0.5, B=0.75, C=None).margins == {"B": 0.25}
    for chosen in ("C", "D"):
        with pytest.raises(cr.DataError, match="the chosen method must be a candidate that has"):
            selection(chosen, A=0.5, C=None)


def test_rows_of_the_fit_are_known_by_number_range_and_mass() -> None:
    record = FitRecord("naive", 3, 1.0, 3.0, exact=True, score_quantiles=(0.0, 1.0, 2.0))
    assert record.looks_fitted_on(3, 0.0, 2.0, 1.0)
    for other in [(4, 0.0, 2.0, 1.0), (3, 0.1, 2.0, 1.0), (3, 0.0, 1.0, 1.0), (3, 0.0, 2.0, 2.0)]:
        assert not record.looks_fitted_on(*other)
    # Of other evidence or weighted labels, the mass is another one.
    for changed in (replace(record, evidence="ips"), replace(record, total=6.0)):
        assert changed.looks_fitted_on(3, 0.0, 2.0, 2.0)
    assert not replace(record, score_quantiles=None).looks_fitted_on(3, 0.0, 2.0, 1.0)


BAND = {"alternatives": (), "scores": (0.0, 1.0), "low": (-1.0, 0.0), "high": (0.0, 1.0)}


def band(low_rate: float, high_rate: float, **changes: Any) -> Sensitivity:
    return Sensitivity(low_rate, high_rate, **{**BAND, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": (0.0,), "low": (0.0,), "high": (1.0,)}, r"two or more scores, got lengths \[1"),
        ({"high": (0.0, -0.1)}, "no lower end above the upper one"),
        ({"scores": (1.0, 0.0)}, "must have increasing scores"),
        ({"assumption": "hope"}, "assumption must be one of item popularity"),
        ({"exposure_factor": 0.9}, "exposure_factor must be finite and 1 or more, got 0.9"),
        ({"exposure_factor": np.inf}, "exposure_factor must be finite and 1 or more, got inf"),
    ],
)
def test_impossible_bands_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        band(0.1, 0.2, **changes)
    for ends in [(-0.1, 0.2), (0.1, 1.1), (0.2, 0.1)]:
        with pytest.raises(cr.DataError, match="base rates must be increasing within"):
            band(*ends)


def test_a_band_is_narrow_if_thirty_labels_would_give_no_better() -> None:
    for low in (0.0, 0.05, 0.2, 0.5):
        for width in np.arange(0, 1 - low, 0.01):
            p = low + width / 2
            expected = width < 2 * 1.96 * np.sqrt(p * (1 - p) / 30)
            assert band(low, low + width).is_informative == expected
    found = np.array(band(0.0, 1.0).ends(np.array([-5.0, 0.0, 0.25, 1.0, 9.0])))
    z = [[-1.0, -1.0, -0.75, 0.0, 0.0], [0.0, 0.0, 0.25, 1.0, 1.0]]
    np.testing.assert_allclose(found, expit(z))


def test_a_band_says_what_it_rests_on() -> None:
    assert band(0.1, 0.10001).description == ""
    rest = "the base rate lies between 10.00% and 20.00%. Exposure that depends"
    right = "the propensities are right up to a factor and a power"
    assert band(0.1, 0.2).description.startswith(f"If {right}, {rest}")
    factor = band(0.1, 0.2, exposure_factor=2.0).description
    assert factor.startswith(f"If {right}, give or take a factor of 2 for users and preference, ")
    logged = band(0.1, 0.9, assumption="logged propensities").description
    assert logged.startswith("If the logged propensities are right, the base rate lies between 10")
    # 1.96 * sqrt(0.25 / 300) is 5.7%, and 1.96 * sqrt(0.16 / 300) is 4.5%.
    for high, points in [(0.9, 6), (0.5, 6), (0.45, 6), (0.4, 6), (0.1, 3)]:
        wide = band(0.0, high, assumption="item popularity")
        if wide.is_informative:
            continue
        assert wide.description == (
            "If the rows and weights stand for all pairs, at least 0.00% are liked. This log "
            f"cannot tell how many more: up to {high:.2%} if exposure depends only on item "
            "popularity. 300 labels of randomly shown pairs would determine it to within "
            f"{points} percentage points."
        )


def test_a_band_holds_the_map_and_its_terms_move_both() -> None:
    curve = StepCurve((0.0, 1.0), (0.0, 0.5, 1.0), (1.0, 1.0, 1.0))
    record = replace(RECORD, sensitivity=band(0.1, 0.2))
    scores = np.array([-1.0, 0.5, 2.0])
    alone = replace(map_of(curve), record=record)
    low, high = alone.band(scores)
    ends = expit([[-1.0, -0.5, 0.0], [0.0, 0.5, 1.0]])
    np.testing.assert_allclose(low, np.minimum(ends[0], [0.0, 0.5, 1.0]))
    np.testing.assert_allclose(high, np.maximum(ends[1], [0.0, 0.5, 1.0]))
    # A step at 0 or 1 has finite log odds in sums: 700 here.
    term = LevelTerm(("x",), (("a",),), (699.0,), (1.0,), (0.0,), (1,), (0.0,), -699.0)
    both = replace(alone, terms=(term,))
    up, down = both.band(scores, {"x": ["a"] * 3}), both.band(scores, {"x": ["?"] * 3})
    np.testing.assert_allclose(up.low[0], expit(-1.0))
    np.testing.assert_allclose(down.high[2], expit(1.0))
    np.testing.assert_allclose(up.low[1:], 1.0)


def test_only_terms_take_columns_and_only_scores_are_tensors() -> None:
    torch = pytest.importorskip("torch")
    fitted = map_of(gaussian_map().curve, smooth_term("x"))
    with pytest.raises(cr.DataError, match="terms must not go with a tensor"):
        fitted.predict(torch.zeros(2), {"x": [0.0, 0.0]})
    table = fitted.predict(np.zeros((2, 3), np.float32), {"x": np.zeros(6)})
    assert (table.shape, table.dtype) == ((2, 3), np.float32)
    expected = gaussian_map().predict([0.0])
    np.testing.assert_allclose(logit(table.astype(float)), logit(expected[0]) - 0.3, rtol=1e-5)


def test_a_map_is_described_part_by_part() -> None:
    fitted = map_of(PiecewiseCurve((0.5,), (0.0,), (1.0, 1.0), (0.1,), (0.0, 0.0)))
    assert repr(fitted) == "CalibrationMap(Sample, 4 rows, naive evidence, base rate: assumed)"
    assert fitted.description == (
        "Log odds linear between 1 knots from 0 to 1, straight lines beyond."
    )
    terms = (level_term("a", "b"), smooth_term("x"))
    assert map_of(step_map(3).curve, *terms).description.endswith(
        ". Changed in 5 levels of a > b, whose log odds differ by a standard deviation of 1, 0.5. "
        "Changed by a function of x."
    )


def test_inputs_of_graphs_have_different_names() -> None:
    terms = [smooth_term(name) for name in ("score", "probability", "a_b", "score_")]
    fitted = map_of(gaussian_map().curve, *terms, level_term("a", "b"))
    names = ["score_", "probability_", "a_b", "score__", "a_b_"]
    assert fitted.input_names() == names
    assert fitted.columns == ("score", "probability", "a_b", "score_", "a", "b")


def test_most_rows_may_be_of_unknown_levels_only_with_a_warning() -> None:
    fitted = map_of(gaussian_map().curve, level_term("country"))

    def warned(known: int, unknown: int) -> bool:
        rows = {"country": ["NL"] * known + ["?"] * unknown}
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", ScoreShiftWarning)
            fitted.predict(np.zeros(known + unknown), rows)
        return bool(found)

    cases = [(15, 15), (14, 16), (13, 16), (0, 30), (0, 29)]
    assert [warned(*case) for case in cases] == [False, True, False, True, False]


def test_labels_and_scores_of_a_fit_differ() -> None:
    def refused(check: Callable[[Any], None], scores: list[float], labels: list[float]) -> str:
        with pytest.raises(cr.CalibrankError) as error:
            check(cr.Summary.of(scores, labels))
        return str(error.value)

    found = refused(require_both_classes, [0.0, 1.0], [0, 0])
    assert found.startswith("labels must hold both classes, got no positive in 2 rows. Calibrate")
    found = refused(require_both_classes, [0.0, 1.0, 1.0], [1, 1, 1])
    assert found.startswith("labels must hold both classes, got only positives in 3 rows. Add")
    assert "got only 0.5" in refused(require_spread, [0.5, 0.5], [0, 1])
    assert "differ from row to row" in refused(require_spread, [0.0, 9e-101], [0, 1])
    require_spread(cr.Summary.of([0.0, 1e-100], [0, 1]))
    require_both_classes(cr.Summary.of([0.0, 1.0], [0, 1]))


def test_an_interval_warns_at_the_line_that_asks() -> None:
    with pytest.warns(AssumedRateWarning) as found:
        map_of(gaussian_map().curve).interval(0.0)
    assert found[0].filename == __file__


def test_values_of_columns_are_as_many_as_scores() -> None:
    term = smooth_term("x")
    with pytest.raises(cr.DataError, match=r"have one value per score \(2\), got 3"):
        term.read({"x": [0.0, 1.0, 2.0]}, 2)
    assert term.read({"x": [0, 1]}).tolist() == [0.0, 1.0]
    ranks = PositionTerm("r", 2, PiecewiseCurve((0.0,), (0.0,), (1.0, 1.0), (0.1,), (0.0, 0.0)))
    for wrong in (0, -1, 0.5):
        with pytest.raises(cr.DataError, match="column 'r' must"):
            ranks.read({"r": [1, wrong]})
    assert ranks.curve_change(np.array([1.0, 2.0, 2.4, 2.6, 3.0])).tolist() == [-1, -1, -1, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n must be"),
        ({"column": ""}, "column must be a string"),
        ({"by_rank": smooth_term("other")}, "must be of the column 'r', got 'other'"),
    ],
)
def test_impossible_positions_are_refused(change: dict[str, Any], message: str) -> None:
    curve = PiecewiseCurve((0.0,), (0.0,), (1.0, 1.0), (0.1,), (0.0, 0.0))
    start = PositionTerm("r", 1, curve, smooth_term("r"))
    assert start.n == 1
    with pytest.raises(cr.DataError, match=message):
        replace(start, **change)
