"""Error and warning classes."""

import ast
import pickle
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import calibrank as cr
from calibrank import errors
from calibrank.errors import DroppedRowsWarning, FlatMapWarning, Setting, remedy_text

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, Exception)
]
LIBRARY = Path(cr.__file__).parent
SOURCES = {path: ast.parse(path.read_text()) for path in LIBRARY.rglob("*.py")}
KINDS = {kind.__name__ for kind in CLASSES if not issubclass(kind, Warning)} | {"UsageError"}
PARSING = {"partition", "rpartition", "split", "startswith", "endswith", "removeprefix", "find"}


def test_every_class_is_an_error_or_a_warning_by_name_and_base() -> None:
    for kind in CLASSES:
        if issubclass(kind, Warning):
            assert kind.__name__.endswith("Warning")
            assert issubclass(kind, cr.CalibrankWarning)
        else:
            assert kind.__name__.endswith("Error")
            assert issubclass(kind, cr.CalibrankError)


@pytest.mark.parametrize("kind", [FlatMapWarning, DroppedRowsWarning])
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


def test_the_text_of_an_error_is_made_of_its_fields() -> None:
    remedies = ["Fix it.", ("Or give ", Setting("on_bad_rows", "skip"), ".")]
    error = cr.DataError("label", "be 0 or 1", got=3, row=7, remedy=remedies)
    assert (error.subject, error.rule, error.got, error.row) == ("label", "be 0 or 1", "3", 7)
    assert str(error) == "label must be 0 or 1, got 3 at row 7. Fix it. Or give on_bad_rows='skip'."
    assert error.text(lambda _: None) == "label must be 0 or 1, got 3 at row 7. Fix it."
    assert str(error.within("a.csv")).startswith("a.csv: label must be 0 or 1, got 3 at row 7.")


def test_an_error_survives_another_process() -> None:
    for error in (
        cr.DataError("label", "be 0 or 1", got=3, row=7, remedy=("Use ", Setting("label"), ".")),
        cr.MissingExtraError("torch", "models"),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301  (made in this line)
        assert str(copy) == str(error)
        assert copy.subject == error.subject


def test_a_remedy_without_its_setting_is_left_out() -> None:
    remedy = ("Use ", Setting("soft"), ".")
    assert remedy_text(remedy, lambda _: None) == ""
    assert remedy_text(remedy, lambda setting: f"--{setting.name}") == "Use --soft."


def test_no_error_is_one_text() -> None:
    for path, tree in SOURCES.items():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in KINDS and call.args:
                subject = ast.unparse(call.args[0])
                assert " must " not in subject, f"{path}, line {call.lineno}"


def test_the_library_knows_no_option_of_the_command_line() -> None:
    """Settings are named by their parameters; the command line words them as its options."""
    for path, tree in SOURCES.items():
        if "cli" in path.parts or path.name in {"__main__.py", "errors.py"}:
            continue
        for line, text in _texts(tree):
            if text == "--":  # a dashed line of a figure
                continue
            assert not re.search(r"(?<![\w-])--([a-z]|$)", text), f"{path}, line {line}: {text}"


def test_no_text_of_an_error_is_parsed() -> None:
    for path, tree in SOURCES.items():
        for call in ast.walk(tree):
            if (
                isinstance(call, ast.Call)
                and getattr(call.func, "attr", "") in PARSING
                and call.args
            ):
                parsed = ast.unparse(call.func)
                assert not re.match(r"str\((error|reason|failure)\)", parsed), f"{path}: {parsed}"


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """All strings but docstrings."""
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documented:
            yield node.lineno, node.value
