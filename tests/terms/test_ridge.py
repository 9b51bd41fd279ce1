"""Logistic regression with priors: formulas, derivatives and integrals by other means."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit
from scipy.stats import norm

import calibrank as cr
from calibrank._internal import native
from calibrank.terms import _design, _ridge
from calibrank.terms._design import Design, Group, Levels
from calibrank.terms._posterior import Arrow, Posterior, Sweep, log_marginals, quadratic_marginals
from calibrank.terms._ridge import fit_ridge

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
MATRIX = np.column_stack([np.ones(30), X])
TOTAL = RNG.uniform(0.5, 2, 30)
POSITIVE = TOTAL * (RNG.random(30) < 0.4)
AT = np.array([0.3, -0.7, 0.2])
SDS = [np.sqrt(0.5), np.sqrt(0.2)]
PRECISION = np.array([1 / 900, 2.0, 5.0])


@dataclass(frozen=True)
class Dense:
    """Columns that are given, each with a prior of its own."""

    values: np.ndarray
    rate: float = 0.0

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def columns(self, rows: slice) -> np.ndarray:
        return self.values[rows]

    def groups(self, start: int) -> list[Group]:
        places = range(start, start + self.width)
        return [Group(slice(place, place + 1), self, self.rate) for place in places]


def problem(offset: float = 0.0) -> _ridge.Problem:
    design = Design(X[:, 0], [Dense(X[:, 1:])])
    # The slope has a prior too.
    design.groups = [Group(slice(1, 2)), *design.groups]
    return _ridge.Problem(design, POSITIVE, TOTAL, offset * X[:, 0])


def loss_of(z: np.ndarray) -> float:
    losses = -POSITIVE * np.log(expit(z)) - (TOTAL - POSITIVE) * np.log(expit(-z))
    return float(losses.sum())


def value(at: np.ndarray, precision: np.ndarray) -> float:
    penalty = (precision * at**2).sum() / 2
    return float(loss_of(MATRIX @ at) / problem().dispersion + penalty)


def test_the_loss_is_the_mean_log_loss_at_the_log_odds_and_the_offset() -> None:
    z = MATRIX @ AT + 0.4 * X[:, 0]
    np.testing.assert_allclose(problem(0.4).log_odds(AT), z)
    assert problem(0.4).mean_loss(z) == pytest.approx(loss_of(z) / TOTAL.sum())


def test_the_loss_of_extreme_log_odds_is_finite() -> None:
    assert np.isfinite(problem().mean_loss(np.full(30, 1e5)))
    assert np.isfinite(problem().mean_loss(np.full(30, -1e5)))


def test_derivatives_are_those_of_the_value() -> None:
    made = problem()
    z = MATRIX @ AT
    gradient = approx_fprime(AT, lambda at: value(at, np.zeros(3)), 1e-6)
    np.testing.assert_allclose(made.gradient(z), gradient, atol=1e-4)
    for place in range(3):
        row = approx_fprime(AT, lambda at, n=place: made.gradient(MATRIX @ at)[n], 1e-7)
        np.testing.assert_allclose(made.hessian(z).corner[place], row, atol=1e-4)


def test_the_residual_is_relative_to_the_positive_mass_and_the_spread_of_a_column() -> None:
    made = problem()
    gradient = made.gradient(MATRIX @ AT) + PRECISION * AT
    scale = np.sqrt((MATRIX**2).mean(axis=0)) * POSITIVE.sum() / made.dispersion
    assert made.residual(made.at(AT), SDS) == pytest.approx(np.abs(gradient / scale).max())
    # Nothing is asked of a coefficient that is left out.
    without = np.abs(gradient / scale)[:2].max()
    assert made.residual(made.at(AT), [SDS[0], 0.0]) == pytest.approx(without)


@pytest.mark.parametrize("start", [np.zeros(3), np.array([30.0, -30.0, 30.0])])
def test_the_minimum_is_found_from_near_and_far(start: np.ndarray) -> None:
    made = problem()
    found, iterations = made.minimize(made.at(start), SDS)
    reference = minimize(value, np.zeros(3), args=(PRECISION,), method="BFGS")
    np.testing.assert_allclose(found.coefficients, reference.x, atol=1e-5)
    np.testing.assert_allclose(found.z, made.log_odds(found.coefficients))
    assert made.residual(found, SDS) < 1e-10
    assert 3 <= iterations <= 30
    assert made.minimize(found, SDS)[1] == 1


def test_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ridge, "_MAX_STEPS", 2)
    made = problem()
    assert made.minimize(made.at(np.zeros(3)), SDS)[1] == 2


@pytest.mark.parametrize(
    ("positive", "total", "expected"),
    [
        ([1.0, 0.0, 1.0], [1.0, 1.0, 1.0], 1.0),
        ([2.0, 0.0, 4.0], [1.0, 1.0, 2.0], 20 / 6),
        ([1.0, 0.0, 0.0], [1.0, 1.0, 4.0], 18 / 6),
        ([0.0, 0.0], [1.0, 3.0], 10 / 4),
        ([1e-200, 0.0], [1.0, 3.0], 10 / 4),
    ],
)
def test_dispersion_is_the_larger_mean_weight_by_mass(
    positive: list[float], total: list[float], expected: float
) -> None:
    found = _ridge._dispersion(np.array(positive), np.array(total))
    assert found == pytest.approx(expected)


def test_the_marginal_likelihood_is_the_integral_over_the_prior() -> None:
    hessian, linear, precision = 3.0, 0.8, 2.0
    grid = np.linspace(-12, 12, 200_001)
    prior = np.sqrt(precision / (2 * np.pi)) * np.exp(-precision * grid**2 / 2)
    likelihood = np.exp(linear * grid - hessian * grid**2 / 2)
    expected = np.log((prior * likelihood).sum() * (grid[1] - grid[0]))
    found = log_marginal(np.array([[hessian]]), np.array([linear]), np.array([precision]))
    assert found == pytest.approx(expected, abs=1e-9)


def log_marginal(hessian: np.ndarray, linear: np.ndarray, precision: np.ndarray) -> float:
    """Of a quadratic log likelihood, where a coefficient of infinite precision is left out."""
    used = np.isfinite(precision)
    matrix = hessian[np.ix_(used, used)] + np.diag(precision[used])
    mode = np.linalg.solve(matrix, linear[used])
    prior = np.log(precision[used]).sum()
    return float(linear[used] @ mode - np.linalg.slogdet(matrix)[1] + prior) / 2


@pytest.mark.parametrize("others", [1.4, 0.0])
@pytest.mark.parametrize("own", [0.7, 0.0])
@pytest.mark.parametrize("place", [slice(2, 5), slice(6, 36)])
def test_marginal_likelihoods_of_a_group_are_those_of_all_numbers(
    others: float, own: float, place: slice
) -> None:
    arrow = arrow_of(6, 30)
    linear = np.random.default_rng(3).normal(size=36)
    sds = np.full(36, 2.2)
    sds[6:] = others
    sds[place] = own
    expected = []
    alone = []
    for sd in _ridge.SDS:
        sds_of_one = sds.copy()
        sds_of_one[place] = sd
        used = sds_of_one > 0
        precision = np.where(used, np.where(used, sds_of_one, 1.0) ** -2.0, np.inf)
        expected.append(log_marginal(dense(arrow), linear, precision))
        alone.append(Posterior(arrow, sds_of_one).log_marginal(linear))
    np.testing.assert_allclose(alone, expected, rtol=1e-8, atol=1e-10)
    if place.start < 6:
        found = log_marginals(*sweep_of(arrow, linear, sds).likelihood(place, own), _ridge.SDS)
        wanted = np.array(expected) - expected[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)


def sweep_of(arrow: Arrow, linear: np.ndarray, sds: np.ndarray) -> Sweep:
    remaining = arrow.remaining(sds)
    return Sweep(arrow.eliminated(remaining), arrow.right(linear, remaining), sds)


def test_the_posterior_of_a_sweep_is_that_of_the_priors_it_ended_with() -> None:
    """Groups get a prior, another one, none, and one again, in any order."""
    arrow = arrow_of(9, 30)
    sds = np.full(39, 1.4)
    linear = np.random.default_rng(3).normal(size=39)
    now = {0: 0.0, 3: 0.5, 6: 0.0}
    sds[:9] = np.repeat(list(now.values()), 3)
    sweep = sweep_of(arrow, linear, sds)
    changes = [(6, 0.3), (0, 2.2), (3, 1.0), (6, 3.0), (0, 0.0), (3, 0.1), (6, 0.0), (6, 0.7)]
    for start, sd in changes:
        place = slice(start, start + 3)
        sweep.change(place, now[start], sd, sweep.likelihood(place, now[start]))
        now[start] = sd
        sds[:9] = np.repeat(list(now.values()), 3)
        expected = Posterior(arrow, sds)
        found = sweep.posterior(arrow, sds)
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found.solve(linear), expected.solve(linear), rtol=1e-8)


@pytest.mark.parametrize("sd", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("at", [0.0, 0.4])
def test_levels_of_few_rows_have_the_marginal_likelihood_of_an_integral(
    sd: float, at: float
) -> None:
    """SciPy integrates over each level; the quadratic approximation is around any coefficient."""
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(8), 3)
    curve = rng.normal(size=24)
    labels = (rng.random(24) < expit(curve)).astype(float)
    levels = Levels(codes, 8)
    design = Design(curve, [], [levels])
    made = _ridge.Problem(design, labels, np.ones(24), 0.0)
    coefficients = np.concatenate([[0.0, 1.0], np.full(8, at)])
    z = made.log_odds(coefficients)
    point = made.at(coefficients)
    group = Group(slice(2, 10), levels)
    correction = _ridge._correction(made, point, made.gradient(z), group)
    curvature = design.transposed(expit(z) * expit(-z))[2:]
    linear = curvature * at - made.gradient(z)[2:]
    number = _ridge.SDS.index(sd)
    found = correction[number] + quadratic_marginals(curvature, linear, _ridge.SDS)[number]
    expected = 0.0
    for level in range(8):
        own = codes == level

        def ratio(b: float, own: np.ndarray = own) -> float:
            signs = 2 * labels[own] - 1
            likelihood = np.prod(expit(signs * (curve[own] + b)) / expit(signs * curve[own]))
            return float(likelihood * norm.pdf(b, scale=sd))

        expected += np.log(quad(ratio, -8 * sd, 8 * sd, limit=200)[0])
    assert found == pytest.approx(expected, abs=0.02)
    for other in (Group(slice(2, 10)), Group(slice(2, 10), levels, are_slopes=True)):
        assert not _ridge._correction(made, point, made.gradient(z), other).any()


def test_a_group_has_the_precision_of_its_prior_and_others_hardly_any() -> None:
    levels = Levels(np.array([0, 1, 1, 0]), 2)
    design = Design(np.arange(4.0), [Dense(np.ones((4, 1)))], [levels])
    made = _ridge.Problem(design, np.ones(4), np.full(4, 2.0), 0.0)
    assert made.sds_of([0.2, 3.0]).tolist() == [30, 30, 0.2, 3, 3]
    expected = [1 / 900, 1 / 900, 1 / 0.04, 0, 0]
    np.testing.assert_allclose(_ridge._precision(made.sds_of([0.2, 0.0])), expected)
    with pytest.raises(ValueError, match="zip"):
        made.sds_of([0.2])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("small", [256, 1])
@pytest.mark.parametrize(("chunk", "kept"), [(2**16, 2**18), (4, 8), (7, 0)])
def test_a_design_in_chunks_is_its_matrix(
    monkeypatch: pytest.MonkeyPatch, chunk: int, kept: int, small: int, compiled: bool
) -> None:
    monkeypatch.setattr(native, "READY", compiled and native.READY)
    monkeypatch.setattr(_design, "_CHUNK_ROWS", chunk)
    monkeypatch.setattr(_design, "_KEPT_ROWS", kept)
    # From this many levels on, those of the widest column are eliminated.
    monkeypatch.setattr(_design, "SMALL", small)
    codes = [np.arange(30) % 2, np.arange(30) * 7 % 3, np.arange(30) % 4]
    levels = [
        Levels(own, count, has_slopes=count < 4)
        for count, own in zip((2, 3, 4), codes, strict=True)
    ]
    design = Design(X[:, 0], [Dense(X[:, 1:])], levels, middle=0.3)
    columns = [np.eye(count)[own] for count, own in zip((2, 3, 4), codes, strict=True)]
    slopes = [(X[:, :1] - 0.3) * own for own in columns]
    matrix = np.column_stack([MATRIX, columns[0], slopes[0], columns[1], slopes[1], columns[2]])
    assert design.width == 17
    some = np.arange(17.0)
    some[3:8] = 0
    for _ in range(2):
        np.testing.assert_allclose(design.linear(some), matrix @ some)
        np.testing.assert_allclose(design.transposed(TOTAL), matrix.T @ TOTAL)
        gram = dense(design.gram(TOTAL))
        np.testing.assert_allclose(gram, matrix.T @ (matrix * TOTAL[:, None]))
        np.testing.assert_allclose(design.mean_squares(), (matrix**2).mean(axis=0))


def dense(arrow: Arrow) -> np.ndarray:
    """All numbers of the matrix."""
    top = np.hstack([arrow.corner, arrow.border])
    return np.vstack([top, np.hstack([arrow.border.T, np.diag(arrow.diagonal)])])


def arrow_of(corner: int, diagonal: int) -> Arrow:
    """A random positive definite matrix of this form."""
    rng = np.random.default_rng(corner + diagonal)
    root = rng.normal(size=(corner, corner))
    border = rng.normal(size=(corner, diagonal))
    d = rng.uniform(1, 3, diagonal)
    return Arrow(root @ root.T + np.eye(corner) + (border / d) @ border.T, border, d)


@pytest.mark.parametrize(("corner", "diagonal"), [(3, 0), (2, 1), (4, 30)])
def test_elimination_agrees_with_dense_matrices(corner: int, diagonal: int) -> None:
    arrow = arrow_of(corner, diagonal)
    size = corner + diagonal
    rng = np.random.default_rng(1)
    sds, vector = rng.uniform(0.1, 2, size), rng.normal(size=size)
    matrix = dense(arrow) + np.diag(sds**-2)
    np.testing.assert_allclose(arrow @ vector, dense(arrow) @ vector)
    solution = Posterior(arrow, sds).solve(vector)
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, vector), rtol=1e-9)


@pytest.mark.parametrize("place", [slice(0, 30), slice(5, 35), slice(35, 65)])
@pytest.mark.parametrize("other", [slice(0, 30), slice(5, 35), slice(35, 65)])
def test_covariances_of_contrasts_are_those_of_the_inverse(place: slice, other: slice) -> None:
    """Each coefficient minus the weighted mean of its block, by the inverse of all numbers."""
    arrow = arrow_of(35, 30)
    sds = np.random.default_rng(3).uniform(0.1, 2, 65)
    inverse = np.linalg.inv(dense(arrow) + np.diag(sds**-2))
    found = Posterior(arrow, sds)
    np.testing.assert_allclose(found.corner, inverse[:35, :35], rtol=1e-7)
    weights = np.random.default_rng(2).uniform(size=30)
    weights /= weights.sum()
    contrasts = np.eye(30) - weights
    expected = ((contrasts @ inverse[place, other]) * contrasts).sum(axis=1)
    np.testing.assert_allclose(
        found.contrasts(place, other, weights), expected, rtol=1e-7, atol=1e-9
    )


def world(effect: float) -> tuple[Design, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    curve = rng.normal(size=800)
    x = rng.normal(size=(800, 2))
    labels = (rng.random(800) < expit(curve + effect * x[:, 0])).astype(float)
    return Design(curve, [Dense(x)]), labels, np.ones(800)


def test_the_fit_is_the_mode_under_the_best_of_the_priors() -> None:
    """Every pair of priors by hand: the chosen one has the highest marginal likelihood."""
    design, positive, total = world(0.8)
    solution = fit_ridge(design, positive, total)
    made = _ridge.Problem(design, positive, total, 0.0)
    point = made.at(solution.coefficients)
    linear = point.hessian @ solution.coefficients - made.gradient(point.z)
    best = max(
        [[first, second] for first in _ridge.SDS for second in _ridge.SDS],
        key=lambda sds: Posterior(point.hessian, made.sds_of(sds)).log_marginal(linear),
    )
    assert best[0] == 0.7
    assert made.residual(point, best) < 1e-8
    assert solution.residual == pytest.approx(made.residual(point, best))
    assert solution.loss == made.mean_loss(point.z)
    assert 4 <= solution.iterations <= 40
    # The effect that is not there is shrunk more than the one that is.
    assert abs(solution.coefficients[3]) < 0.05
    assert solution.coefficients[2] > 0.7


@pytest.mark.parametrize("has_offset", [False, True])
def test_a_score_without_use_keeps_the_smallest_slope_and_the_rest_is_fitted(
    has_offset: bool,
) -> None:
    rng = np.random.default_rng(2)
    curve = rng.normal(size=500)
    x = rng.normal(size=500)
    positive = (rng.random(500) < expit(x - curve)).astype(float)
    design = Design(curve, [Dense(x[:, None])])
    solution = fit_ridge(design, positive, np.ones(500), curve if has_offset else 0.0)
    # With an offset the slope is a change of that of the curve, which is 1.
    assert solution.coefficients[1] == 0.01 - has_offset
    assert solution.residual < 1e-6
    assert solution.iterations > 1
    z = solution.coefficients[0] + 0.01 * curve + solution.coefficients[2] * x
    expected = (np.logaddexp(0, z) - positive * z).mean()
    assert solution.loss == pytest.approx(expected, abs=1e-6)
    free = np.column_stack([np.ones(500), x])
    gradient = free.T @ (expit(z) - positive)
    # The posterior mode under the prior that was chosen: one of the grid, or a mean of them.
    assert gradient[0] == pytest.approx(-solution.coefficients[0] / 900, abs=1e-3)
    sd = np.sqrt(-solution.coefficients[2] / gradient[1])
    assert sd == pytest.approx(solution.sds[-1], rel=1e-3)
    assert has_offset or np.abs(sd / np.array(_ridge.SDS[1:]) - 1).min() < 1e-3


def test_a_mean_standard_deviation_follows_the_labels_and_else_its_prior() -> None:
    sds = np.array(_ridge.SDS)
    prior = np.exp(-sds)
    assert _ridge._mean_sd(-sds) == pytest.approx(prior @ sds / prior.sum())
    assert _ridge._mean_sd(np.where(sds == 0.7, 0.0, -50.0)) == pytest.approx(0.7)
    assert _ridge._mean_sd(np.where(sds == 0.0, 0.0, -50.0)) == 0.0


def test_one_positive_of_thirty_labels_hardly_makes_a_term() -> None:
    curve = np.full(30, -3.0)
    x = np.linspace(-1.7, 1.7, 30)
    positive = (np.arange(30) == 28).astype(float)
    solution = fit_ridge(Design(curve, [Dense(x[:, None])]), positive, np.ones(30), curve)
    # The most likely standard deviation gives more than 1.
    assert 0.0 < solution.coefficients[2] < 0.4


def test_an_offset_keeps_the_curve_where_nothing_speaks_against_it() -> None:
    design, positive, total = world(0.8)
    plain = fit_ridge(design, positive, total)
    changed = fit_ridge(design, positive, total, design.log_odds)
    # Slopes have so wide a prior that its mean hardly matters; priors of terms are averaged.
    assert changed.coefficients[1] + 1 == pytest.approx(plain.coefficients[1], abs=5e-3)
    assert changed.loss == pytest.approx(plain.loss, abs=1e-3)


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ridge, "_MAX_STEPS", 1)
    monkeypatch.setattr(_ridge, "_ROUNDS", 1)
    message = r"must reach an optimality residual of 1e-07, got .*\. Drop outlying features"
    with pytest.raises(cr.FitError, match=message):
        fit_ridge(*world(2.0))


def test_the_rate_of_a_group_is_the_expected_precision_of_its_prior() -> None:
    """Evidence for a large standard deviation must outweigh the rate times that."""
    rng = np.random.default_rng(7)
    curve, x = rng.normal(size=(2, 400))
    labels = (rng.random(400) < expit(curve + 0.6 * x)).astype(float)
    found = []
    for rate in (0.0, 2.0, 300.0):
        design = Design(curve, [Dense(x[:, None], rate)])
        found.append(float(fit_ridge(design, labels, np.ones(400)).coefficients[2]))
    assert found[0] == pytest.approx(0.6, abs=0.2)
    assert found[0] >= found[1] > found[2]
    assert found[2] < 0.05


@pytest.mark.parametrize(("distance", "iterations"), [(6e-10, 1), (7e-10, 2)])
def test_steps_end_at_a_decrement_relative_to_the_number_of_rows(
    distance: float, iterations: int
) -> None:
    """Even odds: at this distance the decrement is rows * distance^2 / 4, against 1e-19 * rows."""
    made = _ridge.Problem(Design(np.tile([-1.0, 1.0], 20)), np.full(40, 0.5), np.ones(40), 0.0)
    assert made.dispersion == 1
    found, steps = made.minimize(made.at(np.array([distance, 0.0])), [])
    assert steps == iterations
    np.testing.assert_allclose(found.coefficients, 0, atol=1e-15)


@pytest.mark.parametrize(("has_offset", "steps"), [(False, 4), (True, 3)])
def test_a_fit_starts_at_the_curve(has_offset: bool, steps: int) -> None:
    """Labels that follow the curve exactly: it takes no step, or one for the wide prior."""
    rng = np.random.default_rng(0)
    curve, x = rng.normal(size=(2, 400))
    design = Design(curve, [Dense(x[:, None])])
    solution = fit_ridge(design, expit(curve), np.ones(400), curve if has_offset else 0.0)
    assert solution.iterations <= steps
    np.testing.assert_allclose(solution.coefficients, [0, 1 - has_offset, 0], atol=1e-4)


@pytest.mark.parametrize("start", [0.0, 0.45, 3.0])
def test_the_highest_score_is_found_from_any_start_without_all_others(start: float) -> None:
    """Scores with one peak; at first all are looked at, as there may be another."""
    asked: list[float] = []

    def marginals(sds: list[float]) -> np.ndarray:
        asked.extend(sds)
        return -(np.array(sds) ** 2)

    peak = np.array(_ridge.SDS) * 1.4
    found, scores = _ridge._highest(marginals, peak, start, is_first=False)
    assert found == 0.7
    assert len(asked) == len(set(asked)) < len(_ridge.SDS)
    assert start in asked
    far = np.where(np.array(_ridge.SDS) == 3.0, 20.0, peak)
    assert _ridge._highest(marginals, far, 0.0, is_first=False)[0] == 0.7
    assert _ridge._highest(marginals, far, 0.0, is_first=True)[0] == 3.0
    assert scores.max() == scores[_ridge.SDS.index(0.7)]
