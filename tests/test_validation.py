"""Checks of user input: conversions, and errors that name the rule, the value and the row."""

import inspect
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import validation
from calibrank.tables import Interactions, ScoreTable

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], np.float64),
        ([True, False], np.float64),
        (np.array([1, 2], dtype=np.int8), np.float64),
        (np.array([1, 2], dtype=np.float16), np.float64),
        (np.array([1.0, None], dtype=object), np.float64),
        (np.array([1, 2], dtype=np.float32), np.float32),
        (np.array([1, 2], dtype=np.float64), np.float64),
    ],
)
def test_numbers_become_float32_or_float64(values: Any, expected: type) -> None:
    assert validation.floats("scores", values).dtype == expected


def test_float_arrays_are_not_copied() -> None:
    array = np.ones(3, dtype=np.float32)
    assert validation.floats("scores", array) is array


def test_a_cpu_tensor_becomes_an_array_without_its_gradient() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2, requires_grad=True)
    assert isinstance(validation.floats("scores", tensor), np.ndarray)
    half = torch.tensor([1.5, 2.0], dtype=torch.bfloat16)
    assert validation.floats("scores", half).tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "b"], "x must be real numbers, got 'a'. Convert it to"),
        ([1 + 2j], "x must be real numbers, got (1+2j)"),
        (
            np.array(["2024-01-01"], dtype="datetime64[D]"),
            "x must be real numbers, got date. Convert it",
        ),
        (np.array([1.0, "a"], dtype=object), "x must be real numbers, got 'a'"),
        ([[1, 2], [3]], "x must be one array of numbers, got rows of different lengths. Pass one"),
        ([b"a"], "x must be real numbers, got b'a'"),
        (np.array([1], dtype="m8[s]"), "x must be real numbers, got timedelta"),
        (np.zeros(1, dtype=[("a", "f8")]), "x must be real numbers, got tuple"),
        ([None, {}], "x must be real numbers, got dict"),
        ([10**400], "x must be real numbers, got an integer beyond the largest float"),
        ({1.0}, "x must be one number per row, got set. Pass an array or a list"),
        (None, "x must be one number per row, got None. Pass an array or a list"),
        (
            np.ma.masked_array([1.0, 2.0], [False, True]),
            "x must be without masked values, got some. Drop them first: .compressed().",
        ),
    ],
)
def test_what_is_not_a_real_number_is_refused(values: Any, message: str) -> None:
    with pytest.raises(cr.DataError, match=re.escape(message)):
        validation.floats("x", values)


def test_a_masked_array_without_masked_values_is_accepted() -> None:
    array = np.ma.masked_array([1.0, 2.0], [False, False])
    assert validation.floats("x", array).tolist() == [1, 2]


def test_a_column_has_one_dimension_and_one_value_per_row() -> None:
    expected = r"x must have one dimension, got shape \(2, 2\)\. Flatten it first\."
    with pytest.raises(cr.DataError, match=expected):
        validation.column("x", np.ones((2, 2)))
    expected = r"x must have one value per row, got 3 values for 4 rows\."
    with pytest.raises(cr.DataError, match=expected):
        validation.column("x", [1, 2, 3], 4)


@pytest.mark.parametrize("values", [[3, 1, 2], ["b", "a"], np.array(["b", "a"], dtype=object)])
def test_ids_are_integers_or_strings(values: Any) -> None:
    array = validation.ids("users", values)
    assert array.tolist() == list(values)
    assert array.dtype.kind in "iU"


class NAType:
    """Stands for the missing value of pandas, which is recognised by its class name."""


@pytest.mark.parametrize("missing", [None, NAN, NAType()])
def test_a_missing_id_is_refused(missing: Any) -> None:
    expected = r"users must be ids \(integers or strings\), got .* at row 1\. Drop rows without"
    with pytest.raises(cr.DataError, match=expected):
        validation.ids("users", np.array(["a", missing], dtype=object))


def test_float_ids_must_be_finite() -> None:
    with pytest.raises(cr.DataError, match=r"got nan at row 1"):
        validation.ids("users", [1.0, NAN])


def test_ids_of_two_kinds_are_refused() -> None:
    with pytest.raises(cr.DataError, match="ids of one kind, got both strings and numbers"):
        validation.ids("users", np.array(["a", 1], dtype=object))


def test_row_numbers_lie_within_the_table() -> None:
    assert validation.row_numbers("users", np.array([0, 2]), 3).dtype == np.intp
    with pytest.raises(cr.DataError, match="users must be numbers below 3, got 3 at row 1"):
        validation.row_numbers("users", np.array([0, 3]), 3)
    with pytest.raises(cr.DataError, match="got -1 at row 0"):
        validation.row_numbers("users", np.array([-1, 2]), 3)
    with pytest.raises(cr.DataError, match="users must be numbers below 3, got <U1 values"):
        validation.row_numbers("users", np.array(["a"]), 3)


def test_the_first_invalid_row_is_named_in_any_block() -> None:
    values = np.zeros(100_000)  # several blocks
    values[[70_000, 90_000]] = 7
    expected = r"labels must be 0 or 1, got 7\.0 in 2 rows, the first at row 70000\. Turn ratings"
    with pytest.raises(cr.DataError, match=expected):
        validation.require_role("label", "labels", values)


