"""What `tools/fuzz.py` tries: each target gives drawn input to calibrank and checks the answer.

A file is refused with a `CalibrankError` or gives valid numbers; a command ends with a known exit
code. Anything else (another exception, a number outside its range, a crash) fails.
"""

import contextlib
import json
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import calibrank as cr
from calibrank._internal.json import digest_of
from calibrank.maps.format import parse

# 1: a CalibrankError of a kind without a number; 70: an unexpected error, which is a bug.
KNOWN_EXIT_CODES = {0, 2, 3, 4, 5}
SCORES = np.array([-1e30, -1e6, -3.0, -0.0, 0.3, 1.0, 2.5, 1e6, 1e30])


class FoundError(AssertionError):
    """Something that must not happen."""


# --- damaged bytes -----------------------------------------------------------------------------

Edit = tuple[float, str, int]
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["flip", "set", "insert", "delete", "repeat", "truncate"]),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=5,
)


def damaged(content: bytes, edits: list[Edit]) -> bytes:
    """Apply edits, each at a place given as a fraction of the length."""
    changed = bytearray(content)
    for place, kind, byte in edits:
        at = int(place * len(changed))
        if kind == "flip" and changed:
            changed[at] ^= 1 << byte % 8
        elif kind == "set" and changed:
            changed[at] = byte
        elif kind == "insert":
            changed[at:at] = bytes([byte]) * (1 + byte % 9)
        elif kind == "delete":
            del changed[at : at + 1 + byte]
        elif kind == "repeat":
            changed[at:at] = changed[at : at + 1 + byte]
        elif kind == "truncate":
            del changed[at:]
    return bytes(changed)


# --- maps, summaries, models -------------------------------------------------------------------

NUMBERS = st.one_of(
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0.0, -0.0, 1.0, 1e308, -1e308, 5e-324, 1e30]),
)
VALUES = st.one_of(
    NUMBERS, st.none(), st.booleans(), st.text(max_size=5), st.lists(NUMBERS, max_size=4)
)


@cache
def rows() -> tuple[np.ndarray, np.ndarray]:
    """A small table with a known relation of scores and labels."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=400)
    return scores, (rng.random(400) < 1 / (1 + np.exp(1 - scores))).astype(float)


@cache
def saved_maps() -> list[str]:
    """One map per kind of curve and one with terms, as JSON."""
    scores, labels = rows()
    columns = {"level": np.arange(len(scores)) % 7, "number": np.cos(np.arange(len(scores)))}
    members = (cr.Platt(), cr.Gaussian(), cr.Gamma(), cr.Isotonic(), cr.MinMax(), cr.Spline())
    maps = [member.fit(scores, labels) for member in members]
    model = cr.Platt() + cr.Level("level") + cr.Smooth("number")
    maps.append(model.fit(scores, labels, columns))
    maps[0].save("map.json")
    return [fitted.to_json() for fitted in maps]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to every value of a JSON document."""
    yield path
    if isinstance(value, dict):
        for name in value:
            yield from leaves(value[name], (*path, name))
    elif isinstance(value, list):
        for number in range(len(value)):
            yield from leaves(value[number], (*path, number))


def edited(document: dict[str, Any], place: float, value: Any) -> str:
    """Replace one value of a document, and give it a new digest, so that only checks can refuse."""
    paths = [path for path in leaves(document) if path and path != ("digest",)]
    *parents, last = paths[int(place * len(paths))]
    inner: Any = document
    for step in parents:
        inner = inner[step]
    inner[last] = value
    content = {name: each for name, each in document.items() if name != "digest"}
    return json.dumps({**content, "digest": digest_of(content)})


def check_map(load: Callable[[], cr.CalibrationMap]) -> None:
    """A map is refused, or gives probabilities."""
    try:
        loaded = load()
    except cr.CalibrankError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Whole numbers are valid levels, numbers and ranks.
        numbers = np.resize([1.0, 3.0], len(SCORES))
        probabilities = loaded.predict(SCORES, dict.fromkeys(loaded.columns, numbers))
    if not np.all((probabilities >= 0) & (probabilities <= 1)):
        raise FoundError(f"probabilities {probabilities} of {loaded.to_json()}")


@given(
    which=st.integers(0, 6),
    edits=EDITS,
    place=st.floats(0, 1, exclude_max=True),
    value=VALUES,
    by_bytes=st.booleans(),
)
def maps(which: int, edits: list[Edit], place: float, value: Any, by_bytes: bool) -> None:
    """Saved maps, with damaged bytes or with one value replaced."""
    text = saved_maps()[which]
    path = Path("damaged.json")
    if by_bytes:
        path.write_bytes(damaged(text.encode(), edits))
        check_map(lambda: cr.load(path))
        return
    try:
        changed = edited(json.loads(text), place, value)
    except (ValueError, OverflowError):  # JSON itself cannot hold it
        return
    path.write_text(changed, encoding="utf-8")
    check_map(lambda: parse("edited", changed))


