"""What a user knows about some data: the options for it, reading it, and naming it as the user does."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearwise.cli._common import STANDARD, BadInput, refusing_bad_input

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearwise.data.side_files import Side
    from nearwise.data.tables import Table
    from nearwise.model.blocks import Constraints

    Index = NDArray[np.int64]

KINDS = ("labels", "pairs", "triplets", "distances")
_LARGEST = 1e150  # numbers beyond it, or all below its inverse, have no squared distances
_PAIR = re.compile(r"d\((\d+), (\d+)\)")
_ADVICE = (
    "name another column with --labels, or write ranges into the file; with a letter before it, a number is "
    "a class of its own"
)
_RELATIONS = {"<=": -1, ">=": 1, "==": 0}


@dataclass(frozen=True, eq=False)
class Known:
    """A table and what is known about its rows.

    Attributes
    ----------
    table : the data
    codes : the class of every row as a number, -1 where the label is missing; or None
    classes : their names
    sides : what the side files say, by row number
    notes : what the user should know about how the labels were read
    """

    table: Table
    codes: Index | None
    classes: tuple[str, ...]
    sides: tuple[Side, ...]
    notes: tuple[str, ...] = ()

    @property
    def constraints(self) -> Constraints:
        """Of all side files."""
        from nearwise.model.blocks import Constraints

        return sum((side.constraints for side in self.sides), Constraints())

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about how the files were read."""
        return sum((side.notices for side in self.sides), self.table.notices + self.notes)

    @property
    def labels(self) -> NDArray[np.object_] | None:
        """The name of the class of every row, None for a row without one."""
        import numpy as np

        return None if self.codes is None else np.array([*self.classes, None], dtype=object)[self.codes]

    def name(self, row: int) -> str:
        """A row as the user names it: by its id, else by its number."""
        return str(row) if self.table.ids is None else str(self.table.ids[row])

    def renamed(self, text: str, rows: Index) -> str:
        """A text about distances d(i, j) of fitted rows, in the user's names; `rows` says which they are."""
        text = re.sub(r"\brow \d+: ", "", text)
        return _PAIR.sub(lambda m: f"d({self.name(rows[int(m[1])])}, {self.name(rows[int(m[2])])})", text)

    def refusal(self, text: str, rows: Index) -> str:
        """A message about constraints, in the user's names, each with where it comes from."""
        parts = []
        for part in text.split("; "):
            origin = self.origin(part, rows) if _PAIR.search(part) else ""
            parts.append(self.renamed(part, rows) + (f" ({origin})" if origin else ""))
        return "; ".join(parts)

    def origin(self, text: str, rows: Index) -> str:
        """Where a constraint comes from: file and line, or the labels of the two rows."""
        pairs = [(int(rows[int(i)]), int(rows[int(j)])) for i, j in _PAIR.findall(text)]
        relation = next((sign for word, sign in _RELATIONS.items() if f" {word} " in text), None)
        for side in self.sides:
            if place := _place(side, pairs, relation):
                return place
        if self.codes is not None and len(pairs) == 1 and min(self.codes[row] for row in pairs[0]) >= 0:
            return ", ".join(self.classes[self.codes[row]] for row in pairs[0])
        return ""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is known about the data."""
    side = parser.add_argument_group(
        "what is known",
        "Objects in side files are named by id (with --id), or by row number: the first row of DATA is 0.",
    )
    side.add_argument("--labels", metavar="COL", help="the column of DATA with the class of every row")
    side.add_argument(
        "--pairs", metavar="FILE", help="two objects a line, and 1 or 0 (similar or not); without it: similar"
    )
    side.add_argument(
        "--triplets",
        metavar="FILE",
        help="three objects a line: the first is nearer to the second than to the third",
    )
    side.add_argument("--distances", metavar="FILE", help="two objects a line, and their distance")
    side.add_argument("--squared", action="store_true", help="the distances in FILE are squared ones")


def check(arguments: argparse.Namespace) -> None:
    """Refuse, before anything is read, what cannot be meant."""
    given = [kind for kind in KINDS if getattr(arguments, kind) is not None]
    if not given:
        raise BadInput("nothing is known: give --labels, --pairs, --triplets or --distances")
    if arguments.squared and "distances" not in given:
        raise BadInput("--squared says what the numbers in --distances are; give --distances")
    sources = [arguments.data, *(getattr(arguments, kind) for kind in given if kind != "labels")]
    if sources.count(STANDARD) > 1:
        raise BadInput("only one file can come from standard input")


def read(arguments: argparse.Namespace, read_table: Callable[[], Table] | None = None) -> Known:
    """The table and all that is known about it; `read_table` reads it otherwise than as it is."""
    from nearwise.data import side_files, tables

    with refusing_bad_input():
        if read_table is not None:
            table = read_table()
        else:
            table = tables.read(
                arguments.data,
                labels=arguments.labels,
                ids=arguments.id,
                drop=arguments.drop,
                features=arguments.features,
                decimal=arguments.decimal,
                thousands=arguments.thousands,
            )
        n, ids = len(table.X), table.ids
        sides = []
        if arguments.pairs is not None:
            sides.append(side_files.read_pairs(arguments.pairs, n, ids))
        if arguments.triplets is not None:
            sides.append(side_files.read_triplets(arguments.triplets, n, ids))
        if arguments.distances is not None:
            sides.append(
                side_files.read_distances(
                    arguments.distances,
                    n,
                    ids,
                    squared=arguments.squared,
                    decimal=arguments.decimal,
                    thousands=arguments.thousands,
                )
            )
    _check_magnitudes(table)
    return known_of(table, tuple(sides))


def known_of(table: Table, sides: tuple[Side, ...] = ()) -> Known:
    """A table, with its labels as classes, and side files."""
    if table.labels is None:
        return Known(table, None, (), sides)
    codes, classes, notes = class_codes(table.labels, table.source)
    count = int((codes >= 0).sum())
    if len(classes) < 2:
        found = "no row has a label" if count == 0 else f"all {count} labels are {classes[0]!r}"
        raise BadInput(f"{table.source}: {found}; two classes or more are needed")
    if len(classes) == count:
        raise BadInput(
            f"{table.source}: all {count} labels differ, so no two rows are of one class; name a column of "
            "classes with --labels"
        )
    return Known(table, codes, classes, sides, notes)


def class_codes(labels: NDArray[np.object_], source: str) -> tuple[Index, tuple[str, ...], tuple[str, ...]]:
    """The class of every label as a number, -1 where there is none; the names of the classes; and notes.

    Texts that are numbers count as numbers: measurements are refused as labels.
    """
    import numpy as np

    from nearwise.model import labelling

    try:
        found = labelling.read(labels, number=_as_number, name="the column of labels", advice=_ADVICE)
    except ValueError as error:
        raise BadInput(f"{source}: {error}") from error
    order = np.argsort(np.array(found.classes, dtype=str))
    codes = np.append(np.argsort(order), labelling.UNLABELLED)[found.codes]
    return codes, tuple(str(found.classes[k]) for k in order), tuple(f"{source}: {n}" for n in found.notes)


def _as_number(label: str) -> float | None:
    """The number that a text is, with a decimal point or comma."""
    from nearwise.data.tables.numerals import Numerals, number

    value = number(label)
    return number(label, Numerals(",")) if value is None else value


def _check_magnitudes(table: Table) -> None:
    """Refuse numbers whose squares overflow, or all vanish: no distance could be measured."""

    places = (int(table.X.argmin()), int(table.X.argmax()))
    size, place = max((abs(float(table.X.flat[place])), place) for place in places)
    if 1.0 / _LARGEST <= size <= _LARGEST or size == 0.0:
        return
    row, column = divmod(place, table.X.shape[1])
    where = f"{table.source}, {table.place(row)}, column {table.names[column]!r}"
    what = "is too large" if size > 1.0 else "is the largest number in the data, and too small"
    raise BadInput(f"{where}: {table.X[row, column]:g} {what} to be squared; take another unit")


def _place(side: Side, pairs: list[tuple[int, int]], relation: int | None) -> str:
    """File and line of the constraint on these pairs, where the side file has it."""
    import numpy as np

    first = 0
    for block in side.constraints.blocks:
        ids = np.sort(block.object_ids.reshape(len(block), -1, 2), axis=2)
        if block.relation == relation and ids.shape[1] == len(pairs):
            found = np.flatnonzero((ids == np.sort(pairs, axis=1)).all(axis=(1, 2)))
            if found.size:
                return f"{side.source}, {side.place(first + int(found[0]))}"
        first += len(block)
    return ""
