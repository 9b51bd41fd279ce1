"""Terms: what columns beside the score add to a calibrator, and how it is fitted."""

from calibrank.terms.spec import Group, Level, Position, Smooth, TermSpec

__all__ = ["Group", "Level", "Position", "Smooth", "TermSpec"]
