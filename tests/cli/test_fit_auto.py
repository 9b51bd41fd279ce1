"""`calibrank fit --method auto`, the default: as `Auto` in the library, in one pass."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.data.score_world import World
from calibrank.propensity import Popularity
from calibrank.tabular.read import Table
from tests.cli.conftest import Call
from tests.cli.running import one_line


def test_the_table_is_read_once_and_the_band_is_that_of_the_chosen_method(
    call: Call, folder: Path, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    read_tasks = Table.read_tasks

    def counted(self: Table, *arguments: object) -> object:
        passes.append(self.name)
        return read_tasks(self, *arguments)  # type: ignore[arg-type]  # passed on unseen

    monkeypatch.setattr(Table, "read_tasks", counted)
    out = tmp_path / "map.json"
    code, text, error = call("fit", folder / "log.parquet", "--item", "item_id", "-o", out)
    assert code == 0, error
    assert len(passes) == 1
    assert "Mean probability under alternative assumptions" in one_line(text)
    propensity = Popularity().fit(world.interactions()).predict(world.users, world.items)
    expected = cr.Auto().fit(world.scores, cr.ips(world.labels, propensity))
    fitted = cr.load(out)
    assert fitted.method == expected.method
    fixed = ["--method", fitted.method.lower(), "-o", tmp_path / "fixed.json"]
    assert call("fit", folder / "log.parquet", "--item", "item_id", *fixed)[0] == 0
    band = cr.load(tmp_path / "fixed.json").record.sensitivity
    assert band is not None
    assert fitted.record.sensitivity is not None
    assert fitted.record.sensitivity.low == pytest.approx(band.low, abs=1e-6)
    assert fitted.record.sensitivity.high == pytest.approx(band.high, abs=1e-6)


@pytest.mark.parametrize("by_user", [True, False])
def test_the_default_chooses_as_the_library_does(
    call: Call, folder: Path, tmp_path: Path, world: World, by_user: bool
) -> None:
    out = tmp_path / "map.json"
    options = ["--propensity", "w", "-o", out]
    if by_user:
        options += ["--user", "user_id"]
    code, text, error = call("fit", folder / "log.parquet", *options)
    assert code == 0, error
    users = world.users if by_user else None
    evidence = cr.ips(world.labels, world.propensity)
    expected = cr.Auto().fit(world.scores, evidence, users=users)
    fitted = cr.load(out)
    assert fitted.method == expected.method
    assert fitted.predict(world.scores) == pytest.approx(expected.predict(world.scores), abs=1e-9)
    found = fitted.record.selection
    wanted = expected.record.selection
    assert found is not None
    assert wanted is not None
    losses = [each.loss for each in found.candidates]
    assert losses == pytest.approx([each.loss for each in wanted.candidates])
    stated = f"Method: {expected.method}, chosen by 5-fold cross-validation: log loss 0."
    assert stated in one_line(text)
    assert stated.removeprefix("Method: ") in one_line(call("inspect", out)[1])


@pytest.mark.parametrize("positives", [3, 40])
def test_few_positives_get_the_simplest_method(call: Call, tmp_path: Path, positives: int) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(1_000) < positives
    columns = {"score": rng.normal(size=1_000) + labels, "label": labels.astype(int)}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    options = ["--log", "impressions", "-o", tmp_path / "map.json"]
    code, _, error = call("fit", tmp_path / "t.parquet", *options)
    assert code == 0, error
    assert (
        "Method: Platt, because none could be chosen: each of the 5 folds must have 10 or more"
        in (one_line(error))
    )
    fitted = cr.load(tmp_path / "map.json")
    assert fitted.method == "Platt"
    assert fitted.record.selection is None
