"""Levels alone, from sums: truth by construction, shrinkage, and laws of sums by level."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

import calibrank as cr
from calibrank._internal import native
from calibrank._internal.segment_keys import encode, encode_columns
from calibrank.evidence import naive
from calibrank.maps.format import parse
from calibrank.summary.by_segment import SegmentSums, bin_edges
from calibrank.terms._modes import Prior, SegmentProblem, posterior_modes
from calibrank.terms._shrinkage import shrunk_changes

BY_COUNTRY = cr.Gaussian() + cr.Level("country")


def world(
    rows: int, shifts: dict[str, float], seed: int = 0, slope: dict[str, float] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels, countries and true probabilities: log odds -1 + score, shifted by country."""
    rng = np.random.default_rng(seed)
    names = np.array(list(shifts))
    country = names[rng.integers(0, len(names), rows)]
    scores = rng.normal(size=rows)
    shift = np.array([shifts[name] for name in country])
    factor = np.array([(slope or {}).get(name, 1.0) for name in country])
    truth = expit(shift + factor * (scores - 1))
    return scores, (rng.random(rows) < truth).astype(float), country, truth


@pytest.mark.parametrize("base", [cr.Platt(), cr.Spline(knots=10), cr.Isotonic()], ids=str)
def test_it_recovers_the_truth_in_every_segment(base: cr.Calibrator) -> None:
    scores, labels, country, truth = world(40_000, {"NL": 0.8, "DE": -0.8, "BE": 0.0})
    fitted = (base + cr.Level("country")).fit(scores, labels, {"country": country})
    error = np.abs(fitted.predict(scores, {"country": country}) - truth)
    global_error = np.abs(fitted.without_terms().predict(scores) - truth)
    assert error.mean() < 0.02
    assert error.mean() < global_error.mean() / 5


def test_slopes_of_segments_are_found_and_can_be_turned_off() -> None:
    slopes = {"NL": 1.8, "DE": 0.6}
    scores, labels, country, truth = world(40_000, {"NL": 0.0, "DE": 0.0}, slope=slopes)
    segments = {"country": country}
    fitted = BY_COUNTRY.fit(scores, labels, segments)
    term = fitted.terms[0]
    ratio = term.slopes[1] / term.slopes[0]
    assert term.keys[1] == ("NL",)
    assert ratio == pytest.approx(3.0, rel=0.1)
    assert np.abs(fitted.predict(scores, segments) - truth).mean() < 0.015
    without = cr.Gaussian() + cr.Level("country", slopes=False)
    assert without.fit(scores, labels, segments).terms[0].slopes == (1.0, 1.0)


def test_segments_that_do_not_differ_are_shrunk_to_the_global_map() -> None:
    names = {f"s{number}": 0.0 for number in range(200)}
    scores, labels, country, _ = world(6_000, names)
    fitted = BY_COUNTRY.fit(scores, labels, {"country": country})
    assert fitted.terms[0].spreads[0] < 0.15
    change = fitted.predict(scores, {"country": country}) - fitted.without_terms().predict(scores)
    assert np.abs(change).mean() < 0.01
    # One of 200 may look like an outlier.
    assert np.abs(change).max() < 0.15


def test_a_small_segment_is_shrunk_more_than_a_large_one() -> None:
    rng = np.random.default_rng(1)
    shifts = {f"s{number}": float(shift) for number, shift in enumerate(rng.normal(0, 1, 30))}
    scores, labels, country, _ = world(30_000, shifts)
    only = np.flatnonzero(country == "s0")
    # Ten positive rows of a new segment: its own rate would be 1.
    few = rng.normal(size=10)
    scores = np.concatenate([scores, few])
    labels = np.concatenate([labels, np.ones(10)])
    country = np.concatenate([country, np.full(10, "new")])
    fitted = BY_COUNTRY.fit(scores, labels, {"country": country})
    assert fitted.terms[0].spreads[0] == pytest.approx(1.0, rel=0.35)
    errors = dict(zip(fitted.terms[0].keys, fitted.terms[0].errors, strict=True))
    assert errors["new",] > 3 * errors["s0",]
    assert len(only) > 500
    high = fitted.predict(0.0, {"country": "new"})
    assert fitted.without_terms().predict(0.0) + 0.1 < high < 0.95


