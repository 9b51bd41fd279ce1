"""AUC, grouped AUC and errors by field, against scikit-learn and loops."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import calibrank as cr
from calibrank.metrics import AUC, GAUC, FieldECE, FieldRCE

RNG = np.random.default_rng(0)
ROWS = 400
P = np.round(RNG.random(ROWS), 2)
LABELS = (RNG.random(ROWS) < P).astype(float)
USERS = RNG.integers(0, 60, ROWS)
WEIGHTS = RNG.integers(1, 4, ROWS).astype(float)
COLUMNS = {"country": RNG.choice(["NL", "DE", "BE"], ROWS), "device": RNG.integers(0, 4, ROWS)}


def test_auc_is_that_of_scikit_learn() -> None:
    assert AUC()(P, LABELS) == pytest.approx(roc_auc_score(LABELS, P))
    weighted = cr.naive(LABELS, weights=WEIGHTS)
    expected = roc_auc_score(LABELS, P, sample_weight=WEIGHTS)
    assert AUC()(P, weighted) == pytest.approx(expected)
    # Only the order counts.
    assert AUC()(5 * P - 3, weighted) == pytest.approx(expected)


def test_auc_of_evidence_counts_pairs_by_mass() -> None:
    evidence = cr.ips(LABELS[:50], RNG.uniform(0.6, 1, 50))
    negative = evidence.total - evidence.positive
    p = P[:50]
    wins = (p[:, None] > p) + 0.5 * (p[:, None] == p)
    expected = evidence.positive @ wins @ negative / (evidence.positive.sum() * negative.sum())
    assert AUC()(p, evidence) == pytest.approx(expected)


def test_grouped_auc_is_the_mean_over_users_by_rows() -> None:
    values, weights = [], []
    for user in np.unique(USERS):
        chosen = user == USERS
        if 0 < LABELS[chosen].sum() < chosen.sum():
            mass = WEIGHTS[chosen]
            values.append(roc_auc_score(LABELS[chosen], P[chosen], sample_weight=mass))
            weights.append(mass.sum())
    assert len(values) < 60
    found = GAUC()(P, cr.naive(LABELS, weights=WEIGHTS), USERS)
    assert found == pytest.approx(np.average(values, weights=weights))


def test_one_class_has_no_auc() -> None:
    with pytest.raises(cr.DataError, match="labels must hold both classes, got none: AUC is"):
        AUC()([0.1, 0.2], [1, 1])
    with pytest.raises(cr.DataError, match="both classes for some user, got none: GAUC is"):
        GAUC()([0.1, 0.2], [1, 0], users=[1, 2])


def loop(field: str, *, relative: bool) -> float:
    """The error of one field, value by value."""
    total, mass = 0.0, 0.0
    for value in np.unique(COLUMNS[field]):
        chosen = COLUMNS[field] == value
        observed, predicted = WEIGHTS[chosen] @ LABELS[chosen], WEIGHTS[chosen] @ P[chosen]
        rows = WEIGHTS[chosen].sum()
        gap = abs(observed - predicted)
        total += rows * gap / observed if relative else gap
        mass += rows
    return float(total / mass)


@pytest.mark.parametrize("relative", [False, True])
def test_errors_by_field_are_those_of_a_loop(relative: bool) -> None:
    kind = FieldRCE if relative else FieldECE
    evidence = cr.naive(LABELS, weights=WEIGHTS)
    one = kind("country")(P, evidence, columns=COLUMNS)
    assert one == pytest.approx(loop("country", relative=relative))
    both = kind("country", "device")(P, evidence, columns=COLUMNS)
    assert both == pytest.approx((one + loop("device", relative=relative)) / 2)


def test_values_without_positives_are_dropped_from_the_relative_error() -> None:
    columns = {"country": ["NL", "NL", "DE"]}
    assert FieldRCE("country")([0.4, 0.4, 0.9], [1, 0, 0], columns=columns) == pytest.approx(0.2)
    with pytest.raises(cr.DataError, match="labels must hold a positive, got none: FieldRCE"):
        FieldRCE("country")([0.4, 0.4, 0.9], [0, 0, 0], columns=columns)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(cr.DataError, match=r'columns must be given for FieldECE\("country"\)'):
        FieldECE("country")(P, LABELS)
    with pytest.raises(cr.DataError, match="columns must have the column 'city', got 'country'"):
        FieldECE("city")(P, LABELS, columns=COLUMNS)
    with pytest.raises(cr.DataError, match="column 'country' must have one value per row, got 2"):
        FieldECE("country")(P, LABELS, columns={"country": ["NL", "DE"]})


def test_the_top_of_lists_by_field_and_rows_of_weight_zero() -> None:
    order = np.lexsort((-P, USERS))
    first = order[np.unique(USERS[order], return_index=True)[1]]
    distinct = P + np.arange(ROWS) * 1e-6
    top = FieldECE("country") @ 1
    found = top(np.clip(distinct, 0, 1), LABELS, USERS, columns=COLUMNS)
    order = np.lexsort((-distinct, USERS))
    first = order[np.unique(USERS[order], return_index=True)[1]]
    chosen = {name: column[first] for name, column in COLUMNS.items()}
    expected = FieldECE("country")(np.clip(distinct, 0, 1)[first], LABELS[first], columns=chosen)
    assert found == pytest.approx(expected)
    weights = np.where(np.arange(ROWS) % 5 == 0, 0.0, 1.0)
    kept = weights > 0
    some = cr.bootstrap(
        FieldECE("device"), P, cr.naive(LABELS, weights=weights), USERS, COLUMNS, resamples=50
    )
    columns = {"device": COLUMNS["device"][kept]}
    expected_interval = cr.bootstrap(
        FieldECE("device"), P[kept], LABELS[kept], USERS[kept], columns, resamples=50
    )
    assert some == pytest.approx(expected_interval)
