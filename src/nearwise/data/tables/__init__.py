"""Reading and writing of data files: CSV, TSV, Parquet, .npy, .npz, standard input, and data sets by name.

`read` returns a `Table` or raises a `TableError` that names the file, the line and the value; `write` writes
one. Formats are in files of their own: text in `_text`, the others in `_binary`, writing in `_output`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nearwise._common.files import path_text
from nearwise.data.tables._binary import open_arrays, open_dataset, open_parquet
from nearwise.data.tables._kinds import CATEGORY, CONVERSIONS, NUMBER
from nearwise.data.tables._output import check_target, write, write_columns
from nearwise.data.tables._preparing import (
    CATEGORICAL_CHOICES,
    MISSING_CHOICES,
    REFUSE,
    Handling,
    handling,
    prepared,
)
from nearwise.data.tables._sizes import decompressed
from nearwise.data.tables._table import (
    NoColumn,
    Opened,
    Table,
    TableError,
    as_texts,
    checked,
    find_columns,
    select,
    some_of,
)
from nearwise.data.tables._text import open_text
from nearwise.data.tables.numerals import NO_WISHES, Wanted, wanted

__all__ = [
    "CATEGORICAL_CHOICES",
    "CATEGORY",
    "CONVERSIONS",
    "MISSING_CHOICES",
    "NoColumn",
    "Table",
    "TableError",
    "as_texts",
    "check_target",
    "open_file",
    "read",
    "some_of",
    "write",
    "write_columns",
]

DATASET = "dataset:"
_MAGIC = {b"\x93NUMPY": "array", b"PK\x03\x04": "array", b"PAR1": "parquet"}
_KINDS = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".npy": "array",
    ".npz": "array",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_OTHERS = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".pkl", ".pickle", ".feather", ".arrow", ".h5", ".mat")


def read(
    source: str | os.PathLike[str],
    *,
    labels: str | None = None,
    ids: str | None = None,
    ids_optional: bool = False,
    ids_hint: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] = (),
    known: Sequence[str] = (),
    least: int = 2,
    decimal: str | None = None,
    thousands: str | None = None,
    header: bool | str | None = None,
    missing: str = REFUSE,
    categorical: str = REFUSE,
    convert: Sequence[str] = (),
    categories: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
) -> Table:
    """Read a data file.

    A column is given by its name, or by its number from 1, or from the end by -1, -2, ...

    Parameters
    ----------
    source : a path (.csv, .tsv, .txt, also gzipped, .parquet, .npy, .npz), "-" for standard input, or
        "dataset:iris" for a set of `nearwise.datasets`, whose label column is "target". Encoding, separator
        and header of text are found out.
    labels : the column of labels
    ids : the column of ids
    ids_optional : there are no ids where the file has no such column, instead of an error
    ids_hint : where no ids are asked for, the column of ids beside `known` or given features, if the file has
        it and its ids are all different
    drop : columns to leave out
    features : the columns to use; by default all others
    known : names of features that a model knows; the others are left out, and none of these may be missing
        where the file has names
    least : the number of rows that are needed
    decimal : the decimal mark of a text file, "." or "," (or "point", "comma")
    thousands : its mark between groups of three digits: ",", ".", " ", "'" (or "comma", "point", "space",
        "apostrophe"), or "" for none. By default both follow from the numbers of all features; where they do
        not say whether `4,161` is 4161 or 4.161, that is an error, and where thousands are grouped, a notice.
    header : whether the first line of a text file holds the names of its columns, True ("yes") or False
        ("no"). By default that is found out; where it is in doubt, that is an error.
    missing : "refuse" missing values, "impute" them by a step of the model (they are NaN in `Table.X`), or
        "drop" the rows that have one
    categorical : "refuse" columns of texts, "onehot" encode them by a step of the model, or "drop" them
    convert : other columns to be read as numbers: some of "booleans", "dates" (days since 1970), "dates-dmy",
        "dates-mdy" (where no date tells the order), "percent", "currency", or "all"
    categories : columns of numbers that are categories, such as codes
    kinds : the kind of every column in a model, as in `Table.kinds`, by name: they are read as that, and
        `categorical`, `convert` and `categories` have no say
    """
    file = open_file(
        path_text(source, "source"), header=_said_of_header(header), wanted=wanted(decimal, thousands)
    )
    choice = select(file, labels, ids, ids_optional, ids_hint, drop, features, known)
    named = [file.columns[column] for column in find_columns(file, categories)]
    wishes = handling(missing, categorical, convert, named)
    plain = wishes == Handling() and (kinds is None or all(kind == NUMBER for kind in kinds.values()))
    loaded = None if plain else prepared(file, choice, wishes, kinds)
    try:
        return checked(file, choice, loaded or file.load(choice.features, choice.texts), least)
    except TableError:
        if plain:
            prepared(file, choice, wishes, kinds)  # which tells all columns that cannot be used, not one
        raise


def open_file(source: str, *, header: bool | None = None, wanted: Wanted = NO_WISHES) -> Opened:
    """Open a file of any format, by its suffix or, on standard input, by its first bytes.

    `header` says whether the first line of a text file holds names, None that it is to be found out; `wanted`
    says how its numbers are written.
    """
    if source.startswith(DATASET):
        return open_dataset(source, source.removeprefix(DATASET))
    name = "standard input" if source == "-" else source
    path = Path(source.lower())
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if source != "-" and suffix in _OTHERS:
        raise TableError(f"{source}: {suffix} files are not read; save it as CSV, Parquet, .npy or .npz")
    data = decompressed(name, _bytes(source))
    if not data:
        raise TableError(f"{name} is empty")
    content = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), "text")
    kind = content if source == "-" else _KINDS.get(suffix, content)
    if kind == "text" and content != "text":
        raise TableError(f"{name} is not text but binary, such as NumPy or Parquet; give it the right suffix")
    if kind == "array":
        return open_arrays(name, data)
    if kind == "parquet":
        return open_parquet(name, data)
    return open_text(name, data, header=header, wanted=wanted)


def _said_of_header(header: bool | str | None) -> bool | None:
    for said, meant in (("yes", True), ("no", False), (None, None)):
        if header is meant or header == said:
            return meant
    raise TableError(f"header must be True or 'yes', False or 'no', or None, got {header!r}")


def _bytes(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except FileNotFoundError:
        raise TableError(f"{source}: there is no such file") from None
    except IsADirectoryError:
        raise TableError(f"{source} is a folder, not a file") from None
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise TableError(f"{source} cannot be read: {reason}") from None
