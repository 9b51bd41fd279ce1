"""Tables for the tests of the command line, and a way to call it in the same process."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from calibrank.anchoring import plan_labels
from calibrank.data.score_world import World, make_world
from tests.cli.running import exit_code

# The package exports a function of the same name.
diagnose = import_module("calibrank.diagnosis.diagnose")

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def quick_plans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a label plan once instead of ten times: it takes most of a diagnosis."""
    if request.node.get_closest_marker("whole_plan") is None:
        monkeypatch.setattr(diagnose, "plan_labels", partial(plan_labels, draws=1))


@pytest.fixture(scope="session")
def world() -> World:
    return make_world(40_000, seed=3)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, world: World) -> Path:
    """A log in one file, in three files and in CSV, and a test table with true preferences."""
    path = tmp_path_factory.mktemp("tables")
    table = pa.table(
        {
            "user_id": world.users,
            "item_id": [f"item {item}" for item in world.items],
            "score": world.scores,
            "label": world.labels.astype("int8"),
            "w": world.propensity,
        }
    )
    pq.write_table(table, path / "log.parquet")
    pc.write_csv(table, path / "log.csv")
    for day in range(3):
        (path / "days" / f"day={day}").mkdir(parents=True)
        rows = table.slice(day * 14_000, 14_000)
        pq.write_table(rows, path / "days" / f"day={day}" / "rows.parquet")
    test = world.redraw(9)
    shown = pa.table({"userID": test.users, "prediction": test.scores, "label": test.preferences})
    pq.write_table(shown, path / "test.parquet")
    return path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls the command line in this process: exit code, standard output, standard error."""

    def inner(*arguments: object) -> tuple[int, str, str]:
        code = exit_code(*arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return inner
