"""The module of C loops: loading it, the arrays it takes, and what it refuses."""

import pickle
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import native
from calibrank.errors import DataError

pytestmark = pytest.mark.skipif(
    not native.READY, reason="calibrank was installed without a C compiler"
)


def test_the_module_is_stale_if_a_source_file_has_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for file in native.SOURCE.parent.glob("native*.[ch]"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(native, "SOURCE", tmp_path / "native.c")
    assert native.load_loops() is not None
    with (tmp_path / "native_maps.h").open("a") as header:
        header.write("a change")
    assert native.load_loops() is None


def test_a_module_whose_source_is_missing_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "SOURCE", tmp_path / "native.c")
    assert native.load_loops() is None


def test_a_module_that_cannot_be_imported_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "calibrank._internal._loops", None)
    assert native.load_loops() is None


def test_a_module_that_this_python_cannot_start_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    # A free-threaded Python tries modules of the stable ABI, and cannot start them.
    def fail(_name: str) -> None:
        raise SystemError("init function of _loops returned uninitialized object")

    monkeypatch.setattr(native, "import_module", fail)
    assert native.load_loops() is None


def predicted(fitted: cr.CalibrationMap, scores: np.ndarray, rows: slice) -> np.ndarray:
    """Probabilities of some rows as they come out of a prediction for all rows."""
    return fitted.predict(scores)[rows]


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    """Enough float32 scores for the compiled loop, two of them far outside the fitted range."""
    scores = np.random.default_rng(0).normal(0, 2, 3_100_000).astype(np.float32)
    scores[:2] = [-40, 40]
    return scores


@pytest.mark.parametrize("calibrator", [cr.Gaussian(), cr.Platt()], ids=repr)
def test_compiled_probabilities_are_accurate_to_float32(
    calibrator: cr.Calibrator, scores: np.ndarray
) -> None:
    grid = np.arange(-5.0, 5.0, 0.01)
    labels = (np.arange(1000) % 10 < np.arange(1000) / 100).astype(float)
    fitted = calibrator.fit(grid, labels)
    some = slice(0, 20_000)
    ratio = predicted(fitted, scores, some) / fitted.predict(scores[some])
    assert np.abs(ratio - 1).max() < 3e-6


def test_compiled_probabilities_are_accurate_with_an_outlying_fitted_score(
    scores: np.ndarray,
) -> None:
    fitted = cr.Platt().fit(np.r_[-1e5, scores[:5_000]], np.r_[0, np.arange(5_000) % 3 == 0])
    some = slice(0, 20_000)
    ratio = predicted(fitted, scores, some) / fitted.predict(scores[some].astype(float))
    assert np.abs(ratio - 1).max() < 3e-6


@pytest.mark.parametrize("invalid", [np.nan, np.inf, -np.inf, -3.4e38])
def test_an_invalid_score_among_millions_is_reported(scores: np.ndarray, invalid: float) -> None:
    fitted = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    damaged = scores.copy()
    damaged[7] = invalid
    with pytest.raises(cr.DataError, match=r"got .* at row 7"):
        fitted.predict(damaged)


# --- any array ---------------------------------------------------------------------------------


def fitted_map(calibrator: cr.Calibrator | None = None) -> cr.CalibrationMap:
    return (calibrator or cr.Platt()).fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])


def misaligned(scores: np.ndarray) -> np.ndarray:
    raw = bytearray(b"?" + scores.tobytes())
    return np.frombuffer(raw, dtype=scores.dtype, offset=1)


def read_only(scores: np.ndarray) -> np.ndarray:
    scores.setflags(write=False)
    return scores


def unpickled(scores: np.ndarray) -> np.ndarray:
    """Its type is another object than NumPy's own, as in the workers of a process pool."""
    return pickle.loads(pickle.dumps(scores))  # noqa: S301  (its own)


ARRAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "strided": lambda scores: np.repeat(scores, 2)[::2],
    "reversed": lambda scores: scores[::-1].copy()[::-1],
    "Fortran order": lambda scores: np.asfortranarray(scores.reshape(2, -1)),
    "byte-swapped": lambda scores: scores.astype(scores.dtype.newbyteorder()),
    "misaligned": misaligned,
    "read-only": read_only,
    "unpickled": unpickled,
    "empty": lambda scores: scores[:0],
    "no columns": lambda scores: scores[:0].reshape(3, 0),
    "one score": lambda scores: scores[:1].reshape(1, 1, 1),
    "float16": lambda scores: scores.astype(np.float16),
    "integers": lambda scores: scores.astype(np.int64),
    "objects": lambda scores: scores.astype(object),
    "long floats": lambda scores: scores.astype(np.longdouble),
}


