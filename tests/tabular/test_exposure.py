"""Tables of impressions: the same weights as in memory, in any number of files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank import frames
from calibrank.evidence import impressions
from calibrank.propensity import Exposure
from calibrank.tables import Interactions
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

USER = "user"
ITEM = "item"


def write(folder: Path, *, as_text: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = 5_000
    columns = {
        USER: rng.zipf(1.5, rows).clip(max=300),
        ITEM: rng.zipf(1.3, rows).clip(max=50),
        "score": rng.normal(size=rows),
        "label": (rng.random(rows) < 0.3).astype(int),
        "weight": rng.integers(1, 4, rows),
    }
    table = pa.table(columns)
    folder.mkdir()
    pq.write_table(table.slice(0, 2_000), folder / "a.parquet")
    second = table.slice(2_000)
    if as_text:
        text = second[USER].cast(pa.string())
        second = second.set_column(0, USER, text)
    pq.write_table(second, folder / "b.parquet")
    return columns


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("exposure", [(ITEM,), (ITEM, USER), (USER,)])
def test_a_table_is_summarized_as_its_rows(
    tmp_path: Path, exposure: tuple[str, ...], as_text: bool
) -> None:
    rows = write(tmp_path / "log", as_text=as_text)
    columns = Columns(
        "score", "label", impressions, item=ITEM, user=USER, weight="weight", exposure=exposure
    )
    found = aggregate(Table.find(str(tmp_path / "log")), columns, Rules(skip=False))
    log = Interactions(rows[USER], rows[ITEM], rows["label"])
    ones = np.zeros(len(log), dtype=int)
    asked_items = rows[ITEM] if ITEM in exposure else ones
    seen = Interactions(rows[USER], asked_items, rows["label"])
    model = Exposure(by_user=USER in exposure)
    repeated = seen.take(np.repeat(np.arange(len(seen)), rows["weight"]))
    propensity = model.fit(repeated).predict(seen.users, seen.items)
    evidence = impressions(rows["label"], propensity, weights=rows["weight"])
    expected = cr.Summary.of(rows["score"], evidence)
    np.testing.assert_allclose(found.summary.total, expected.total)
    np.testing.assert_allclose(found.summary.positive, expected.positive)
    assert found.summary.kind == "impressions"
    assert "impressions of" in str(found.exposure)


def test_a_dataframe_of_impressions_is_summarized_as_arrays() -> None:
    table = pa.table({"score": [0.1, 0.4, 0.9], "label": [0, 1, 1], "p": [0.5, 0.25, 1.0]})
    found = frames.summarize(table, propensity="p", evidence=impressions)
    assert (found.positive.sum(), found.total.sum(), found.kind) == (5, 7, "impressions")
    equal = frames.summarize(table, evidence=impressions)
    assert (equal.positive.sum(), equal.total.sum()) == (2, 3)
    with pytest.raises(cr.DataError, match="ips evidence must have propensities, got none"):
        frames.summarize(table, evidence=cr.ips)


def test_weights_of_zero_give_no_exposure(tmp_path: Path) -> None:
    table = pa.table({ITEM: [1], "score": [0.5], "label": [1], "weight": [0.0]})
    pq.write_table(table, tmp_path / "log.parquet")
    columns = Columns("score", "label", impressions, item=ITEM, weight="weight", exposure=(ITEM,))
    with pytest.raises(cr.DataError, match="must hold an impression with nonzero weight"):
        aggregate(Table.find(str(tmp_path / "log.parquet")), columns, Rules(skip=False))
