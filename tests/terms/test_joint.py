"""Smooth terms and levels that are fitted jointly: truth by construction, shrinkage, and order."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import calibrank as cr
from calibrank.maps import LevelTerm, SmoothTerm
from calibrank.terms import rows
from calibrank.terms._ridge import SDS
from calibrank.terms.rows import NumberBlock, levels_of, with_slopes

SHIFTS = {"NL": 1.0, "DE": -0.8, "BE": 0.3, "FR": 0.0}


def world(
    rows: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Scores, labels, columns and true probabilities; `noise` has no effect."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=rows)
    columns = {
        "popularity": rng.exponential(size=rows),
        "age": rng.uniform(-2, 2, rows),
        "noise": rng.normal(size=rows),
    }
    z = scores - 1 - 0.8 * columns["popularity"] + np.cos(2 * columns["age"])
    truth = expit(z)
    return scores, (rng.random(rows) < truth).astype(float), columns, truth


def correlated(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Country and price are correlated: either alone would take over a part of the other."""
    rng = np.random.default_rng(seed)
    names = np.array(list(SHIFTS))
    place = rng.integers(0, 4, rows)
    columns = {
        "country": names[place],
        "price": rng.normal(size=rows) - 1.2 * np.array([1.0, -1.0, 0.5, 0.0])[place],
        "device": rng.choice(["a", "b", "c"], rows),
    }
    scores = rng.normal(size=rows)
    shift = np.array(list(SHIFTS.values()))[place]
    labels = rng.random(rows) < expit(scores - 1 + shift + 0.5 * columns["price"])
    return scores, labels.astype(float), columns


def sum_of(curve: cr.Calibrator, *terms: cr.Level | cr.Smooth) -> cr.Model:
    model = cr.Model(curve, ())
    for term in terms:
        model += term
    return model


@pytest.fixture(scope="module")
def fitted() -> cr.CalibrationMap:
    scores, labels, columns, _ = world(30_000)
    terms = [cr.Smooth(name) for name in columns]
    return sum_of(cr.Gaussian(), *terms).fit(scores, labels, columns)


def test_it_recovers_the_truth_where_one_curve_cannot(fitted: cr.CalibrationMap) -> None:
    scores, _, columns, truth = world(20_000, 1)
    error = np.abs(fitted.predict(scores, columns) - truth).mean()
    assert error < 0.015
    assert error < np.abs(fitted.without_terms().predict(scores) - truth).mean() / 6


def test_a_column_without_effect_is_shrunk_to_nothing(fitted: cr.CalibrationMap) -> None:
    by_column = {term.column: np.array(term.values) for term in fitted.terms}
    assert np.ptp(by_column["noise"]) < 0.1
    assert np.ptp(by_column["age"]) > 1.5
    assert np.ptp(by_column["popularity"]) > 1.5


def test_the_residual_certifies_the_optimum_and_the_loss_is_that_of_the_rows(
    fitted: cr.CalibrationMap,
) -> None:
    assert fitted.record.residual < 1e-8
    scores, labels, columns, _ = world(30_000)
    loss = cr.LogLoss()(fitted.predict(scores, columns), labels)
    assert fitted.record.loss == pytest.approx(loss)
    assert fitted.method == "Gaussian + popularity + age + noise"


def test_each_of_two_correlated_effects_is_recovered_within_its_errors() -> None:
    """Of either alone, the other would be a confounder."""
    within, alone = [], []
    for seed in range(8):
        scores, labels, columns = correlated(6_000, seed)
        model = cr.Platt() + cr.Level("country") + cr.Smooth("price", knots=2)
        fitted = model.fit(scores, labels, columns)
        country, price = fitted.terms
        shifts = np.array([SHIFTS[key] for (key,) in country.keys])
        counts = np.array(country.rows)
        # Levels are relative to the mean row, and so is the function of the price.
        errors = np.array(country.intercepts) - (shifts - counts @ shifts / counts.sum())
        errors = errors - counts @ errors / counts.sum()
        within += (np.abs(errors) < 2 * np.array(country.errors)).tolist()
        rise = np.diff(price.values)[0] / np.diff(price.knots)[0]
        end = price.errors[-1] / (price.knots[-1] - columns["price"].mean())
        within.append(abs(rise - 0.5) < 2 * end)
        only = (cr.Platt() + cr.Smooth("price", knots=2)).fit(scores, labels, columns).terms[0]
        alone.append(np.diff(only.values)[0] / np.diff(only.knots)[0])
    assert np.mean(within) > 0.85
    assert np.mean(alone) < 0.2