@pytest.mark.parametrize("rows", [10, 100_000])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("form", ARRAYS)
def test_arrays_of_any_form_are_predicted_as_by_numpy(
    monkeypatch: pytest.MonkeyPatch, form: str, kind: type, rows: int
) -> None:
    fitted = fitted_map()
    scores = ARRAYS[form](np.random.default_rng(0).normal(size=rows).astype(kind))
    before = scores.copy()
    found = fitted.predict(scores)
    monkeypatch.setattr(native, "READY", False)
    expected = fitted.predict(scores)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if kind is np.float32 else 1e-14)
    assert found.shape == scores.shape
    assert found.dtype == expected.dtype
    assert found.flags.writeable
    np.testing.assert_array_equal(scores, before)


@pytest.mark.parametrize("rows", [10, 100_000])
def test_what_the_loops_cannot_read_is_left_to_numpy(rows: int) -> None:
    program = fitted_map().curve.program
    for other in ("datetime64[s]", "U3", ">f8", np.float16, bool, object, [("score", "f8")]):
        assert native.probabilities(np.zeros(rows, dtype=other), program) is None
    assert native.probabilities(unpickled(np.zeros(rows)), program) is not None


def test_a_result_that_cannot_be_written_is_left_to_numpy() -> None:
    program = fitted_map().curve.program
    scores = np.zeros(6)
    for result in (read_only(np.zeros(6)), np.zeros(12)[::2], np.zeros(5), np.zeros(6, np.float32)):
        before = result.copy()
        assert not native.loops.fill_probabilities(scores, result, program)
        np.testing.assert_array_equal(result, before)
    assert not native.loops.fill_probabilities(object(), np.zeros(6), program)


def test_threads_of_python_predict_at_the_same_time() -> None:
    maps = [fitted_map(calibrator) for calibrator in (cr.Platt(), cr.Isotonic(), cr.MinMax())] * 4
    scores = np.random.default_rng(0).normal(size=50_000)
    expected = [fitted.predict(scores) for fitted in maps]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda fitted: fitted.predict(scores), maps))
    np.testing.assert_array_equal(found, expected)


# --- one score ---------------------------------------------------------------------------------


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


# --- damaged maps ------------------------------------------------------------------------------


def with_number(program: bytes, place: int, number: float) -> bytes:
    numbers = bytearray(program)
    numbers[8 * place : 8 * place + 8] = np.float64(number).tobytes()
    return bytes(numbers)


def step_program() -> bytes:
    """Steps that are so close to each other that they share a bucket, where a search finds them."""
    points = np.append(np.arange(50) * 1e-9, 1.0)
    labels = np.tile(np.arange(51), 51) < np.repeat(np.arange(51), 51)
    program = cr.Isotonic().fit(np.repeat(points, 51), labels).curve.program
    assert np.frombuffer(program[:64])[5] > 0
    return program


def refused(program: Any) -> bool:
    """Whether all functions refuse a map, in the same way."""
    errors = []
    for call in (
        lambda: native.probabilities(np.zeros(3), program),
        lambda: native.probabilities(np.zeros(10_000), program),
        lambda: native.loops.probability_of_score(0.5, program),
    ):
        try:
            call()
        except (TypeError, ValueError) as error:
            errors.append(str(error))
    assert len(errors) in {0, 3}
    return bool(errors)


@pytest.mark.parametrize("member", [cr.Platt(), cr.Gamma(), cr.Beta(), cr.Isotonic(), cr.MinMax()])
def test_a_map_of_any_other_length_is_refused(member: cr.Calibrator) -> None:
    program = fitted_map(member).curve.program
    assert not refused(program)
    assert refused(program[:-1])
    assert refused(program[:8])
    assert refused(bytearray(program))


@pytest.mark.parametrize(
    ("place", "number"),
    [
        *[(0, kind) for kind in (-1, 6, 15, 20, 1e300, np.nan, np.inf)],
        *[(1, largest) for largest in (-1, np.nan, np.inf)],
        *[(2, origin) for origin in (np.nan, np.inf)],
        *[(3, scale) for scale in (np.nan, -np.inf)],
        *[(count, number) for count in (4, 5, 6, 7) for number in (-1, 1e6, 1e300, np.nan)],
        (7, 0),
    ],
)
def test_a_map_with_a_damaged_header_is_refused(place: int, number: float) -> None:
    assert refused(with_number(step_program(), place, number))


