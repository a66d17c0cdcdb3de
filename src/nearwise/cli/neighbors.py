"""`nearwise neighbors`: the nearest rows of data for every row, or for every row of a query file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from nearwise.cli import _shown
from nearwise.cli._common import (
    DONE,
    STANDARD,
    BadInput,
    add_columns,
    add_model_and_data,
    add_options,
    as_rows,
    check_distinct,
    check_output,
    columns,
    existing_told_last,
    limit_threads,
    one_line,
    refusing_bad_input,
    status,
    tell,
    whole_number,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearwise.data.beside import Beside
    from nearwise.data.tables import Table
    from nearwise.study import Fitted

FORMATS = (".csv", ".tsv", ".json", ".parquet", ".npz", ".html")
PAGE = ".html"
SHOWN = 20  # queries in a table on a terminal
ON_PAGE = 50  # queries on a page


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_and_data(parser)
    parser.add_argument(
        "-k", type=whole_number(1), default=5, metavar="K", help="neighbors of every row (default 5)"
    )
    parser.add_argument(
        "--query",
        metavar="FILE",
        help="list the neighbors of the rows of FILE (default: of the rows of DATA, each without itself)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="where to write: .csv, .tsv, .json, .parquet, .npz, a page .html, or - for CSV on standard "
        "output (default: a table on a terminal, else -)",
    )
    add_columns(parser)
    _shown.add_options(parser, color_by=False)
    add_options(parser.add_argument_group("running"), "threads", "force", "quiet", "json")


def run(arguments: argparse.Namespace) -> int:
    """Load, read, search, write."""
    if arguments.json and arguments.output is not None:
        raise BadInput("--json prints the neighbors on standard output; leave out -o, or write -o FILE.json")
    is_page = (arguments.output or "").lower().endswith(PAGE)
    if arguments.image is not None and not is_page:
        raise BadInput("--image shows pictures on a page; write it with -o FILE.html")
    if arguments.data == arguments.query == STANDARD:
        raise BadInput("only one file can come from standard input")
    if arguments.output is not None:
        inputs = {"MODEL": arguments.model, "DATA": arguments.data, "--query": arguments.query}
        check_distinct(inputs, {"-o": arguments.output})
    with limit_threads(arguments.threads):
        from nearwise import study
        from nearwise.data import tables
        from nearwise.study.holding_out import numbered

        queries, target = None, arguments.output or STANDARD
        exists = existing_told_last(lambda: check_output(target, arguments.force))
        with exists, refusing_bad_input():
            beside = _shown.read(arguments)
            if arguments.output is not None:
                tables.check_target(arguments.output, FORMATS)
            fitted = study.load(arguments.model)
            wanted = _shown.without_words(columns(arguments), beside, fitted.names)
            data = fitted.read(arguments.data, remembered_ids=True, **wanted)
            if arguments.query is not None:
                theirs = _shown.read_if_there(arguments, arguments.query)
                wanted = _shown.without_words(columns(arguments), theirs, fitted.names)
                queries = fitted.read(arguments.query, ids_optional=True, remembered_ids=True, **wanted)
        found, rows = _search(fitted, data, queries, arguments)
    beside = _shown.of_rows(beside, data)
    asked = beside if queries is None else _shown.of_rows(theirs, queries)
    found |= _shown.beside_neighbours(beside, asked, rows)
    notices = [*data.notices, *(queries.notices if queries is not None else ())]
    if arguments.json:
        print(json.dumps({"k": arguments.k, "neighbors": as_rows(found), "notices": notices}, indent=2))
        return DONE
    tell(notices, arguments.quiet)
    if is_page:
        _write_page(arguments, data, queries, beside, asked, rows)
        return DONE
    if arguments.output is None and sys.stdout.isatty():
        _show(found, arguments.k)
        return DONE
    with refusing_bad_input():
        written = tables.write_columns(target, found, force=arguments.force)
    tell(written, arguments.quiet)
    if arguments.output not in (None, STANDARD) and not arguments.quiet:
        count = len(found["query"]) // arguments.k
        what = f"{numbered(arguments.k, 'neighbors')} of {numbered(count, 'rows')}"
        print(f"wrote {arguments.output}: {what}")
    return DONE


def _search(
    fitted: Fitted, data: Table, queries: Table | None, arguments: argparse.Namespace
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """The columns of the result (query, rank, neighbor, distance), and the row numbers of the neighbors."""
    import numpy as np

    from nearwise.study import nearest

    k, most = arguments.k, len(data.X) - (queries is None)
    if k > most:
        others = "other rows" if queries is None else "rows"
        raise BadInput(f"-k {k} is too large: {data.source} has {most} {others}")
    searching = status("searching", arguments.quiet or arguments.json)
    with searching as line, np.errstate(over="ignore", invalid="ignore"):
        rows, distances = nearest(
            fitted.metric,
            fitted.entered(data.X),
            None if queries is None else fitted.entered(queries.X),
            k,
            lambda share: line.update(f"searching: {share:.0%}"),
        )
    if not np.isfinite(distances).all():
        raise BadInput(f"{data.source}: the numbers are so large that distances between them overflow")
    asked = data if queries is None else queries
    query = asked.row_names
    found = {
        "query": np.repeat(query, k),
        "rank": np.tile(np.arange(1, k + 1), len(query)),
        "neighbor": data.row_names[rows.ravel()],
        "distance": distances.ravel(),
    }
    return found, rows


def _show(columns: dict[str, NDArray[Any]], k: int) -> None:
    """A table of the first queries."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table("query", box=SIMPLE)
    for name in ("rank", "neighbor", "distance"):
        table.add_column(name, justify="right")
    texts = [name for name in columns if name.startswith(_shown.NEIGHBOR)]
    for name in texts:
        table.add_column(name.removeprefix(_shown.NEIGHBOR))
    for row in as_rows({name: values[: SHOWN * k] for name, values in columns.items()}):
        first = Text(one_line(str(row["query"])) if row["rank"] == 1 else "")
        neighbor = Text(one_line(str(row["neighbor"])))
        said = [Text(one_line(row[name])) for name in texts]
        table.add_row(first, str(row["rank"]), neighbor, f"{row['distance']:.6g}", *said)
    console.print(table)
    more = len(columns["query"]) // k - SHOWN
    if more > 0:
        console.print(f"and {more} queries more; -o FILE writes them all")


