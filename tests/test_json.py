"""Reading JSON field by field."""

import json
from typing import Any

import pytest

from calibrank import DataError
from calibrank._internal.json import Fields, digest_of


def fields(**values: Any) -> Fields:
    return Fields.parse("file.json", json.dumps(values))


def test_fields_are_read_by_their_types() -> None:
    document = fields(
        text="a",
        texts=["a", "b"],
        count=3,
        number=1,
        numbers=[1, 2.5],
        nothing=None,
        child={"x": 1},
        children=[{"x": 1}, {"x": 2}],
    )
    assert document.text("text") == "a"
    assert document.texts("texts") == ["a", "b"]
    assert document.count("count") == 3
    assert document.number("number") == 1.0
    assert document.numbers("numbers") == [1.0, 2.5]
    assert document.child("child").number("x") == 1
    assert [child.number("x") for child in document.children("children")] == [1, 2]
    assert document.holds("text")
    assert not document.holds("nothing")
    assert not document.holds("absent")


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("text", 1, "file.json, x must be a string, got 1."),
        ("texts", ["a", 1], "file.json, x must be a list of strings, got"),
        ("texts", "a", "file.json, x must be a list of strings, got 'a'."),
        ("count", 1.5, "file.json, x must be a whole number, 0 or more, got 1.5."),
        ("count", -1, "file.json, x must be a whole number, 0 or more, got -1."),
        ("count", True, "file.json, x must be a whole number, 0 or more, got True."),
        ("number", "1", "file.json, x must be a finite number, got '1'."),
        ("number", True, "file.json, x must be a finite number, got True."),
        ("number", 10**400, "file.json, x must be a finite number, got 1000"),
        ("numbers", [1, None], "file.json, x must be a list of finite numbers, got None."),
        ("child", [], "file.json, x must be a JSON object, got list."),
        ("children", {}, "file.json, x must be a list of objects, got dict."),
        ("children", [1], "file.json, x must be a JSON object, got 1."),
    ],
)
def test_a_field_of_another_type_is_refused(method: str, value: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        getattr(fields(x=value), method)("x")
    assert str(error.value).startswith(message)


def test_a_missing_field_is_refused() -> None:
    with pytest.raises(DataError, match=r"file\.json must hold 'x', got none\. Save"):
        fields(y=1).number("x")


def test_an_unknown_field_is_refused() -> None:
    fields(x=1).only("x", "y")
    with pytest.raises(DataError, match=r"file\.json must hold only y, got field 'x'\."):
        fields(x=1).only("y")


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"x": NaN}', '{"x": Infinity}', "[" * 100_000])
def test_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"file\.json must be JSON, got damaged text or another"):
        Fields.parse("file.json", text)


def test_json_that_is_not_an_object_is_refused() -> None:
    with pytest.raises(DataError, match=r"file\.json must be a JSON object, got list\."):
        Fields.parse("file.json", "[]")


def test_the_digest_depends_on_content_alone() -> None:
    digest = digest_of({"a": 1, "b": [2.5, "x"]})
    assert digest.startswith("sha256:")
    assert digest == digest_of({"b": [2.5, "x"], "a": 1})
    assert digest != digest_of({"a": 1, "b": [2.5, "y"]})
