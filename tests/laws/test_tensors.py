"""Tensors are one more engine: the same probabilities and the same sums as arrays, on a GPU too where there is one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calibrank as cr
from calibrank.evidence import Evidence, ips, naive
from calibrank.maps import LogisticMap
from calibrank.summary.bins import Table
from tests.members import CALIBRATORS, fit

torch = pytest.importorskip("torch")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
members = pytest.mark.parametrize("member", CALIBRATORS, ids=repr)
kinds = pytest.mark.parametrize("kind", [np.float32, np.float64])

RNG = np.random.default_rng(3)
SCORES = RNG.normal(size=3_000)
LABELS = (RNG.random(3_000) < 1 / (1 + np.exp(1 - 2 * SCORES))).astype(float)
ODD = [
    0.0,
    -0.0,
    1e-310,
    -1e-300,
    1e30,
    -1e30,
    SCORES.min(),
    SCORES.max(),
    np.nextafter(SCORES.max(), 9.0),
    3e5,
]


@pytest.fixture(scope="module", params=CALIBRATORS, ids=repr)
def fitted(request):
    return fit(request.param, 1 / (1 + np.exp(-SCORES)), LABELS)


@devices
@kinds
@given(more=st.lists(st.floats(-1e30, 1e30), max_size=20))
def test_probabilities_are_those_of_arrays(fitted, device, kind, more):
    scores = np.array([*ODD, *more], dtype=kind).clip(-1e30, 1e30).reshape(-1, 1)
    scores = scores[np.abs(scores.astype(np.float64)) <= 1e30].reshape(-1, 1)
    result = fitted.predict(torch.from_numpy(scores).to(device))
    assert result.device.type == device
    assert result.shape == scores.shape
    near = 1e-6 if kind is np.float32 else 1e-12
    np.testing.assert_allclose(
        result.numpy(force=True), fitted.predict(scores), rtol=near, atol=1e-35
    )


@devices
def test_a_score_that_is_none_gives_nan(fitted, device):
    wrong = torch.tensor(
        [np.nan, np.inf, -np.inf, 1e31, -3.4e38], dtype=torch.float32, device=device
    )
    assert fitted.predict(wrong).isnan().all()
    assert fitted.predict(torch.tensor([1, 0], device=device)).dtype == torch.float64
    with pytest.raises(
        cr.DataError, match=r"scores must be real numbers, got a tensor of torch\.complex64"
    ):
        fitted.predict(torch.zeros(2, dtype=torch.complex64, device=device))


@devices
@kinds
@pytest.mark.parametrize("weigh", ["labels", "propensity", "weights"])
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-42, 1e-36, 1e-9, 1.0, 3e7]))
def test_sums_are_those_of_arrays(device, kind, weigh, seed, scale):
    rng = np.random.default_rng(seed)
    scores = (rng.normal(rng.normal(), 1, 500) * scale).astype(kind)
    scores[:3] = 0, scale * 1e-12, -scale * 1e-12
    liked = (rng.random(500) < 0.2).astype(float)
    evidence = {
        "labels": naive(liked),
        "propensity": ips(liked, rng.uniform(0.1, 1, 500)),
        "weights": naive(liked, weights=rng.uniform(0, 2, 500)),
    }[weigh]
    table = Table.spanning(float(scores.min()), float(scores.max()))
    positive = liked.astype(np.uint8) if seed % 2 and weigh == "labels" else evidence.positive
    total = torch.from_numpy(evidence.total).to(device) if weigh == "weights" else None
    put = torch.from_numpy(scores).to(device), torch.from_numpy(positive).to(device), total
    from calibrank.summary import _tensors

    sums = _tensors.pool(
        table.grid, table.first, len(table.squares), *put, binary=weigh == "labels"
    )
    table.pool(scores, evidence)
    np.testing.assert_allclose(sums.every[:, 0], table.every[:, 0], rtol=1e-12)
    np.testing.assert_allclose(sums.liked[:, [0, 2, 3]], table.liked[:, [0, 2, 3]], rtol=1e-12)
    np.testing.assert_allclose(sums.squares, table.squares, rtol=1e-12)
    # Rows that count once are placed in the middle of a sixteenth of their bin.
    width = float(np.abs(scores).max()) * 2.0 ** -(table.grid.bits + 4)
    for mine, theirs, mass in (
        (sums.every[:, 1], table.every[:, 1], sums.every),
        (sums.liked[:, 1], table.liked[:, 1], sums.liked),
    ):
        assert (np.abs(mine - theirs) <= mass[:, 0] * width + 1e-12 * np.abs(theirs)).all()


@needs_gpu
@members
def test_fits_on_a_gpu_are_those_on_arrays(member):
    rng = np.random.default_rng(5)
    scores = rng.uniform(0.01, 0.99, 400_000).astype(np.float32)
    liked = (rng.random(len(scores)) < scores / 2).astype(np.uint8)
    propensity = rng.uniform(0.5, 1, len(scores)).astype(np.float32)
    on = [torch.from_numpy(column).cuda() for column in (scores, liked, propensity)]
    for there, here in ((on[1], liked), (cr.ips(on[1], on[2]), cr.ips(liked, propensity))):
        one, other = fit(member, on[0], there), fit(member, scores, here)
        assert one.record.rows == len(scores)
        apart = np.abs(one.predict(scores[:1_000]) - other.predict(scores[:1_000]))
        # The GPU's bins are twice as wide: a step may begin a bin earlier.
        assert np.median(apart) < (1e-6 if isinstance(one, LogisticMap) else 3e-4)


@needs_gpu
def test_bad_rows_on_a_gpu_are_named():
    scores, labels = torch.tensor([0.1, float("nan"), 0.3]).cuda(), torch.tensor([0, 1, 1]).cuda()
    with pytest.raises(cr.DataError, match=r"scores must be finite and within .* got nan at row 1"):
        cr.Platt().fit(scores, labels)
    with pytest.raises(cr.DataError, match=r"labels must be 0 or 1, got 3\.0 at row 2"):
        cr.Platt().fit(scores[[0, 0, 2]], torch.tensor([0.0, 1.0, 3.0]).cuda())


def test_evidence_of_cpu_tensors_is_that_of_arrays():
    labels = torch.tensor([1.0, 0.0], requires_grad=True)
    evidence = cr.ips(labels, torch.tensor([0.5, 0.5]))
    assert isinstance(evidence, Evidence)
    assert evidence.positive.tolist() == [2.0, 0.0]
    assert isinstance(evidence.positive, np.ndarray)
