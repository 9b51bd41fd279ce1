"""The report's numbers, against plain loops and the library's own answers, and its page as text."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.calibrators import fit_without_each
from calibrank.data.score_world import make_world
from calibrank.maps import Choice, Sensitivity
from calibrank.registry import CALIBRATORS
from calibrank.report import report
from calibrank.report.content import contents
from calibrank.report.from_table import read_ledger
from calibrank.report.ledger import Ledger, make_ledger
from calibrank.report.rendering import embed, plain
from calibrank.report.resampling import Clusters
from calibrank.report.segments import segment_tables
from calibrank.report.thresholds import GRID, threshold_table
from calibrank.report.user_sample import sample_users
from calibrank.tabular.aggregate import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "{{7*7}}",
    "{{style}}",
    "\u202eevil\u2028line\u2029",
    "שלום 👩‍🚀",
    "<!--<script>",
    "&lt;b&gt; ' \\ ]]>",
)


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    world = make_world(12_000, seed=4)
    cuts = {"device": np.array(["phone", "web", "TV"])[np.arange(12_000) % 3]}
    return make_ledger(
        world.scores, world.preferences, users=world.users, items=world.items, segments=cuts
    )


@pytest.fixture(scope="module")
def content(ledger: Ledger) -> dict[str, Any]:
    return contents(ledger, None, {})


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.mark.parametrize("at", [0, 3, 25, 40, 70, len(GRID) - 1])
@pytest.mark.parametrize("length", ["1", "5", "all"])
def test_the_slider_is_exact_for_the_whole_table(ledger: Ledger, at: int, length: str) -> None:
    probabilities = cr.Gaussian().fit(ledger.scores, ledger.evidence).predict(ledger.scores)
    found = threshold_table(probabilities, ledger.evidence, ledger.users.codes)
    shown, liked, truly, sizes = 0, 0.0, 0.0, []
    for user in range(len(ledger.users.names)):
        rows = np.flatnonzero(ledger.users.codes == user)
        best = rows[np.argsort(-probabilities[rows], kind="stable")][
            : None if length == "all" else int(length)
        ]
        kept = best[probabilities[best] >= GRID[at]]
        sizes.append(len(kept))
        shown, liked, truly = (
            shown + len(kept),
            liked + probabilities[kept].sum(),
            truly + ledger.labels[kept].sum(),
        )
    sums = found["lengths"][length]
    assert sums["shown"][at] == shown
    assert sums["expected"][at] == pytest.approx(liked)
    assert sums["positive"][at] == truly
    for least in (1, 2, 4):
        if length == "all" or least <= int(length):
            assert found["at_least"][least - 1][at] == sum(size >= least for size in sizes)


def test_methods_are_cross_validated_by_user_as_compare_does(
    ledger: Ledger, content: dict[str, Any]
) -> None:
    parts = ledger.parts()
    folds = np.array(
        [ledger.folds[ledger.users.codes == user][0] for user in range(len(ledger.users.names))]
    )
    assert (folds[ledger.users.codes] == ledger.folds).all()
    maps = fit_without_each(cr.Gaussian(), parts)
    held_out = np.concatenate(
        [fitted.predict(part.scores) for fitted, part in zip(maps, parts, strict=True)]
    )
    evidence = cr.Evidence(
        *(np.concatenate([getattr(part, n) for part in parts]) for n in ("positive", "total"))
    )
    assert content["main"] == "Gaussian"
    assert content["methods"][0]["metrics"]["LogLoss"][0] == pytest.approx(
        cr.LogLoss()(held_out, evidence), rel=1e-9
    )
    assert {method["name"] for method in content["methods"]} == set(CALIBRATORS)


def test_ranking_is_the_librarys_with_an_interval_over_users(
    ledger: Ledger, content: dict[str, Any]
) -> None:
    for metric in (cr.NDCG(5), cr.Recall(5)):
        value, low, high = content["ranking"][metric.name]
        assert value == pytest.approx(metric(ledger.scores, ledger.labels, ledger.users.codes))
        ranks = np.argsort(np.argsort(ledger.scores)) / len(ledger)
        expected = cr.bootstrap(metric, ranks, ledger.labels, ledger.users.codes)
        assert [low, high] == pytest.approx([expected.low, expected.high], abs=0.02)


def test_every_metric_of_every_method_has_an_interval(
    ledger: Ledger, content: dict[str, Any]
) -> None:
    for method in content["methods"]:
        for value, low, high in method["metrics"].values():
            assert low <= value <= high
    evidence = ledger.evidence
    probabilities = content["methods"][0]["metrics"]
    maps = fit_without_each(cr.Gaussian(), ledger.parts())
    for metric in (cr.metrics.Miscalibration(), cr.metrics.Discrimination()):
        expected = cr.bootstrap(
            metric, ledger.held_out(maps), evidence, ledger.users.codes, resamples=200
        )
        found = probabilities[metric.name]
        width = expected.high - expected.low
        assert found == pytest.approx([*expected], abs=0.25 * width)
        assert found[2] > found[1]


def test_the_headline_holds_the_truth_and_says_it_in_words(content: dict[str, Any]) -> None:
    first = content["headline"]["sentences"][0]
    assert first["level"] == 0.3
    assert re.fullmatch(r"Of 100 items shown at 30 %, \d+ to \d+ are liked", first["words"])
    assert first["low"] < 30 < first["high"]
    assert content["headline"]["verdict"]["tone"] == "good"


def test_a_wrong_map_is_called_wrong(ledger: Ledger) -> None:
    wrong = cr.to_base_rate(cr.Gaussian().fit(ledger.scores, ledger.evidence), 0.4, ledger.scores)
    headline = contents(ledger, wrong, {})["headline"]
    assert headline["verdict"]["tone"] == "bad"
    assert "too high" in headline["verdict"]["title"]
    assert headline["sentences"][0]["high"] < 30
    assert headline["door"]["name"] == "Door: a known base rate"


def test_weighted_labels_say_that_the_base_rate_is_not_identified() -> None:
    world = make_world(8_000, seed=1)
    weighted = make_ledger(
        world.scores, world.labels, users=world.users, propensity=world.propensity
    )
    headline = contents(weighted, None, {})["headline"]
    assert not headline["door"]["known"]
    assert any("not identified" in one for one in headline["unknown"])
    assert headline["verdict"]["tone"] != "good"


def test_curves_hold_every_row_once_and_their_bands_hold_them(
    ledger: Ledger, content: dict[str, Any]
) -> None:
    for method in content["methods"]:
        for curve in method["curves"].values():
            assert curve["rows"].sum() == len(ledger)
            assert (curve["low"] <= curve["observed"]).all()
            assert (curve["observed"] <= curve["high"]).all()
        assert (
            method["histogram"]["linear"].sum() == method["histogram"]["logit"].sum() == len(ledger)
        )
    rate = ledger.evidence.positive.sum() / len(ledger)
    curve = content["methods"][0]["curves"]["mass"]
    assert (curve["observed"] * curve["mass"]).sum() / curve["mass"].sum() == pytest.approx(rate)


def test_intervals_are_over_users_and_never_certain() -> None:
    twins = np.repeat(np.random.default_rng(0).integers(0, 2, 60), 50).astype(float)
    rows, cells = np.array([3000.0]), np.zeros(3000, dtype=np.intp)
    widths = []
    for groups in (np.arange(3000) % 1000, np.arange(3000) // 50):
        clusters = Clusters.of(groups.astype(np.intp))
        found = clusters.ratios(
            clusters.sums(cells, twins, 1), clusters.sums(cells, np.ones(3000), 1), rows
        )
        widths.append(float(found.high[0] - found.low[0]))
    assert widths[1] > 4 * widths[0]  # 60 users of one mind each know less than 3,000 rows seem to
    liked, every = clusters.sums(cells, twins, 1), clusters.sums(cells, np.ones(3000), 1)
    moved = clusters.ratios(liked, every, rows, 0.2 * every)
    assert [end[0] for end in moved] == pytest.approx([end[0] - 0.2 for end in found])
    never = clusters.ratios(
        clusters.sums(cells, twins * 0, 1), clusters.sums(cells, np.ones(3000), 1), rows
    )
    assert never.low[0] == never.value[0] == 0
    assert 0 < never.high[0] < 0.01


def test_the_worst_segment_comes_first(ledger: Ledger) -> None:
    probabilities = cr.Gaussian().fit(ledger.scores, ledger.evidence).predict(ledger.scores)
    web = np.array(ledger.segments["device"].names)[ledger.segments["device"].codes] == "web"
    tables = segment_tables(
        ledger, np.where(web, probabilities * 0.1, probabilities), Clusters.of(ledger.groups)
    )
    assert [tables[0]["title"], tables[0]["rows"][0]["name"]] == ["device", "web"]
    first = tables[0]["rows"][0]
    assert first["observed"][0] == pytest.approx(ledger.labels[web].mean())
    assert first["gap"][0] == pytest.approx(
        ledger.labels[web].mean() - (probabilities * 0.1)[web].mean()
    )
    assert first["gap"][1] > 0
    assert {table["title"] for table in tables} == {
        "device",
        "Popularity of the item",
        "Activity of the user",
    }
    assert all(sum(row["rows"] for row in table["rows"]) == len(ledger) for table in tables)


def test_names_stay_data_whatever_they_hold() -> None:
    text = embed({"names": HOSTILE})
    assert json.loads(text)["names"] == list(HOSTILE)
    assert not set("<>&\u2028\u2029") & set(text)
    assert embed("half a pair: \ud83d").encode()
    made = _hostile_report()
    assert made.page.count("<script") == 2
    assert "onerror=alert(2)>" not in made.page
    kept = data_of(made.page)
    assert {person["name"] for person in kept["explorer"]["people"]} == set(HOSTILE)
    assert kept["about"]["source"] == HOSTILE[0]


def _hostile_report() -> Any:
    rng = np.random.default_rng(0)
    rows = 800
    scores = rng.normal(size=rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(1 - scores))).astype(int)
    users, items = (np.array(HOSTILE)[rng.integers(0, len(HOSTILE), rows)] for _ in range(2))
    return report(
        None,
        scores,
        labels,
        users=users,
        items=items,
        segments={HOSTILE[0]: items},
        name=HOSTILE[0],
    )


def test_the_page_may_run_only_itself_and_fetch_nothing() -> None:
    page = _hostile_report().page
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "unsafe" not in policy[1]
    outside = set(re.findall(r"https?://[^\s\"'<]+", page)) - {"http://www.w3.org/2000/svg"}
    assert not outside
    assert "innerHTML" not in page


def test_without_users_the_page_says_what_to_add(ledger: Ledger) -> None:
    alone = make_ledger(ledger.scores, ledger.labels)
    content = contents(alone, cr.Platt().fit(ledger.scores, ledger.labels), {})
    assert content["threshold"] is None
    assert content["explorer"] is None
    assert any("--user" in one for one in content["headline"]["unknown"])


def test_a_report_shows_itself_in_a_notebook_and_saves_whole(tmp_path: Path) -> None:
    made = _hostile_report()
    shown = made._repr_html_()
    assert shown.startswith("<iframe")
    assert shown.count("<") == 2  # the page inside is text of an attribute
    made.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == made.page
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_few_users_come_along_when_names_are_long() -> None:
    rows = 40_000
    rng = np.random.default_rng(1)
    items = np.array([f"{'x' * 400} {item}" for item in range(rows)])
    long = make_ledger(
        rng.normal(size=rows), np.arange(rows) % 2, users=np.arange(rows) // 20, items=items
    )
    kept = sample_users(long, np.linspace(0, 1, rows))
    assert kept is not None
    assert len(json.dumps(kept)) <= 1_400_000
    assert 100 < len(kept["people"]) < 1000
    assert kept["users"] == 2000


def test_numbers_that_are_none_become_null() -> None:
    assert plain([float("nan"), float("inf"), np.float32(0.5), np.arange(2)]) == [
        None,
        None,
        0.5,
        [0, 1],
    ]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    world = make_world(6_000, seed=2)
    columns = {
        "user_id": world.users,
        "item_id": world.items,
        "score": world.scores,
        "w": world.propensity,
    }
    age = [None if row % 7 == 0 else float(row % 50) for row in range(len(world))]
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({**columns, "label": world.labels.astype("int8"), "age": age}), path)
    return path


def test_a_table_on_disk_gives_the_same_ledger_as_its_arrays(table: Path) -> None:
    columns = Columns(
        "score", "label", cr.ips, propensity="w", item="item_id", user="user_id", others=("age",)
    )
    read = read_ledger(Table.find(str(table)), columns, Rules(skip=False))
    kept = pq.read_table(table).to_pydict()
    arrays = {name: np.array(kept[name]) for name in ("score", "label", "w", "user_id", "item_id")}
    made = make_ledger(
        arrays["score"], arrays["label"], users=arrays["user_id"], propensity=arrays["w"]
    )
    assert (read.evidence.positive == made.evidence.positive).all()
    assert [read.users.names[code] for code in read.users.codes] == [
        made.users.names[code] for code in made.users.codes
    ]
    assert (read.folds == made.folds).all()
    assert np.isnan(read.segments["age"]).sum() == sum(value is None for value in kept["age"])


def test_a_table_too_long_for_memory_keeps_whole_users_and_says_so(table: Path) -> None:
    columns = Columns("score", "label", cr.naive, user="user_id")
    whole, some = (
        read_ledger(Table.find(str(table)), columns, Rules(skip=False), most=most)
        for most in (10**7, 2000)
    )
    assert len(some) <= 2000
    assert some.rows_in_table == len(whole) == 6000
    full = dict(zip(whole.users.names, whole.users.counts(), strict=True))
    assert all(
        full[name] == count
        for name, count in zip(some.users.names, some.users.counts(), strict=True)
    )
    assert any("6,000 rows" in one for one in contents(some, None, {})["headline"]["unknown"])


def test_the_command_writes_a_page_that_names_its_origin(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "report.html"
    command = ["report", str(table), "--propensity", "w", "--segment", "age", "-o", str(out)]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", "calibrank", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "are liked" in result.stdout
    kept = data_of(out.read_text(encoding="utf-8"))
    assert kept["about"]["command"] == f"calibrank {' '.join(command)}"
    assert kept["about"]["fingerprint"].startswith("sha256:")
    assert kept["about"]["rows"] == 6000
    assert "age" in [one["title"] for one in kept["segments"]]
    wrong = subprocess.run(
        [sys.executable, "-m", "calibrank", "report", str(table), "--segment", "colour", "-o", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert wrong.returncode == 3
    assert "must have the segment column 'colour'" in wrong.stderr


def result_rows(folder: Path) -> None:
    """Rows as `calibrank reproduce` writes them: two seeds, and a sweep over negatives for one method."""
    rows = []
    for seed in range(2):
        for method, loss in (("MinMax", "none"), ("Gaussian", "naive"), ("Gaussian", "ips")):
            for metric, value in (("ECE", 0.1), ("LogLoss", 0.5), ("failed", 1.0)):
                rows.append((method, loss, 21, seed, metric, value + 0.01 * seed))
        rows.append(("Gaussian", "ips", 100, seed, "ECE", 0.9))
        rows.append(("", "", 0, seed, "NDCG@5", 0.6))
    names = ("method", "loss", "negatives", "seed", "metric", "value")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    same = {
        "dataset": "coat",
        "spec": "trained",
        "split": "random",
        "model": "BPR",
        "provenance": "calibrank 0.1.0, x",
    }
    columns |= {name: [value] * len(rows) for name, value in same.items()}
    columns["propensity"] = ["popularity" if method else "" for method in columns["method"]]
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "rows.parquet")


def test_results_are_means_with_intervals_and_published_numbers(tmp_path: Path) -> None:
    from calibrank.experiment.overview import overview, read_rows
    from calibrank.experiment.statistics import Spread

    result_rows(tmp_path / "results" / "coat")
    asked = []

    def find(*key: str) -> float | None:
        asked.append(key)
        return 0.0393 if key == ("ECE", "Gaussian", "ips", "coat", "BPR") else None

    found = overview(read_rows(tmp_path / "results"), find)
    cells = {
        tuple(cell[:4]): cell[4:]
        for cell in found["protocols"]["coat, trained, random split"]["cells"]
    }
    spread = Spread.of(np.array([0.1, 0.11]))  # without the sweep's 0.9
    assert cells["ECE", "Gaussian", "ips", "BPR"] == [spread.mean, spread.half, 2, 0.0393]
    assert cells["LogLoss", "MinMax", "none", "BPR"][3] is None
    assert ("NLL", "MinMax", "none", "coat", "BPR") in asked
    assert cells["NDCG@5", "", "", "BPR"][0] == pytest.approx(0.6)
    assert found["failed"] == 6
    with pytest.raises(cr.DataError, match="must hold rows"):
        read_rows(tmp_path)


@pytest.mark.parametrize("method", [cr.Gaussian(), cr.Isotonic(), cr.MinMax()], ids=repr)
def test_a_map_shows_itself_in_a_notebook(ledger: Ledger, method: Any) -> None:
    fitted = method.fit(ledger.scores, ledger.evidence)
    shown = fitted._repr_html_()
    assert f"<b>{method.name}</b>" in shown
    assert fitted.description in shown
    assert "taken at their word" in shown
    assert shown.count("<svg") == shown.count("<polyline") == 1
    for name, value in fitted.parameters.items():
        error = fitted.standard_errors[name]
        assert f"<td>{name}</td><td>{value:.6g}</td><td>&plusmn; {error:.2g}</td>" in shown


def test_what_a_biased_log_leaves_open_is_shown(ledger: Ledger) -> None:
    fitted = cr.Gaussian().fit(ledger.scores, ledger.evidence)
    ends = tuple(float(fitted.log_odds(score)) for score in (-1.0, 2.0))
    choices = (Choice("power 0.25", 0.07, None), Choice("power 1", 0.2, 0.5))
    left = Sensitivity(
        0.07, 0.2, choices, (-1.0, 2.0), tuple(e - 1 for e in ends), tuple(e + 1 for e in ends)
    )
    doubtful = replace(fitted, record=replace(fitted.record, evidence="ips", sensitivity=left))
    found = contents(ledger, doubtful, {})
    assert [found["doubt"]["low_rate"], found["doubt"]["high_rate"]] == [0.07, 0.2]
    assert found["doubt"]["choices"] == [["power 0.25", 0.07, None], ["power 1", 0.2, 0.5]]
    assert (found["doubt"]["low"] < found["doubt"]["high"]).all()
    assert not found["headline"]["door"]["known"]


def test_a_map_makes_its_own_report() -> None:
    world = make_world(2_000, seed=6)
    fitted = cr.Platt().fit(world.scores, world.preferences)
    mine = fitted.report(world.scores, world.preferences, users=world.users)
    assert mine == report(fitted, world.scores, world.preferences, users=world.users)
    assert mine._repr_html_().startswith("<iframe")
