"""`calibrank fit`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from calibrank._internal.arguments import date_of
from calibrank._internal.arguments import label as label_of
from calibrank.anchoring import with_sampling_range
from calibrank.cli.anchoring import (
    AnchorOption,
    AnchorPropensityOption,
    anchor_columns,
    anchored_on,
)
from calibrank.cli.base_rate import (
    ActivityOption,
    BaseRateOption,
    BaseRateRangeOption,
    Rates,
    TopRateOption,
)
from calibrank.cli.changes import DEFAULT_TOP, RankOption, TopOption, choose_changes
from calibrank.cli.columns import choose_columns, say_choice
from calibrank.cli.console import (
    UsageError,
    log,
    progress_bar,
    report_skipped,
    require_effect,
    require_fraction,
    require_one_propensity_source,
    require_only,
    require_output,
    require_unused,
    rules_for,
    shown,
)
from calibrank.cli.declared import choose_label
from calibrank.cli.features import (
    CategoryOption,
    FeatureOption,
    KeepOrderOption,
)
from calibrank.cli.fit_output import print_result
from calibrank.cli.judgements import (
    USED_WITH_QRELS,
    Judgements,
    PoolDepthOption,
    PoolOption,
    QrelsOption,
    RelevantOption,
    TopKOption,
    fit_run,
    require_qrels,
)
from calibrank.cli.options import (
    BadRowsOption,
    ClicksOption,
    ImpressionsOption,
    ItemForPopularityOption,
    JsonOption,
    LabelOption,
    LogKind,
    LogOption,
    LossOption,
    MethodOption,
    NegativesKeptOption,
    OnBadRows,
    PositiveOption,
    PropensityKind,
    PropensityKindOption,
    PropensityOption,
    ScoreOption,
    SoftOption,
    TableArgument,
    UserForFoldsOption,
    WeightOption,
    as_typed,
)
from calibrank.cli.position import (
    ExaminationOption,
    PositionOption,
    require_position,
    with_examination,
)
from calibrank.cli.recorded import assumption_about, choose_weighting
from calibrank.cli.segments import FitSegmentOption
from calibrank.curves import Auto, Calibrator, Gaussian, Parametric
from calibrank.curves.auto import with_selection
from calibrank.diagnosis import attach_sensitivity
from calibrank.errors import FitError
from calibrank.maps import (
    CalibrationMap,
)
from calibrank.registry import CALIBRATORS, SELECTORS, find
from calibrank.summary.grid import CAPACITY
from calibrank.tabular.aggregate import Aggregate, Columns, aggregate
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

FALLBACK = Gaussian()
"""The method where none can be selected by cross-validation."""

OutOption = Annotated[
    Path,
    typer.Option("--out", "-o", help="Where to save the map (JSON)."),
]
ModelNameOption = Annotated[
    str | None,
    typer.Option(help="Name of the model that gave the scores, to keep in the map."),
]
DateOption = Annotated[
    str | None,
    typer.Option(help="Date of the model or the table (such as 2026-01-31), to keep in the map."),
]


def fit(
    context: typer.Context,
    table: TableArgument,
    out: OutOption = Path("map.json"),
    score: ScoreOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    clicks: ClicksOption = None,
    impressions: ImpressionsOption = None,
    soft: SoftOption = False,
    propensity: PropensityOption = None,
    propensity_kind: PropensityKindOption = PropensityKind.relative,
    position: PositionOption = None,
    examination: ExaminationOption = None,
    item: ItemForPopularityOption = None,
    user: UserForFoldsOption = None,
    weight: WeightOption = None,
    method: MethodOption = "auto",
    log_kind: LogOption = None,
    loss: LossOption = None,
    segment: FitSegmentOption = None,
    feature: FeatureOption = None,
    category: CategoryOption = None,
    keep_order: KeepOrderOption = False,
    rank: RankOption = None,
    top: TopOption = DEFAULT_TOP,
    qrels: QrelsOption = None,
    relevant: RelevantOption = None,
    pool: PoolOption = None,
    pool_depth: PoolDepthOption = None,
    top_k: TopKOption = None,
    anchor: AnchorOption = None,
    anchor_propensity: AnchorPropensityOption = None,
    base_rate: BaseRateOption = None,
    base_rate_range: BaseRateRangeOption = None,
    top_rate: TopRateOption = None,
    activity: ActivityOption = None,
    negatives_kept: NegativesKeptOption = 1.0,
    model_name: ModelNameOption = None,
    date: DateOption = None,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Fit a calibration map to a table of scores and labels of any size.

    By default the method is chosen by cross-validation; with --base-rate, among the parametric
    ones, which alone can be moved to a rate. With --segment, the map is changed by segment, as far
    as the rows of each segment support it; with --feature, by functions of columns. With --qrels,
    TABLE is a run of a search system, and the map is for new queries.

    Example: calibrank fit scores.parquet --item item_id --user user_id -o map.json
    """
    if model_name is not None:
        label_of("model_name", model_name, "It is stored in the map.")
    if date is not None:
        date_of("date", date)
    if qrels is not None:
        require_only(context, "--qrels", USED_WITH_QRELS)
        fit_run(
            table,
            Judgements(qrels, positive, relevant, soft, pool or [], pool_depth, top_k),
            out,
            model_name,
            date,
            json,
        )
        return
    require_qrels(pool, pool_depth, top_k, relevant)
    # All options are checked before the table is read, which may take minutes.
    rates = Rates(anchor, anchor_propensity, base_rate, base_rate_range, top_rate, activity)
    rates.require_valid(loss)
    require_fraction("--negatives-kept", negatives_kept)
    require_position(position, examination, propensity, item, log_kind, loss)
    require_one_propensity_source(propensity, item)
    require_effect(loss, propensity, item)
    source = _find_table(table, out, anchor, activity, examination)
    rules = rules_for(on_bad_rows)
    declared = choose_label(source, label, positive, clicks, impressions, soft=soft)
    # Numbers of impressions say what the rows are.
    log_kind = LogKind.impressions if impressions is not None else log_kind
    weighting = choose_weighting(source, log_kind, loss, position or propensity, item, user)
    assumption = assumption_about(source, weighting.propensity, propensity_kind)
    if position is not None:
        source.resolve("position", position)
    columns = choose_columns(
        source, score, declared, weighting, item, weight, user, negatives_kept, assumption
    )
    say_choice(source, "score", score, columns.score)
    if columns.label_rule is None:
        say_choice(source, "label", label, columns.label)
    columns = columns if position is None else with_examination(source, columns, examination, rules)
    changes = choose_changes(
        source, segment, feature, category, rank, top, rates, user, keep_order=keep_order
    )
    selector = _selector(method, parametric=rates.moves)
    uses = (selector, columns.exposure, position, activity, changes.features)
    _require_use_of_user(user, method, *uses)
    # Segments are counted in the labels that decide: those of the random pairs, if there are any.
    counted = replace(columns, segments=changes.segments if anchor is None else ())
    calibrator, fitted, aggregated = _fit_table(source, counted, rules, selector, method)
    if weighting.loss == "impressions" and propensity_kind is PropensityKind.logged:
        fitted = with_sampling_range(fitted, aggregated.summary)
    biased = rates.move(fitted, aggregated.summary, user, item, positive)
    labelled, label_columns, fitted = source, columns, biased
    if anchor is not None:
        labelled = Table.find(anchor)
        label_columns = anchor_columns(labelled, columns, anchor_propensity)
        fitted = anchored_on(fitted, labelled, label_columns, rules, aggregated.summary)
    # Random labels leave no band; a known rate leaves one of slopes, unless the slope is known too.
    elif top_rate is None:
        fitted = attach_sensitivity(fitted, calibrator, aggregated, columns)
    record = replace(fitted.record, model_name=model_name, date=date)
    fitted = replace(fitted, record=record)  # type: ignore[type-var]  # all maps are dataclasses
    saved = changes.fit(biased, fitted, labelled, label_columns, aggregated, on_bad_rows)
    saved.save(out)
    report_skipped(rules)
    print_result(fitted, saved, aggregated.summary, out, rules, top_rate, json=json)


