"""A saved map applied to the run of a search system: `calibrank rerank --map`."""

from pathlib import Path

from calibrank._internal.arguments import listed, real
from calibrank._internal.atomic import write_atomic
from calibrank.cli.console import log, print_json, require_output, shown
from calibrank.cli.judgements import warn
from calibrank.cli.written_run import Written
from calibrank.errors import DataError
from calibrank.maps import FitRecord, describe_population, load
from calibrank.maps.score_shift import ScoreComparison
from calibrank.search import encode_run, read_run
from calibrank.search.write import require_layout


def apply_to_run(
    run_name: str,
    map_file: Path,
    threshold: float | None,
    top_k: int | None,
    out: Path,
    *,
    json: bool,
) -> None:
    """Write the probabilities of a run of new queries, and say which documents the map is for."""
    if threshold is not None:
        real("--threshold", threshold, "[0, 1]", "It is a probability.")
    require_output(out, run_name, map_file)
    fitted = load(map_file)
    used = [*fitted.segment_columns, *fitted.feature_columns]
    if used:
        raise DataError(
            f"{map_file} must be a map of scores alone, got one that uses {listed(used)}, which "
            "runs do not hold. Use calibrank apply on a table with these columns."
        )
    run = read_run(run_name)
    require_layout(out, run)
    deepest = int(run.ranks.max())
    found = []
    warning = _contradiction(fitted.record, top_k, deepest)
    if warning is not None:
        found.append(warning)
    if fitted.record.population is not None:
        sentence = f"The map: {describe_population(fitted.record.population)}"
        log.print(shown(sentence), highlight=False, soft_wrap=True)
    run = run if top_k is None else run.first(top_k)
    comparison = ScoreComparison(fitted.record)
    comparison.add(run.scores)
    if comparison.is_shifted:
        found.append(f"In {run_name} {comparison.message}")
    for message in found:
        warn(message)
    probabilities = fitted.predict(run.scores)
    kept = probabilities >= (0.0 if threshold is None else threshold)
    write_atomic(out, encode_run(out, run, probabilities, kept))
    written = Written.of(run, kept)
    if json:
        about = {"out": str(out), **written._asdict()}
        print_json({**about, "warnings": found})
        return
    written.print(out)


def _contradiction(record: FitRecord, top_k: int | None, deepest: int) -> str | None:
    """What makes the documents of a run others than those that the map is for."""
    population = record.population
    if population is None:
        return (
            "The map does not say which documents it is for: it was not fitted on a judged run. "
            "Fit one with calibrank fit --qrels."
        )
    used = deepest if top_k is None else min(top_k, deepest)
    if population.top_k is not None and used > population.top_k:
        return (
            f"The map is for the first {population.top_k:,} documents per query, and the run has "
            f"up to {used:,}: probabilities of the others are not calibrated. Use "
            f"--top-k {population.top_k}."
        )
    return None
