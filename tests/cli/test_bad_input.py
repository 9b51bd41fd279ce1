"""Invalid input: every error message states the rule, the value, the row and the remedy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.atomic import write_atomic
from calibrank._internal.json import digest_of
from calibrank.errors import FlatMapWarning
from calibrank.metrics import AUC, GAUC, NDCG, Miscalibration, Recall
from calibrank.propensity import Known, Logistic, NaiveBayes, Popularity, Random, Uniform
from calibrank.tables import Interactions
from tests.members import CALIBRATORS, METRICS, name

SCORES, LABELS = [0.1, 0.4, 0.2, 0.9], [0, 1, 0, 1]
NAN = float("nan")

INVALID_TABLES = [
    (
        [0.1, NAN, 0.2, 0.9],
        LABELS,
        r"scores must be finite and within \+-1e30, got nan at row 1\. Drop padded",
    ),
    ([0.1, 0.4, np.inf, 0.9], LABELS, "got inf at row 2"),
    ([0.1, 0.4, np.nextafter(1e30, 2e30), 0.9], LABELS, r"got 1\.0+2e\+30 at row 2"),
    (np.array([0.1, 0.4, 1.1e30, 0.9], dtype=np.float32), LABELS, r"got 1\.1\d*e\+30 at row 2"),
    ([0.1, 0.4, -np.inf, -np.inf], LABELS, "got -inf in 2 rows, the first at row 2"),
    (np.array([-3.4e38, 0.4, 0.2, 0.9], dtype=np.float32), LABELS, r"got -3\.\d+e\+38 at row 0"),
    (np.ones((2, 2)), LABELS, r"scores must have one dimension, got shape \(2, 2\)"),
    ([], [], "scores must hold at least one row"),
    (["a", "b"], [0, 1], "scores must be real numbers, got"),
    ([0.1, None, 0.2, 0.9], LABELS, "got nan at row 1"),
    (SCORES, [0, 1, 0], "one value per row, got 3 values for 4 rows"),
    (SCORES, [0, 1, 0, 3], r"labels must be 0 or 1, got 3\.0 at row 3\. Turn ratings into likes"),
    (SCORES, [0, NAN, 0, 1], "labels must be 0 or 1, got nan at row 1"),
]


@pytest.mark.parametrize(("scores", "labels", "message"), INVALID_TABLES)
@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_invalid_scores_and_labels_are_rejected(
    member: cr.Calibrator, scores: Any, labels: Any, message: str
) -> None:
    with pytest.raises(cr.DataError, match=message):
        member.fit(scores, labels)


@pytest.mark.parametrize("member", [m for m in CALIBRATORS if m.learns], ids=name)
def test_one_class_or_constant_scores_are_rejected(member: cr.Calibrator) -> None:
    with pytest.raises(cr.FitError, match="both classes, got no positive in 4 rows"):
        member.fit(SCORES, [0, 0, 0, 0])
    with pytest.raises(cr.FitError, match="both classes, got only positives in 4 rows"):
        member.fit(SCORES, [1, 1, 1, 1])
    with pytest.raises(cr.DataError, match=r"scores must differ from row to row, got only 0\.5"):
        member.fit([0.5] * 4, LABELS)


def test_a_fit_without_finite_optimum_names_a_remedy() -> None:
    with pytest.raises(
        cr.FitError,
        match=r"no finite best fit.*any finite slope\. Calibrate on more rows, with more positives "
        r"and negatives\.$",
    ):
        cr.Gaussian().fit([1, 2, 3, 4], [0, 0, 1, 1])
    with pytest.raises(
        cr.FitError, match=r"declare it: log='impressions'.*raise the propensity clip"
    ):
        cr.Gaussian().fit([1, 2, 3, 4], cr.ips([0, 0, 1, 1], [0.9] * 4))
    with pytest.raises(cr.FitError, match="which would mean a rate above 1"):
        cr.Platt().fit([1, 2, 3, 4], cr.ips([0, 1, 0, 1], [0.1] * 4))


@pytest.mark.parametrize(
    ("propensity", "message"),
    [
        ([0.5, 0.0, 0.5, 0.5], r"propensity must lie in \(0, 1\], got 0\.0 at row 1\. Clip"),
        ([0.5, 0.5, 1.5, 0.5], r"got 1\.5 at row 2"),
        ([0.5, 0.5, NAN, 0.5], "got nan at row 2"),
        ([0.5, 0.5], "one value per row"),
    ],
)
def test_invalid_propensities_are_rejected(propensity: list[float], message: str) -> None:
    for evidence in (cr.ips, cr.positive_ips):
        with pytest.raises(cr.DataError, match=message):
            evidence(LABELS, propensity)


def test_invalid_weights_and_evidence_are_rejected() -> None:
    with pytest.raises(
        cr.DataError, match=r"weights must be finite and not negative, got -1\.0 at row 0"
    ):
        cr.naive(LABELS, weights=[-1, 1, 1, 1])
    with pytest.raises(cr.DataError, match="weights must not all be zero"):
        cr.Platt().fit(SCORES, cr.naive(LABELS, weights=[0, 0, 0, 0]))
    with pytest.raises(cr.DataError, match="total must be above 0 where positive is"):
        cr.Evidence([1.0], [0.0])
    with pytest.raises(cr.DataError, match="positive must be finite"):
        cr.Evidence([-1.0], [1.0])


def test_invalid_scores_are_rejected_by_predict_and_interval() -> None:
    fitted = cr.Platt().fit(SCORES, [1, 0, 0, 1])
    with pytest.raises(cr.DataError, match="got nan at row 1"):
        fitted.predict([0.0, NAN])
    with pytest.raises(cr.DataError, match="level must lie"):
        fitted.interval([0.0], level=1.0)


def test_scores_that_do_not_rise_with_the_labels_give_a_warning() -> None:
    with pytest.warns(FlatMapWarning, match="if lower is better"):
        cr.Gaussian().fit(
            np.arange(40.0), (np.arange(40) % 7 < 3 * (np.arange(40) < 20)).astype(float)
        )
    with pytest.warns(FlatMapWarning, match="use Platt or Gaussian"):
        cr.Temperature().fit(np.arange(40.0), (np.arange(40) % 9 == 0).astype(float))


@pytest.mark.parametrize("metric", METRICS, ids=name)
def test_invalid_probabilities_are_rejected(metric: cr.Metric) -> None:
    if isinstance(
        metric, NDCG | Recall | AUC | GAUC
    ):  # these use only the order, so raw scores are valid
        assert metric([-7.0, 1.5], [0, 1], users=[1, 1]) == 1
        with pytest.raises(
            cr.DataError, match=r"probabilities must be finite and within \+-1e30, got nan at"
        ):
            metric([0.5, float("nan")], [0, 1], users=[1, 1])
    else:
        with pytest.raises(
            cr.DataError, match=r"probabilities must lie in \[0, 1\], got 1\.5 at row 1"
        ):
            metric([0.5, 1.5], [0, 1], users=[1, 1])
    with pytest.raises(cr.DataError, match="one value per row"):
        metric([0.5, 0.5], [0, 1, 1], users=[1, 1])


INVALID_SETTINGS = [
    (lambda: cr.Gamma(margin=0), r"margin must lie in \[1e-6, 1e6\], got 0\."),
    (lambda: cr.GammaGaussian(margin=-1), r"margin must lie in \[1e-6, 1e6\], got -1\."),
    (lambda: cr.Histogram(bins=0), r"bins must be a whole number, 1 to 1,000,000, got 0\."),
    (lambda: cr.BBQ(bins=()), r"bins must be a tuple of numbers of bins, got tuple"),
    (lambda: cr.ECE(bins=0), r"bins must be a whole number, 1 to 1,000,000, got 0\."),
    (lambda: NDCG(0), r"k must be a whole number, 1 or more, got 0\."),
    (lambda: cr.ECE() @ 0, r"n must be a whole number, 1 or more, got 0\."),
    (lambda: cr.LogLoss(clip=0.7), r"clip must lie in \[0, 0\.5\), got 0\.7\."),
    (lambda: Popularity(clip=0), r"clip must lie in \(0, 1\], got 0\."),
    (lambda: Popularity(power=-1), r"power must be a finite number, 0 or more, got -1\."),
    (lambda: Uniform(1.5), r"value must lie in \(0, 1\], got 1\.5\."),
    (lambda: Random(clip=2), r"clip must lie in \(0, 1\], got 2\."),
    (lambda: NaiveBayes([0, 0]), r"unbiased labels must hold a positive, got none in 2\."),
    (lambda: NaiveBayes([0, 2]), r"unbiased labels must be 0 or 1, got 2\.0 at row 1\."),
    (lambda: Known([0.5]), r"matrix must have one row .* got shape \(1,\)\."),
    (lambda: Known([[1.5]]), r"matrix must lie in \[0, 1\], got 1\.5 at row 0\."),
    (lambda: Logistic([[1.0]], [[1.0]], ridge=0), r"ridge must lie in \(0, 1e100\], got 0"),
]


@pytest.mark.parametrize(("make", "message"), INVALID_SETTINGS)
def test_invalid_settings_are_rejected(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(cr.DataError, match=f"^{message}"):
        make()


def test_list_metrics_require_users() -> None:
    with pytest.raises(cr.DataError, match="users must be given for NDCG@3"):
        NDCG(3)([0.5, 0.5], [0, 1])
    with pytest.raises(cr.DataError, match="a positive for some user"):
        NDCG(3)([0.5, 0.5], [0, 0], users=[1, 2])


def test_ids_of_another_type_are_rejected() -> None:
    fitted = Popularity().fit(Interactions([1, 2, 3], [1, 1, 2]))
    with pytest.raises(cr.DataError, match="items must be ids as in the log"):
        fitted.predict([1, 1], ["1", "2"])
    with pytest.raises(cr.DataError, match="ids of one kind, got both strings and numbers"):
        Interactions(np.array([1, "a"], dtype=object), [1, 2])


def test_calls_without_an_answer_are_rejected(tmp_path: Path) -> None:
    nothing = cr.Evidence([0.0, 0.0], [0.0, 0.0])
    for call in (
        lambda: cr.bootstrap(cr.Brier(), [0.1, 0.2], nothing, [1, 2]),
        lambda: Miscalibration()([0.1, 0.2], nothing),
        lambda: cr.reliability([0.1, 0.2], nothing),
    ):
        with pytest.raises(cr.DataError, match="must have a total weight above 0"):
            call()
    with pytest.raises(cr.DataError, match="rows of different lengths"):
        cr.Platt().fit([[1, 2], [3]], [0, 1])
    with pytest.raises(cr.DataError, match="at least 2 distinct ids for an interval"):
        cr.bootstrap(cr.Brier(), [0.1, 0.2], [0, 1], users=[1, 1])
    with pytest.raises(cr.DataError, match="got no such file"):
        cr.load(tmp_path / "nowhere.json")
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(cr.DataError, match="must be a summary that calibrank saved"):
        cr.Summary.load(tmp_path / "x.npy")
    with pytest.raises(cr.DataError, match="scores must differ"):
        cr.Gaussian().fit(np.arange(9.0) * 1e-200, np.arange(9) % 2)


def test_invalid_interactions_are_rejected() -> None:
    with pytest.raises(cr.DataError, match="n_users must be at least the 2 ids seen, got 1"):
        Interactions([1, 2], [1, 1], n_users=1)
    with pytest.raises(cr.DataError, match="labels must be 0 or 1, got 4"):
        Interactions([1], [1], [4])
    with pytest.raises(cr.DataError, match="got None at row 1"):
        Interactions(["a", None], [1, 1])
    with pytest.raises(cr.DataError, match="got nan at row 0"):
        Interactions([NAN, 1.0], [1, 1])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "map.json"
    cr.Gaussian().fit([0.1, 0.4, 0.2, 0.9, 0.5], [0, 1, 0, 1, 0]).save(path)
    return path


def change(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text())
    document.update(changes)
    document.pop("digest")
    path.write_text(json.dumps({**document, "digest": digest_of(document)}))


def test_a_truncated_map_is_rejected(saved: Path) -> None:
    saved.write_text(saved.read_text()[:100])
    with pytest.raises(cr.DataError, match="must be JSON, got damaged text"):
        cr.load(saved)


def test_a_map_changed_after_saving_is_rejected(saved: Path) -> None:
    saved.write_text(saved.read_text().replace('"intercept": -', '"intercept": '))
    with pytest.raises(
        cr.DataError, match="must match its digest: it was changed after it was saved"
    ):
        cr.load(saved)


def test_a_map_of_a_later_version_is_rejected(saved: Path) -> None:
    change(saved, version=99)
    with pytest.raises(
        cr.DataError, match=r"must be of version 2 or older, got 99\. Upgrade calibrank"
    ):
        cr.load(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "must be a calibrank-map document, got format 'other'"),
        ({"curve": {"kind": "spline"}}, "kind must be one of logistic, .* got 'spline'"),
        ({"surprise": 1}, "got field 'surprise'. If a newer calibrank wrote it, upgrade calibrank"),
        ({"curve": []}, "must be a JSON object, got list"),
        ({"record": {}}, "must hold 'evidence', got none"),
    ],
)
def test_maps_with_unknown_or_missing_fields_are_rejected(
    saved: Path, changes: dict[str, Any], message: str
) -> None:
    change(saved, **changes)
    with pytest.raises(cr.DataError, match=message):
        cr.load(saved)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("low", 5.0, "low must be below high"),
        ("low", "0", "low must be a finite number, got '0'"),
        ("low", True, "low must be a finite number, got True"),
        ("coefficients", [1.0], "coefficients must be 2 numbers"),
        ("coefficients", [-1.0, 1.0], "none negative"),
        ("coefficients", [0.0, 0.0], "must rise at both ends"),
        ("covariance", [1.0], "covariance must be 3 x 3"),
        ("basis", {"name": "cubic"}, "name must be one of"),
        ("basis", {"name": "log", "margin": -1.0}, "margin must be above 0"),
    ],
)
def test_maps_with_impossible_values_are_rejected(
    saved: Path, field: str, value: Any, message: str
) -> None:
    content = json.loads(saved.read_text())["curve"]
    change(saved, curve={**content, field: value})
    with pytest.raises(cr.DataError, match=message):
        cr.load(saved)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be a JSON object, got list"),
        ("NaN", "must be JSON, .* NaN is not a JSON number"),
        ("{", "must be JSON, .* Expecting property name"),
        ('{"format": 1e999}', "format must be a string, got inf"),
        ("\x00", "must be JSON, .* Expecting value"),
        ('{"format": Infinity}', "must be JSON, .* Infinity is not a JSON number"),
        ("[" * 100_000, "must be JSON, .* too many levels of brackets"),
    ],
)
def test_files_that_are_not_maps_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(cr.DataError, match=message):
        cr.load(path)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "map.json"
    path.write_text("old")

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_float32_value_of_1e30_is_a_valid_score() -> None:
    summary = cr.Summary.of(np.array([0.1, 1e30], dtype=np.float32), [0, 1])
    assert summary.high == float(np.float32(1e30)) > 1e30
