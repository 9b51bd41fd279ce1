"""Functions of the C library that Python calls without ctypes."""

import ctypes
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import builtin, native
from calibrank.errors import DataError

pytestmark = pytest.mark.skipif(
    not native.MAPS_READY, reason="calibrank was installed without a C compiler"
)


def fitted_map() -> cr.CalibrationMap:
    return cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])


class OtherLayout(ctypes.Structure):
    """As if an array kept its number of dimensions before its data."""

    _fields_ = (
        ("dimensions", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("dtype", ctypes.c_void_p),
    )


def test_another_layout_of_arrays_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert builtin.is_supported()
    monkeypatch.setattr(builtin, "_Array", OtherLayout)
    assert not builtin.is_supported()


def test_larger_fields_than_an_array_has_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "_Array", ctypes.c_double * 1000)
    assert not builtin.is_supported()


def test_an_interpreter_without_the_interface_of_cpython_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(ctypes, "pythonapi")
    assert not builtin.is_supported()


def test_maps_are_applied_by_numpy_where_the_layout_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted = fitted_map()
    scores = np.linspace(-3, 5, 101)
    expected = fitted.predict(scores)
    monkeypatch.setattr(native, "MAPS_READY", False)
    assert native.probabilities(scores, fitted._program) is None
    np.testing.assert_allclose(fitted.predict(scores), expected, rtol=1e-14)
    assert fitted.scalar()(0.5) == fitted.predict(0.5)


@pytest.mark.parametrize("rows", [10, 100_000])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_unpickled_arrays_are_computed_alike(rows: int, kind: type) -> None:
    """Their type is another object than NumPy's own, as in the workers of a process pool."""
    fitted = fitted_map()
    scores = np.random.default_rng(0).normal(size=rows).astype(kind)
    sent = pickle.loads(pickle.dumps(scores))  # noqa: S301  (its own)
    assert sent.dtype is not scores.dtype
    assert native.probabilities(sent, fitted._program) is not None
    np.testing.assert_array_equal(fitted.predict(sent), fitted.predict(scores))


def test_a_scalar_may_be_any_number() -> None:
    probability = fitted_map().scalar()
    expected = probability(0.5)
    assert probability(np.float32(0.5)) == expected
    assert probability(Decimal("0.5")) == expected  # type: ignore[arg-type]  # any number works
    assert probability(-1) == probability(-1.0)


class NotANumber:
    """Within every limit, and still not a number."""

    def __le__(self, other: object) -> bool:
        return True

    __ge__ = __le__


def test_a_scalar_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(DataError, match="score must be a number, got NotANumber"):
        fitted_map().scalar()(NotANumber())  # type: ignore[arg-type]  # that is the test


def test_threads_of_python_predict_at_the_same_time() -> None:
    fitted = fitted_map()
    scores = np.random.default_rng(0).normal(size=(40, 50_000))
    expected = fitted.predict(scores)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(fitted.predict, scores))
    np.testing.assert_array_equal(found, expected)


def test_predictions_leave_the_references_to_their_answer_as_they_were() -> None:
    fitted = fitted_map()
    answer = True  # since Python 3.12 its references are not counted
    before = sys.getrefcount(answer)
    for _ in range(1_000):
        fitted.predict(np.zeros(3))
    assert abs(sys.getrefcount(answer) - before) < 100
