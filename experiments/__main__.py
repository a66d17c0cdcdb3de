"""`python -m experiments`: list the papers' experiments, or run some and write tables and figures."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import first_line, public_modules

if TYPE_CHECKING:
    from experiments._outcome import Outcome

_HEADINGS = ("setting", "published", "ours", "±", "seconds")


def main(argv: Sequence[str]) -> int:
    """Run the experiments, print their tables, write their files, and return the exit code."""
    experiments = public_modules("experiments")
    parser = _parser()
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.names if name not in experiments]:
        parser.error(f"there is no experiment {unknown[0]!r}; choose from {', '.join(experiments)}")
    names: Sequence[str] = tuple(experiments) if arguments.all else arguments.names
    if not names:
        width = shutil.get_terminal_size().columns
        for name, module in experiments.items():
            print(textwrap.fill(f"{name:15} {first_line(module)}", width, subsequent_indent=" " * 16))
        return 0
    folder: Path = arguments.out
    written = [folder / f"{name}{ending}" for name in names for ending in (".json", ".svg", ".png")]
    written += [] if arguments.page is None else [arguments.page]
    existing = [str(path) for path in written if path.exists()]
    if existing and not (arguments.force or arguments.resume):
        parser.error(f"{existing[0]} exists; give --force to replace it, or --resume")
    for path in written:
        path.parent.mkdir(parents=True, exist_ok=True)
    done: list[Outcome] = []
    left_out: list[str] = []
    for name in names:
        outcome = _measured(name, arguments)
        if isinstance(outcome, str):
            left_out.append(f"{name}: {outcome}")
            continue
        done.append(outcome)
        files = outcome.write(folder)
        if not arguments.quiet:
            _print(outcome, files)
    if arguments.page is not None and done:
        _write_page(arguments.page, folder, done, left_out)
    _note([f"left out: {reason}" for reason in left_out], arguments.quiet and bool(done))
    return 0 if done else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Run the papers' experiments, with the published figures beside ours.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="experiments; without any, list them",
    )
    parser.add_argument("--all", action="store_true", help="run every experiment")
    parser.add_argument("--quick", action="store_true", help="on less data: to see it work, not to compare")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="the folder for NAME.json, NAME.svg and NAME.png (default %(default)s)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="take from the folder what an earlier run with the same code, data and seed has finished",
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write all tables and figures as Markdown")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything that is drawn")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.add_argument("--quiet", action="store_true", help="print no tables")
    return parser


def _measured(name: str, arguments: argparse.Namespace) -> Outcome | str:
    """What the experiment found, now or in an earlier run, or why it cannot run here."""
    from rich.console import Console

    from experiments import finished, measure
    from nearwise.data.datasets import DatasetUnavailable

    before = finished(name, arguments.out, arguments.quick, arguments.seed) if arguments.resume else None
    if before is not None:
        _note([f"{name}: as an earlier run found it"], arguments.quiet)
        return before
    with Console(stderr=True, quiet=arguments.quiet, markup=False).status(name) as line:

        def progress(what: str, done: int, total: int) -> None:
            line.update(f"{name}   {what}   {done} of {total}")

        try:
            return measure(name, arguments.out, arguments.quick, arguments.seed, progress)
        except (DatasetUnavailable, ModuleNotFoundError) as error:
            return str(error)


def _note(notes: Iterable[str], quiet: bool) -> None:
    if not quiet:
        for note in notes:
            print(f"experiments: note: {note}", file=sys.stderr)


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
        "# Results\n\nThe papers' experiments, run by `make reproduce`; what is published stands beside "
        "what we get. ± is the standard deviation over repetitions; seconds are the processor time of one "
        "repetition on the machine that wrote this page.\n"
    )
    missing = [f"\nNot run here: {reason}.\n" for reason in left_out]
    sections = [outcome.markdown(pictures) for outcome in done]
    write_whole(page, "\n".join([head, *sections, *missing]).encode())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("experiments: interrupted")