def dense_design(
    specs: list[cr.Level | cr.Smooth], scores: np.ndarray, columns: dict[str, np.ndarray]
) -> tuple[np.ndarray, list[slice]]:
    """The matrix of a fit, and the places of the groups that share a prior."""
    smooth = [spec for spec in specs if isinstance(spec, cr.Smooth)]
    numbers = [NumberBlock.of(spec, columns, np.ones(len(scores))) for spec in smooth]
    levels = levels_of([spec for spec in specs if spec not in smooth], columns, len(scores))
    blocks = [*numbers, *with_slopes(levels, is_change=False)]
    parts = [np.ones((len(scores), 1)), scores[:, None]]
    places = []
    start = 2
    for block in blocks:
        if isinstance(block.spec, cr.Smooth):
            part = block.columns(slice(0, len(scores)))
        else:
            part = np.eye(block.count)[block.codes]
            if block.has_slopes:
                part = np.hstack([part, part * (scores - scores.mean())[:, None]])
        places += [group.place for group in block.groups(start)]
        start += part.shape[1]
        parts.append(part)
    return np.hstack(parts), places


@pytest.mark.parametrize("small", [256, 3], ids=["dense", "eliminated"])
def test_the_fit_is_the_optimum_of_the_penalized_likelihood(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SciPy's minimizer, on dense matrices, at the standard deviations that were chosen."""
    for module in ("_design", "rows"):
        monkeypatch.setattr(f"calibrank.terms.{module}.SMALL", small)
    found = []
    fit_ridge = rows.fit_ridge

    def recorded(*arguments: object) -> object:
        found.append(fit_ridge(*arguments))
        return found[-1]

    monkeypatch.setattr(rows, "fit_ridge", recorded)
    scores, labels, columns = correlated(1_500)
    columns["city"] = np.char.add(columns["country"], (np.arange(1_500) % 3).astype(str))
    specs = [cr.Level("country", "city"), cr.Smooth("price", knots=5), cr.Level("device")]
    start = cr.Platt().fit(scores, labels)
    fitted = sum_of(cr.Platt(), *specs).fit(scores, labels, columns)
    (solution,) = found
    assert set(solution.sds) <= set(SDS)
    matrix, places = dense_design(specs, start.log_odds(scores), columns)
    precision = np.full(matrix.shape[1], 1 / 900)
    for place, sd in zip(places, solution.sds, strict=True):
        precision[place] = sd**-2.0 if sd else np.inf
    # What has a standard deviation of 0 is left out.
    matrix, precision = matrix[:, np.isfinite(precision)], precision[np.isfinite(precision)]

    def value(at: np.ndarray) -> tuple[float, np.ndarray]:
        z = matrix @ at
        loss = (np.logaddexp(0, z) - labels * z).sum() + precision @ at**2 / 2
        return loss, matrix.T @ (expit(z) - labels) + precision * at

    optimum = minimize(value, np.zeros(len(precision)), jac=True, method="BFGS", tol=1e-9).x
    expected = expit(matrix @ optimum)
    np.testing.assert_allclose(fitted.predict(scores, columns), expected, atol=1e-6)
    assert fitted.record.loss == pytest.approx(cr.LogLoss()(expected, labels), abs=1e-8)


def test_errors_are_those_of_the_inverse_of_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels, columns = correlated(1_500)
    level = cr.Level("country", slopes=False)
    model = cr.Platt() + level + cr.Smooth("price", knots=4)
    dense = model.fit(scores, labels, columns)
    monkeypatch.setattr("calibrank.terms._design.SMALL", 3)
    eliminated = model.fit(scores, labels, columns)
    for one, two in zip(dense.terms, eliminated.terms, strict=True):
        np.testing.assert_allclose(one.errors, two.errors, rtol=1e-7)
    log_odds = dense.predict(scores, columns)
    matrix, places = dense_design(
        [level, cr.Smooth("price", knots=4)],
        cr.Platt().fit(scores, labels).log_odds(scores),
        columns,
    )
    # The standard deviations are not in the map: those that explain its errors are found.
    weights = log_odds * (1 - log_odds)
    gram = matrix.T @ (matrix * weights[:, None])
    candidates = []
    for sds in np.stack(np.meshgrid(*[SDS] * len(places)), -1).reshape(-1, len(places)):
        precision = np.full(len(gram), 1 / 900)
        for place, sd in zip(places, sds, strict=True):
            precision[place] = 1 / max(sd, 1e-6) ** 2
        inverse = np.linalg.inv(gram + np.diag(precision))
        block = inverse[-4:, -4:]
        shares = np.array(dense.terms[0].rows) / 1_500
        contrasts = np.eye(4) - shares
        errors = np.sqrt(((contrasts @ block) * contrasts).sum(axis=1))
        candidates.append(np.abs(errors / np.array(dense.terms[0].errors) - 1).max())
    assert min(candidates) < 1e-6


def test_a_hundred_thousand_levels_and_a_function_are_fitted_together() -> None:
    """Their effects are known: levels of ten rows are shrunk, and their spread is found."""
    rng = np.random.default_rng(0)
    levels = 100_000
    item = np.arange(1_000_000) % levels
    effect = rng.normal(0, 1, levels)
    scores, price = rng.normal(size=(2, 1_000_000))
    labels = rng.random(1_000_000) < expit(scores - 1 + 0.5 * price + effect[item])
    columns = {"item": item, "price": price}
    fitted = (cr.Platt() + cr.Level("item") + cr.Smooth("price", knots=2)).fit(
        scores, labels, columns
    )
    level, smooth = fitted.terms
    assert len(level) == levels
    assert level.spreads == (1.0,)
    rise = np.diff(smooth.values)[0] / np.diff(smooth.knots)[0]
    assert rise == pytest.approx(0.47, abs=0.04)
    estimates = np.array(level.intercepts)[np.argsort([int(key) for (key,) in level.keys])]
    assert np.corrcoef(estimates, effect)[0, 1] > 0.75
    assert fitted.record.residual < 1e-7


def test_levels_and_numbers_recover_the_truth() -> None:
    scores, labels, columns = correlated(20_000)
    model = sum_of(cr.Gaussian(), cr.Level("country"), cr.Smooth("price"), cr.Level("device"))
    fitted = model.fit(scores, labels, columns)
    country, price, device = fitted.terms
    assert isinstance(country, LevelTerm)
    assert isinstance(price, SmoothTerm)
    by_name = dict(zip(country.keys, country.intercepts, strict=True))
    assert by_name["NL",] - by_name["DE",] == pytest.approx(1.8, abs=0.15)
    assert np.ptp(device.intercepts) < 0.08
    np.testing.assert_allclose(country.slopes, 1, atol=0.1)
    unknown = fitted.predict(0.4, {"country": "ZZ", "price": 0.0, "device": "?"})
    added = np.interp(0.0, price.knots, price.values)
    assert unknown == pytest.approx(expit(fitted.without_terms().log_odds(0.4) + added))


def test_slopes_of_levels_are_found_beside_other_terms() -> None:
    rng = np.random.default_rng(5)
    country = rng.choice(["flat", "steep", "usual"], 30_000)
    scores, price = rng.normal(size=(2, 30_000))
    slope = np.select([country == "flat", country == "steep"], [0.4, 1.6], 1.0)
    truth = expit(slope * scores - 1 + 0.5 * price + (country == "flat"))
    columns = {"country": country, "price": price}
    model = cr.Platt() + cr.Level("country") + cr.Smooth("price")
    fitted = model.fit(scores, rng.random(30_000) < truth, columns)
    assert np.abs(fitted.predict(scores, columns) - truth).mean() < 0.01
    by_name = dict(zip(fitted.terms[0].keys, fitted.terms[0].slopes, strict=True))
    assert by_name["flat",] / by_name["steep",] == pytest.approx(0.25, abs=0.04)
    without = (cr.Platt() + cr.Level("country", slopes=False) + cr.Smooth("price")).fit(
        scores, rng.random(30_000) < truth, columns
    )
    assert without.terms[0].slopes == (1.0, 1.0, 1.0)


def test_probabilities_increase_in_every_combination_of_levels() -> None:
    """In the truth they fall in one of four: slopes are drawn together until none falls."""
    rng = np.random.default_rng(6)
    a, b = rng.choice(["0", "1"], (2, 20_000))
    scores = rng.normal(size=20_000)
    slope = 1.2 - 0.9 * (a == "1") - 0.9 * (b == "1")
    labels = rng.random(20_000) < expit(slope * scores - 0.5)
    fitted = (cr.Platt() + cr.Level("a") + cr.Level("b")).fit(scores, labels, {"a": a, "b": b})
    grid = np.linspace(-5, 5, 51)
    for first in "01":
        for second in "01":
            rows = {"a": [first] * 51, "b": [second] * 51}
            assert np.all(np.diff(fitted.predict(grid, rows)) > 0)


def test_small_levels_shrink_more_than_large_ones() -> None:
    rng = np.random.default_rng(2)
    sizes = [3_000, 3_000, 3_000, 12]
    country = np.repeat(["a", "b", "c", "small"], sizes)
    scores, x = rng.normal(size=(2, len(country)))
    shift = np.repeat([0.8, -0.8, 0.0, 0.0], sizes)
    labels = (rng.random(len(country)) < expit(scores + shift)).astype(float)
    labels[country == "small"] = 1.0
    model = sum_of(cr.Gaussian(), cr.Level("country"), cr.Smooth("x"))
    term = model.fit(scores, labels, {"country": country, "x": x}).terms[0]
    by_name = dict(zip(term.keys, term.intercepts, strict=True))
    assert by_name["a",] - by_name["b",] == pytest.approx(1.6, abs=0.15)
    # All of its labels are positive: without shrinkage it would be infinite.
    assert 0.5 < by_name["small",] - by_name["c",] < 4.5
    assert term.errors[3] > 5 * term.errors[0]


def test_it_agrees_with_regression_of_one_hot_columns() -> None:
    from sklearn.linear_model import LogisticRegression

    scores, labels, columns = correlated(40_000)
    model = cr.Platt() + cr.Level("country") + cr.Smooth("price", knots=2)
    fitted = model.fit(scores, labels, columns)
    one_hot = np.column_stack([columns["country"] == name for name in SHIFTS])
    knots = fitted.terms[1].knots
    design = np.column_stack([scores, one_hot, np.clip(columns["price"], *knots)])
    reference = LogisticRegression(C=1e8, tol=1e-10, max_iter=1_000).fit(design, labels)
    expected = reference.predict_proba(design)[:, 1]
    np.testing.assert_allclose(fitted.predict(scores, columns), expected, atol=3e-3)


def test_numbers_are_levels_where_a_level_is_asked_for() -> None:
    scores, labels, columns = correlated(4_000)
    codes = np.array([list(SHIFTS).index(name) for name in columns["country"]])
    numbered = {"country": codes, "price": columns["price"]}
    model = cr.Gaussian() + cr.Level("country") + cr.Smooth("price")
    by_number = model.fit(scores, labels, numbered)
    assert by_number.terms[0].keys == (("0",), ("1",), ("2",), ("3",))
    by_name = model.fit(scores, labels, columns)
    np.testing.assert_allclose(
        by_number.predict(scores, numbered), by_name.predict(scores, columns), rtol=1e-9
    )


def test_probabilities_increase_with_the_score_even_if_a_feature_explains_all() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=4_000)
    scores = x + 0.1 * rng.normal(size=4_000)
    labels = rng.random(4_000) < expit(2 * x - (scores - x))
    fitted = (cr.Gaussian() + cr.Smooth("x")).fit(scores, labels, {"x": x})
    grid = np.linspace(-3, 3, 30)
    assert (np.diff(fitted.predict(grid, {"x": np.zeros(30)})) > 0).all()


