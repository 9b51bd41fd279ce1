"""The record of roles in Parquet files: what is written is read, and damage is ignored."""

import json

import pyarrow as pa
import pytest

from calibrank.tabular.columns import ROLES_KEY, Roles, roles_of

SCHEMA = pa.schema([("s", pa.float64()), ("w", pa.float64())])


def test_the_record_is_json_and_round_trips() -> None:
    roles = Roles({"score": "s", "weight": "w"}, "calibrank score")
    record = json.loads(roles.metadata()[ROLES_KEY])
    assert record["roles"] == {"score": "s", "weight": "w"}
    assert record["version"] == 1
    assert roles_of(SCHEMA.with_metadata(roles.metadata())) == roles


def test_dropped_columns_have_no_role() -> None:
    roles = Roles({"score": "s", "weight": "gone"}, "calibrank score")
    found = roles_of(SCHEMA.with_metadata(roles.metadata()))
    assert found.columns == {"score": "s"}


@pytest.mark.parametrize(
    "record",
    [
        b"sha256:0123",
        b"[1]",
        b'{"roles": {"score": "s"}}',
        b'{"roles": {"score": "s"}, "version": 2}',
        b'{"roles": ["s"], "version": 1}',
        b"\xff",
    ],
)
def test_other_records_are_ignored(record: bytes) -> None:
    assert roles_of(SCHEMA.with_metadata({ROLES_KEY: record})) == Roles()
