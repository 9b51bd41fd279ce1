"""Tables from rows alone: the rule for negatives, the agreement with the paper, one summary."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from calibrank.errors import DataError
from calibrank.experiment.figures import save_figures
from calibrank.experiment.published import (
    OUR_METRICS,
    UNKNOWN,
    Comparison,
    Published,
    PublishedNumber,
    agreement_table,
)
from calibrank.experiment.results import SCHEMA, Fit, Protocol, Spread, read_rows
from calibrank.experiment.spec import Spec, load_specs
from calibrank.experiment.tables import own_negatives_table, uerm_table
from tests.cli.running import run_here

REPRODUCE = Path(__file__).parents[2] / "reproduce" / "aaai22"
DATASETS = ("coat", "yahoo_r3")
SEEDS = 3


def row(**values):
    blank = {"method": "", "loss": "", "propensity": "", "negatives": 0, "note": ""}
    return {**blank, "provenance": "calibrank 0, a test", **values}


def published_rows(spec, shift=0.0):
    """Rows whose means are the published numbers plus a shift, with a known spread over seeds."""
    published = Published.beside(REPRODUCE)
    rows = []
    for number in published.values.values():
        negatives = 0
        if number.loss:
            negatives = spec.negatives_for(number.dataset, number.loss)
        common = {
            "dataset": number.dataset,
            "spec": spec.name,
            "split": "released",
            "model": number.model,
            "method": number.method,
            "loss": number.loss,
            "propensity": "popularity" if number.loss else "",
            "negatives": negatives,
            "metric": OUR_METRICS.get(number.metric, number.metric),
        }
        values = number.value + shift + 0.001 * np.array([-1, 0, 1])
        rows += [row(**common, seed=seed, value=value) for seed, value in enumerate(values)]
    return rows


@pytest.fixture(scope="module")
def released():
    return Spec.load(REPRODUCE / "released.toml")


def results_of(rows):
    return pa.Table.from_pylist(rows, SCHEMA)


def write_rows(path, rows):
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    return path


def reproduce(*arguments, code=0):
    found, output, errors = run_here("reproduce", *arguments)
    assert found == code, errors
    return output


# ---- from rows alone ----


def test_rows_alone_give_tables_figures_and_a_summary(tmp_path, released):
    rows = published_rows(released)
    files = [
        write_rows(tmp_path / f"{name}.parquet", [r for r in rows if r["dataset"] == name])
        for name in DATASETS
    ]
    options = [option for file in files for option in ("--from-rows", file)]
    printed = reproduce(*options, "--out", tmp_path / "out", "--json")
    assert json.loads(printed)["published_numbers_met"] == 450
    for dataset in DATASETS:
        tables = (tmp_path / "out" / dataset / "tables.md").read_text()
        assert f"# {dataset}, 3 seeds" in tables
        assert "**225 of 225 published numbers (100%)**" in tables
        assert (tmp_path / "out" / dataset / "figures" / "released" / "negatives.png").is_file()
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert "**450 of 450 published numbers (100%)**" in summary
    assert "| 1: ECE | Coat | 10 of 10 | 35 of 35 | 20 of 20 |  | 65 of 65 |" in summary


def test_the_committed_rows_give_the_committed_tables(tmp_path):
    # Yahoo!R3's rows are not in the repository: its tables are.
    reproduce("aaai22", "--from-rows", REPRODUCE / "coat" / "rows.parquet", "--out", tmp_path)
    again = (tmp_path / "coat" / "tables.md").read_text()
    assert again == (REPRODUCE / "coat" / "tables.md").read_text()
    committed = (REPRODUCE / "summary.md").read_text()
    for line in (tmp_path / "summary.md").read_text().splitlines():
        if " | Coat | " in line:
            assert line in committed
    # The first screen of the write-up states the same number.
    number = committed.split("**")[1]
    assert number in " ".join((REPRODUCE / "README.md").read_text().split())


def test_the_write_up_has_the_differences_of_the_tables():
    tables = [(REPRODUCE / name / "tables.md").read_text() for name in DATASETS]
    lines = (REPRODUCE / "README.md").read_text().splitlines()
    differences = [line for line in lines if ", p = " in line]
    assert len(differences) == 4 * len(DATASETS)
    for line in differences:
        assert any(line in table for table in tables)


def test_rows_of_older_versions_are_read_with_the_present_names(tmp_path):
    common = {"dataset": "coat", "spec": "released", "split": "released", "model": "BPR"}
    rows = [row(**common, seed=0, metric="ECE of top 5", value=0.1)]
    found = read_rows(write_rows(tmp_path / "rows.parquet", rows))
    assert found["metric"].to_pylist() == ["ECE@5"]


def test_a_file_that_holds_no_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match="must be a file of result rows, got no such file"):
        read_rows(tmp_path / "rows.parquet")
    (tmp_path / "text.parquet").write_text("not Parquet")
    with pytest.raises(DataError, match="must be a Parquet file of result rows"):
        read_rows(tmp_path / "text.parquet")
    pq.write_table(pa.table({"value": [1.0]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match=r"must be a Parquet file of result rows, got .*dataset"):
        read_rows(tmp_path / "other.parquet")


# ---- agreement ----


def test_a_number_agrees_in_the_range_of_one_run_or_is_beaten():
    ours = Spread.of(np.array([0.1, 0.12, 0.14]))

    def of(value, metric="ECE"):
        number = PublishedNumber("1", metric, "Platt", "naive", "coat", "BPR", value)
        return Comparison(number, ours)

    inside = ours.mean + 0.9 * ours.prediction_half
    above = ours.mean + 1.1 * ours.prediction_half
    below = ours.mean - 1.1 * ours.prediction_half
    assert (of(inside).agrees, of(inside).met) == (True, True)
    # Lower is better for errors, higher for ranking metrics.
    assert (of(above).agrees, of(above).met) == (False, True)
    assert not of(below).met
    assert not of(above, "NDCG@5").met
    assert of(below, "NDCG@5").met
    assert not Comparison(of(0.1).published, None).met


def test_agreement_is_counted_by_table_dataset_and_loss(released):
    results = results_of(published_rows(released, shift=0.05))
    published = Published.beside(REPRODUCE)
    compared = []
    for dataset in DATASETS:
        compared += published.compare(Protocol.of(results, released, dataset, "released"))
    table = agreement_table(compared)
    # Our errors are all larger, our ranking accuracy is all better.
    assert "| 1: ECE | Coat | 0 of 10 | 0 of 35 | 0 of 20 |  | 0 of 65 |" in table
    assert "| all | all | 0 of 60 | 0 of 210 | 0 of 120 | 60 of 60 | 60 of 450 |" in table


def test_reasons_are_matched_by_column_and_unknown_ones_are_admitted(tmp_path):
    with (tmp_path / "reasons.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["metric", "method", "loss", "dataset", "model", "reason"])
        writer.writerow(["NLL", "MinMax", "", "", "", "repeated from Table 1"])
    (tmp_path / "published.csv").write_text((REPRODUCE / "published.csv").read_text())
    published = Published.beside(tmp_path)
    number = PublishedNumber("5", "NLL", "MinMax", "none", "coat", "BPR", 0.1)
    assert published.reason_for(number) == "repeated from Table 1"
    assert published.reason_for(number._replace(metric="ECE")) == UNKNOWN


def test_specs_of_ones_own_need_no_published_numbers(tmp_path):
    assert Published.beside(tmp_path) == Published({}, [])
    (tmp_path / "published.csv").write_text("table,metric\n1,ECE\n")
    with pytest.raises(DataError, match=r"have the columns table, .*, value, got a row"):
        Published.beside(tmp_path)


def test_figures_without_a_method_of_the_paper_are_left_out(released, tmp_path):
    protocol = Protocol.of(results_of(published_rows(released)), released, "coat", "released")
    plain = replace(protocol, spec=replace(released, sweep=(), estimators=()))
    save_figures(plain, {"BPR": pa.table({"label": [0, 1], "score": [0.1, 0.2]})}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_claimed_improvement_of_uerm_is_a_row_of_ours(released):
    rows = published_rows(released)
    for each in rows:
        if each["method"] == "Gaussian" and each["metric"] == "ECE":
            each["value"] = 0.02 if each["loss"] == "ips" else 0.04 + 0.001 * each["seed"]
    protocol = Protocol.of(results_of(rows), released, "coat", "released")
    table = uerm_table(protocol, Published.beside(REPRODUCE))
    # 1 - 0.02 / 0.041, and the published 1 - 0.0393 / 0.0436.
    p = stats.ttest_1samp([0.020, 0.021, 0.022], 0).pvalue
    assert f"| Gaussian | +51.2%, p = {p:.2g} (+9.9%) |" in table
    assert "(claimed: +7.4% to +76.5%)" in table


# ---- the rule for the number of negatives ----


def sweep_rows(predictions, base_rate=0.2, failing=None):
    rows = []
    for count, prediction in predictions.items():
        for method in ("Platt", "Gaussian", "Gamma"):
            for seed in range(SEEDS):
                if count == failing and method == "Gamma" and seed == 1:
                    continue
                common = {
                    "dataset": "coat",
                    "spec": "released",
                    "split": "released",
                    "model": "BPR",
                    "method": method,
                    "loss": "ips",
                    "propensity": "popularity",
                    "negatives": count,
                    "seed": seed,
                }
                value = prediction + 0.01 * (seed - 1)
                rows.append(row(**common, metric="mean prediction", value=value))
                rows.append(row(**common, metric="base rate", value=base_rate))
    return rows


def test_the_rule_takes_the_number_nearest_to_the_base_rate(released):
    predictions = {10: 0.31, 20: 0.21, 30: 0.18}
    protocol = Protocol.of(results_of(sweep_rows(predictions)), released, "coat", "released")
    found = protocol.nearest_negatives("ips")
    assert (found.count, found.tried) == (20, [10, 20, 30])
    assert found.ratio == pytest.approx(1.05)
    assert protocol.nearest_negatives("naive") is None
    # A number at which a fit failed is left out.
    failed = results_of(sweep_rows(predictions, failing=20))
    protocol = Protocol.of(failed, released, "coat", "released")
    assert protocol.nearest_negatives("ips").count == 30


def test_one_model_does_not_decide_for_the_others(released):
    rows = sweep_rows({10: 0.21, 20: 0.15})
    for model in ("NCF", "CML"):
        rows += [{**each, "model": model} for each in sweep_rows({10: 0.21, 20: 0.15})]
    for each in rows:
        if each["model"] == "CML" and each["metric"] == "mean prediction":
            each["value"] += 0.2
    protocol = Protocol.of(results_of(rows), released, "coat", "released")
    # By the mean over models, 20 would be nearer to the base rate of 0.2.
    assert protocol.nearest_negatives("ips").count == 10


def test_a_variant_gives_each_model_the_number_that_the_rule_finds_for_it(released):
    rows = sweep_rows({10: 0.31, 20: 0.21}) + [
        {**each, "model": "CML"} for each in sweep_rows({10: 0.2, 20: 0.1})
    ]
    for each in [each for each in rows if each["metric"] == "base rate"]:
        # Our ECE is the published one with 20 negatives, and far from it with 10.
        near = each["negatives"] == 20
        for metric in OUR_METRICS.values():
            value = 0.0393 if near and metric == "ECE" else 0.9
            rows.append({**each, "metric": metric, "value": value + 1e-4 * each["seed"]})
    protocol = Protocol.of(results_of(rows), released, "coat", "released")
    compared = Published.beside(REPRODUCE).compare(protocol)
    table = own_negatives_table(protocol, [c for c in compared if c.published.model != "NCF"])
    assert "3 of 18 published" in table
    assert "with one number for all models, 0 of them." in table
    assert "| Gaussian, UERM | 20: 0.0394 (0.0393) | 10: 0.9001 (0.0147) |" in table


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_numbers_of_the_released_spec_are_those_of_the_rule(dataset, released):
    lines = (REPRODUCE / dataset / "tables.md").read_text().splitlines()
    start = next(place for place, line in enumerate(lines) if "| by the rule |" in line)
    found = [line.split(" | ")[1:3] for line in lines[start + 2 : start + 5]]
    expected = [str(released.negatives_for(dataset, loss)) for loss in released.losses]
    assert found == [[number, number] for number in expected]
    for variant in load_specs(REPRODUCE / "variants"):
        for loss in variant.losses:
            expected_count = released.negatives_for("coat", loss)
            assert variant.negatives_for("coat", loss) == expected_count


def test_a_paired_test_uses_the_seeds_that_both_have(released):
    rows = published_rows(released)
    fits = Fit("Gaussian", "ips"), Fit("Platt", "ips")
    complete = Protocol.of(results_of(rows), released, "coat", "released")
    # Differences that are equal in every seed have no p-value.
    assert np.isnan(complete.paired_p("ECE", *fits, "BPR"))
    for each in rows:
        if each["method"] == "Platt":
            each["value"] += 0.002 * each["seed"] ** 2
    without = [r for r in rows if not (r["method"] == "Gaussian" and r["seed"] == 0)]
    protocol = Protocol.of(results_of(without), released, "coat", "released")
    ours, theirs = [protocol.by_seed("ECE", fit, "BPR") for fit in fits]
    expected = stats.ttest_rel([ours[1], ours[2]], [theirs[1], theirs[2]]).pvalue
    assert protocol.paired_p("ECE", *fits, "BPR") == pytest.approx(expected)
    assert len(protocol.by_seed("ECE", fits[0], "BPR")) == SEEDS - 1
