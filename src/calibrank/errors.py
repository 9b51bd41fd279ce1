"""The three ways calibrank says no: bad data, no fit, a missing extra."""


class CalibrankError(Exception):
    """Every error raised on purpose by calibrank; catch this one to catch them all."""


class DataError(CalibrankError, ValueError):
    """What came in breaks a rule; the message names the rule, the value, its row and the remedy."""


class FitError(CalibrankError, ValueError):
    """The data are well formed but no finite best fit exists; the message says why and what to do."""


class MissingExtraError(CalibrankError, ImportError):
    """An optional dependency is not installed; the message is the command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed. Run: pip install 'calibrank[{extra}]'")


class FlatMapWarning(UserWarning):
    """The fitted map hardly rises: higher scores do not go with more positives."""


class DroppedRowsWarning(UserWarning):
    """Rows were left out because a model gives them no score; the message says how many."""


class ClippedScoresWarning(UserWarning):
    """Many rows share the lowest or the highest score: what was told apart beyond it is lost."""
