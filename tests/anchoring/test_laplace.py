"""Laplace approximations: evidence and held-out labels, by integrals and by leaving labels out."""

import numpy as np
import pytest

from calibrank._internal.logit import expit
from calibrank.anchoring._laplace import LogisticPosteriors


def test_labels_are_held_out_one_by_one_and_evidence_is_an_integral() -> None:
    """Two coefficients, so that the posterior can be integrated on a grid."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=50)
    y = (rng.random(50) < expit(x)).astype(float)
    design = np.array([np.ones(50), x])
    means, sds = np.array([[0.0, 1.0], [1.0, 0.2]]), np.array([[0.8, 0.5], [0.4, 0.3]])
    problem = LogisticPosteriors(design, np.ones(50), y, means, sds)
    modes, hessians = problem.solve()
    held_out = problem.held_out_scores(modes, np.linalg.inv(hessians))
    evidence = -problem.loss(modes) - np.linalg.slogdet(hessians)[1] / 2
    for prior in range(2):
        axes = [
            mean + sd * np.linspace(-6, 6, 161)
            for mean, sd in zip(means[prior], sds[prior], strict=True)
        ]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        z = points @ design
        log_p = y * z - np.logaddexp(0, z)
        density = np.exp(-(((points - means[prior]) / sds[prior]) ** 2).sum(axis=1) / 2)
        density /= density.sum()
        total = log_p.sum(axis=1)
        exact = np.log(density @ np.exp(total))
        assert evidence[prior] == pytest.approx(exact, abs=0.02)
        without = density[:, None] * np.exp(total[:, None] - log_p)
        exact = np.log((without * np.exp(log_p)).sum(axis=0) / without.sum(axis=0)).sum()
        # The mean over a normal distribution is MacKay's approximation.
        assert held_out[prior] == pytest.approx(exact, abs=0.06)


def test_counts_are_held_out_like_repeated_rows() -> None:
    rng = np.random.default_rng(4)
    x, total = rng.normal(size=20), rng.integers(1, 5, 20)
    positive = rng.binomial(total, 0.5)
    rows = np.repeat(np.arange(20), total)
    y = np.concatenate([np.arange(n) < k for n, k in zip(total, positive, strict=True)])
    prior = np.zeros((1, 2)), np.ones((1, 2))
    found = []
    for places, mass, positives in (
        (np.arange(20), total, positive),
        (rows, np.ones(len(rows)), y),
    ):
        design = np.array([np.ones(len(places)), x[places]])
        problem = LogisticPosteriors(design, mass.astype(float), positives.astype(float), *prior)
        modes, hessians = problem.solve()
        covariances = np.linalg.inv(hessians)
        score = problem.held_out_scores(modes, covariances)[0]
        found.append((modes[0], covariances[0], score))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)


def test_half_a_label_is_removed_as_half() -> None:
    """Of a label of weight w the score is w times that of a label, given the others."""
    x = np.array([0.3, -0.2, 0.9])
    design, y = np.array([np.ones(3), x]), np.array([1.0, 0.0, 1.0])
    half = np.array([0.5, 0.5, 0.5])
    prior = np.zeros((1, 2)), np.full((1, 2), 0.3)
    problem = LogisticPosteriors(design, half, half * y, *prior)
    modes, hessians = problem.solve()
    covariances = np.linalg.inv(hessians)
    expected = 0.0
    for row in range(3):
        rest = np.delete(np.arange(3), row)
        without = LogisticPosteriors(design[:, rest], half[rest], half[rest] * y[rest], *prior)
        mode, hessian = without.solve()
        at = design[:, row]
        variance = at @ (np.linalg.inv(hessian[0]) * 0.09) @ at
        z = mode[0] @ at / np.sqrt(1 + np.pi / 8 * variance)
        expected += 0.5 * (y[row] * z - np.logaddexp(0, z))
    assert problem.held_out_scores(modes, covariances)[0] == pytest.approx(expected, abs=1e-4)
