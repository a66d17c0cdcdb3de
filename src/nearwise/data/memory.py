"""What a model of `nearwise learn` remembers of the data that it learned from, and of how that went.

It is kept by the learner, as the fingerprints of the rows are, so that it goes into the model file. By it
other files are read in the same way, and `nearwise info` says what a model is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from nearwise.data.tables import Table


@dataclass(frozen=True, eq=False)
class Memory:
    """Names of columns, what was in them, and what came out.

    Attributes
    ----------
    source : the data, as the user named them
    columns : the columns that are features, in order; "x0", "x1", ... where the file has no names
    named : whether these are the file's own
    kinds : what each of them holds, as in `Table.kinds`
    missing : what is done about missing values, as in `Table.missing`
    vector_column : the one column that holds vectors, or None
    id_column, label_column : their names, or None
    study : settings, figures and outcome, as `Outcome.as_json` has them, but for times
    """

    source: str
    columns: tuple[str, ...]
    named: bool
    kinds: tuple[str, ...]
    missing: str
    vector_column: str | None
    id_column: str | None
    label_column: str | None
    study: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, study: Mapping[str, Any]) -> Self:
        """Of a table that was learned from, and what the study of it found."""
        return cls(
            source=table.source,
            columns=table.names if table.scalars else (),
            named=table.named,
            kinds=table.kinds or (("number",) * len(table.names) if table.scalars else ()),
            missing=table.missing,
            vector_column=table.vector_column,
            id_column=table.id_column,
            label_column=table.label_column,
            study=study,
        )

    @classmethod
    def in_model(cls, learner: Any) -> Self | None:
        """What a learner of a model file remembers; None where it does not."""
        found = getattr(learner, _ATTRIBUTE, None)
        return found if isinstance(found, cls) else None

    def keep(self, learner: Any) -> None:
        """Let a learner remember it."""
        setattr(learner, _ATTRIBUTE, self)

    @property
    def kind_of(self) -> dict[str, str]:
        """The kind of every column, by name."""
        return dict(zip(self.columns, self.kinds, strict=True))


_ATTRIBUTE = "memory_"