def test_few_rows_stay_near_the_map_of_scores_alone() -> None:
    rng = np.random.default_rng(5)
    losses = []
    test_scores, _, _, _ = world(5_000, 9)
    truth = expit(test_scores - 1)
    model = cr.Gaussian() + cr.Smooth("a") + cr.Smooth("b") + cr.Level("c")
    for _ in range(10):
        scores = rng.normal(size=150)
        labels = rng.random(150) < expit(scores - 1)
        labels[:2] = [0, 1]
        columns = {"a": rng.normal(size=150), "b": rng.normal(size=150)}
        columns["c"] = rng.integers(0, 5, 150)
        fitted = model.fit(scores, labels, columns)
        shown = {name: rng.normal(size=5_000) for name in "ab"}
        shown["c"] = rng.integers(0, 5, 5_000)
        alone = cr.Gaussian().fit(scores, labels)
        p = np.array([alone.predict(test_scores), fitted.predict(test_scores, shown)])
        losses.append(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean(axis=1))
    excess = np.diff(losses).ravel()
    assert excess.mean() < 0.02


@pytest.mark.parametrize("knots", [2, 3, np.int64(50)])
def test_the_number_of_knots_may_be_at_its_bounds(knots: int) -> None:
    spec = cr.Smooth("age", knots=knots)
    assert type(spec.knots) is int
    scores, labels, columns, _ = world(300)
    fitted = (cr.Gaussian() + spec).fit(scores, labels, columns)
    assert len(fitted.terms[0].knots) == int(knots)


