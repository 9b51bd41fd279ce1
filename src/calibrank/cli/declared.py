"""The label that options declare: a column of 0 and 1, a rule, counts or probabilities."""

from typing import NamedTuple

from calibrank.cli.console import UsageError
from calibrank.tabular.labels import Counts, LabelRule, Soft, parse_rule
from calibrank.tabular.read import Table


class Label(NamedTuple):
    """The label column, and the rule that makes labels of it unless it holds 0 and 1."""

    column: str
    rule: LabelRule | None = None


def choose_label(
    table: Table,
    label: str | None,
    positive: str | None = None,
    clicks: str | None = None,
    impressions: str | None = None,
    *,
    soft: bool = False,
) -> Label:
    """The label as declared; by default a column of 0 and 1."""
    _require_one_declaration(label, positive, clicks, impressions, soft=soft)
    if positive is not None:
        rule = parse_rule(positive)
        return Label(table.resolve("positive", rule.column), rule)
    if clicks is not None and impressions is not None:
        table.resolve("impressions", impressions)
        return Label(table.resolve("clicks", clicks), Counts(clicks, impressions))
    column = table.resolve("label", label)
    return Label(column, Soft(column) if soft else None)


def require_one_label(label: str | None, positive: str | None) -> None:
    """A label is a column of 0 and 1 or a rule, not both."""
    _require_one_declaration(label, positive, None, None, soft=False)


def require_soft_evidence(label: Label, loss: str) -> None:
    """Raise unless the labels can be weighted: only positives have an inverse propensity."""
    if label.rule is None or label.rule.is_binary or loss in ("naive", "impressions"):
        return
    raise UsageError(
        f"--clicks and --soft must go with --loss naive or impressions, got {loss}, which weights "
        "single positives. If the rows were shown, give --log impressions."
    )


def _require_one_declaration(
    label: str | None,
    positive: str | None,
    clicks: str | None,
    impressions: str | None,
    *,
    soft: bool,
) -> None:
    if (clicks is None) != (impressions is None):
        raise UsageError(
            "--clicks must go with --impressions, the column of how often each row was shown."
        )
    counted = clicks is not None
    given = {
        "--label": label is not None and (positive is not None or counted),
        "--positive": positive is not None,
        "--clicks": counted,
        "--soft": soft,
    }
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise UsageError(f"the label must be declared once, got {' and '.join(named)}.")
