"""What options and the record of a table declare: labels, the log, weights and terms."""

from dataclasses import replace
from typing import NamedTuple

from calibrank._internal.aliases import ALIASES
from calibrank._internal.arguments import listed
from calibrank.cli import console
from calibrank.cli.failures import UsageError
from calibrank.cli.parse import Given
from calibrank.errors import DataError
from calibrank.evidence import impressions, ips, naive
from calibrank.maps import CalibrationMap, load
from calibrank.tabular.aggregate import is_level_column
from calibrank.tabular.columns import EXPOSURE, RELATIVE_PROPENSITY, Columns
from calibrank.tabular.labels import Counts, LabelRule, declare
from calibrank.tabular.read import Table
from calibrank.terms import Level, Position, Smooth, TermSpec


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


def choose_columns(
    table: Table,
    given: Given,
    item: str | None = None,
    user: str | None = None,
    *,
    needs_weights: bool = True,
) -> Columns:
    """The columns to read; those that are not named are found by usual names or the record.

    Items and users may be read that are not named. Without `needs_weights`, labels are used as
    they are if there is nothing to weight them by.
    """
    _require_consistent(given)
    label = choose_label(table, given.label)
    columns = Columns(
        table.resolve("score", given.score),
        label.column,
        naive,
        label_rule=label.rule,
        item=item and table.resolve("item", item),
        user=user and table.resolve("user", user),
        negatives_kept=given.negatives_kept,
    )
    kind = _kind_of_log(table, given, label)
    if kind == "interactions":
        columns = _weight_interactions(table, given, columns, needs_weights=needs_weights)
    else:
        columns = _weight_impressions(table, given, columns, kind)
    weight = choose_weight(table, given.weight)
    if given.negatives_kept != 1 and weight and weight == table.roles().column("weight"):
        raise UsageError(
            "--negatives-kept",
            f"not be given with the recorded weights in {weight!r}, which already count each "
            "sampled negative as often as it stands for",
            remedy="Leave it out.",
        )
    return replace(columns, weight=weight)


def _require_consistent(given: Given) -> None:
    """Refuse options about the log that contradict each other."""
    if given.log == "policy" and given.propensity is None:
        rule = "have the logged probabilities of showing each pair"
        raise UsageError("--log policy", rule, remedy="Name their column with --propensity.")
    if given.position is not None and given.log in ("impressions", "policy"):
        raise UsageError(
            "--position",
            f"not go with --log {given.log}, in which label 0 means not liked: a row that "
            "was not clicked may not have been looked at",
            remedy="Leave --log out.",
        )


def _kind_of_log(table: Table, given: Given, label: Label) -> str:
    """What the log is: as given, by what its labels are, as recorded, or interactions."""
    if given.log is not None:
        return given.log
    # Numbers of impressions say what the rows are.
    if isinstance(label.rule, Counts):
        return "impressions"
    roles = table.roles()
    if roles.log != "impressions" or given.position is not None:
        return "interactions"
    console.say(f"Reading the table as a log of impressions (recorded by {roles.written_by})")
    return "impressions"


def _weight_interactions(
    table: Table, given: Given, columns: Columns, *, needs_weights: bool
) -> Columns:
    if given.position is not None:
        return replace(columns, evidence=ips, propensity=table.resolve("position", given.position))
    named = given.propensity or given.item
    propensity = given.propensity if named else _recorded(table, "propensity", RELATIVE_PROPENSITY)
    if propensity is None and given.item is None:
        if not needs_weights and given.log is None:
            return columns
        raise UsageError(
            "a log of interactions",
            "have propensities: estimate them from item popularity with --item, or name their "
            "column with --propensity",
            remedy="If every row was shown, and label 0 means not liked, give --log impressions.",
        )
    if columns.label_rule is not None and not columns.label_rule.is_binary:
        raise UsageError(
            f"--label '{columns.label_rule}'",
            "go with --log impressions or policy",
            "interactions, which weights single positives",
            "If the rows were shown, give --log impressions.",
        )
    if propensity is None:
        return replace(columns, evidence=ips)
    estimated = propensity == table.roles().column(RELATIVE_PROPENSITY)
    assumption = "item popularity" if estimated else "relative propensities"
    column = table.resolve("propensity", propensity)
    return replace(columns, evidence=ips, propensity=column, assumption=assumption)


