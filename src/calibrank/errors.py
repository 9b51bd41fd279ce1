"""Errors and warnings that calibrank raises on purpose."""


class CalibrankError(Exception):
    """Base class of all calibrank errors: catch it to catch every one of them."""


class DataError(CalibrankError, ValueError):
    """Input breaks a rule; the message states the rule, the value, its row and the remedy."""


class FitError(CalibrankError, ValueError):
    """The data are valid but no finite best fit exists; the message says why and what to do."""


class MissingExtraError(CalibrankError, ImportError):
    """An optional dependency is not installed; the message is the command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. Run: pip install 'calibrank[{extra}]' "
            f"(in a checkout: pip install '.[{extra}]')"
        )


class CalibrankWarning(UserWarning):
    """Base class of all calibrank warnings: filter it to filter every one of them."""


class FlatMapWarning(CalibrankWarning):
    """The fitted map hardly rises: higher scores do not come with more positives."""


class PooledScoresWarning(CalibrankWarning):
    """Scores that differ were pooled so coarsely that probabilities may be off; see the message."""


class DroppedRowsWarning(CalibrankWarning):
    """Rows were dropped because the model gives them no score; the message says how many."""


class ClippedScoresWarning(CalibrankWarning):
    """Many rows share the lowest or highest score: the order of the clipped scores is lost."""


class ScoreShiftWarning(CalibrankWarning):
    """New scores do not look like those that a map was fitted on; the message says how far."""


class WorseThanConstantWarning(CalibrankWarning):
    """A map at a known base rate is expected to be worse than that rate for every pair."""