@pytest.mark.parametrize("label", [np.inf, -np.inf, NAN, 2.0, 0.5, -1.0])
def test_a_label_other_than_0_and_1_is_refused(label: float) -> None:
    expected = rf"labels must be 0 or 1, got {label} at row 1\."
    with pytest.raises(cr.DataError, match=expected):
        cr.naive([0.0, label])
    with pytest.raises(cr.DataError, match=expected):
        Interactions([1, 2], [1, 2], [0.0, label])
    with pytest.raises(cr.DataError, match=expected):
        ScoreTable([1, 2], [1, 2], [0.1, 0.2], [0.0, label])


@pytest.mark.parametrize(
    ("labels", "remedy"),
    [
        ([1, NAN], "Drop rows whose label is missing"),
        ([1, 5, 3], "Turn ratings into likes first, e.g. labels = ratings > 3 (or counts > 0, "),
        ([1, 47.2, NAN], "Turn ratings into likes first"),
        ([1, -1], "Turn ratings into likes first"),
        ([1, np.inf], "Turn ratings into likes first"),
    ],
)
def test_labels_that_are_something_else_are_named(labels: list[float], remedy: str) -> None:
    with pytest.raises(cr.DataError, match=re.escape(remedy)):
        cr.naive(labels)


def test_scores_come_with_their_range() -> None:
    array, low, high = validation.score_column([3, -1, 2])
    assert (array.dtype, low, high) == (np.float64, -1.0, 3.0)


@pytest.mark.parametrize(
    "scores",
    [
        [0.0, NAN],
        [0.0, np.inf],
        [0.0, np.nextafter(1e30, 2e30)],
        np.array([0.0, -3.4e38], dtype=np.float32),
        np.array([0.0, 1.1e30], dtype=np.float32),
    ],
)
def test_an_invalid_score_is_refused(scores: Any) -> None:
    expected = r"scores must be finite and within \+-1e30, got .* at row 1\. Drop padded"
    with pytest.raises(cr.DataError, match=expected):
        validation.score_column(scores)


def test_the_largest_score_is_valid_in_both_float_types() -> None:
    for dtype in (np.float32, np.float64):
        array = np.array([-1e30, 1e30], dtype=dtype)
        assert validation.score_column(array)[1:] == (array[0], array[1])


def test_scores_must_not_be_empty() -> None:
    with pytest.raises(cr.DataError, match="scores must hold at least one row, got none"):
        validation.score_column([])
    assert validation.require_scores(np.empty(0)) == (0.0, 0.0)


def test_probabilities_lie_between_0_and_1() -> None:
    assert validation.probability_column([0, 0.5, 1]).tolist() == [0, 0.5, 1]
    expected = r"probabilities must lie in \[0, 1\], got 1\.5 at row 1\. Calibrate scores first\."
    with pytest.raises(cr.DataError, match=expected):
        validation.probability_column([0.5, 1.5])
    with pytest.raises(cr.DataError, match="probabilities must hold at least one row"):
        validation.probability_column([])


def test_add_up_sums_masses_or_counts_rows() -> None:
    bins = np.array([0, 2, 2])
    assert validation.add_up(bins, np.array([1.0, 2.0, 3.0]), 4).tolist() == [1, 0, 5, 0]
    assert validation.add_up(bins, None).tolist() == [1, 0, 2]
    assert validation.add_up(bins, None).dtype == np.float64


def test_starts_of_marks_each_new_value() -> None:
    starts = validation.starts_of(np.array([1.0, 1.0, 2.0, 5.0, 5.0]))
    assert starts.tolist() == [True, False, True, True, False]
    assert validation.starts_of(np.empty(0)).tolist() == []


def test_tensors_are_recognised_without_importing_torch() -> None:
    code = """if True:
        import sys
        from calibrank._internal.validation import is_tensor, on_gpu
        assert not is_tensor([1.0])
        assert not on_gpu([1.0])
        print("torch" in sys.modules)"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize(
    "function",
    [
        cr.naive,
        cr.ips,
        cr.positive_ips,
        cr.impressions,
        cr.undersampling_weights,
        cr.Evidence,
        cr.Evidence.rows,
        cr.Summary.of,
        cr.SummaryBuilder.update,
        cr.SummaryBuilder.merge,
    ],
    ids=lambda function: function.__qualname__,
)
def test_signatures_show_the_names_of_types(function: Any) -> None:
    assert len(str(inspect.signature(function))) < 120


class WrittenTo(np.ndarray):
    """Scores that another thread writes to as soon as their extremes are known."""

    def max(self, *rest, **named):
        self[0] = 0.0
        return super().max(*rest, **named)


def test_scores_that_another_thread_writes_to_are_refused() -> None:
    scores = np.array([np.nan, 1.0]).view(WrittenTo)
    with pytest.raises(
        cr.errors.DataError, match="scores must stay as they are while they are read"
    ):
        validation.require_scores(scores)
