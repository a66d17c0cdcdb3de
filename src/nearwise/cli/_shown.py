"""The options for what is shown beside numbers: columns of texts, pictures, and what colours a map."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearwise.cli._common import STANDARD, BadInput, columns, refusing_bad_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearwise.data.beside import Beside
    from nearwise.data.tables import Table
    from nearwise.show.report import Objects

QUERY, NEIGHBOR = "query_", "neighbor_"  # before the names of shown columns, in a table of neighbors


def add_options(parser: argparse.ArgumentParser, color_by: bool) -> None:
    """What is shown of the rows; such a column is no feature, unless all of it are numbers."""
    shown = parser.add_argument_group(
        "what is shown of the rows (a column that is not all numbers is then not learned from)"
    )
    shown.add_argument(
        "--show",
        metavar="COL",
        action="append",
        default=[],
        help="show this column beside neighbors, such as a text (again, or with commas, for more)",
    )
    shown.add_argument(
        "--image", metavar="COL", help="the column with the files of pictures, from the folder of DATA"
    )
    if color_by:
        shown.add_argument("--color-by", metavar="COL", help="colour the maps by this column, not by labels")


def read(arguments: argparse.Namespace, source: str | None = None) -> Beside | None:
    """The columns that are asked for; None where there are none. Pictures that are not there are refused."""
    color_by = getattr(arguments, "color_by", None)
    flags = {"--show": arguments.show, "--image": arguments.image, "--color-by": color_by}
    given = [flag for flag, value in flags.items() if value]
    if not given:
        return None
    source = arguments.data if source is None else source
    if source == STANDARD:
        raise BadInput(f"{given[0]} needs a file that can be read twice, not standard input")
    from nearwise.data import beside

    with refusing_bad_input():
        header = columns(arguments)["header"]
        found = beside.read(source, arguments.show, arguments.image, color_by, header)
    _check_pictures(source, arguments.image, found)
    return found


def read_if_there(arguments: argparse.Namespace, source: str) -> Beside | None:
    """The same columns of a file that may be without them, as a file of queries may."""
    if not arguments.show and not arguments.image:
        return None
    from nearwise.data.tables import NoColumn

    try:
        return read(arguments, source)
    except BadInput as error:
        if isinstance(error.__cause__, NoColumn):
            return None
        raise


def beside_neighbours(
    beside: Beside | None, asked: Beside | None, rows: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Columns of texts for a table of neighbors: of the queries, if they have them, and of the neighbors."""
    import numpy as np

    k = rows.shape[1]
    found = {}
    for name, texts in {} if beside is None else beside.show.items():
        if asked is not None and name in asked.show:
            found[f"{QUERY}{name}"] = np.repeat(_present(asked.show[name]), k)
        found[f"{NEIGHBOR}{name}"] = _present(texts)[rows.ravel()]
    return found


def objects(table: Table, beside: Beside | None) -> Objects:
    """The rows of a table as a page shows them."""
    from nearwise.show.report import Objects, Pictures, named_rows

    show = {} if beside is None else {name: texts.tolist() for name, texts in beside.show.items()}
    return Objects(named_rows(table), None, show, Pictures(None if beside is None else beside.image))


def without_words(
    wanted: dict[str, Any], beside: Beside | None, needed: Collection[str] = ()
) -> dict[str, Any]:
    """Parameters of `tables.read` that leave out shown columns which are not all numbers, nor a model's."""
    if beside is None or wanted["features"]:
        return wanted
    named = {wanted.get("labels"), wanted["ids"], *needed}
    return {**wanted, "drop": [*wanted["drop"], *(name for name in beside.words if name not in named)]}


def of_rows(beside: Beside | None, table: Table) -> Beside | None:
    """The same for the rows of the table."""
    if beside is None:
        return None
    with refusing_bad_input():
        return beside.of(table)


def _present(texts: NDArray[Any]) -> NDArray[Any]:
    """Texts, empty where one is missing."""
    import numpy as np

    return np.array([text or "" for text in texts], dtype=np.str_)


def _check_pictures(source: str, column: str | None, beside: Beside) -> None:
    if beside.image is None:
        return
    for row, path in enumerate(beside.image):
        if path is not None and not Path(path).is_file():
            raise BadInput(f"{source}, {beside.place(row)}, column {column!r}: there is no picture {path}")
    if all(path is None for path in beside.image):
        raise BadInput(f"{source}: the column {column!r} names no picture")
