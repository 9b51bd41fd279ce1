"""Labels that options declare, on every command that reads labels."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from tests.cli.conftest import Call
from tests.cli.running import one_line


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    score = rng.normal(size=2_000)
    rating = np.clip(np.rint(3 + score + rng.normal(size=2_000)), 1, 5)
    shown = rng.integers(1, 20, 2_000)
    clicks = rng.binomial(shown, 1 / (1 + np.exp(1 - score)))
    columns = {
        "score": score,
        "rating": rating,
        "n": shown,
        "c": clicks,
        "judge": 1 / (1 + np.exp(-score)),
        "p": rng.uniform(0.2, 1, 2_000),
    }
    path = tmp_path_factory.mktemp("rated") / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


RATING = ("--positive", "rating >= 4", "--loss", "naive")
COUNTS = ("--clicks", "c", "--impressions", "n", "--propensity", "p")
JUDGE = ("--label", "judge", "--soft", "--loss", "naive")


def test_fit_uses_the_declared_labels(rated: Path, tmp_path: Path, call: Call) -> None:
    table = pq.read_table(rated)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    weights = 1 / columns["p"]
    expected = {
        RATING: cr.naive(columns["rating"] >= 4),
        COUNTS: cr.Evidence(columns["c"] * weights, columns["n"] * weights),
        JUDGE: cr.Evidence(columns["judge"], np.ones(2_000)),
    }
    for options, evidence in expected.items():
        out = tmp_path / "map.json"
        code, _, error = call("fit", rated, *options, "--method", "platt", "-o", out)
        assert code == 0, error
        direct = cr.Platt().fit(columns["score"], evidence)
        assert cr.load(out).parameters == pytest.approx(direct.parameters)


@pytest.mark.parametrize("command", ["diagnose", "compare", "evaluate"])
@pytest.mark.parametrize("options", [RATING, COUNTS, JUDGE], ids=["rating", "counts", "judge"])
def test_other_commands_take_declared_labels(
    rated: Path, call: Call, command: str, options: tuple[str, ...]
) -> None:
    given = options
    if command == "evaluate":
        probability = "p" if options is JUDGE else "judge"
        given = (*options[: 4 if options is COUNTS else -2], "--probability", probability)
    code, _, error = call(command, rated, *given, "--json")
    assert code == 0, error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--label", "rating", "--loss", "naive"), '--positive "rating >= 4"'),
        (("--clicks", "c"), "--clicks must go with --impressions"),
        ((*RATING, "--soft"), "the label must be declared once, got --positive and --soft"),
        (("--label", "judge", "--soft", "--propensity", "p"), "must go with --loss naive"),
        (("--positive", "stars >= 4", "--loss", "naive"), "must have a positive column (stars)"),
        (("--positive", "rating", "--loss", "naive"), 'Write it as "rating >= 4"'),
    ],
)
def test_wrong_declarations_are_refused(
    rated: Path, tmp_path: Path, call: Call, options: tuple[str, ...], message: str
) -> None:
    code, _, error = call("fit", rated, *options, "-o", tmp_path / "map.json")
    assert code in (2, 3)
    assert message in one_line(error)