def test_cities_are_shrunk_towards_their_country() -> None:
    rng = np.random.default_rng(2)
    scores, labels, country, _ = world(20_000, {"NL": 1.0, "DE": -1.0})
    city = np.array(
        [
            f"{name} {number}"
            for name, number in zip(country, rng.integers(0, 50, 20_000), strict=True)
        ]
    )
    segments = {"country": country, "city": city}
    model = cr.Gaussian() + cr.Level("country", "city")
    fitted = model.fit(scores, labels, segments)
    assert fitted.terms[0].spreads[0] > 0.5
    assert fitted.terms[0].spreads[1] < 0.2
    unknown = fitted.predict([0.0, 0.0], {"country": ["NL", "DE"], "city": ["x", "y"]})
    known = fitted.predict([0.0, 0.0], {"country": ["NL", "DE"], "city": ["NL 3", "DE 4"]})
    np.testing.assert_allclose(known, unknown, atol=0.05)
    assert unknown[0] - unknown[1] > 0.3


def test_probabilities_increase_within_a_segment_even_if_the_labels_do_not() -> None:
    slopes = {"NL": -1.0, "DE": 1.5, "BE": 1.5}
    scores, labels, country, _ = world(9_000, {"NL": 0.0, "DE": 0.0, "BE": 0.0}, slope=slopes)
    fitted = BY_COUNTRY.fit(scores, labels, {"country": country})
    grid = np.linspace(-3, 3, 50)
    for name in slopes:
        assert (np.diff(fitted.predict(grid, {"country": [name] * 50})) > 0).all()


def test_propensity_weighted_evidence_counts_for_less_than_as_many_labels() -> None:
    scores, labels, country, _ = world(20_000, {"NL": 0.3, "DE": -0.3})
    rng = np.random.default_rng(3)
    propensity = np.where(rng.random(20_000) < 0.5, 0.05, 1.0)
    observed = labels * (rng.random(20_000) < propensity)
    weighted = BY_COUNTRY.fit(scores, cr.ips(observed, propensity), {"country": country})
    plain = BY_COUNTRY.fit(scores, labels, {"country": country})
    assert weighted.terms[0].errors[0] > 2 * plain.terms[0].errors[0]
    truth = plain.predict(0.0, {"country": "NL"})
    assert weighted.predict(0.0, {"country": "NL"}) == pytest.approx(truth, abs=0.1)