def _find_table(table: str, out: Path, anchor: str | None, *others: str | None) -> Table:
    """The table to read, once it is known that the output overwrites no input."""
    require_output(out, table, anchor, *others)
    out.parent.mkdir(parents=True, exist_ok=True)
    source = Table.find(table)
    labelled = Table.find(anchor).files if anchor else ()
    require_output(out, *source.files, *labelled)
    if {file.resolve() for file in source.files} & {file.resolve() for file in labelled}:
        raise UsageError(
            f"--anchor must be another table than TABLE, got {table} for both. It has the labels "
            "of pairs that were shown at random; the log's own labels are not."
        )
    return source


def _fit_table(
    source: Table,
    columns: Columns,
    rules: Rules,
    selector: Auto | None,
    method: str,
) -> tuple[Calibrator, CalibrationMap, Aggregate]:
    """Read the table once, and fit the given or the selected method."""
    folds = 1
    distinct = CAPACITY
    if selector is None:
        calibrator = find("method", CALIBRATORS, method)
        distinct = calibrator.distinct_scores
        # Only folds and exposure need users.
        user = columns.user if columns.user in columns.exposure else None
        columns = replace(columns, user=user)
    else:
        folds = selector.folds
    with progress_bar(source, "Reading") as progress:
        aggregated = aggregate(source, columns, rules, progress, folds, distinct)
    if aggregated.exposure is not None:
        log.print(f"Using {aggregated.exposure}", highlight=False, soft_wrap=True)
    if selector is None:
        return calibrator, calibrator.fit_summary(aggregated.summary), aggregated
    return *_select_and_fit(selector, aggregated), aggregated


def _selector(method: str, *, parametric: bool) -> Auto | None:
    """What chooses the method, or None if it is given."""
    if method not in map(as_typed, SELECTORS):
        return None
    selector = find("method", SELECTORS, method)
    if not parametric:
        return selector
    movable = [each for each in selector.candidates if isinstance(each, Parametric)]
    return replace(selector, candidates=tuple(movable))


def _select_and_fit(
    selector: Auto,
    aggregated: Aggregate,
) -> tuple[Calibrator, CalibrationMap]:
    """The selected method and its fit; those of `FALLBACK` where none can be selected."""
    summary = aggregated.summary
    try:
        calibrator, selection = selector.choose(aggregated.folds)
    except FitError as error:
        # A table that is too small to select on may still be fitted.
        fitted = FALLBACK.fit_summary(summary)
        log.print(
            f"Method: {FALLBACK.name}, because none could be selected by cross-validation: "
            f"{shown(error)}",
            highlight=False,
        )
        return FALLBACK, fitted
    return calibrator, with_selection(calibrator.fit_summary(summary), selection)


def _require_use_of_user(user: str | None, method: str, *uses: object) -> None:
    """Folds need users, and so do exposure, examination, activity and features."""
    if not any(uses):
        require_unused(f"with --method {method}", {"--user": user})
