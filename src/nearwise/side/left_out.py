"""What is said of constraints that are left out."""

from __future__ import annotations

from typing import Self

from nearwise._common.types import Index
from nearwise.side.blocks import Constraints, Stated


class UnknownIdsWarning(UserWarning):
    """Constraints were left out, because they name objects that are not in `sample_ids`."""


class LeftOutWarning(UserWarning):
    """Soft constraints were left out, because no matrix can come nearer to meeting them than any other."""

    def __init__(
        self, message: str, constraints: Constraints | None = None, places: Index | None = None
    ) -> None:
        super().__init__(message)
        self._constraints, self._places = constraints, places

    @classmethod
    def of(cls, constraints: Constraints, places: Index, reason: str) -> Self:
        """The warning of some rows of the constraints; `reason` ends its sentence."""
        count = len(places)
        subject, them = ("1 constraint is", "it") if count == 1 else (f"{count} constraints are", "them")
        message = f"{subject} left out, because no matrix can meet {them}{reason}"
        return cls(message, constraints, places)

    @property
    def rows(self) -> tuple[Stated, ...]:
        """Which ones."""
        if self._constraints is None or self._places is None:
            return ()
        return tuple(self._constraints.stated(int(row)) for row in self._places)