@pytest.mark.parametrize("edge", [-1, 2**31 - 1, -(2**31)])
def test_a_bucket_that_leads_beyond_the_edges_is_refused(edge: int) -> None:
    program = step_program()
    assert refused(program[:-4] + np.int32(edge).tobytes())
    edges = int(np.frombuffer(program[:64])[7])
    assert refused(program[:-4] + np.int32(edges).tobytes())
    assert not refused(program[:-4] + np.int32(edges - 1).tobytes())


def test_a_search_that_could_pass_the_last_edge_is_refused() -> None:
    program = step_program()
    edges = int(np.frombuffer(program[:64])[7])
    assert not refused(program)
    for number in (0.0, 1e30, np.nan):
        assert refused(with_number(program, 8 + edges, number))


def test_a_map_is_checked_again_after_others_took_its_place() -> None:
    first = fitted_map().curve.program
    others = [with_number(first, 10, number) for number in range(20)]
    for program in (first, *others, first):
        assert not refused(program)
        assert refused(program[:-1])


# --- arguments of loops ------------------------------------------------------------------------

F, D, I, L = np.float32, np.float64, np.int32, np.int64  # noqa: E741  (letters of C)
CELLS = (2, 64, 3)
COUNTS = (2, 64, 2)


def training_calls() -> dict[str, tuple[Any, ...]]:
    """The same for the loops of models: three rows of two columns, after 40 steps."""
    table, sizes, rows = np.zeros((3, 2), F), np.ones((50, 2), F), np.array([0, 2])
    matrix = (np.array([0, 1, 1, 2]), np.array([1, 0], I), np.ones(2, F))
    adam = (table, table.copy(), table.copy(), sizes)
    batch = (np.array([[[0, 1], [1, 2], [2, 0]]]), np.ones((1, 2), F))
    written = (np.zeros(3, L), np.zeros(4, F), np.zeros(1, L))
    some = np.zeros((2, 2), F)
    return {
        "train_bpr": (np.zeros((3, 4, 2), F), sizes, *batch, *written, 0.1, 40, 0, 1),
        "catch_up_rows": (*adam, np.zeros(3, L), rows, 0.1, 40, 1),
        "step_rows": (*adam, np.zeros(3, L), rows, some, np.zeros(3, L), 0.1, 41, 0),
        "step_table": (*adam, table.copy(), 0.1, 41),
        "graph_rows": (*matrix, rows, table, table.copy(), 0.5, some),
        "graph_scatter": (*matrix, rows, some, table),
    }


def valid_calls() -> dict[str, tuple[Any, ...]]:
    """Arguments that every loop accepts."""
    column, floats, codes = np.ones(5), np.zeros(5, F), np.array([0, 1, 1, 0, 1], I)
    rows = (floats, codes, np.array([1, -1], I), np.ones(5, bool), np.arange(3.0))
    tables = (np.zeros((9, 3)), np.zeros((9, 4)), np.zeros(9))
    texts = (np.array([0, 1, 3]), np.frombuffer(b"abb", np.uint8))
    starts = np.array([0, 2, 5])
    cells = (*[column] * 4, starts, np.ones(2))
    training = (np.array([1, 0]), np.array([0, 1, 2]), np.array([0, 1]), np.array([2, -1]))
    pairs = (np.array([0, 1, 1]), np.array([0, -1, 4]), np.zeros(3, F), np.zeros(3, L))
    return training_calls() | {
        "merge_blocks": (np.arange(5), column, column + 1, np.zeros(5, bool), np.zeros(1, L)),
        "pool": (floats, column, None, *tables, 0.0, 20, 0, 0, 0, 0),
        "pool_segments": (*rows, column, np.zeros(CELLS), np.zeros((2, 3))),
        "count_segments": (*rows, np.zeros(COUNTS)),
        "add_counts": (np.zeros(COUNTS), np.zeros(CELLS)),
        "add_cells": (np.zeros(CELLS), np.array([1, 0], I), np.zeros(CELLS)),
        "count_occupied": (np.zeros(COUNTS), np.zeros(2, L)),
        "copy_occupied": (np.ones(CELLS), np.zeros(128), np.zeros(128), np.zeros(128)),
        "mark_present": (np.array([4, 5], L), 4, np.zeros(2, bool)),
        "look_up": (np.array([4, 5], I), 4, np.array([7, 8], I), np.zeros(2, I)),
        "insert_texts": (*texts, 0, np.zeros(8, np.uint64)),
        "find_texts": (*texts, *texts, np.zeros(8, np.uint64), np.zeros(2, I)),
        "segment_modes": (*cells, np.array([1.0, 0.0, 0.5]), 1, np.zeros((7, 2))),
        "segment_slopes": (*cells, 0.5, np.zeros(2), np.zeros(2)),
        "changed_loss": (*[column] * 3, starts, np.ones(2), np.ones(2), np.zeros(1)),
        "add_rows": (codes, column, np.ones((5, 3)), np.zeros((2, 3))),
        "count_better": (
            np.ones((2, 3), F),
            np.ones((1, 3, 16), F),
            *training,
            *pairs,
            np.zeros(96, F),
            5,
        ),
    }


