"""Columns that options do not name, but that the command which wrote a table recorded."""

from pathlib import Path

from calibrank.cli.console import UsageError, log, shown
from calibrank.cli.options import PropensityKind
from calibrank.tabular.read import Table
from calibrank.tabular.roles import RELATIVE_PROPENSITY, Roles


def choose_propensity(
    table: Table,
    given: str | None,
    item: str | None,
    loss: str | None,
) -> str | None:
    """The column of propensities: the given one, or the recorded one if it would be used."""
    # Impressions need the logging policy's propensities, which calibrank never estimates.
    if given is not None or item is not None or loss in ("naive", "impressions"):
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
    propensity = roles.column(RELATIVE_PROPENSITY)
    if out.suffix != ".csv" or not (weight or propensity):
        return
    options = [f"--weight {weight}"] if weight else []
    options += [f"--propensity {propensity}"] if propensity else []
    text = f"CSV files do not record the roles of columns: give {' '.join(options)} to fit."
    log.print(shown(text), style="yellow", highlight=False, soft_wrap=True)


def _report(role: str, name: str, roles: Roles) -> None:
    # On standard error, so that --json stays one JSON object.
    text = f"Using {role} column {name!r} (recorded by {roles.written_by})"
    log.print(shown(text), highlight=False, soft_wrap=True)