def test_a_feature_of_two_values_has_two_knots_and_one_prior() -> None:
    scores, labels, _, _ = world(2_000)
    binary = {"x": np.arange(2_000) % 2.0}
    for knots in (8, 2):
        term = (cr.Gaussian() + cr.Smooth("x", knots=knots)).fit(scores, labels, binary).terms[0]
        assert term.knots == (0.0, 1.0)
        # Centred over the rows, of which each value has half.
        assert sum(term.values) == pytest.approx(0, abs=1e-9)


def test_terms_are_centred_by_weight() -> None:
    scores, labels, columns, _ = world(2_000)
    weights = np.random.default_rng(6).uniform(0, 2, 2_000)
    model = cr.Gaussian() + cr.Smooth("popularity") + cr.Smooth("age")
    fitted = model.fit(scores, cr.naive(labels, weights=weights), columns)
    for term in fitted.terms:
        values = np.interp(columns[term.column], term.knots, term.values)
        assert weights @ values == pytest.approx(0, abs=1e-6)


def test_weights_are_repeated_rows() -> None:
    scores, labels, columns = correlated(600)
    model = cr.Gaussian() + cr.Level("country") + cr.Smooth("price", knots=2)
    twice = {name: np.tile(values, 2) for name, values in columns.items()}
    doubled = model.fit(scores, cr.naive(labels, weights=np.full(600, 2.0)), columns)
    repeated = model.fit(np.tile(scores, 2), np.tile(labels, 2), twice)
    # A weight of 2 is a dispersion of 2: one label that counts twice is still one label.
    once = model.fit(scores, labels, columns)
    grid = np.linspace(-2, 2, 9)
    shown = {"country": ["NL"] * 9, "price": np.zeros(9)}
    np.testing.assert_allclose(doubled.predict(grid, shown), once.predict(grid, shown), atol=1e-6)
    assert repeated.terms[0].errors[0] < 0.8 * doubled.terms[0].errors[0]


