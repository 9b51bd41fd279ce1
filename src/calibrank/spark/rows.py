"""Rows of a Spark frame: which column plays which role, the rule each obeys, and what to say of rows that break one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._validation import LARGEST_SCORE, SCORE_REMEDY, SCORE_RULE
from calibrank.errors import DataError

WHOLE = ("tinyint", "smallint", "int", "bigint", "boolean")
NUMBERS = (*WHOLE, "float", "double")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a column must obey, in words, and what to do where it does not."""

    words: str
    remedy: str


RULES = {
    "score": Rule(SCORE_RULE, SCORE_REMEDY),
    "probability": Rule("lie in [0, 1]", "Calibrate scores first."),
    "label": Rule("be 0 or 1", "Turn ratings into likes first, e.g. label = rating > 3."),
    "propensity": Rule("lie in (0, 1]", "Clip it, e.g. spark.popularity(frame, clip=0.1)."),
    "weight": Rule("be finite and not negative", "Drop the row to ignore it."),
}


def obeys(role: str, value: Column) -> Column:
    """Whether a value obeys its role's rule; a missing one never does. Spark orders NaN above every number."""
    rules = {
        "score": F.abs(value) <= LARGEST_SCORE,
        "probability": (value >= 0.0) & (value <= 1.0),
        "label": (value == 0) | (value == 1),
        "propensity": (value > 0.0) & (value <= 1.0),
        "weight": (value >= 0.0) & (value < float("inf")),
    }
    return F.coalesce(rules[role], F.lit(False))  # noqa: FBT003  (a literal has no name)


def require_columns(frame: DataFrame, names: Mapping[str, str]) -> None:
    """Every named column must be there and hold numbers."""
    if not hasattr(frame, "dtypes") or not hasattr(frame, "withColumn"):
        raise DataError(f"frame must be a Spark DataFrame, got {type(frame).__name__}.")
    kinds = dict(frame.dtypes)
    for role, name in names.items():
        if name not in kinds:
            have = ", ".join(kinds)
            raise DataError(
                f"frame must have a column {name!r}, got {have}. Name it, e.g. {role}='x'."
            )
        if kinds[name] not in NUMBERS and not kinds[name].startswith("decimal"):
            raise DataError(
                f"{role} must be numbers, got column {name!r} of type {kinds[name]}. Cast it first."
            )


def column(name: str, kind: str = "double") -> Column:
    """A column by its very name, dots and all, as numbers of one kind."""
    return F.col("`" + name.replace("`", "``") + "`").cast(kind)


@dataclass(frozen=True, slots=True)
class Rows:
    """A frame of the columns that matter, each as double (labels perhaps as whole numbers) named by its role."""

    frame: DataFrame
    roles: tuple[str, ...]
    names: Mapping[str, str]

    @classmethod
    def of(cls, frame: DataFrame, **names: str | None) -> "Rows":
        """The columns named by role; a role without a name is left out."""
        given = {role: name for role, name in names.items() if name is not None}
        require_columns(frame, given)
        kinds = dict(frame.dtypes)
        # Spark compares whole numbers faster than doubles.
        whole = {role for role, name in given.items() if role == "label" and kinds[name] in WHOLE}
        chosen = frame.select(
            *(
                column(name, "bigint" if role in whole else "double").alias(role)
                for role, name in given.items()
            )
        )
        return cls(chosen, tuple(given), given)

    @property
    def kind(self) -> str:
        """How labels become evidence."""
        return "ips" if "propensity" in self.roles else "naive"

    @property
    def good(self) -> Column:
        """Whether a row obeys every rule but that of the score, which is known from its extremes."""
        rules = [obeys(role, F.col(role)) for role in self.roles if role != "score"]
        result = rules[0]
        for rule in rules[1:]:
            result = result & rule
        return result

    @property
    def positive(self) -> Column:
        """The positive mass of a row; 0 where it would divide by 0."""
        liked: Any = F.lit(1.0)
        if "propensity" in self.roles:
            liked = liked / F.col("propensity")
        if "weight" in self.roles:
            liked = liked * F.col("weight")
        usable = F.col("label") == 1
        if "propensity" in self.roles:
            usable = usable & (F.col("propensity") > 0.0)
        return F.when(usable, liked).otherwise(0.0)

    @property
    def total(self) -> Column:
        """The total mass of a row."""
        return F.col("weight") if "weight" in self.roles else F.lit(1.0)

    def complaint(self) -> DataError:
        """The error about the first role whose rule is broken, with a value and how many rows; it reads all rows."""
        broken = [~obeys(role, F.col(role)) for role in self.roles]
        sums = [F.count(F.when(rule, 1)).alias(f"n{at}") for at, rule in enumerate(broken)]
        values = [
            F.first(
                F.when(rule, F.coalesce(F.col(role).cast("string"), F.lit("null"))),
                ignorenulls=True,
            )
            for role, rule in zip(self.roles, broken, strict=True)
        ]
        found = self.frame.agg(*sums, *values).collect()[0]
        for at, role in enumerate(self.roles):
            if found[at]:
                rows = f" in {found[at]:,} row{'s' if found[at] > 1 else ''}"
                name, rule = self.names[role], RULES[role]
                said = role if name == role else f"{role} (column {name!r})"
                return DataError(
                    f"{said} must {rule.words}, got {found[at + len(self.roles)]}{rows}. {rule.remedy}"
                )
        return unsteady()


def unsteady() -> DataError:
    """The error about a frame whose rows change from one reading to the next."""
    return DataError(
        "frame must hold the same rows each time it is read, got others the second time. "
        "Cache it, or write it down first: random columns and growing tables change."
    )
