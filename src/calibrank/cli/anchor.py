"""`calibrank anchor`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.anchoring import anchor as anchor_map
from calibrank.anchoring import compare_with_constant, to_base_rate, transfer
from calibrank.anchoring.count_columns import default_terms
from calibrank.cli import console
from calibrank.cli.declared import Label, choose_label, require_columns
from calibrank.cli.failures import UsageError
from calibrank.cli.judgements import Judgements, compare, read_judged
from calibrank.cli.rendering import base_rate_lines, probability_table
from calibrank.cli.terms import choose_terms, print_terms
from calibrank.errors import DataError
from calibrank.evidence import naive
from calibrank.maps import CalibrationMap, load
from calibrank.search import anchor_judged, read_run
from calibrank.tabular.columns import Columns
from calibrank.tabular.features import FeatureRows, read_features
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.terms import Level, Position, Smooth, TermSpec

PANEL = "Labels to trust"


def anchor(
    map_file: Path,
    table: str | None,
    score: str | None,
    label: str | None,
    propensity: str | None,
    group: str | None,
    run: str | None,
    qrels: str | None,
    relevant: float | None,
    base_rate: float | None,
    base_rate_range: tuple[float, float] | None,
    population: str | None,
    segment: list[str] | None,
    feature: list[str] | None,
    rank: str | None,
    out: Path,
    json: bool,
) -> None:
    """Move a map to labels that can be trusted more, or to a known base rate."""
    _require_one_source(table, run, qrels, relevant, base_rate, base_rate_range, population)
    _require_valid_rate(base_rate, base_rate_range)
    console.require_output(out, map_file, table, run, qrels, population)
    fitted = load(map_file)
    known = _moved(fitted, base_rate, base_rate_range, population, score)
    anchored = known
    compared = None
    if run is not None and qrels is not None:
        found = read_judged(run, Judgements([qrels], [label] if label else (), relevant))
        compared = compare(known, found, [Path(each).parent for each in (map_file, run, qrels)])
        anchored = anchor_judged(known, found.judged)
    elif run is not None:
        anchored = _transferred(known, read_run(run).scores)
    elif table is None and population is not None and base_rate is None:
        anchored = _transferred(known, _population(population, score, known)["score"])
    elif table is not None:
        source = Table.find(table)
        console.require_output(out, *source.files)
        terms = choose_terms(source, segment, feature)
        if rank is not None:
            require_columns(source, [rank], "rank")
            terms.append(Position(rank))
        terms = terms or list(default_terms(fitted, source.columns()))
        columns = _columns(source, fitted, score, choose_label(source, label), group, terms)
        if propensity is not None:
            columns = replace(columns, features={**columns.features, propensity: "propensity"})
        rows = _read(source, columns, propensity)
        chances: Any = None if propensity is None else rows.features[propensity]
        pairs: Any = None if population is None else _population(population, score, known, rank)
        anchored = anchor_map(
            known,
            rows.scores,
            rows.evidence,
            rows.features,
            propensity=chances,
            groups=rows.users,
            population=pairs,
            terms=terms,
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    anchored.save(out)
    if json:
        about = {"out": str(out), **anchored.to_dict(), **_constant_check(anchored)}
        console.print_json(about | (compared.to_dict() if compared else {}))
        return
    console.state(base_rate_lines(anchored.record))
    if compared is not None and qrels is not None:
        compared.print(Path(qrels).name)
    console.show(probability_table(anchored))
    print_terms(anchored)
    console.state(f"[bold]Saved:[/] {console.shown(out)}")


def _transferred(fitted: CalibrationMap, scores: Floats) -> CalibrationMap:
    """The map for the scores of a model that replaced its own, without labels."""
    console.warn(
        "No labels were given: the new scores get the probabilities that the map's own scores of "
        "the same rank have. This is right if both models rank equally well; anchor the result on "
        "about 30 labels."
    )
    return transfer(fitted, scores)


def _require_one_source(
    table: str | None,
    run: str | None,
    qrels: str | None,
    relevant: float | None,
    base_rate: float | None,
    rate_range: tuple[float, float] | None,
    population: str | None,
) -> None:
    if qrels is not None and run is None:
        raise UsageError("--qrels", "go with --run, whose documents were judged")
    if table is not None and run is not None:
        raise UsageError("labels", "come from TABLE or from --run and --qrels", "both")
    if base_rate is not None and rate_range is None and (table or run):
        raise UsageError(
            "labels and --base-rate",
            (
                "not both be given without --base-rate-range: the labels already determine "
                "the base rate"
            ),
            remedy="Give the range, and the labels are weighed against it.",
        )
    if table is None and run is None and base_rate is None and population is None:
        raise UsageError(
            "anchor",
            ("have labels to trust (TABLE, or --run and --qrels) or a known rate (--base-rate)"),
            "none",
            "For a replaced model, name its scores: --run or --population.",
        )
    always = {"map_file", "out", "json", "base_rate", "base_rate_range"}
    if run is not None:
        console.require_only("--run", {*always, "run", "qrels", "label", "relevant"})
    elif table is None:
        console.require_only("no labels", {*always, "population", "score"})
    elif relevant is not None:
        raise UsageError("--relevant", "go with --qrels, whose grades it is about")


def _require_valid_rate(rate: float | None, rate_range: tuple[float, float] | None) -> None:
    if rate is not None and not console.SMALLEST_FRACTION <= rate < 1:
        raise UsageError(
            "--base-rate",
            "lie between 0 and 1",
            rate,
            "It is the fraction of all pairs that are liked.",
        )
    if rate_range is None:
        return
    if rate is None:
        raise UsageError("--base-rate-range", "go with --base-rate, the most plausible rate")
    low, high = rate_range
    if not 0 < low < rate < high < 1:
        raise UsageError(
            "--base-rate-range",
            f"be two rates in (0, 1) with the base rate {rate} between them",
            f"{low} and {high}",
        )


def _moved(
    fitted: CalibrationMap,
    rate: float | None,
    rate_range: tuple[float, float] | None,
    population: str | None,
    score: str | None,
) -> CalibrationMap:
    """The map at the known rate, if there is one."""
    if rate is None:
        return fitted
    if population is not None:
        pairs = _population(population, score, fitted)
        return to_base_rate(fitted, rate, pairs["score"], None, rate_range, pairs)
    if fitted.terms:
        raise UsageError(
            "--base-rate",
            (
                "go with --population for a map with terms: the rate is a mean over pairs, "
                f"and the map needs their {', '.join(fitted.columns)}"
            ),
            remedy="Name a table of pairs.",
        )
    return to_base_rate(fitted, rate, _sketch(fitted), None, rate_range)


def _sketch(fitted: CalibrationMap) -> Floats:
    """Scores like those of the fit: the middles between neighbouring quantiles."""
    quantiles = fitted.record.score_quantiles
    if quantiles is None:
        raise UsageError(
            "--population",
            ("be given for a map without a sketch of its scores, such as one of an older version"),
            remedy="Name a table of pairs.",
        )
    ends = np.array(quantiles)
    middles: Floats = (ends[1:] + ends[:-1]) / 2
    return middles


def _constant_check(fitted: CalibrationMap) -> dict[str, Any]:
    """For --json: a map moved to a known rate, compared with that rate for every pair."""
    record = fitted.record
    if record.base_rate_source != "known rate" or fitted.terms or record.score_quantiles is None:
        return {}
    check = compare_with_constant(fitted, _sketch(fitted))
    warning = check.message if check.is_worse else None
    return {"constant_check": {**check._asdict(), "warning": warning}}


def _columns(
    table: Table,
    fitted: CalibrationMap,
    score: str | None,
    label: Label,
    group: str | None,
    terms: list[TermSpec],
) -> Columns:
    """The columns of labels: those of the map's terms, and of further ones."""
    roles: dict[type[TermSpec], str] = {Smooth: "feature", Position: "rank"}
    numbers = dict(fitted.number_columns)
    levels = list(fitted.level_columns)
    for term in terms:
        if isinstance(term, Level):
            levels += term.columns
        else:
            numbers[term.columns[0]] = roles[type(term)]
    return Columns(
        table.resolve("score", score),
        label.column,
        naive,
        user=None if group is None else table.resolve("group", group),
        label_rule=label.rule,
        segments=tuple(dict.fromkeys(levels)),
        features=numbers,
    )


