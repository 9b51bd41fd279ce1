"""Error and warning classes."""

import warnings

import pytest

import calibrank as cr
from calibrank import errors
from calibrank.errors import ClippedScoresWarning, DroppedRowsWarning, FlatMapWarning

CLASSES = [value for value in vars(errors).values() if isinstance(value, type)]


def test_every_class_is_an_error_or_a_warning_by_name_and_base() -> None:
    for kind in CLASSES:
        if issubclass(kind, Warning):
            assert kind.__name__.endswith("Warning")
            assert issubclass(kind, cr.CalibrankWarning)
        else:
            assert kind.__name__.endswith("Error")
            assert issubclass(kind, cr.CalibrankError)


@pytest.mark.parametrize("kind", [FlatMapWarning, DroppedRowsWarning, ClippedScoresWarning])
def test_one_filter_silences_all_warnings(kind: type[Warning]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", cr.CalibrankWarning)
        warnings.warn("a warning", kind, stacklevel=1)


def test_errors_are_also_the_errors_that_python_code_expects() -> None:
    assert issubclass(cr.DataError, ValueError)
    assert issubclass(cr.FitError, ValueError)
    assert issubclass(cr.MissingExtraError, ImportError)
    assert issubclass(cr.CalibrankWarning, UserWarning)


def test_a_missing_extra_names_the_command_that_installs_it() -> None:
    error = cr.MissingExtraError("torch", "models")
    assert str(error) == (
        "torch is not installed. Run: pip install 'calibrank[models]' "
        "(in a checkout: pip install '.[models]')"
    )
