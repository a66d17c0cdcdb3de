"""Tables: what the other rooms take of `frame`, `table` and `write`."""

from nearwise.data.columns import REFUSE
from nearwise.data.frame import NoColumn, TableError, as_texts, open_frame, some_of
from nearwise.data.kinds import CATEGORY
from nearwise.data.table import CATEGORICAL_CHOICES, MISSING_CHOICES, Table, read
from nearwise.data.write import check_target, write, write_columns

__all__ = [
    "CATEGORICAL_CHOICES",
    "CATEGORY",
    "MISSING_CHOICES",
    "REFUSE",
    "NoColumn",
    "Table",
    "TableError",
    "as_texts",
    "check_target",
    "open_frame",
    "read",
    "some_of",
    "write",
    "write_columns",
]