@cache
def saved_summary(pooled: bool) -> bytes:
    """A small summary, exact or pooled."""
    scores, labels = rows()
    summary = cr.Summary.of(scores, cr.ips(labels, np.full(len(labels), 0.5)))
    if pooled:
        many = np.random.default_rng(0).normal(size=70_000)
        summary = cr.Summary.of(many, (many > 0).astype(float))
    summary.save("summary.npz")
    return Path("summary.npz").read_bytes()


@given(edits=EDITS, pooled=st.booleans())
def summaries(edits: list[Edit], pooled: bool) -> None:
    """Saved summaries: refused, or equal to what was saved."""
    content = saved_summary(pooled)
    Path("damaged.npz").write_bytes(damaged(content, edits))
    try:
        loaded = cr.Summary.load("damaged.npz")
    except cr.CalibrankError:
        return
    Path("whole.npz").write_bytes(content)
    whole = cr.Summary.load("whole.npz")
    if not np.array_equal(whole.scores, loaded.scores):
        raise FoundError("a damaged summary was loaded with other scores")
    if not np.array_equal(whole.total, loaded.total):
        raise FoundError("a damaged summary was loaded with other masses")


@cache
def saved_model() -> bytes:
    """The file of a small trained model."""
    from calibrank.scorers.saved import SavedModel
    from calibrank.scorers.scorer import InnerProduct
    from calibrank.tables import Index

    rng = np.random.default_rng(0)
    scorer = InnerProduct(rng.normal(size=(4, 3)), rng.normal(size=(5, 3)), {})
    users = Index.of(["a", "b", "c", "d"])
    SavedModel(scorer, users, Index.of(range(5)), {}).save("model")
    return Path("model/model.npz").read_bytes()


@given(edits=EDITS)
def models(edits: list[Edit]) -> None:
    """Saved models: refused, or give finite scores."""
    from calibrank.scorers.saved import SavedModel

    folder = Path("damaged-model")
    folder.mkdir(exist_ok=True)
    (folder / "model.npz").write_bytes(damaged(saved_model(), edits))
    with contextlib.suppress(cr.CalibrankError):
        SavedModel.load(folder)


# --- the command line --------------------------------------------------------------------------


def command(*arguments: str) -> None:
    """Run a command in this process; any end but a known exit code fails."""
    from calibrank.cli.app import main

    Path("last-command.json").write_text(json.dumps(arguments), encoding="utf-8")
    before = sys.argv
    sys.argv = ["calibrank", *arguments]
    try:
        main()
    except SystemExit as ended:
        if ended.code not in KNOWN_EXIT_CODES | {None}:
            raise FoundError(f"exit code {ended.code} of {arguments}") from ended
    finally:
        sys.argv = before


