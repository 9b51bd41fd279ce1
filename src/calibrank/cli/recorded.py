"""Columns that options do not name, but that the command which wrote a table recorded."""

from pathlib import Path
from typing import NamedTuple

from calibrank.cli.console import UsageError, log, shown
from calibrank.cli.options import LogKind, PropensityKind, as_typed
from calibrank.evidence import naive
from calibrank.registry import EVIDENCE, find
from calibrank.tabular.read import Table
from calibrank.tabular.roles import EXPOSURE, RELATIVE_PROPENSITY, Roles


class Weighting(NamedTuple):
    """How labels are weighted: a loss, and where its propensities come from."""

    loss: str
    propensity: str | None = None
    """Column of propensities."""
    exposure: tuple[str, ...] = ()
    """Columns of ids whose numbers of impressions give the propensity of being shown."""


def choose_weighting(
    table: Table,
    log_kind: LogKind | None,
    loss: str | None,
    propensity: str | None,
    item: str | None,
    user: str | None,
    *,
    needs_weights: bool = True,
) -> Weighting:
    """How to weight labels: as options say, then as recorded in the table, then by default.

    Without `needs_weights`, labels are used as they are if there is nothing to weight them by.
    """
    if _choose_log(table, log_kind, loss) is LogKind.impressions:
        return _weight_impressions(table, loss, propensity, item, user)
    column = choose_propensity(table, propensity, item, loss)
    has_source = column is not None or item is not None
    if loss is None:
        loss = "ips" if needs_weights or has_source else "naive"
    if find("loss", EVIDENCE, loss) is not naive and not has_source:
        raise UsageError(
            f"--loss {as_typed(loss)} must have propensities: name their column with --propensity, "
            "or an item column with --item to estimate them from popularity. To use the labels "
            "as they are, give --loss naive. If every row was shown, and label 0 means not liked, "
            "give --log impressions."
        )
    return Weighting(loss, column)


def _choose_log(table: Table, given: LogKind | None, loss: str | None) -> LogKind:
    if given is LogKind.positives and loss == "impressions":
        raise UsageError(
            "--log positives must not go with --loss impressions, for which every row was shown. "
            "Leave one out."
        )
    if loss == "impressions":
        return LogKind.impressions
    if given is not None:
        return given
    roles = table.roles()
    # An explicit loss for a log of positives is a declaration too.
    if roles.log is None or loss is not None:
        return LogKind.positives
    text = f"Reading the table as a log of {roles.log} (recorded by {roles.written_by})"
    log.print(text, highlight=False, soft_wrap=True)
    return LogKind(roles.log)


def _weight_impressions(
    table: Table,
    loss: str | None,
    propensity: str | None,
    item: str | None,
    user: str | None,
) -> Weighting:
    if loss == "naive":
        return Weighting("naive")
    if loss not in (None, "impressions"):
        raise UsageError(
            f"--log impressions must go with --loss impressions or naive, got {loss}, in which "
            "label 0 is an unobserved pair. Leave --loss out."
        )
    if propensity is not None:
        return Weighting("impressions", propensity)
    roles = table.roles()
    recorded = roles.column(EXPOSURE)
    if recorded is not None and item is None:
        _report("exposure", recorded, roles)
        return Weighting("impressions", recorded)
    columns = [("item", item), ("user", user)]
    exposure = [table.resolve(role, name) for role, name in columns if name is not None]
    if not exposure:
        raise UsageError(
            "a log of impressions must have propensities of being shown: name the columns to "
            "count impressions by with --item and --user, or the logged probabilities with "
            "--propensity. If every pair was equally likely to be shown, use --loss naive."
        )
    return Weighting("impressions", None, tuple(exposure))


def choose_propensity(
    table: Table,
    given: str | None,
    item: str | None,
    loss: str | None,
) -> str | None:
    """The column of propensities: the given one, or the recorded one if it would be used."""
    if given is not None or item is not None or loss == "naive":
        return given
    roles = table.roles()
    recorded = roles.column("propensity") or roles.column(RELATIVE_PROPENSITY)
    if recorded is not None:
        _report("propensity", recorded, roles)
    return recorded


def choose_weight(table: Table, given: str | None) -> str | None:
    """The column of row weights: the given one, or the recorded one."""
    if given is not None:
        return table.resolve("weight", given)
    roles = table.roles()
    recorded = roles.column("weight")
    if recorded is not None:
        _report("weight", recorded, roles)
        return recorded
    unused = table.has("weight")
    if unused is not None:
        text = f"Column {unused!r} is not used. If rows are weighted, give --weight {unused}."
        log.print(shown(text), highlight=False, soft_wrap=True)
    return None


def assumption_about(
    table: Table,
    propensity: str | None,
    kind: PropensityKind,
) -> str:
    """What a column of propensities is assumed to be; one that calibrank estimated is relative."""
    is_estimate = propensity is not None and propensity == table.roles().column(RELATIVE_PROPENSITY)
    if kind is not PropensityKind.logged:
        return "item popularity" if is_estimate else "relative propensities"
    if propensity is None:
        raise UsageError(
            "--propensity-kind logged must go with a column of logged probabilities: "
            "name it with --propensity."
        )
    if is_estimate:
        raise UsageError(
            f"--propensity-kind must be relative for {propensity!r}, which calibrank estimated, "
            "got logged. Name the column that your system logged with --propensity."
        )
    return "logged propensities"


def report_lost_roles(table: Table, out: Path) -> None:
    """Print which options a CSV output will need, as CSV files hold no record of roles."""
    roles = table.roles()
    weight = roles.column("weight")
    propensity = roles.column(RELATIVE_PROPENSITY) or roles.column(EXPOSURE)
    if out.suffix != ".csv" or not (weight or propensity):
        return
    options = [f"--weight {weight}"] if weight else []
    options += [f"--propensity {propensity}"] if propensity else []
    options += [f"--log {roles.log}"] if roles.log else []
    text = f"CSV files do not record the roles of columns: give {' '.join(options)} to fit."
    log.print(shown(text), style="yellow", highlight=False, soft_wrap=True)


def _report(role: str, name: str, roles: Roles) -> None:
    # On standard error, so that --json stays one JSON object.
    text = f"Using {role} column {name!r} (recorded by {roles.written_by})"
    log.print(shown(text), highlight=False, soft_wrap=True)