@pytest.fixture(params=[True, False], ids=["C", "NumPy"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with the C loops and with those of NumPy."""
    if request.param and not native.READY:
        pytest.skip("calibrank was installed without a C compiler")  # .ci/run installs one
    monkeypatch.setattr(native, "READY", request.param)


@pytest.mark.usefixtures("loops")
def test_the_mode_and_the_marginal_likelihood_agree_with_numerical_ones() -> None:
    """One segment, intercept alone: the integral over the prior by quadrature."""
    rng = np.random.default_rng(4)
    offset = rng.normal(size=5)
    total = rng.integers(5, 30, 5).astype(float)
    positive = np.floor(total * rng.random(5))
    problem = SegmentProblem(positive, total, offset, np.zeros(5), np.array([0, 5]), np.ones(1))
    tau = 0.7
    (mode,) = posterior_modes(problem, [Prior(tau, 0.0)])

    def negative_log_joint(a: float) -> float:
        z = offset + a
        return float((total * np.logaddexp(0, z) - positive * z).sum() + a**2 / (2 * tau**2))

    found = minimize_scalar(
        negative_log_joint, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}
    )
    assert mode.intercepts[0] == pytest.approx(found.x, abs=1e-5)
    grid = np.linspace(-5, 5, 20_001)
    joint = np.exp([negative_log_joint(0.0) - negative_log_joint(a) for a in grid])
    integral = joint.sum() * (grid[1] - grid[0]) / (tau * np.sqrt(2 * np.pi))
    assert mode.log_marginal[0] == pytest.approx(np.log(integral), abs=0.02)


@pytest.mark.usefixtures("loops")
def test_without_information_nothing_changes() -> None:
    nothing = np.zeros(12)
    starts = np.array([0, 4, 8, 12])
    changes = shrunk_changes(
        SegmentProblem(nothing, nothing, nothing, nothing, starts, np.ones(3)), with_slopes=True
    )
    np.testing.assert_allclose(changes.intercepts, 0, atol=1e-12)
    np.testing.assert_allclose(changes.slopes, 0, atol=1e-12)


def test_sums_lead_to_the_fit_on_rows() -> None:
    scores, labels, country, _ = world(5_000, {"NL": 0.8, "DE": -0.8, "BE": 0.0})
    summary = cr.Summary.of(scores, labels)
    sums = SegmentSums(bin_edges(summary))
    for rows in (slice(0, 7), slice(7, None)):
        sums.add(scores[rows], naive(labels[rows]), [encode("country", country[rows])])
    fitted = BY_COUNTRY.fit(scores, labels, {"country": country})
    merged = BY_COUNTRY.fit_sums(cr.Gaussian().fit_summary(summary), sums)
    np.testing.assert_allclose(merged.terms[0].slopes, fitted.terms[0].slopes, rtol=1e-9)
    np.testing.assert_allclose(merged.terms[0].intercepts, fitted.terms[0].intercepts, rtol=1e-9)
    assert merged.record == fitted.record


@pytest.mark.skipif(not native.READY, reason="there was no C compiler")  # .ci/run installs one
@pytest.mark.parametrize("slopes", [True, False])
def test_nested_segments_are_fitted_alike_in_c_and_in_numpy(
    slopes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    rows = 20_000
    city = rng.integers(0, 300, rows)
    scores = rng.normal(size=rows)
    truth = expit(1.2 * scores - 1 + rng.normal(0, 0.7, 300)[city])
    evidence = naive(rng.random(rows) < truth, weights=rng.uniform(0.5, 2, rows))
    segments = {"country": city % 7, "city": city}

    def fit() -> cr.CalibrationMap:
        model = cr.Platt() + cr.Level("country", "city", slopes=slopes)
        return model.fit(scores, evidence, segments)

    compiled = fit()
    monkeypatch.setattr(native, "READY", False)
    plain = fit()
    first, second = compiled.terms[0], plain.terms[0]
    assert first.keys == second.keys
    np.testing.assert_allclose(first.spreads, second.spreads, rtol=1e-6)
    np.testing.assert_allclose(first.intercepts, second.intercepts, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(first.slopes, second.slopes, rtol=1e-6)
    assert compiled.record.loss == pytest.approx(plain.record.loss, rel=1e-9)


def fit_four(columns: dict[str, list[str | None]]) -> cr.CalibrationMap:
    return BY_COUNTRY.fit([0.0, 1, 2, 3], [0, 1, 0, 1], columns)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (cr.Level, "one or more different column names"),
        (lambda: cr.Level("a", "a"), "one or more different column names"),
        (lambda: cr.Level(("a", "b")), "must be column names"),
        (lambda: cr.Level("a", slopes=1), "slopes must be"),
        (lambda: cr.MinMax() + cr.Level("country"), "MinMax must not go with terms"),
        (lambda: fit_four({"country": [None] * 4}), "must not be missing, .* at row 0"),
        (lambda: fit_four({"country": ["x"] * 3}), r"per score \(4\), got 3"),
        (lambda: BY_COUNTRY.fit([0.0, 1.0], [0, 1]), "columns must have 'country'.* got none"),
        (lambda: fit_four({"city": ["x"] * 4}), "must have the column 'country', got 'city'"),
        (lambda: BY_COUNTRY + cr.Smooth("country"), "terms must be of different columns"),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()


def test_intervals_cover_where_slopes_differ_at_every_score() -> None:
    rng = np.random.default_rng(0)
    segments, seen, rows = 40, 30, 300
    at = np.array([-2.3, -1.0, 0.0, 1.0, 2.3])
    held = np.zeros((segments, len(at)))
    draws = 12
    for _ in range(draws):
        shift = rng.normal(0, 0.5, segments)
        slope = np.maximum(1 + rng.normal(0, 0.3, segments), 0.1)
        code = np.repeat(np.arange(seen), rows)
        scores = rng.normal(size=len(code))
        truth = expit(-1 + shift[code] + 1.2 * slope[code] * scores)
        labels = (rng.random(len(code)) < truth).astype(float)
        model = cr.Platt() + cr.Level("country")
        fitted = model.fit(scores, labels, {"country": code.astype(str)})
        everywhere = np.repeat(np.arange(segments), len(at))
        asked = np.tile(at, segments)
        low, high = fitted.sampling_interval(asked, {"country": everywhere.astype(str)})
        expected = expit(-1 + shift[everywhere] + 1.2 * slope[everywhere] * asked)
        held += ((low <= expected) & (expected <= high)).reshape(held.shape) / draws
    # 360 and 120 intervals per score; without errors of slopes, the outer ones hold 55%.
    assert (np.abs(held[:seen].mean(axis=0) - 0.95) < 0.035).all()
    assert (np.abs(held[seen:].mean(axis=0) - 0.95) < 0.06).all()


def test_errors_of_slopes_are_saved_and_move_with_the_map() -> None:
    scores, labels, country, _ = world(4_000, {"NL": 0.5, "DE": -0.5}, slope={"NL": 1.5, "DE": 0.7})
    fitted = BY_COUNTRY.fit(scores, labels, {"country": country})
    columns = {"country": ["NL", "DE", "BE"]}
    low, high = fitted.sampling_interval([-2.0, 0.5, 2.0], columns)
    loaded = parse("map", fitted.to_json()).sampling_interval([-2.0, 0.5, 2.0], columns)
    np.testing.assert_array_equal(loaded.low, low)
    moved = fitted.moved(0.4, 1.5).sampling_interval([-2.0, 0.5, 2.0], columns)
    np.testing.assert_allclose(moved.low, expit(0.4 + 1.5 * logit(low)))
    np.testing.assert_allclose(moved.high, expit(0.4 + 1.5 * logit(high)))


def test_the_order_of_rows_changes_nothing_where_levels_are_many():
    """How much levels differ is estimated from some of them, chosen whatever the order."""
    rng = np.random.default_rng(0)
    rows = 15_000
    user = rng.integers(0, 4_000, rows)
    scores = rng.normal(size=rows)
    levels = 0.4 * rng.normal(size=4_000)
    labels = (rng.random(rows) < 1 / (1 + np.exp(1.5 - scores - levels[user]))).astype(float)
    order = rng.permutation(rows)
    columns = {"half": np.where(user % 2, "a", "b"), "user": user.astype(str)}
    model = cr.Platt() + cr.Level("half", "user")
    first = model.fit(scores, labels, columns)
    mixed = {name: values[order] for name, values in columns.items()}
    second = model.fit(scores[order], labels[order], mixed)
    found = [fitted.predict(scores, columns) for fitted in (first, second)]
    assert np.allclose(*found, rtol=1e-9)


@pytest.mark.parametrize("first", [1, True])
def test_true_is_another_level_than_1(first) -> None:
    mixed = np.array([first, not first, 1, True, 0, False] * 50, dtype=object)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=300)
    is_true = np.array([value is True for value in mixed.tolist()])
    labels = rng.random(300) < expit(scores + 2 * is_true - 1)
    fitted = (cr.Platt() + cr.Level("key")).fit(scores, labels, {"key": mixed})
    assert {key for (key,) in fitted.terms[0].keys} == {"0", "1", "false", "true"}
    together = fitted.predict([0.0, 0.0, 0.0], {"key": [1, True, 1.0]})
    alone = [fitted.predict([0.0], {"key": [value]})[0] for value in (1, True, 1.0)]
    np.testing.assert_array_equal(together, alone)
    assert together[0] != together[1]


def test_columns_of_one_name_are_refused() -> None:
    pa = pytest.importorskip("pyarrow")
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["key", "key"])
    for table in (twice, twice.to_pandas()):
        with pytest.raises(cr.DataError, match="columns must have columns of different names, got"):
            encode_columns(["key"], table)


def levels_that_differ(
    spread: float, seed: int, levels: int = 100, rows: int = 200
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Log odds -1 + 1.5 times the score within each level."""
    rng = np.random.default_rng(seed)
    shop = np.repeat(np.arange(levels), rows)
    scores = rng.uniform(-2, 2, len(shop))
    truth = -1 + spread * rng.normal(size=levels)[shop] + 1.5 * scores
    labels = (rng.random(len(shop)) < expit(truth)).astype(float)
    return scores, labels, {"shop": shop}, truth


@pytest.mark.parametrize("slopes", [None, False])
@pytest.mark.parametrize("spread", [0.0, 1.5])
def test_the_slope_is_that_within_levels(spread: float, slopes: bool | None) -> None:
    """That of a curve over all levels is 1.1, where these differ by 1.5."""
    found, covered = [], []
    for seed in range(4):
        scores, labels, shop, truth = levels_that_differ(spread, seed)
        fitted = (cr.Platt() + cr.Level("shop", slopes=slopes)).fit(scores, labels, shop)
        log_odds = fitted.log_odds(scores, shop)
        found.append(np.polyfit(scores, log_odds, 1)[0])
        ends = fitted.sampling_interval(scores, shop)
        covered.append(((ends.low <= expit(truth)) & (expit(truth) <= ends.high)).mean())
    assert np.mean(found) == pytest.approx(1.5, abs=0.04)
    assert np.mean(covered) > 0.92


def test_small_levels_are_alike_though_a_giant_is_far_from_them() -> None:
    """With a mean that is searched from where the giant is, they seemed to differ by 0.7."""
    rng = np.random.default_rng(0)
    shop = np.concatenate([np.zeros(32_000, dtype=int), np.repeat(np.arange(1, 201), 40)])
    scores = rng.normal(size=len(shop))
    log_odds = np.where(shop == 0, 2.0, -3.5) + scores
    labels = (rng.random(len(shop)) < expit(log_odds)).astype(float)
    fitted = (cr.Platt() + cr.Level("shop")).fit(scores, labels, {"shop": shop})
    found = fitted.log_odds(np.zeros(201), {"shop": np.arange(201)})
    assert np.mean((found[1:] + 3.5) ** 2) < 0.05
    unknown = fitted.log_odds([0.0], {"shop": ["new"]})
    assert unknown == pytest.approx(-3.5, abs=0.25)


def test_a_city_with_a_few_rows_is_known_no_better_than_its_country() -> None:
    rng = np.random.default_rng(1)
    country = np.repeat(np.arange(10), 60)
    city = np.where(np.arange(600) % 60 < 3, 0, 1 + np.arange(600) % 3)
    scores = rng.normal(size=600)
    shift = rng.normal(size=10)[country] + 0.3 * rng.normal(size=(10, 4))[country, city]
    labels = (rng.random(600) < expit(scores + shift - 1)).astype(float)
    rows = {"country": country, "city": city}
    (term,) = (
        (cr.Platt() + cr.Level("country", "city", slopes=False)).fit(scores, labels, rows).terms
    )
    errors = dict(zip(term.keys, term.errors, strict=True))
    for number in range(10):
        assert errors[str(number), "0"] > 0.98 * errors[(str(number),)]


def test_the_slope_is_that_within_levels_with_inverse_propensities() -> None:
    """Of mass that moved to other scores of its level, as rates are at most 1, it was 1.2."""
    found = []
    for seed in range(4):
        scores, labels, shop, _ = levels_that_differ(0.5, seed, levels=200, rows=50)
        rng = np.random.default_rng(100 + seed)
        propensity = expit(0.5 * rng.normal(size=len(scores)) - 1)
        evidence = cr.ips(labels * (rng.random(len(scores)) < propensity), propensity)
        fitted = (cr.Platt() + cr.Level("shop")).fit(scores, evidence, shop)
        found.append(np.polyfit(scores, fitted.without_terms().log_odds(scores), 1)[0])
    assert np.mean(found) == pytest.approx(1.5, abs=0.15)