def test_every_function_of_the_module_is_called_here() -> None:
    functions = {name for name in dir(native.loops) if callable(getattr(native.loops, name))}
    others = {"fill_probabilities", "probability_of_score", "choose_processor"}
    assert {name for name in functions if name[0] != "_"} == {*valid_calls(), *others}


@pytest.mark.parametrize("name", valid_calls())
def test_a_loop_refuses_arguments_that_do_not_fit(name: str) -> None:
    loop, valid = getattr(native.loops, name), valid_calls()[name]
    assert loop(*valid) is None
    with pytest.raises(TypeError, match="arguments must be"):
        loop(*valid, None)
    for place, argument in enumerate(valid):
        wrong: list[Any] = ["text", 1j]
        if isinstance(argument, np.ndarray):
            wrong += [np.zeros_like(argument, dtype=np.float16)]
            wrong += [np.repeat(argument, 2, axis=0)[::2]] * (len(argument) > 1)
            wrong += [argument.astype(argument.dtype.newbyteorder())] * (argument.itemsize > 1)
            wrong += [misaligned(argument)] * (argument.itemsize > 1)
        for other in wrong:
            with pytest.raises((TypeError, ValueError, BufferError)):
                loop(*valid[:place], other, *valid[place + 1 :])


# Arrays that may be longer: offsets and slots of texts, tables, and cells that counts are added to.
OF_ANY_SIZE = {
    ("pool_segments", 2), ("pool_segments", 4), ("count_segments", 2), ("count_segments", 4),
    ("count_segments", 5), ("add_counts", 1), ("add_cells", 2), ("mark_present", 0),
    ("mark_present", 2), ("look_up", 2), ("insert_texts", 0), ("insert_texts", 1),
    ("insert_texts", 3), ("find_texts", 1), ("find_texts", 2), ("find_texts", 3),
    ("find_texts", 4), ("add_rows", 3), ("train_bpr", 1), ("catch_up_rows", 3),
    ("catch_up_rows", 5), ("step_rows", 3), ("step_table", 3), ("count_better", 3),
    ("count_better", 4), ("count_better", 5),
}  # fmt: skip


@pytest.mark.parametrize("name", valid_calls())
def test_a_loop_refuses_sizes_that_do_not_agree(name: str) -> None:
    valid = valid_calls()[name]
    for place, argument in enumerate(valid):
        if isinstance(argument, np.ndarray) and (name, place) not in OF_ANY_SIZE:
            longer = np.concatenate([argument, argument[:1]])
            with pytest.raises(ValueError, match="sizes that agree"):
                getattr(native.loops, name)(*valid[:place], longer, *valid[place + 1 :])