@cache
def saved_table(kind: str) -> bytes:
    """A small table as CSV or Parquet."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    scores, labels = rows()
    names = [f"i{number % 7}" for number in range(len(scores))]
    users = np.arange(len(scores)) % 20
    table = pa.table({"score": scores, "label": labels, "item": names, "user": users})
    path = f"table.{kind}"
    if kind == "csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path)
    return Path(path).read_bytes()


COMMANDS_OVER_TABLES = (
    ("fit", "TABLE", "--method", "platt", "--item", "item", "-o", "out.json"),
    ("fit", "TABLE", "--method", "isotonic", "--segment", "item", "-o", "out.json"),
    ("evaluate", "TABLE", "--score", "score", "--map", "map.json"),
    ("apply", "map.json", "TABLE", "-o", "out.TABLE"),
)


def over_damaged_table(kind: str, edits: list[Edit], which: int) -> None:
    """Run a command on a table with damaged bytes."""
    saved_maps()
    path = f"damaged.{kind}"
    Path(path).write_bytes(damaged(saved_table(kind), edits))
    arguments = COMMANDS_OVER_TABLES[which]
    command(*(each.replace("TABLE", path) for each in arguments))


@given(edits=EDITS, which=st.integers(0, len(COMMANDS_OVER_TABLES) - 1))
def csv(edits: list[Edit], which: int) -> None:
    """Damaged CSV."""
    over_damaged_table("csv", edits, which)


@given(edits=EDITS, which=st.integers(0, len(COMMANDS_OVER_TABLES) - 1))
def parquet(edits: list[Edit], which: int) -> None:
    """Damaged Parquet."""
    over_damaged_table("parquet", edits, which)


@cache
def options_of(name: str) -> list[str]:
    """The long options of a command, except those that name outputs."""
    from calibrank.cli.app import COMMANDS

    names = [each.names[0] for each in COMMANDS[name].options if not each.is_argument]
    return [each for each in names if each != "--out"]


WORDS = (
    "0 -1 1 2 3.5 nan inf 1e308 -1e308 99999999999999999999 score label item user platt table.csv "
    "map.json no-such-column impressions policy skip popularity known [red]x[/] [/] \x1b[31m \udcff"
)
OPTION_VALUES = st.one_of(st.sampled_from(WORDS.split(" ")), st.text(max_size=6))


@given(data=st.data())
def options(data: st.DataObject) -> None:
    """Commands with drawn options and values."""
    for kind in ("csv", "parquet"):
        saved_table(kind)
    saved_maps()
    name, *fixed = data.draw(st.sampled_from(OPTION_COMMANDS))
    chosen = data.draw(st.lists(st.sampled_from(options_of(name)), max_size=3, unique=True))
    arguments = []
    for option in chosen:
        arguments.append(option)
        if data.draw(st.booleans()):
            arguments.append(data.draw(OPTION_VALUES).replace("\x00", ""))
    command(name, *fixed, *arguments)


OPTION_COMMANDS = (
    ("fit", "table.csv", "--item", "item", "-o", "out.json"),
    ("fit", "table.parquet", "--segment", "item", "-o", "out.json"),
    ("anchor", "map.json", "table.parquet", "-o", "out.json"),
    ("evaluate", "table.parquet", "--score", "score", "--map", "map.json"),
    ("apply", "map.json", "table.csv", "-o", "out.csv"),
    ("compare", "table.parquet", "--item", "item"),
    ("diagnose", "table.parquet", "--item", "item"),
    ("inspect", "map.json"),
    ("export", "map.json", "--to", "sql", "-o", "out.sql"),
)


# --- the C loops -------------------------------------------------------------------------------

FLOATS = {
    np.float32: st.floats(width=32, min_value=-(2.0**99), max_value=2.0**99),
    np.float64: st.floats(min_value=-1e30, max_value=1e30),
}


@given(data=st.data())
def native(data: st.DataObject) -> None:
    """Pool drawn rows with the C loops and with NumPy: the same sums, no invalid access."""
    require_sanitized()
    kind = data.draw(st.sampled_from([np.float32, np.float64]))
    drawn = data.draw(st.lists(FLOATS[kind], min_size=1, max_size=60))
    repeats = data.draw(st.sampled_from([1, 40, 2_000]))
    scores = np.tile(np.array(drawn, dtype=kind), repeats)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    labels = (rng.random(len(scores)) < 0.4).astype(rng.choice(["f4", "f8", "i1", "?"]))
    evidence: Any = labels
    if data.draw(st.booleans()):
        evidence = cr.ips(labels.astype(float), rng.uniform(0.1, 1, len(labels)))
    compare_pooled(scores, evidence)
    compare_predicted(scores.astype(np.float32))


def require_sanitized() -> None:
    """Nothing is found without sanitizers."""
    from calibrank._internal import native

    if not native.READY or "LD_PRELOAD" not in os.environ:
        raise FoundError("the sanitized module must be loaded")


def compare_pooled(scores: np.ndarray, evidence: Any) -> None:
    """Summaries of the same rows with and without the library."""
    from calibrank._internal import native
    from calibrank.summary import SummaryBuilder

    summaries = []
    for ready in (True, False):
        native.READY = ready
        builder = SummaryBuilder()
        builder.update(scores, evidence)
        summaries.append(builder.summary())
    native.READY = True
    first, second = summaries
    np.testing.assert_allclose(first.total, second.total, rtol=1e-9)
    np.testing.assert_allclose(first.positive, second.positive, rtol=1e-9, atol=1e-300)


def compare_predicted(scores: np.ndarray) -> None:
    """Probabilities from the library and from NumPy, of maps whose range the scores leave."""
    from calibrank._internal import native
    from calibrank.errors import DataError

    for fitted in predicted_maps():
        found: list[Any] = []
        for ready in (True, False):
            native.READY = ready
            try:
                found.append(fitted.predict(scores))
            except DataError:
                found.append(None)
        native.READY = True
        if (found[0] is None) != (found[1] is None):
            raise FoundError(f"only one of C and NumPy refuses the scores: {fitted!r}")
        if found[0] is not None:
            np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-300)


@cache
def predicted_maps() -> tuple[Any, ...]:
    """A map for each of the loops."""
    import calibrank as cr

    scores = np.linspace(-3, 3, 400)
    labels = np.arange(400) % 7 < np.arange(400) / 60
    methods = (cr.Gaussian(), cr.Gamma(), cr.Beta(), cr.Spline(), cr.Isotonic(), cr.MinMax())
    return tuple([method.fit(scores, labels) for method in methods])


INTEGERS = st.sampled_from([0, 1, 2, 7, 63, 64, -1, 31, 32, 2**31 - 1, -(2**31), 2**63 - 1])


@given(data=st.data())
def loops(data: st.DataObject) -> None:
    """Loops with arguments that do not fit, in four threads: refused, and no invalid access."""
    from tests.test_native import training_calls, valid_calls

    from calibrank._internal import native

    require_sanitized()
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    of_maps = ["fill_probabilities", "probability_of_score"]
    name = data.draw(st.sampled_from([*of_maps, *valid_calls()]))
    arguments = list(valid_calls().get(name, ())) or filled_map(data, rng)
    if name == "probability_of_score":
        arguments[:2] = [float(arguments[0][0])]
    for place in data.draw(st.sets(st.integers(0, len(arguments) - 1), max_size=3)):
        if isinstance(arguments[place], np.ndarray):
            change = data.draw(st.sampled_from(CHANGES))
            arguments[place] = changed_array(arguments[place], change, rng)
        elif isinstance(arguments[place], int) and (name, place) != ("train_bpr", 10):
            # More threads than one would wait for each other.
            arguments[place] = data.draw(INTEGERS)
    # No caller holds the arrays of models, so nothing changes them while a loop runs.
    in_four_threads(
        getattr(native.loops, name), arguments, None if name in training_calls() else rng
    )


def filled_map(data: st.DataObject, rng: np.random.Generator) -> list[Any]:
    """Scores, their probabilities, and a map with damaged bytes or with other whole numbers."""
    scores = rng.normal(0, rng.choice([1.0, 3.0, 1e28]), rng.choice([1, 1_000, 9_000]))
    program = data.draw(st.sampled_from(predicted_maps())).curve.program
    if data.draw(st.booleans()):
        return [scores, scores.copy(), damaged(program, data.draw(EDITS))]
    numbers = np.frombuffer(program, dtype=np.int32).copy()
    # Most of the numbers are places of edges, at the end.
    numbers[-rng.integers(1, len(numbers), 8)] = rng.choice([-1, 300, 2**20, 2**30, -(2**31)], 8)
    return [scores, scores.copy(), numbers.tobytes()]


OTHER_FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "strided": lambda array: np.repeat(array, 2, axis=0)[::2],
    "misaligned": lambda array: np.frombuffer(
        bytearray(b"?" + array.tobytes()), array.dtype, offset=1
    ),
    "byte-swapped": lambda array: array.astype(array.dtype.newbyteorder()),
    "without dimensions": lambda array: array.reshape(-1)[0].reshape(()),
    "unpickled": lambda array: pickle.loads(pickle.dumps(array)),  # noqa: S301  (its own)
}

CHANGES = (*OTHER_FORMS, "values", "longer", "shorter", "empty", "type", "read-only")


def changed_array(array: np.ndarray, change: str, rng: np.random.Generator) -> np.ndarray:
    """An array that differs in one respect."""
    if change in OTHER_FORMS:
        return OTHER_FORMS[change](array)
    if change == "type":
        return np.zeros(array.shape, rng.choice(["i1", "i4", "i8", "u8", "f2", "f4", "f8", ">f8"]))
    sizes = {"longer": 3 * len(array) + 1, "shorter": len(array) - 1, "empty": 0}
    changed = np.resize(array, (max(sizes.get(change, len(array)), 0), *array.shape[1:]))
    if change == "values":
        fill_with_bytes(changed, rng)
    changed.setflags(write=change != "read-only")
    return changed


def fill_with_bytes(array: np.ndarray, rng: np.random.Generator) -> None:
    """Write bytes over an array; few of them are not 0, so that numbers are small or enormous."""
    content = rng.integers(0, 256, array.nbytes, dtype=np.uint8)
    content[rng.random(array.nbytes) < rng.random()] = 0
    array.reshape(-1).view(np.uint8)[:] = content


def in_four_threads(
    loop: Callable[..., Any], arguments: list[Any], rng: np.random.Generator | None
) -> None:
    """Call a loop in four threads, one of which changes its arguments meanwhile if it draws."""

    def call(thread: int) -> None:
        for _ in range(5):
            with contextlib.suppress(TypeError, ValueError, BufferError, OverflowError):
                loop(*arguments)
            for argument in arguments if thread == 0 and rng is not None else ():
                if isinstance(argument, np.ndarray) and argument.flags.carray:
                    fill_with_bytes(argument, rng)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(4)))


# Numba and matplotlib keep files: not in the folder of the repository.
os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())