def _write_page(
    arguments: argparse.Namespace,
    data: Table,
    queries: Table | None,
    beside: Beside | None,
    asked: Beside | None,
    rows: NDArray[Any],
) -> None:
    """A page with the first queries and their neighbors, in texts and pictures."""
    from nearwise._common.files import write_whole
    from nearwise.show.report import render_neighbours
    from nearwise.study.examples import Example
    from nearwise.study.holding_out import numbered

    first = rows[:ON_PAGE]
    examples = [Example(row, "", None, near) for row, near in enumerate(first)]
    many = (
        f"of {numbered(len(rows), 'rows')}" if len(first) == len(rows) else f"of the first {len(first)} rows"
    )
    source = data.source if queries is None else queries.source
    summary = (
        f"The {numbered(arguments.k, 'nearest rows')} of {data.source} by the distance of {arguments.model}, "
    )
    page = render_neighbours(
        f"Neighbors in {data.source}",
        f"{summary}{many}{'' if queries is None else f' of {source}'}.",
        examples,
        _shown.objects(data, beside),
        None if queries is None else _shown.objects(queries, asked),
    )
    with refusing_bad_input():
        write_whole(arguments.output, page.encode())
    if not arguments.quiet:
        print(f"wrote {arguments.output}: {numbered(arguments.k, 'neighbors')} {many}")