def test_rows_up_to_the_limit_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_ROWS", 500)
    scores, labels, columns, _ = world(501)
    model = cr.Gaussian() + cr.Smooth("age")
    with pytest.raises(cr.DataError, match=r"at most 500 rows, which are all in memory, got 501\."):
        model.fit(scores, labels, columns)
    model.fit(scores[:500], labels[:500], {"age": columns["age"][:500]})


def test_evidence_without_a_finite_optimum_is_refused() -> None:
    """Weighted positives exceed the rows: a step at 1 could be made steeper without end."""
    rng = np.random.default_rng(0)
    scores, x = rng.normal(size=(2, 500))
    labels = (scores > 0.5).astype(float)
    evidence = cr.ips(labels, np.full(500, 0.5))
    with pytest.raises(cr.FitError, match="the log loss must be 0 or more"):
        (cr.Isotonic() + cr.Smooth("x")).fit(scores, evidence, {"x": x})


def fit_four(x: list[object]) -> cr.CalibrationMap:
    return (cr.Gaussian() + cr.Smooth("x")).fit([0.0, 1, 2, 3], [0, 1, 0, 1], {"x": x})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cr.Smooth("x", knots=1), "knots must"),
        (lambda: cr.Smooth("x", knots=51), "knots must"),
        (lambda: cr.Smooth(("x",)), "column must be a string"),
        (lambda: cr.Gaussian() + "x", "a term must be of type TermSpec, got 'x'"),
        (lambda: cr.Gaussian() + cr.Smooth("x") + cr.Level("x"), "of different columns"),
        (lambda: cr.Gaussian() + cr.Smooth("x") + cr.Smooth("x"), "of different columns"),
        (lambda: fit_four([1.0] * 4), "column 'x' must differ from row to row, got only 1"),
        (lambda: fit_four([1.0] * 3), r"column 'x' must have one value per score \(4\), got 3"),
        (lambda: fit_four([1.0, 2.0, np.nan, 3.0]), "column 'x' must be finite.* at row 2"),
        (lambda: fit_four([["a"], ["a", "b"], [], []]), "column 'x' must"),
        (lambda: cr.Gaussian().fit([0.0, 1], [0, 1], {"x": [1, 2]}), "columns must go with terms"),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()


