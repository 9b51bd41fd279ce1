"""`calibrank anchor`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.anchoring import anchor as anchor_map
from calibrank.anchoring import to_base_rate, transfer
from calibrank.anchoring._terms_of import default_terms
from calibrank.cli import console
from calibrank.cli.declared import choose_label, choose_terms, require_columns, with_terms
from calibrank.cli.failures import UsageError
from calibrank.cli.judgements import compare, print_compared, read_judged
from calibrank.cli.parse import Given
from calibrank.cli.rendering import print_base_rate, print_probabilities, print_terms
from calibrank.errors import DataError
from calibrank.evidence import naive
from calibrank.maps import CalibrationMap, load
from calibrank.maps.score_shift import ScoreComparison
from calibrank.search import anchor_judged, read_run
from calibrank.tabular.aggregate import read_features
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.terms import Position

# Options that have an effect whatever the labels are.
_ALWAYS = {"map", "out", "json", "base_rate", "base_rate_range"}
_OF_RUNS = {"run", "qrels", "label", "relevant"}


def anchor(given: Given) -> None:
    """Move a map to labels that can be trusted more, or to a known base rate."""
    _require_one_source(given)
    inputs = (given.map, given.table, given.run, given.qrels, given.population)
    console.require_output(given.out, *inputs)
    fitted = load(given.map)
    known = fitted if given.base_rate is None else _moved(fitted, given)
    anchored = known
    compared = None
    if given.qrels is not None:
        labels = [given.label] if given.label else []
        found = read_judged(given.run, [given.qrels], labels, given.relevant)
        folders = [Path(each).parent for each in (given.map, given.run, given.qrels)]
        compared = compare(known, found, folders)
        anchored = anchor_judged(known, found.judged)
    elif given.run is not None:
        anchored = _transferred(known, read_run(given.run).scores)
    elif given.table is not None:
        anchored = _anchored(known, given)
    elif given.base_rate is None:
        anchored = _transferred(known, _population(given, known)["score"])
    anchored.save(given.out)
    about = {"out": str(given.out), **anchored.to_dict()}
    console.answer(about | (compared._asdict() if compared else {}))
    print_base_rate(anchored.record)
    if compared is not None:
        print_compared(compared, Path(given.qrels).name)
    print_probabilities(anchored)
    print_terms(anchored)
    console.say_saved(given.out)


def _anchored(known: CalibrationMap, given: Given) -> CalibrationMap:
    """The map anchored on a table of labels."""
    table = Table.find(given.table)
    console.require_output(given.out, *table.files)
    terms = choose_terms(table, given)
    if given.rank is not None:
        require_columns(table, [given.rank], "rank")
        terms.append(Position(given.rank))
    terms = terms or list(default_terms(known, table.columns()))
    label = choose_label(table, given.label)
    user = None if given.group is None else table.resolve("group", given.group)
    score = table.resolve("score", given.score)
    columns = Columns(score, label.column, naive, user=user, label_rule=label.rule)
    columns = with_terms(columns.used_by(known), terms)
    weighting = "every pair weighted equally"
    if given.propensity is not None:
        weighting = f"propensity {table.resolve('propensity', given.propensity)!r}"
        columns = replace(columns, features={**columns.features, given.propensity: "propensity"})
    text = f"Anchoring on score column {score!r} and label {str(label.rule or label.column)!r}"
    console.say(f"{text} of {table.name}, {weighting}")
    rows = read_features(table, columns, Rules(skip=False))
    if not rows.evidence.positive.any():
        count = len(rows.scores)
        console.say(f"{table.name}: all {count:,} labels are 0. Check that the label is right.")
    if given.propensity is None and given.population is None:
        _warn_of_other_pairs(known, rows.scores)
    chances: Any = rows.features.get(given.propensity or "")
    pairs: Any = None if given.population is None else _population(given, known, given.rank)
    return anchor_map(
        known,
        rows.scores,
        rows.evidence,
        rows.features,
        propensity=chances,
        groups=rows.users,
        population=pairs,
        terms=terms,
    )


def _warn_of_other_pairs(known: CalibrationMap, scores: Floats) -> None:
    """The rate is stated for all pairs, of which the labelled ones may be no random sample."""
    comparison = ScoreComparison(known.record)
    comparison.add(scores)
    if comparison.is_shifted:
        console.warn(
            "The labelled pairs have other scores than those of the fit (Kolmogorov-Smirnov "
            f"distance {comparison.distance:.2f}). The rate below is that of pairs like the "
            "labelled ones. For other pairs, name a table of them with --population."
        )


def _transferred(fitted: CalibrationMap, scores: Floats) -> CalibrationMap:
    """The map for the scores of a model that replaced its own, without labels."""
    console.warn(
        "No labels were given: the new scores get the probabilities that the map's own scores of "
        "the same rank have. This is right if both models rank equally well; anchor the result on "
        "about 30 labels."
    )
    return transfer(fitted, scores)


def _require_one_source(given: Given) -> None:
    rate = given.base_rate
    if rate is not None and given.base_rate_range is None and (given.table or given.run):
        raise UsageError(
            "labels and --base-rate",
            "not both be given without --base-rate-range: the labels already determine the base "
            "rate",
            remedy="Give the range, and the labels are weighed against it.",
        )
    if all(each is None for each in (given.table, given.run, rate, given.population)):
        raise UsageError(
            "anchor",
            "have labels to trust (TABLE, or --run and --qrels) or a known rate (--base-rate)",
            "none",
            "For a replaced model, name its scores: --run or --population.",
        )
    if given.run is not None:
        given.refuse("with --run", *given.typed.keys() - _ALWAYS - _OF_RUNS)
    elif given.table is None:
        given.refuse("without labels", *given.typed.keys() - _ALWAYS - {"population", "score"})
    low, high = given.base_rate_range or (0, 1)
    if rate is not None and not low < rate < high:
        raise UsageError(
            "--base-rate-range",
            f"be two rates in (0, 1) with the base rate {rate} between them",
            f"{low} and {high}",
        )


def _moved(fitted: CalibrationMap, given: Given) -> CalibrationMap:
    """The map at the known rate, over the pairs of --population or scores like those of the fit."""
    pairs = None
    quantiles = fitted.record.score_quantiles
    if given.population is not None:
        pairs = _population(given, fitted)
        scores = pairs["score"]
    elif fitted.terms or quantiles is None:
        needed = ", ".join(fitted.columns) or "scores, of which it has no sketch"
        raise UsageError(
            "--base-rate",
            "go with --population for this map: the rate is a mean over pairs, and the map needs "
            f"their {needed}",
            remedy="Name a table of pairs.",
        )
    else:
        ends = np.array(quantiles)
        scores = (ends[1:] + ends[:-1]) / 2
    return to_base_rate(fitted, given.base_rate, scores, None, given.base_rate_range, pairs)


def _population(given: Given, fitted: CalibrationMap, rank: str | None = None) -> dict[str, Any]:
    """Rows of the pairs that probabilities are wanted for, with the map's columns."""
    table = Table.find(given.population)
    named = {"score": table.resolve("score", given.score)}
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
