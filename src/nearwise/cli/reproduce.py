"""`nearwise reproduce`: list the papers' experiments, or run some and write tables and figures."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nearwise.cli._common import (
    DONE,
    BadInput,
    add_options,
    check_output,
    first_line,
    public_modules,
    refusing_bad_input,
    status,
    tell,
)

if TYPE_CHECKING:
    from nearwise.reproduction._outcome import Outcome

_PACKAGE = "nearwise.reproduction"
_HEADINGS = ("setting", "published", "ours", "±", "seconds")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        choices=(*public_modules(_PACKAGE), []),
        help="experiments; without any, list them",
    )
    parser.add_argument("--all", action="store_true", help="run every experiment")
    parser.add_argument("--quick", action="store_true", help="on less data: to see it work, not to compare")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reproduction"),
        metavar="DIR",
        help="the folder for NAME.json, NAME.svg and NAME.png (default %(default)s)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="take from the folder what an earlier run with the same code, data and seed has finished",
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write all tables and figures as Markdown")
    add_options(parser, "seed", "force", "quiet")


def run(arguments: argparse.Namespace) -> int:
    """Run the experiments, print their tables, and write their files."""
    experiments = public_modules(_PACKAGE)
    names: Sequence[str] = tuple(experiments) if arguments.all else arguments.names
    if not names:
        for name, module in experiments.items():
            print(f"{name:15} {first_line(module)}")
        return DONE
    folder: Path = arguments.out
    with refusing_bad_input():
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for ending in (".json", ".svg", ".png"):
            check_output(folder / f"{name}{ending}", arguments.force or arguments.resume)
    check_output(arguments.page, arguments.force or arguments.resume)
    done: list[Outcome] = []
    left_out: list[str] = []
    for name in names:
        outcome = _measured(name, arguments)
        if isinstance(outcome, str):
            left_out.append(f"{name}: {outcome}")
            continue
        done.append(outcome)
        with refusing_bad_input():
            written = outcome.write(folder)
        if not arguments.quiet:
            _print(outcome, written)
    if arguments.page is not None and done:
        with refusing_bad_input():
            _write_page(arguments.page, folder, done, left_out)
    if not done:
        raise BadInput("; ".join(left_out))
    tell([f"left out: {reason}" for reason in left_out], arguments.quiet)
    return DONE


def _measured(name: str, arguments: argparse.Namespace) -> Outcome | str:
    """What the experiment found, now or in an earlier run, or why it cannot run here."""
    from nearwise.data.datasets import DatasetUnavailable
    from nearwise.reproduction import finished, measure

    before = finished(name, arguments.out, arguments.quick, arguments.seed) if arguments.resume else None
    if before is not None:
        tell([f"{name}: as an earlier run found it"], arguments.quiet)
        return before
    with status(name, arguments.quiet) as line:

        def progress(what: str, done: int, total: int) -> None:
            line.update(f"{name}   {what}   {done} of {total}")

        try:
            return measure(name, arguments.out, arguments.quick, arguments.seed, progress)
        except (DatasetUnavailable, ModuleNotFoundError) as error:
            return str(error)


def _print(outcome: Outcome, written: Sequence[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*_HEADINGS, title=outcome.title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for cells in outcome.cells():
        table.add_row(*cells)
    console = Console(markup=False, highlight=False)
    console.print(table)
    for remark in outcome.remarks:
        console.print(f"- {remark}", soft_wrap=True)
    console.print("written: " + ", ".join(map(str, written)), soft_wrap=True)


def _write_page(page: Path, folder: Path, done: Sequence[Outcome], left_out: Sequence[str]) -> None:
    from nearwise._common.files import write_whole

    pictures = Path(os.path.relpath(folder, page.parent)).as_posix()
    head = (
        "# Results\n\nThe papers' experiments, run by `nearwise reproduce`; what is published stands beside "
        "what we get. ± is the standard deviation over repetitions; seconds are the processor time of one "
        "repetition on the machine that wrote this page.\n"
    )
    missing = [f"\nNot run here: {reason}.\n" for reason in left_out]
    sections = [outcome.markdown(pictures) for outcome in done]
    write_whole(page, "\n".join([head, *sections, *missing]).encode())
