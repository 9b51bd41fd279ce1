"""Changes by segment: derivatives, modes and the average over priors, by other means."""

import numpy as np
import pytest
from scipy.optimize import minimize

from calibrank.terms import _modes, _shrinkage
from calibrank.terms._modes import Mode, Prior, SegmentProblem, mode_with_numpy, posterior_modes
from calibrank.terms._shrinkage import shrunk_changes


def problem(segments: int = 4, bins: int = 6, seed: int = 0) -> SegmentProblem:
    rng = np.random.default_rng(seed)
    total = rng.integers(1, 12, (segments, bins)).astype(float)
    positive = np.floor(total * rng.random((segments, bins)))
    offset = rng.normal(size=(segments, bins))
    x = rng.normal(size=(segments, bins))
    cells = [each.ravel() for each in (positive, total, offset, x)]
    starts = np.arange(0, total.size + 1, bins)
    return SegmentProblem(*cells, starts, rng.uniform(0.5, 2, segments))


def mode_in_either(made: SegmentProblem, tau: float, kappa: float) -> Mode:
    """The mode in C, after a comparison with that of NumPy."""
    prior = Prior(tau, kappa)
    # The search starts at the mode under the prior before.
    first, found = posterior_modes(made, [prior._replace(tau=1.0, mean=0.5), prior])
    for mine, theirs in zip(first, mode_with_numpy(made, Prior(1.0, kappa, 0.5)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9)
    for mine, theirs in zip(found, mode_with_numpy(made, prior), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9)
    return found


def loss(made: SegmentProblem, segment: int, a: float, c: float) -> float:
    cells = slice(made.starts[segment], made.starts[segment + 1])
    z = made.offset[cells] + a + c * made.x[cells]
    terms = made.total[cells] * np.logaddexp(0, z) - made.positive[cells] * z
    return float(terms.sum() / made.dispersion[segment])


def test_the_loss_and_its_derivatives_are_those_of_each_segment() -> None:
    made = problem()
    at = np.array([[0.3, -0.4, 0.0, 1.0], [0.2, 0.1, -0.5, 0.0]])
    found = made.derivatives(at[0], at[1])
    step = 1e-4
    for segment in range(4):
        a, c = at[:, segment]
        assert made.loss(at[0], at[1])[segment] == pytest.approx(loss(made, segment, a, c))

        def shifted(
            da: float, dc: float, at: tuple[float, float] = (a, c), n: int = segment
        ) -> float:
            return loss(made, n, at[0] + step * da, at[1] + step * dc)

        gradient_a = (shifted(1, 0) - shifted(-1, 0)) / (2 * step)
        gradient_c = (shifted(0, 1) - shifted(0, -1)) / (2 * step)
        middle = 2 * shifted(0, 0)
        second_a = (shifted(1, 0) + shifted(-1, 0) - middle) / step**2
        second_c = (shifted(0, 1) + shifted(0, -1) - middle) / step**2
        cross = shifted(1, 1) - shifted(1, -1) - shifted(-1, 1) + shifted(-1, -1)
        expected = [gradient_a, gradient_c, second_a, cross / (4 * step**2), second_c]
        np.testing.assert_allclose([each[segment] for each in found], expected, atol=1e-4)


@pytest.mark.parametrize(("tau", "kappa"), [(0.5, 0.3), (0.5, 0.0), (0.0, 0.3), (0.0, 0.0)])
def test_modes_and_variances_follow_from_the_penalized_loss(tau: float, kappa: float) -> None:
    made = problem()
    mode = mode_in_either(made, tau, kappa)
    free = [sd for sd in (tau, kappa) if sd]
    for segment in range(4):

        def value(point: np.ndarray, n: int = segment) -> float:
            parts = list(point)
            a = parts.pop(0) if tau else 0.0
            c = parts.pop(0) if kappa else 0.0
            penalty = sum(at**2 / (2 * sd**2) for at, sd in zip(point, free, strict=True))
            return loss(made, n, a, c) + penalty

        point = minimize(value, np.zeros(len(free)), method="BFGS").x if free else np.zeros(0)
        coefficients = np.array([mode.intercepts[segment], mode.slopes[segment]])
        np.testing.assert_allclose(coefficients[[bool(tau), bool(kappa)]], point, atol=1e-4)
        np.testing.assert_array_equal(coefficients[[not tau, not kappa]], 0)
        _, _, aa, ac, cc = [
            each[segment]
            for each in made.derivatives(
                *[np.array(each) for each in (mode.intercepts, mode.slopes)]
            )
        ]
        information = np.array([[aa, ac], [ac, cc]])[
            np.ix_([bool(tau), bool(kappa)], [bool(tau), bool(kappa)])
        ]
        sds = np.array(free)
        posterior = information + np.diag(sds**-2.0)
        covariance = np.zeros((2, 2))
        used = np.flatnonzero([tau, kappa])
        covariance[np.ix_(used, used)] = np.linalg.inv(posterior)
        assert mode.variances[segment] == pytest.approx(covariance[0, 0])
        assert mode.slope_variances[segment] == pytest.approx(covariance[1, 1])
        assert mode.covariances[segment] == pytest.approx(covariance[0, 1])


def test_changes_are_averaged_over_the_priors_by_their_marginal_likelihood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without outliers, which are a mixture of their own."""
    made = problem(12, seed=1)
    grid = [(tau, kappa) for tau in _shrinkage.INTERCEPT_SDS for kappa in _shrinkage.SLOPE_SDS]
    monkeypatch.setattr(_shrinkage, "_LOG_OUTLIER", -1e3)
    monkeypatch.setattr(_shrinkage, "_LOG_ALIKE", 0.0)
    modes = [mode_in_either(made, tau, kappa) for tau, kappa in grid]
    scores = np.array([mode.log_marginal.sum() for mode in modes])
    weights = np.exp(scores - scores.max())
    weights[weights < 0.01 * weights.sum()] = 0
    weights /= weights.sum()
    found = shrunk_changes(made, with_slopes=True)
    intercepts = np.array([mode.intercepts for mode in modes])
    np.testing.assert_allclose(found.intercepts, weights @ intercepts)
    np.testing.assert_allclose(found.slopes, weights @ np.array([mode.slopes for mode in modes]))
    squares = weights @ (intercepts**2 + np.array([mode.variances for mode in modes]))
    np.testing.assert_allclose(found.errors, np.sqrt(squares - found.intercepts**2))
    variance = weights @ np.array([tau**2 for tau, _ in grid])
    assert found.intercept_sd == pytest.approx(np.sqrt(variance))
    without = shrunk_changes(made, with_slopes=False)
    np.testing.assert_array_equal(without.slopes, 0)
    assert not np.allclose(without.intercepts, found.intercepts)


def test_many_segments_are_weighted_by_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shrinkage, "_MOST_SEGMENTS", 4)
    seen = []

    def counted(made: SegmentProblem, priors: list[Prior], *, marginal: bool = True) -> list[Mode]:
        seen.append(len(made))
        return posterior_modes(made, priors, marginal=marginal)

    monkeypatch.setattr(_shrinkage, "posterior_modes", counted)
    # Four equal segments, each three times: every third one stands for three.
    once = problem(4)
    made = once.take(np.repeat(np.arange(4), 3))
    changes = shrunk_changes(made, with_slopes=False)
    assert seen[0] == 4
    # All of them have a mode; a few more calls are about possible outliers.
    assert 12 in seen
    np.testing.assert_allclose(changes.intercepts[::3], changes.intercepts[2::3])
    monkeypatch.setattr(_shrinkage, "_MOST_SEGMENTS", 12)
    np.testing.assert_allclose(
        shrunk_changes(made, with_slopes=False).intercepts, changes.intercepts
    )
    seen.clear()
    shrunk_changes(problem(12), with_slopes=False)
    assert seen[0] == 12


def test_a_step_that_overshoots_is_halved_for_its_segment_alone() -> None:
    def parabola(at: np.ndarray) -> np.ndarray:
        return (at**2).sum(axis=0)

    at = np.array([[1.0, 1.0], [0.0, 0.0]])
    steps = np.array([[1.0, 7.0], [0.0, 0.0]])  # to the minimum, and far beyond it
    following, value, moved = _modes._line_search(parabola, at, parabola(at), steps)
    np.testing.assert_array_equal(following, [[0.0, -0.75], [0.0, 0.0]])
    np.testing.assert_array_equal(value, [0.0, 0.5625])
    assert moved == 1.75


@pytest.mark.parametrize("threads", ["2", "3"])
def test_threads_find_the_same_modes(monkeypatch: pytest.MonkeyPatch, threads: str) -> None:
    made = problem(7, bins=3)
    alone = mode_in_either(made, 0.5, 0.3)
    monkeypatch.setattr(_modes, "_SEGMENTS_PER_THREAD", 6)
    monkeypatch.setenv("CALIBRANK_THREADS", threads)
    for one, several in zip(alone, mode_in_either(made, 0.5, 0.3), strict=True):
        np.testing.assert_array_equal(one, several)


def test_a_level_unlike_all_others_is_hardly_shrunk() -> None:
    """Of two hundred equal levels one has other odds: it is not taken for one of them."""
    rng = np.random.default_rng(3)
    levels, bins = 200, 4
    offset = np.tile(np.linspace(-2, 1, bins), levels)
    total = np.full(levels * bins, 50.0)
    true = offset + np.repeat([2.0, *[0.0] * (levels - 1)], bins)
    positive = rng.binomial(50, 1 / (1 + np.exp(-true))).astype(float)
    starts = np.arange(0, levels * bins + 1, bins)
    made = SegmentProblem(positive, total, offset, np.zeros_like(offset), starts, np.ones(levels))
    found = shrunk_changes(made, with_slopes=False, with_mean=True)
    assert found.intercepts[0] == pytest.approx(2.0, abs=0.4)
    assert found.typical == pytest.approx(0.0, abs=0.05)
    assert np.abs(found.intercepts[1:]).mean() < 0.05
    assert found.intercept_sd < 0.2


def test_changes_hold_the_errors_of_what_they_are_relative_to() -> None:
    """As matrices: V + (V / prior) P (V / prior)'."""
    made = shrunk_changes(problem(segments=6), with_slopes=True)
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(6, 2, 2))
    parents = factors @ factors.transpose(0, 2, 1)
    found = made.with_errors_of(np.array([parents[:, 0, 0], parents[:, 1, 1], parents[:, 0, 1]]))
    prior = np.diag([made.intercept_sd**2, made.slope_sd**2])
    for each in range(6):
        own = np.diag([made.errors[each] ** 2, made.slope_errors[each] ** 2])
        own[0, 1] = own[1, 0] = made.covariances[each]
        share = own @ np.linalg.inv(prior)
        expected = own + share @ parents[each] @ share.T
        assert found.errors[each] ** 2 == pytest.approx(expected[0, 0])
        assert found.slope_errors[each] ** 2 == pytest.approx(expected[1, 1])
        assert found.covariances[each] == pytest.approx(expected[0, 1])


def test_without_differences_the_errors_of_what_changes_are_relative_to_are_all() -> None:
    made = shrunk_changes(problem(segments=3), with_slopes=False)
    alike = made._replace(intercept_sd=0.0, errors=np.zeros(3))
    found = alike.with_errors_of(np.array([[0.04] * 3, [0.09] * 3, [0.01] * 3]))
    assert found.errors == pytest.approx([0.2] * 3)
    assert found.slope_errors == pytest.approx([0.3] * 3)
    assert found.covariances == pytest.approx([0.01] * 3)
