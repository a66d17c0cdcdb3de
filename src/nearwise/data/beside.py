"""Columns of a data file that are shown and not learned from: texts, pictures, what colours a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Index
from nearwise.data.frame import DATASET, TableError, open_frame, place, present, shown
from nearwise.data.numerals import Numerals, number
from nearwise.data.table import Table

Texts = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Beside:
    """What is shown of every row of a table.

    Attributes
    ----------
    show : texts by the name of their column, None where one is missing
    image : the files of pictures, one a row, or None; paths are those of the working folder
    color_by : the name of a column and its texts, or None
    words : the names of those columns that are not all numbers, and so cannot be features
    """

    show: dict[str, Texts]
    image: Texts | None = None
    color_by: tuple[str, Texts] | None = None
    words: tuple[str, ...] = ()
    _lines: Index | None = None
    _n_rows: int = 0

    def of(self, table: Table) -> Beside:
        """The same for the rows of a table of that file, some of whose lines may have been left out."""
        n = self._n_rows
        if self._lines is not None and table.lines is not None:
            rows = np.searchsorted(self._lines, table.lines)
        elif table.rows is not None:
            rows = table.rows
        elif n == len(table.X):
            rows = np.arange(n)
        else:
            raise TableError(
                f"{table.source}: {n} rows can be shown, but {len(table.X)} are learned from, and nothing "
                "says which these are; leave out --show, --image and --color-by"
            )
        color_by = None if self.color_by is None else (self.color_by[0], self.color_by[1][rows])
        return Beside(
            {name: texts[rows] for name, texts in self.show.items()},
            None if self.image is None else self.image[rows],
            color_by,
            self.words,
        )

    def place(self, row: int) -> str:
        """Where a row is in the file, for messages."""
        return place(self._lines, row)


def read(
    source: str,
    show: Sequence[str] = (),
    image: str | None = None,
    color_by: str | None = None,
    header: bool | None = None,
) -> Beside:
    """Read those columns of a data file; columns are given as in `tables.read`.

    Parameters
    ----------
    source : a data file, or a data set by name
    show : columns of texts; one text may be several names with commas between
    image : the column of the files of pictures, by their paths from the folder of the data file
    color_by : the column that colours a map
    header : as in `open_file`
    """
    if source == "-":
        raise TableError("columns beside the features are read from a file, not from standard input")
    frame = open_frame(source, header=header)
    beside = frame.all_names(show)
    picture, colour = (None if name is None else frame.name(name) for name in (image, color_by))
    wanted = dict.fromkeys([*beside, *(name for name in (picture, colour) if name is not None)])
    texts = {name: present(frame.texts(name)) for name in wanted}
    return Beside(
        {name: texts[name] for name in beside},
        None if picture is None else _paths(source, texts[picture], frame.lines),
        None if colour is None else (colour, texts[colour]),
        tuple(name for name in wanted if not _all_numbers(texts[name])),
        frame.lines,
        len(next(iter(texts.values()), ())),
    )


def _paths(source: str, texts: Texts, lines: Index | None) -> Texts:
    """Paths from the folder of the data file, as they are from here."""
    folder = Path() if source.startswith(DATASET) else Path(source).parent
    for row, text in enumerate(texts):
        if text is not None and "://" in text:
            where = f"{source}, {place(lines, row)}"
            raise TableError(f"{where}: pictures are read from files, not from {shown(text)}")
    return np.array([None if text is None else str(folder / text) for text in texts], dtype=object)


def _all_numbers(texts: Texts) -> bool:
    """Whether a column can be a feature, with decimal points or with commas."""
    marks = [Numerals(mark) for mark in (".", ",")]
    return any(all(text is None or number(text, mark) is not None for text in texts) for mark in marks)
