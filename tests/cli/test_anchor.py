"""`calibrank anchor`: labels to trust, a known rate, and human judgements, for any map."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.data.score_world import World
from calibrank.metrics import LogLoss
from tests.cli.conftest import Call
from tests.cli.running import one_line
from tests.search_world import make_run, write_trec


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory, world: World) -> Path:
    """Labels of 400 random pairs, with columns, in Parquet and in CSV."""
    shown = world.redraw(5)
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(shown), 400, replace=False)
    liked = shown.preferences[chosen]
    columns = {
        "user_id": shown.users[chosen],
        "score": shown.scores[chosen],
        "label": liked.astype("int8"),
        "answer": np.where(liked, "yes", "no"),
        "judge": np.where(liked, 0.9, 0.1),
        "clicks": 2 * liked.astype(int),
        "shown": np.full(400, 2),
        "country": rng.choice(["NL", "DE"], 400),
        "price": rng.normal(size=400),
        "rank": rng.integers(1, 30, 400),
        "p": rng.uniform(0.1, 1, 400),
    }
    path = tmp_path_factory.mktemp("random") / "random.parquet"
    pq.write_table(pa.table(columns), path)
    pc.write_csv(pa.table(columns), path.with_suffix(".csv"))
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, world: World) -> Path:
    """A map of the biased log."""
    path = tmp_path_factory.mktemp("saved") / "map.json"
    evidence = cr.ips(world.labels, world.propensity)
    cr.Gaussian().fit(world.scores, evidence).save(path)
    return path


def arrays(table: Path) -> dict[str, np.ndarray]:
    rows = pq.read_table(table)
    return {name: np.array(rows[name].to_pylist()) for name in rows.column_names}


def anchored(call: Call, tmp_path: Path, *arguments: object) -> tuple[cr.CalibrationMap, str, str]:
    code, text, error = call("anchor", *arguments, "-o", tmp_path / "anchored.json")
    assert code == 0, error
    return cr.load(tmp_path / "anchored.json"), one_line(text), one_line(error)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_labels_of_a_table_anchor_as_in_python(
    call: Call, tmp_path: Path, saved: Path, random: Path, kind: str
) -> None:
    found, text, said = anchored(call, tmp_path, saved, random.with_suffix(f".{kind}"))
    rows = arrays(random)
    expected = cr.anchor(cr.load(saved), rows["score"], rows["label"])
    assert found.predict(rows["score"]) == pytest.approx(expected.predict(rows["score"]), abs=1e-9)
    rate = f"{expected.record.anchoring.rate:.1%}"
    assert text.startswith(
        f"Probabilities that a pair is liked. Base-rate source: random labels. {rate} of all pairs"
    )
    assert "; the log said " in text
    assert "Anchoring on score column 'score' and label 'label' of" in said
    assert "every pair weighted equally" in said


def test_the_sketch_of_a_map_stands_for_its_log(
    call: Call, tmp_path: Path, saved: Path, random: Path, folder: Path
) -> None:
    """Between the 1% and 99% quantiles of the log it gives the same to within 0.01."""
    rows = arrays(random)
    log = arrays(folder / "log.parquet")["score"]
    with_log = cr.anchor(cr.load(saved), rows["score"], rows["label"], population=log)
    asked = np.quantile(log, np.linspace(0.01, 0.99, 50))
    sketched = anchored(call, tmp_path, saved, random)[0]
    assert sketched.predict(asked) == pytest.approx(with_log.predict(asked), abs=0.01)
    given = anchored(call, tmp_path, saved, random, "--population", folder / "log.parquet")[0]
    everywhere = np.quantile(log, np.linspace(0, 1, 50))
    assert given.predict(everywhere) == pytest.approx(with_log.predict(everywhere), abs=1e-9)


def test_a_choice_of_labels_gives_the_evidence_that_it_declares(
    call: Call, tmp_path: Path, saved: Path, random: Path
) -> None:
    rows = arrays(random)
    start = cr.load(saved)
    half = np.where(rows["label"] == 1, 0.9, 0.1)
    counts = cr.Evidence(2.0 * rows["label"], np.full(400, 2.0))
    expected = {
        'answer == "yes"': cr.naive(rows["label"]),
        'answer != "no"': cr.naive(rows["label"]),
        "clicks >= 1": cr.naive(rows["label"]),
        "clicks / shown": counts,
        "probability(judge)": cr.Evidence(half, np.ones(400)),
    }
    for rule, evidence in expected.items():
        found = anchored(call, tmp_path, saved, random, "--label", rule)[0]
        direct = cr.anchor(start, rows["score"], evidence)
        assert found.predict(rows["score"]) == pytest.approx(direct.predict(rows["score"]))


def test_propensities_and_groups_are_named(
    call: Call, tmp_path: Path, saved: Path, random: Path
) -> None:
    rows = arrays(random)
    start = cr.load(saved)
    found, _, said = anchored(call, tmp_path, saved, random, "--propensity", "p")
    direct = cr.anchor(start, rows["score"], rows["label"], propensity=rows["p"])
    assert found.predict(rows["score"]) == pytest.approx(direct.predict(rows["score"]))
    assert "propensity 'p'" in said
    found = anchored(call, tmp_path, saved, random, "--group", "user_id")[0]
    direct = cr.anchor(start, rows["score"], rows["label"], groups=rows["user_id"])
    assert found.predict(rows["score"]) == pytest.approx(direct.predict(rows["score"]))


def test_terms_of_the_map_are_read_and_further_ones_added(
    call: Call, tmp_path: Path, random: Path, world: World
) -> None:
    rng = np.random.default_rng(1)
    columns = {
        "country": rng.choice(["NL", "DE"], len(world)),
        "price": rng.normal(size=len(world)),
    }
    model = cr.Gaussian() + cr.Level("country")
    model.fit(world.scores, world.labels, columns).save(tmp_path / "map.json")
    options = ("--feature", "price", "--rank", "rank")
    found, text, _ = anchored(call, tmp_path, tmp_path / "map.json", random, *options)
    rows = arrays(random)
    start = cr.load(tmp_path / "map.json")
    terms = [cr.Smooth("price"), cr.Position("rank")]
    direct = cr.anchor(start, rows["score"], rows["label"], rows, terms=terms)
    assert found.columns == direct.columns == ("country", "price", "rank")
    assert found.predict(rows["score"], rows) == pytest.approx(direct.predict(rows["score"], rows))
    assert "a curve of its own for the first 5 positions, by rank" in text
    code, _, error = call("anchor", tmp_path / "map.json", "--base-rate", "0.1")
    assert code == 2
    assert "must go with --population for this map" in one_line(error)


def test_a_known_rate_moves_any_map(
    call: Call, tmp_path: Path, saved: Path, folder: Path, world: World
) -> None:
    found, text, _ = anchored(call, tmp_path, saved, "--base-rate", "0.1")
    assert found.predict(world.scores).mean() == pytest.approx(0.1, abs=0.002)
    assert "Base-rate source: known rate. Moved to a base rate of 10.00%" in text
    given = ("--base-rate", "0.1", "--population", folder / "log.parquet")
    found = anchored(call, tmp_path, saved, *given)[0]
    assert found.predict(world.scores).mean() == pytest.approx(0.1, abs=1e-6)
    columns = {"country": np.array(["NL", "DE"])[world.users % 2]}
    table = {"score": world.scores, **columns}
    pq.write_table(pa.table(table), tmp_path / "pairs.parquet")
    model = cr.Isotonic() + cr.Level("country")
    model.fit(world.scores, world.labels, columns).save(tmp_path / "map.json")
    given = ("--base-rate", "0.1", "--population", tmp_path / "pairs.parquet")
    found = anchored(call, tmp_path, tmp_path / "map.json", *given)[0]
    assert found.predict(world.scores, columns).mean() == pytest.approx(0.1, abs=1e-6)


def test_a_known_rate_with_a_range_is_weighed_against_labels(
    call: Call, tmp_path: Path, saved: Path, random: Path, world: World
) -> None:
    pq.write_table(pq.read_table(random).slice(0, 10), tmp_path / "few.parquet")
    known = ("--base-rate", "0.2", "--base-rate-range", "0.15", "0.25")
    _, text, _ = anchored(call, tmp_path, saved, *known)
    assert "20.00% (15.00% to 25.00%)" in text
    found = anchored(call, tmp_path, saved, tmp_path / "few.parquet", *known)[0]
    assert found.record.base_rate_source == "random labels"
    # Ten labels hardly move a rate beyond the range in which it is known to lie.
    assert found.predict(world.scores).mean() == pytest.approx(0.2, abs=0.055)


def test_human_judgements_anchor_the_map_of_a_judge(call: Call, tmp_path: Path) -> None:
    rows = make_run(30, 12)
    run, qrels = write_trec(tmp_path, rows)
    scores = np.array([row[2] for row in rows])
    # A judge that finds nearly everything relevant.
    judge = cr.Evidence(0.9 / (1 + np.exp(-scores)) + 0.1, np.ones(len(scores)))
    cr.Platt().fit(scores, judge).save(tmp_path / "judge.json")
    given = ("--run", run, "--qrels", qrels, "--relevant", "2")
    found, text, _ = anchored(call, tmp_path, tmp_path / "judge.json", *given)
    relevant = np.array([row[3] >= 2 for row in rows])
    assert found.predict(scores).mean() == pytest.approx(relevant.mean(), abs=0.05)
    assert found.record.population.queries == 30
    assert text.startswith("Probabilities that a document is relevant.")


def test_an_anchored_map_can_be_anchored_again_and_inspected(
    call: Call, tmp_path: Path, saved: Path, random: Path
) -> None:
    first = anchored(call, tmp_path, saved, random)[0]
    first.save(tmp_path / "first.json")
    again = anchored(call, tmp_path, tmp_path / "first.json", random)[0]
    rows = arrays(random)
    loss = LogLoss()(first.predict(rows["score"]), rows["label"])
    _, text, _ = call("inspect", tmp_path / "first.json")
    assert f"mean loss {loss:.6f}" in one_line(text)
    assert again.record.anchoring.rate == pytest.approx(first.record.anchoring.rate, rel=0.2)


def test_labels_without_a_positive_are_pointed_out(call: Call, tmp_path: Path, saved: Path) -> None:
    table = tmp_path / "r.parquet"
    pq.write_table(pa.table({"score": [0.1, 0.5, 2.0], "label": [0, 0, 0]}), table)
    assert "r.parquet: all 3 labels are 0." in anchored(call, tmp_path, saved, table)[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "must have labels to trust (TABLE, or --run and --qrels) or a known rate"),
        ("--base-rate 1.5", "--base-rate must lie between 0 and 1, got 1.5"),
        ("--base-rate-range 0.1 0.2", "--base-rate-range must go with --base-rate"),
        ("t.csv --base-rate-range 0.1 0.2", "--base-rate-range must go with --base-rate"),
        ("--base-rate 0.2 --base-rate-range 0.3 0.1", "got 0.3 and 0.1"),
        ("t.csv --base-rate 0.2", "must not both be given without --base-rate-range"),
        ("t.csv --run r --qrels q", "TABLE and --run must not both be given"),
        ("--qrels q --base-rate 0.2", "--qrels must go with --run"),
        ("--run r --qrels q --segment x", "--segment must not be given with --run"),
        ("--base-rate 0.2 --segment x", "--segment must not be given without labels"),
        ("t.csv --relevant 2", "--relevant must go with --qrels"),
        ("t.csv --segment nope", "must have the segment column 'nope', got 'score'"),
        ("t.csv --rank nope", "must have the rank column 'nope'"),
        ("t.csv --rank zero", "zero must be a rank, counted from 1"),
        ("t.csv -o t.csv", "must not be the input"),
    ],
)
def test_wrong_arguments_are_refused(
    call: Call, tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch, options: str,
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("score,label,zero\n0.5,0,0\n0.7,1,1\n")
    code, _, error = call("anchor", saved, *options.split())
    assert code in (2, 3)
    assert message in one_line(error)
    assert not Path("anchored.json").exists()


def test_popularity_and_activity_are_terms_if_the_table_has_them(
    call: Call, tmp_path: Path, saved: Path, random: Path
) -> None:
    rows = arrays(random)
    rng = np.random.default_rng(1)
    counts = {name: np.log1p(rng.poisson(9, 400)) for name in ("user_activity", "item_popularity")}
    table = tmp_path / "counted.parquet"
    given = {"score": rows["score"], "label": rows["label"], "price": rows["price"], **counts}
    pq.write_table(pa.table(given), table)
    found, _, _ = anchored(call, tmp_path, saved, table)
    expected = cr.anchor(cr.load(saved), rows["score"], rows["label"], counts)
    assert found.columns == ("item_popularity", "user_activity")
    asked = (rows["score"], counts)
    assert found.predict(*asked) == pytest.approx(expected.predict(*asked), rel=1e-12)
    named, _, _ = anchored(call, tmp_path, saved, table, "--feature", "price")
    assert named.columns == ("price",)


def test_labels_of_other_pairs_than_those_of_the_fit_are_pointed_out(
    call: Call, tmp_path: Path, saved: Path, random: Path
) -> None:
    table = arrays(random)
    shifted = tmp_path / "shifted.parquet"
    pq.write_table(pa.table({"score": table["score"] + 1.5, "label": table["label"]}), shifted)
    _, _, said = anchored(call, tmp_path, saved, shifted)
    assert "have other scores than those of the fit (Kolmogorov-Smirnov distance 0." in said
    for arguments in ([saved, random], [saved, shifted, "--population", shifted]):
        assert "other scores" not in anchored(call, tmp_path, *arguments)[2]
