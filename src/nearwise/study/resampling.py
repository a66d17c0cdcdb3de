"""Names of `figures` at their path of before, for the rooms that are still to follow."""

from nearwise.study.figures import UNCLEAR, VERDICTS, Figure, Interval

__all__ = ["UNCLEAR", "VERDICTS", "Figure", "Interval"]
