"""Tensors give the probabilities and sums of arrays, also on a GPU where there is one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calibrank as cr
from calibrank.evidence import Evidence, ips, naive
from calibrank.maps import LogisticCurve
from calibrank.summary.bins import Table
from tests.members import CALIBRATORS, fit

torch = pytest.importorskip("torch")

# CI has no GPU: these are run by hand on a machine that has one.
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
members = pytest.mark.parametrize("member", CALIBRATORS, ids=repr)
types = pytest.mark.parametrize("score_type", [np.float32, np.float64])

RNG = np.random.default_rng(3)
SCORES = RNG.normal(size=3_000)
LABELS = (RNG.random(3_000) < 1 / (1 + np.exp(1 - 2 * SCORES))).astype(float)
EXTREME_SCORES = [
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
@types
@given(more=st.lists(st.floats(-1e30, 1e30), max_size=20))
def test_probabilities_of_tensors_are_those_of_arrays(fitted, device, score_type, more):
    scores = np.array([*EXTREME_SCORES, *more], dtype=score_type).clip(-1e30, 1e30)
    # The float32 nearest to 1e30 lies above it.
    scores = scores[np.abs(scores.astype(np.float64)) <= 1e30].reshape(-1, 1)
    result = fitted.predict(torch.from_numpy(scores).to(device))
    assert result.device.type == device
    assert result.shape == scores.shape
    rtol = 1e-6 if score_type is np.float32 else 1e-12
    actual = result.numpy(force=True)
    np.testing.assert_allclose(actual, fitted.predict(scores), rtol=rtol, atol=1e-35)


@devices
def test_an_invalid_score_in_a_tensor_gives_nan(fitted, device):
    invalid = [np.nan, np.inf, -np.inf, 1e31, -3.4e38]
    scores = torch.tensor(invalid, dtype=torch.float32, device=device)
    assert fitted.predict(scores).isnan().all()


@devices
def test_integers_become_float64_and_complex_numbers_are_refused(fitted, device):
    assert fitted.predict(torch.tensor([1, 0], device=device)).dtype == torch.float64
    expected = r"scores must be real numbers, got a tensor of torch\.complex64"
    with pytest.raises(cr.DataError, match=expected):
        fitted.predict(torch.zeros(2, dtype=torch.complex64, device=device))


@devices
@types
@pytest.mark.parametrize("kind", ["labels", "propensity", "weights"])
@settings(max_examples=5)  # each fills two million bins
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-42, 1e-36, 1e-9, 1.0, 3e7]))
def test_sums_of_tensors_are_those_of_arrays(device, score_type, kind, seed, scale):
    from calibrank.summary import _tensors

    rng = np.random.default_rng(seed)
    scores = (rng.normal(rng.normal(), 1, 500) * scale).astype(score_type)
    scores[:3] = 0, scale * 1e-12, -scale * 1e-12
    labels = (rng.random(500) < 0.2).astype(float)
    if kind == "labels":
        evidence = naive(labels)
    elif kind == "propensity":
        evidence = ips(labels, rng.uniform(0.1, 1, 500))
    else:
        evidence = naive(labels, weights=rng.uniform(0, 2, 500))
    positive = evidence.positive
    if kind == "labels" and seed % 2:
        positive = labels.astype(np.uint8)
    total = None if evidence.unit_weights else torch.from_numpy(evidence.total).to(device)
    table = Table.spanning(float(scores.min()), float(scores.max()))
    sums = _tensors.pool(
        table.grid,
        table.first,
        len(table),
        torch.from_numpy(scores).to(device),
        torch.from_numpy(positive).to(device),
        total,
        binary=kind == "labels",
    )
    table.pool(scores, evidence)
    positives = [0, 2, 3]  # all columns but the moment
    np.testing.assert_allclose(sums.totals[:, 0], table.totals[:, 0], rtol=1e-12)
    np.testing.assert_allclose(
        sums.positives[:, positives], table.positives[:, positives], rtol=1e-12
    )
    np.testing.assert_allclose(sums.squares, table.squares, rtol=1e-12)
    # Rows with unit weights are placed at the centre of a sixteenth of their bin.
    width = float(np.abs(scores).max()) * 2.0 ** -(table.grid.bits + 4)
    for mine, theirs in ((sums.totals, table.totals), (sums.positives, table.positives)):
        tolerance = mine[:, 0] * width + 1e-12 * np.abs(theirs[:, 1])
        assert (np.abs(mine[:, 1] - theirs[:, 1]) <= tolerance).all()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["constant", "piled up", "negative", "spread", "a row"])
def test_rows_of_full_bins_are_all_counted(shape):
    rng = np.random.default_rng(6)
    rows = 1 if shape == "a row" else 132 * 2048 * 17 + (shape == "spread")
    scores = rng.normal(size=rows).astype(np.float32)
    if shape == "constant":
        scores[:] = 0.3
    elif shape == "piled up":
        scores[rng.random(rows) < 0.9] = 1.25
    elif shape == "negative":
        scores = -np.exp(scores)
    labels = (rng.random(rows) < 0.4).astype(np.uint8)
    tables = []
    for device in ("cpu", "cuda"):
        table = Table.spanning(float(scores.min()), float(scores.max()))
        given = [scores, labels]
        if device == "cuda":
            given = [torch.from_numpy(each).cuda() for each in given]
        table.pool(given[0], naive(given[1]))
        tables.append(table)
    on_cpu, on_gpu = tables
    counts = [0, 2, 3]  # all columns but the moment
    np.testing.assert_array_equal(on_gpu.totals[:, 0], on_cpu.totals[:, 0])
    np.testing.assert_array_equal(on_gpu.positives[:, counts], on_cpu.positives[:, counts])
    low, high = on_gpu.grid.ends(np.arange(on_gpu.first, on_gpu.first + len(on_gpu)))
    # Positions are rounded to a 256th of the bin, or to the float32 above.
    error = (high - low) / 500 + 1e-7 * np.abs(high)
    for mine, theirs in ((on_gpu.totals, on_cpu.totals), (on_gpu.positives, on_cpu.positives)):
        assert (np.abs(mine[:, 1] - theirs[:, 1]) <= mine[:, 0] * error + 1e-9).all()
    largest = np.maximum(np.abs(low), np.abs(high))
    difference = np.abs(on_gpu.totals[:, 2] - on_cpu.totals[:, 2])
    assert (difference <= on_gpu.totals[:, 0] * 2 * largest * error + 1e-9).all()


@pytest.mark.gpu
# As steps are pooled there.
@pytest.mark.filterwarnings("ignore::calibrank.errors.PooledScoresWarning")
@members
def test_fits_on_a_gpu_are_those_of_arrays(member):
    rng = np.random.default_rng(5)
    scores = rng.uniform(0.01, 0.99, 400_000).astype(np.float32)
    labels = (rng.random(len(scores)) < scores / 2).astype(np.uint8)
    propensity = rng.uniform(0.5, 1, len(scores)).astype(np.float32)
    gpu_scores = torch.from_numpy(scores).cuda()
    gpu_labels = torch.from_numpy(labels).cuda()
    gpu_propensity = torch.from_numpy(propensity).cuda()
    pairs = [
        (gpu_labels, labels),
        (cr.ips(gpu_labels, gpu_propensity), cr.ips(labels, propensity)),
        (cr.impressions(gpu_labels), cr.impressions(labels)),
    ]
    for gpu_evidence, evidence in pairs:
        on_gpu = fit(member, gpu_scores, gpu_evidence)
        on_cpu = fit(member, scores, evidence)
        assert on_gpu.record.rows == len(scores)
        difference = np.abs(on_gpu.predict(scores[:1_000]) - on_cpu.predict(scores[:1_000]))
        # Bins are twice as wide on a GPU, so a step may start one bin earlier.
        assert np.median(difference) < (1e-6 if isinstance(on_gpu.curve, LogisticCurve) else 3e-4)


@pytest.mark.gpu
def test_invalid_rows_on_a_gpu_are_reported():
    scores = torch.tensor([0.1, float("nan"), 0.3]).cuda()
    labels = torch.tensor([0, 1, 1]).cuda()
    with pytest.raises(cr.DataError, match=r"scores must be finite and within .* got nan at row 1"):
        cr.Platt().fit(scores, labels)
    with pytest.raises(cr.DataError, match=r"labels must be 0 or 1, got 3\.0 at row 2"):
        cr.Platt().fit(scores[[0, 0, 2]], torch.tensor([0.0, 1.0, 3.0]).cuda())


def test_evidence_of_cpu_tensors_is_that_of_arrays():
    labels = torch.tensor([1.0, 0.0], requires_grad=True)
    evidence = cr.ips(labels, torch.tensor([0.5, 0.5]))
    assert isinstance(evidence, Evidence)
    assert isinstance(evidence.positive, np.ndarray)
    assert evidence.positive.tolist() == [2.0, 0.0]
