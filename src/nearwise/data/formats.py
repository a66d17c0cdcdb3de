"""The formats of data files: how they are known, and the functions that read and write them.

Refusals and help are made of this table, and nothing here imports a numerical library. A new format is a
line here and a module of this folder with `read(source, data)`, which returns a `Frame`, or `write(columns)`,
which returns bytes.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class Format(NamedTuple):
    """A suffix, how such files begin, the functions of this folder, and the library that these need."""

    suffix: str
    begin: bytes
    reader: str
    writer: str
    library: str = ""

    @property
    def is_text(self) -> bool:
        """Whether the first bytes say nothing, and texts are written that a spreadsheet may run."""
        return self.reader == "text.read"

    def call(self, name: str, *arguments: Any) -> Any:
        """What the reader or writer of that name returns."""
        module, _, function = name.partition(".")
        return getattr(import_module(f"nearwise.data.{module}"), function)(*arguments)


FORMATS = (
    Format(".csv", b"", "text.read", "write.csv_of"),
    Format(".tsv", b"", "text.read", "write.tsv_of"),
    Format(".txt", b"", "text.read", ""),
    Format(".json", b"", "", "write.json_of"),
    Format(".parquet", b"PAR1", "parquet.read", "parquet.write", "pyarrow"),
    Format(".pq", b"PAR1", "parquet.read", "", "pyarrow"),
    Format(".npy", b"\x93NUMPY", "arrays.read", "arrays.write_matrix"),
    Format(".npz", b"PK\x03\x04", "arrays.read", "arrays.write"),
)
TEXT = FORMATS[0]
# what else holds tables, and is refused by name
OTHERS = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".pkl", ".pickle", ".feather", ".arrow", ".h5", ".mat")


def suffix(path: str) -> str:
    """The suffix that names the format, in lower case and without .gz."""
    name = Path(path.lower())
    return Path(name.stem).suffix if name.suffix == ".gz" else name.suffix


def by_suffix(path: str) -> Format | None:
    """The format that the name of a file says."""
    return next((found for found in FORMATS if found.suffix == suffix(path)), None)


def written() -> tuple[str, ...]:
    """The suffixes of files that are written."""
    return tuple(found.suffix for found in FORMATS if found.writer)


def listed() -> str:
    """The suffixes that are read, for help and messages."""
    *others, end = (found.suffix for found in FORMATS if found.reader)
    return f"{', '.join(others)} or {end}"


def by_content(data: bytes) -> Format:
    """The format that the first bytes say: text, where they are of no other."""
    return next((found for found in FORMATS if found.begin and data.startswith(found.begin)), TEXT)