def _read(table: Table, columns: Columns, propensity: str | None) -> FeatureRows:
    """All rows of a table of labels."""
    weighting = "every pair weighted equally"
    if propensity is not None:
        weighting = f"propensity {table.resolve('propensity', propensity)!r}"
    label = str(columns.label_rule or columns.label)
    text = f"Anchoring on score column {columns.score!r} and label {label!r} of {table.name}"
    console.say(f"{text}, {weighting}")
    rows = read_features(table, columns, Rules(skip=False))
    if not rows.evidence.positive.any():
        count = len(rows.scores)
        console.say(f"{table.name}: all {count:,} labels are 0. Check that the label is right.")
    return rows


def _population(
    name: str, score: str | None, fitted: CalibrationMap, rank: str | None = None
) -> dict[str, Any]:
    """Rows of the pairs that probabilities are wanted for, with the map's columns."""
    table = Table.find(name)
    named = {"score": table.resolve("score", score)}
    numbers = fitted.number_columns | ({} if rank is None else {rank: "rank"})
    levels = fitted.level_columns
    parts: dict[str, list[Any]] = {each: [] for each in ("score", *numbers, *levels)}
    for batch in table.batches([*named.values(), *numbers, *levels]):
        Rules(skip=False).valid_rows(batch, named, (), levels, numbers)
        parts["score"].append(batch.numbers(named["score"]).astype(np.float64))
        for each in numbers:
            parts[each].append(batch.numbers(each))
        for each in levels:
            parts[each].append(batch.texts(each))
    if not parts["score"]:
        raise DataError(table.name, "hold at least one row", "none", "Check it.")
    return {each: np.concatenate(arrays) for each, arrays in parts.items()}