@pytest.mark.parametrize("score", [-2.0, 0.0, 2.0])
def test_intervals_of_levels_include_the_errors_of_slopes_beside_other_terms(score: float) -> None:
    """Levels and slopes are normal: 95% intervals hold the truth of every score as often."""
    held = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        intercepts, slopes = rng.normal(-0.5, 0.7, 30), np.exp(rng.normal(0, 0.3, 30))
        place = rng.integers(0, 30, 6_000)
        scores, x = rng.normal(size=(2, 6_000))
        z = intercepts[place] + slopes[place] * scores + 0.5 * x
        model = cr.Platt() + cr.Level("country") + cr.Smooth("x", knots=2)
        fitted = model.fit(scores, rng.random(6_000) < expit(z), {"country": place, "x": x})
        columns = {"country": np.arange(30), "x": np.zeros(30)}
        low, high = fitted.sampling_interval(np.full(30, score), columns)
        truth = expit(intercepts + slopes * score)
        held.append(np.mean((low <= truth) & (truth <= high)))
    assert 0.92 < np.mean(held) < 0.98


def test_slopes_that_a_joint_fit_does_not_have_are_refused() -> None:
    scores, labels, columns = correlated(1_000)
    columns["item"] = np.arange(1_000) % 300
    terms = [cr.Level("item", slopes=True), cr.Smooth("price")]
    message = "'item', slopes=True.* must have at most 256 levels beside other terms, got 300"
    with pytest.raises(cr.DataError, match=message):
        sum_of(cr.Platt(), *terms).fit(scores, labels, columns)
    start = cr.Platt().fit(scores, labels)
    terms[0] = cr.Level("country", slopes=True)
    with pytest.raises(cr.DataError, match="must be the only term that is anchored"):
        cr.anchor(start, scores, labels, columns, terms=terms)


@pytest.mark.parametrize("spread", [0.3, 0.7, 1.5])
def test_the_spread_of_levels_of_three_rows_is_found(spread: float) -> None:
    """The quadratic approximation alone has 0.3 for 0.7, and 1 for 1.5."""
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        item = np.arange(3_000) % 1_000
        scores, x = rng.normal(size=(2, 3_000))
        z = scores - 0.5 + 0.5 * x + rng.normal(0, spread, 1_000)[item]
        model = cr.Platt() + cr.Level("item") + cr.Smooth("x", knots=2)
        fitted = model.fit(scores, rng.random(3_000) < expit(z), {"item": item, "x": x})
        found += fitted.terms[0].spreads
    assert np.mean(found) == pytest.approx(spread, rel=0.25)
