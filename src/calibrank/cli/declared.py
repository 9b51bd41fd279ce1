"""What options and the record of a table declare: labels, the log, propensities and weights."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from calibrank._internal.aliases import ALIASES
from calibrank._internal.arguments import listed
from calibrank.cli import console, options
from calibrank.cli.failures import UsageError
from calibrank.errors import DataError
from calibrank.evidence import EvidenceFunction, impressions, ips, naive
from calibrank.tabular.columns import Columns
from calibrank.tabular.labels import Counts, LabelRule, declare
from calibrank.tabular.read import Table
from calibrank.tabular.roles import EXPOSURE, RELATIVE_PROPENSITY, Roles


class Label(NamedTuple):
    """The label column, and the rule that makes labels of it unless it holds 0 and 1."""

    column: str
    rule: LabelRule | None = None


def choose_label(table: Table, given: str | None) -> Label:
    """The label as declared: a column of 0 and 1, or a rule about columns of the table."""
    if given is None or given in table.columns():
        return Label(table.resolve("label", given))
    try:
        rule = declare(given)
    except DataError as error:
        # A plain name is more likely a column that is not there.
        if given.replace("_", "").isalnum():
            return Label(table.resolve("label", given))
        raise error.within("--label", UsageError) from None
    names = [*rule.columns.values(), *rule.texts]
    columns = [table.resolve("label", name) for name in names]
    return Label(columns[0], rule)


@dataclass(frozen=True, slots=True)
class Log:
    """The options that say how a table came about; checked before it is read."""

    kind: options.LogKind | None = None
    propensity: str | None = None
    item: str | None = None
    user: str | None = None
    position: str | None = None

    def __post_init__(self) -> None:
        if self.propensity is not None and self.item is not None:
            raise UsageError(
                "--propensity and --item",
                (
                    "not both be given: propensities are either read from a column or "
                    "estimated from item popularity"
                ),
                remedy="Leave one out.",
            )
        if self.kind is options.LogKind.policy and self.propensity is None:
            raise UsageError(
                "--log policy",
                (
                    "have the logged probabilities of showing each pair: name their column "
                    "with --propensity"
                ),
            )
        if self.position is not None:
            self._require_position()

    def _require_position(self) -> None:
        if self.kind in (options.LogKind.impressions, options.LogKind.policy):
            raise UsageError(
                "--position",
                (
                    f"not go with --log {self.kind}, in which label 0 means not liked: a row "
                    "that was not clicked may not have been looked at"
                ),
                remedy="Leave --log out.",
            )
        if self.item is None:
            raise UsageError(
                "--position",
                (
                    "go with --item: how often each rank is looked at is estimated from items "
                    "that were shown at several ranks"
                ),
            )


class Weighting(NamedTuple):
    """How labels become evidence, and where propensities come from."""

    evidence: EvidenceFunction
    propensity: str | None = None
    """Column of propensities."""
    exposure: tuple[str, ...] = ()
    """Columns of ids whose numbers of impressions give the propensity of being shown."""
    assumption: str = "relative propensities"


def _choose_weighting(table: Table, log: Log, label: Label, *, needs_weights: bool) -> Weighting:
    """How to weight labels: as options say, then as recorded in the table, then by default.

    Without `needs_weights`, labels are used as they are if there is nothing to weight them by.
    """
    kind = _kind_of_log(table, log, label)
    if kind is not options.LogKind.interactions:
        return _weight_impressions(table, log, kind)
    if log.position is not None:
        return Weighting(ips, table.resolve("position", log.position))
    column = log.propensity if log.propensity or log.item else _recorded_propensity(table)
    if column is None and log.item is None:
        if not needs_weights and log.kind is None:
            return Weighting(naive)
        raise UsageError(
            "a log of interactions",
            (
                "have propensities: estimate them from item popularity with --item, or name "
                "their column with --propensity"
            ),
            remedy=("If every row was shown, and label 0 means not liked, give --log impressions."),
        )
    if label.rule is not None and not label.rule.is_binary:
        raise UsageError(
            f"--label '{label.rule}'",
            "go with --log impressions or policy",
            "interactions, which weights single positives",
            "If the rows were shown, give --log impressions.",
        )
    estimated = column is not None and column == table.roles().column(RELATIVE_PROPENSITY)
    assumption = "item popularity" if estimated else "relative propensities"
    return Weighting(ips, column, (), assumption)


def _kind_of_log(table: Table, log: Log, label: Label) -> options.LogKind:
    """What the log is: as given, by what its labels are, as recorded, or interactions."""
    if log.kind is not None:
        return log.kind
    # Numbers of impressions say what the rows are.
    if isinstance(label.rule, Counts):
        return options.LogKind.impressions
    roles = table.roles()
    if roles.log != options.LogKind.impressions.value or log.position is not None:
        return options.LogKind.interactions
    console.say(f"Reading the table as a log of impressions (recorded by {roles.written_by})")
    return options.LogKind.impressions


def _weight_impressions(table: Table, log: Log, kind: options.LogKind) -> Weighting:
    if kind is options.LogKind.policy:
        estimated = (table.roles().column(RELATIVE_PROPENSITY), table.roles().column(EXPOSURE))
        if log.propensity in estimated:
            raise UsageError(
                "--log policy",
                "have probabilities that your system logged",
                f"{log.propensity!r}, which calibrank estimated",
                "Name the logged column.",
            )
        return Weighting(impressions, log.propensity, (), "logged propensities")
    if log.propensity is not None:
        return Weighting(impressions, log.propensity)
    recorded = table.roles().column(EXPOSURE)
    if recorded is not None and log.item is None:
        _say_recorded("exposure", recorded, table.roles())
        return Weighting(impressions, recorded)
    columns = [("item", log.item), ("user", log.user)]
    exposure = [table.resolve(role, name) for role, name in columns if name is not None]
    # Without ids to count impressions by, every row counts the same.
    return Weighting(impressions, None, tuple(exposure)) if exposure else Weighting(naive)


def _recorded_propensity(table: Table) -> str | None:
    roles = table.roles()
    recorded = roles.column("propensity") or roles.column(RELATIVE_PROPENSITY)
    if recorded is not None:
        _say_recorded("propensity", recorded, roles)
    return recorded


def choose_weight(table: Table, given: str | None) -> str | None:
    """The column of row weights: the given one, or the recorded one."""
    if given is not None:
        return table.resolve("weight", given)
    recorded = table.roles().column("weight")
    if recorded is not None:
        _say_recorded("weight", recorded, table.roles())
        return recorded
    unused = table.has("weight")
    if unused is not None:
        console.say(f"Column {unused!r} is not used. If rows are weighted, give --weight {unused}.")
    return None


def choose_columns(
    table: Table,
    log: Log,
    score: str | None,
    label: str | None,
    weight: str | None,
    item: str | None = None,
    user: str | None = None,
    negatives_kept: float = 1.0,
    *,
    needs_weights: bool = True,
) -> Columns:
    """The columns to read; those that are not named are found by usual names or the record."""
    declared = choose_label(table, label)
    weighting = _choose_weighting(table, log, declared, needs_weights=needs_weights)
    console.require_fraction("--negatives-kept", negatives_kept)
    weight = choose_weight(table, weight)
    if negatives_kept != 1 and weight is not None and weight == table.roles().column("weight"):
        raise UsageError(
            "--negatives-kept",
            (
                f"not be given with the recorded weights in {weight!r}, which already count "
                "each sampled negative as often as it stands for"
            ),
            remedy="Leave it out.",
        )
    propensity = weighting.propensity
    return Columns(
        score=table.resolve("score", score),
        label=declared.column,
        label_rule=declared.rule,
        evidence=weighting.evidence,
        propensity=None if propensity is None else table.resolve("propensity", propensity),
        assumption=weighting.assumption,
        item=None if item is None else table.resolve("item", item),
        weight=weight,
        user=None if user is None else table.resolve("user", user),
        exposure=weighting.exposure,
        negatives_kept=negatives_kept,
    )


def without_users(columns: Columns) -> Columns:
    """The columns without users, unless exposure depends on them: a missing user is no error."""
    return columns if columns.user in columns.exposure else replace(columns, user=None)


def find_user(table: Table, name: str | None) -> str | None:
    """The user column: the named one, or one with a usual name, if there is any."""
    return table.resolve("user", name) if name else table.has("user")


def require_columns(table: Table, names: list[str], what: str) -> tuple[str, ...]:
    """The columns, each once; raises for a name that the table does not have."""
    columns = table.columns()
    for name in names:
        if name not in columns:
            raise DataError(
                table.name,
                f"have the {what} column {name!r}",
                listed(columns),
                "Name one of these.",
            )
    return tuple(dict.fromkeys(names))


def say_choice(table: Table, role: str, given: str | None, chosen: str) -> None:
    """Say which column was taken where several could have been meant."""
    others = [name for name in ALIASES[role] if name in table.columns() and name != chosen]
    if given is None and table.roles().column(role) is None and others:
        console.say(
            f"The {role} is column {chosen!r}, not {listed(others)}: --{role} names another."
        )


def report_lost_roles(table: Table, out: Path) -> None:
    """Print which options a CSV output will need, as CSV files hold no record of roles."""
    roles = table.roles()
    weight = roles.column("weight")
    propensity = roles.column(RELATIVE_PROPENSITY) or roles.column(EXPOSURE)
    if out.suffix not in {".csv", ".tsv", ".gz"} or not (weight or propensity):
        return
    named = [f"--weight {weight}"] if weight else []
    named += [f"--propensity {propensity}"] if propensity else []
    named += [f"--log {roles.log}"] if roles.log == options.LogKind.impressions.value else []
    console.warn(f"CSV files do not record the roles of columns: give {' '.join(named)} to fit.")


def _say_recorded(role: str, name: str, roles: Roles) -> None:
    console.say(f"Using {role} column {name!r} (recorded by {roles.written_by})")
