"""The columns that a command reads: those named by options, and those recorded in the table."""

from calibrank._internal.arguments import listed
from calibrank.cli.console import UsageError, log, shown
from calibrank.cli.declared import Label, require_soft_evidence
from calibrank.cli.recorded import Weighting, choose_weight
from calibrank.errors import DataError
from calibrank.registry import EVIDENCE, find
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import ALIASES, Table


def choose_columns(
    table: Table,
    score: str | None,
    label: Label,
    weighting: Weighting,
    item: str | None,
    weight: str | None,
    user: str | None,
    negatives_kept: float = 1.0,
    assumption: str = "relative propensities",
) -> Columns:
    """The columns to read; scores and weights are also found by their usual names or the record."""
    require_soft_evidence(label, weighting.loss)
    weight = choose_weight(table, weight)
    if negatives_kept != 1 and weight is not None and weight == table.roles().column("weight"):
        raise UsageError(
            f"--negatives-kept must not be given with the recorded weights in {weight!r}, which "
            "already count each sampled negative as often as it stands for. Leave it out."
        )

    def named(role: str, name: str | None) -> str | None:
        return None if name is None else table.resolve(role, name)

    return Columns(
        score=table.resolve("score", score),
        label=label.column,
        label_rule=label.rule,
        evidence=find("loss", EVIDENCE, weighting.loss),
        propensity=named("propensity", weighting.propensity),
        assumption=assumption,
        item=named("item", item),
        weight=weight,
        user=named("user", user),
        exposure=weighting.exposure,
        negatives_kept=negatives_kept,
    )


def find_user(table: Table, name: str | None) -> str | None:
    """The user column: the named one, or one with a usual name, if there is any."""
    return table.resolve("user", name) if name else table.has("user")


def segment_columns(table: Table, segments: list[str]) -> tuple[str, ...]:
    """The segment columns, each once; raises for a name that the table does not have."""
    columns = table.columns()
    for name in segments:
        if name not in columns:
            raise DataError(
                f"{table.name} must have the segment column {name!r}, got {listed(columns)}. "
                "Name one of these."
            )
    return tuple(dict.fromkeys(segments))


def say_choice(table: Table, role: str, given: str | None, chosen: str) -> None:
    """Say which column was taken where several could have been meant."""
    others = [name for name in ALIASES[role] if name in table.columns() and name != chosen]
    if given is None and table.roles().column(role) is None and others:
        message = f"The {role} is column {chosen!r}, not {listed(others)}: --{role} names another."
        log.print(shown(message), highlight=False, soft_wrap=True)