@pytest.mark.parametrize(
    ("name", "place", "argument"),
    [
        ("pool", 10, 5),
        ("pool_segments", 1, np.array([0, 1, 2, 0, 0], I)),
        ("pool_segments", 1, np.array([0, 1, -1, 0, 0], I)),
        ("pool_segments", 2, np.array([2, 0], I)),
        ("count_segments", 2, np.array([0, 2], I)),
        ("add_cells", 1, np.array([0, 2], I)),
        ("add_cells", 1, np.array([0, -1], I)),
        ("mark_present", 0, np.array([4, 6])),
        ("mark_present", 0, np.array([3, -(2**63)])),
        ("mark_present", 1, 5),
        ("look_up", 0, np.array([4, 6], I)),
        ("look_up", 1, -(2**63)),
        ("segment_modes", 4, np.array([0, 3, 2])),
        ("segment_modes", 4, np.array([0, 2, 6])),
        ("segment_slopes", 4, np.array([0, 2, 6])),
        ("changed_loss", 3, np.array([-1, 2, 5])),
        ("add_rows", 0, np.array([0, 1, 2, 0, 0])),
        ("add_rows", 0, np.array([0, 1, -1, 0, 0])),
        ("train_bpr", 2, np.array([[[0, 1], [1, 3], [2, 0]]])),
        ("train_bpr", 9, 1),
        ("train_bpr", 9, -1),
        ("train_bpr", 10, 2),  # a thread without columns
        ("catch_up_rows", 4, np.array([0, 41, 0])),  # a step that is still to come
        ("catch_up_rows", 4, np.array([0, -1, 0])),
        ("catch_up_rows", 5, np.array([0, 3])),
        ("step_rows", 5, np.array([0, -1])),
        ("graph_rows", 3, np.array([0, 3])),
        ("graph_scatter", 3, np.array([-1, 0])),
        ("count_better", 2, np.array([2, 0])),
        ("count_better", 3, np.array([0, 1, 3])),
        ("count_better", 3, np.array([-1, 1, 2])),
        ("count_better", 4, np.array([0, 2])),
        ("count_better", 5, np.array([5, -1])),
        ("count_better", 6, np.array([0, 1, 2])),
        ("count_better", 6, np.array([0, 1, 0])),
        ("count_better", 7, np.array([0, -1, 5])),
    ],
)
def test_a_number_beyond_its_table_is_refused(name: str, place: int, argument: Any) -> None:
    valid = valid_calls()[name]
    with pytest.raises(ValueError, match="every number must lie inside the table"):
        getattr(native.loops, name)(*valid[:place], argument, *valid[place + 1 :])


@pytest.mark.parametrize(
    ("name", "place", "argument"),
    [
        ("pool_segments", 4, np.arange(64.0)),  # a bin more than a segment has
        ("insert_texts", 3, np.zeros(7, np.uint64)),  # not a power of 2
        ("insert_texts", 3, np.zeros(1, np.uint64)),  # no room
        ("find_texts", 4, np.zeros(0, np.uint64)),
        ("copy_occupied", 0, np.ones((3, 64, 3))),  # more cells than there is room for
        ("add_cells", 0, np.zeros(COUNTS)),  # counts to sums
        ("add_rows", 3, np.zeros((2, 4))),  # wider than the matrix
        ("train_bpr", 8, 49),  # no size of the step after these
        ("train_bpr", 8, -1),
        ("catch_up_rows", 7, 50),
        ("step_rows", 9, 50),
        ("step_table", 6, -1),
        ("graph_rows", 0, np.array([0, 2, 1, 2])),
        ("graph_scatter", 1, np.array([3, 0], I)),
    ],
)
def test_a_table_without_room_is_refused(name: str, place: int, argument: Any) -> None:
    valid = valid_calls()[name]
    with pytest.raises(ValueError, match="sizes that agree"):
        getattr(native.loops, name)(*valid[:place], argument, *valid[place + 1 :])


def test_models_without_columns_are_refused() -> None:
    state, sizes, *others = valid_calls()["train_bpr"]
    others[3] = np.zeros(0, F)
    with pytest.raises(ValueError, match="inside the table"):
        native.loops.train_bpr(np.zeros((*state.shape[:2], 0), F), sizes, *others)


def test_slots_and_offsets_without_sense_find_no_text() -> None:
    texts = (np.array([0, 1, 3]), np.frombuffer(b"abb", np.uint8))
    found = np.zeros(2, I)
    full = np.full(8, 2**64 - 1, dtype=np.uint64)
    native.loops.find_texts(*texts, *texts, full, found)
    np.testing.assert_array_equal(found, -1)
    broken = (np.array([-5, 2**62, 1]), texts[1])
    slots = np.zeros(8, np.uint64)
    native.loops.insert_texts(*broken, 0, slots)
    native.loops.find_texts(*texts, *broken, slots, found)
    np.testing.assert_array_equal(found, -1)


def test_nan_among_rows_reads_nothing_beyond_the_bins() -> None:
    floats, *others = valid_calls()["count_segments"]
    others[-1][:] = 0
    native.loops.count_segments(np.full_like(floats, np.nan), *others)
    native.loops.count_segments(floats, *others[:3], np.full(63, np.nan), others[-1])


@pytest.mark.parametrize("wrong", [0, 2, 3])
def test_buffers_are_released_after_an_error(wrong: int) -> None:
    arguments: list[Any] = [memoryview(np.ones(4)) for _ in range(3)]
    cells = memoryview(np.ones(CELLS))
    with pytest.raises((TypeError, ValueError)):
        native.loops.copy_occupied(cells, *[*arguments[:wrong], None, *arguments[wrong:]][:3])
    for view in (cells, *arguments):
        view.release()  # raises if the buffer is still in use