def _weight_impressions(table: Table, given: Given, columns: Columns, kind: str) -> Columns:
    propensity = given.propensity
    if kind == "policy":
        roles = table.roles()
        if propensity in (roles.column(RELATIVE_PROPENSITY), roles.column(EXPOSURE)):
            raise UsageError(
                "--log policy",
                "have probabilities that your system logged",
                f"{propensity!r}, which calibrank estimated",
                "Name the logged column.",
            )
        columns = replace(columns, assumption="logged propensities")
    elif propensity is None and given.item is None:
        propensity = _recorded(table, EXPOSURE)
    if propensity is not None:
        column = table.resolve("propensity", propensity)
        return replace(columns, evidence=impressions, propensity=column)
    named = {"item": given.item, "user": given.user}
    exposure = tuple([table.resolve(role, name) for role, name in named.items() if name])
    # Without ids to count impressions by, every row counts the same.
    return replace(columns, evidence=impressions, exposure=exposure) if exposure else columns


def _recorded(table: Table, *roles: str) -> str | None:
    """The column that is recorded for the first of some roles, if any."""
    record = table.roles()
    for name in filter(None, map(record.column, roles)):
        shown = roles[0]
        console.say(f"Using {shown} column {name!r} (recorded by {record.written_by})")
        return name
    return None


def choose_weight(table: Table, given: str | None) -> str | None:
    """The column of row weights: the given one, or the recorded one."""
    if given is not None:
        return table.resolve("weight", given)
    recorded = _recorded(table, "weight")
    unused = None if recorded else table.has("weight")
    if unused is not None:
        console.say(f"Column {unused!r} is not used. If rows are weighted, give --weight {unused}.")
    return recorded


def choose_evaluated(table: Table, given: Given) -> tuple[CalibrationMap | None, Columns]:
    """What is to be evaluated, --map and --score or --probability, and the columns of it."""
    fitted = None if given.map is None else load(given.map)
    # Scores may be any finite number, probabilities must lie in [0, 1].
    role = "probability" if fitted is None else "score"
    score = table.resolve(role, given.probability if fitted is None else given.score)
    label = choose_label(table, given.label)
    return fitted, Columns(score, label.column, naive, label_rule=label.rule, score_is=role)


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
            rule = f"have the {what} column {name!r}"
            raise DataError(table.name, rule, listed(columns), "Name one of these.")
    return tuple(dict.fromkeys(names))


def choose_terms(table: Table, given: Given) -> list[TermSpec]:
    """The terms that options name, of columns that the table has."""
    terms: list[TermSpec] = []
    for text in given.segment:
        nested = [text] if text in table.columns() else [part.strip() for part in text.split(">")]
        terms.append(Level(*require_columns(table, nested, "segment")))
    names = require_columns(table, given.feature, "feature")
    return terms + [Level(each) if is_level_column(table, each) else Smooth(each) for each in names]


def with_terms(columns: Columns, terms: list[TermSpec]) -> Columns:
    """The columns and those of terms: levels are read as text, others as numbers."""
    levels = list(columns.segments)
    numbers = dict(columns.features)
    for term in terms:
        if isinstance(term, Level):
            levels += term.columns
        else:
            numbers[term.columns[0]] = "rank" if isinstance(term, Position) else "feature"
    return replace(columns, segments=tuple(dict.fromkeys(levels)), features=numbers)


def say_choice(table: Table, role: str, given: str | None, chosen: str) -> None:
    """Say which column was taken where several could have been meant."""
    others = [name for name in ALIASES[role] if name in table.columns() and name != chosen]
    if given is None and table.roles().column(role) is None and others:
        console.say(
            f"The {role} is column {chosen!r}, not {listed(others)}: --{role} names another."
        )
