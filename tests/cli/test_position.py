"""Ranks as propensities on the command line: estimated or refused."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from tests.cli.conftest import Call
from tests.cli.running import one_line

TRUE = np.array([1.0, 0.6, 0.3])


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    size = 6_000
    score = rng.normal(size=size)
    items = rng.integers(0, 60, size)
    ranks = rng.integers(1, 4, size)
    liked = rng.random(size) < 1 / (1 + np.exp(0.5 - score))
    clicks = liked & (rng.random(size) < TRUE[ranks - 1])
    columns = {"score": score, "label": clicks.astype(int), "place": ranks, "item_id": items}
    columns["from_zero"] = ranks - 1
    path = tmp_path_factory.mktemp("ranked") / "clicks.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_examination_is_estimated_from_items(ranked: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "map.json"
    given = ("--position", "place", "--item", "item_id")
    code, _, error = call("fit", ranked, *given, "--method", "platt", "-o", out)
    assert code == 0, error
    assert (
        "Examination by rank, estimated from items at several ranks with similar scores: 1: 1,"
        in error
    )
    # The truth of the world is a slope of 1 and an intercept of -0.5.
    found = cr.load(out).predict([0.0, 1.0])
    assert found == pytest.approx(1 / (1 + np.exp([0.5, -0.5])), abs=0.06)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--position", "place"), "--position must go with --item"),
        (("--position", "place", "--item", "item_id", "--log", "impressions"), "may not have been"),
        (("--position", "place", "--propensity", "score"), "--position must go with --item"),
        (("--position", "from_zero", "--item", "item_id"), "must be a rank, counted from 1"),
    ],
)
def test_wrong_ranks_are_refused(
    ranked: Path, tmp_path: Path, call: Call, options: tuple[str, ...], message: str
) -> None:
    code, _, error = call("fit", ranked, *options, "-o", tmp_path / "map.json")
    assert code in (2, 3)
    assert message in one_line(error)
