"""What the commands share: exit codes, errors of the user, options with one meaning, checks of outputs.

Nothing here imports a numerical library before a command runs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nearwise._common.errors import Refused
from nearwise.data import formats
from nearwise.linalg import loops

DONE, NOT_CONVERGED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
STANDARD = "-"  # standard input, or standard output
_LONGEST = 80  # characters of a text of data on a terminal
_COMPILING = "compiling loops for this machine: up to half a minute, once after an installation"


class BadInput(Refused):
    """What the user gave cannot be used; the message is shown in one line, without a traceback."""


class Exists(BadInput):
    """A file that would be replaced; told when nothing else is wrong, so that it hides no other mistake."""


@contextlib.contextmanager
def refusing_bad_input() -> Iterator[None]:
    """Turn errors that files and their contents cause into `BadInput`.

    For reading data and models and for writing results, never around the work itself, where a ValueError is
    a mistake of the program.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of standard output went away, which is nobody's mistake
        raise
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        raise BadInput(named) from error
    except (ValueError, LookupError, TypeError, ImportError) as error:
        # a KeyError shows its message in quotes, a UnicodeError has several arguments
        raise BadInput(str(error.args[0] if len(error.args) == 1 else error)) from error


def add_options(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add options that mean the same in every command, by their name in `_OPTIONS`."""
    for name in names:
        parser.add_argument(f"--{name}", **_OPTIONS[name])


def add_model_and_data(parser: argparse.ArgumentParser) -> None:
    """The model and the data that it is applied to."""
    parser.add_argument("model", metavar="MODEL", help="a model that nearwise learn or nw.save wrote")
    add_data(parser)


def add_data(parser: argparse.ArgumentParser) -> None:
    """The data."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help=f"rows of numbers: a file ({formats.listed()}), - for standard input, or a data set by name "
        "as in dataset:iris",
    )


def add_columns(parser: argparse.ArgumentParser) -> None:
    """The options that say which columns of the data are meant, and how their numbers are written."""
    columns = parser.add_argument_group("columns of DATA, by name or number (1 is the first, -1 the last)")
    columns.add_argument("--id", metavar="COL", help="the column of ids, which name the rows")
    columns.add_argument(
        "--drop", metavar="COL", action="append", default=[], help="leave this column out (again for more)"
    )
    columns.add_argument(
        "--features",
        metavar="COL",
        action="append",
        default=[],
        help="use these columns alone (again for more; default: all, or those of the MODEL)",
    )
    columns.add_argument(
        "--header",
        choices=("yes", "no"),
        help="whether the first line of text files holds the names of the columns (default: found out)",
    )
    marks = parser.add_argument_group("numbers in text files")
    marks.add_argument(
        "--decimal",
        choices=("point", "comma", ".", ","),
        help="the decimal mark (default: found out from all numbers that are read)",
    )
    marks.add_argument(
        "--thousands",
        choices=("none", "comma", "point", "space", "apostrophe", ",", "."),
        help="the mark that groups thousands (default: such numbers are refused)",
    )


def add_preparation(parser: argparse.ArgumentParser) -> None:
    """The options that say what to do about columns that are not numbers throughout."""
    group = parser.add_argument_group(
        "columns that are not numbers throughout",
        "By default they are refused. What is done is kept in the MODEL and done to other data too.",
    )
    group.add_argument(
        "--missing",
        choices=("refuse", "impute", "drop"),
        default="refuse",
        help="missing values: fill numbers by the median and categories by the most frequent one, or drop "
        "the rows",
    )
    group.add_argument(
        "--categorical",
        choices=("refuse", "onehot", "drop"),
        default="refuse",
        help="columns of texts: one column of 0 and 1 for each text, or drop the column",
    )
    group.add_argument(
        "--category",
        metavar="COL",
        action="append",
        default=[],
        help="a column, also of numbers, that is a category (again for more)",
    )
    group.add_argument(
        "--convert",
        metavar="COL=KIND",
        type=_conversion,
        action="append",
        default=[],
        help="read a column as numbers: date (as in 2024-01-31), date-dmy, date-mdy as days, percent (5 %% "
        "is 0.05), currency-EUR or another (again for more)",
    )


def preparation(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options of `add_preparation` say, as parameters of `tables.read`."""
    found = {"missing": arguments.missing, "categorical": arguments.categorical}
    return found | {"categories": arguments.category, "convert": dict(arguments.convert)}


def columns(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options of `add_columns` say, as parameters of `tables.read`."""
    names = ("drop", "features", "decimal", "thousands")
    header = None if arguments.header is None else arguments.header == "yes"
    return {"ids": arguments.id, "header": header, **{name: getattr(arguments, name) for name in names}}


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options of `nearwise learn` say, as parameters of `study.Settings`, whatever the data are."""
    names = ("method", "structure", "rank", "penalty", "seed", "max_iter", "held_out", "checkpoint")
    found = {name: getattr(arguments, name) for name in names}
    return {"max_seconds": arguments.max_seconds or math.inf, **found}


def _conversion(text: str) -> tuple[str, str]:
    column, equals, kind = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not COL=KIND, as in admitted=date or share=percent")
    return column, kind


def whole_number(smallest: int, largest: float = math.inf) -> Callable[[str], int]:
    """A type of argument: a whole number within bounds."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.removeprefix("-").isdecimal() else None
        if value is None or not smallest <= value <= largest:
            limit = f" to {largest}" if largest < math.inf else " or more"
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, {smallest}{limit}")
        return value

    return parse


def number_that(holds: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """A type of argument: a number for which `holds` is true; `expected` says so in an error."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not holds(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
        return value

    return parse


number = number_that(math.isfinite, "a number")
positive_number = number_that(lambda value: 0.0 < value < math.inf, "a number greater than 0")


def check_output(
    target: str | Path | None,
    force: bool,
    replaceable: Callable[[Path], bool] | None = None,
    kind: str = "a nearwise report",
) -> None:
    """Refuse, before any work, a path that cannot be written or that holds something else.

    A file that exists is replaced only with `force`, or where `replaceable` says that it may be, which are
    files of that kind.
    """
    if target is None or str(target) == STANDARD:
        return
    if not str(target):
        raise BadInput("the name of the file to write is empty")
    path = Path(target)
    if not path.parent.is_dir():
        raise BadInput(f"cannot write {path}: {path.parent} is not a folder")
    if path.exists():
        if not path.is_file():
            raise BadInput(f"cannot write {path}: it is not a file")
        if not (force or (replaceable is not None and replaceable(path))):
            other = "" if replaceable is None else f" and is not {kind}"
            raise Exists(f"{path} exists{other}; give --force to replace it")
    if path.is_symlink() and not path.exists() and Path(os.path.realpath(path)).is_symlink():
        raise BadInput(f"cannot write {path}: it is a link to itself")
    folder = Path(os.path.realpath(path)).parent
    if not os.access(folder, os.W_OK):
        raise BadInput(f"cannot write {path}: no permission to write in {folder}")


@contextlib.contextmanager
def existing_told_last(check: Callable[[], None]) -> Iterator[None]:
    """Check outputs before this block, which reads inputs, and refuse files that exist only after it."""
    found = None
    try:
        check()
    except Exists as error:
        found = error
    yield
    if found is not None:
        raise found


def check_distinct(inputs: Mapping[str, str | None], outputs: Mapping[str, str | None]) -> None:
    """Refuse, before any work, to write over an input, or two outputs to one file; both by option."""
    seen: dict[Path, str] = {}
    for option, path in (*inputs.items(), *outputs.items()):
        if path is not None and path != STANDARD:
            if "\0" in path:
                raise BadInput(f"{option} {path!r}: a zero byte is in no name of a file")
            place = Path(os.path.realpath(path))  # which a link to itself does not stop
            if place in seen and option in outputs:
                raise BadInput(f"{seen[place]} and {option} are the same file: {path}")
            seen[place] = option


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths name one file, also through links."""
    return os.path.realpath(one) == os.path.realpath(other)


def limit_threads(count: int | None) -> contextlib.AbstractContextManager[Any]:
    """Keep BLAS and numba to that many threads; call it before any work. None leaves them alone."""
    if count is None:
        return contextlib.nullcontext()
    if "numba" in sys.modules:
        import numba

        numba.set_num_threads(min(count, numba.get_num_threads()))
    else:  # numba reads the variable when it is imported, and refuses a change later
        os.environ["NUMBA_NUM_THREADS"] = str(count)
    from nearwise._common.threads import threads

    return threads(count)


def tell(notices: Iterable[str], quiet: bool) -> None:
    """Print what the user should know on standard error."""
    if not quiet:
        for notice in notices:
            print(f"nearwise: note: {notice}", file=sys.stderr)


def status(text: str, quiet: bool) -> Any:
    """A line on standard error that says what is done while a block runs; `update` changes it."""
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, markup=False).status(text)


@contextlib.contextmanager
def telling_of_compilation(quiet: bool) -> Iterator[None]:
    """Say so before loops are compiled, which takes long enough for a user to wonder."""
    before = loops.announce
    loops.announce = lambda: tell([_COMPILING], quiet)
    try:
        yield
    finally:
        loops.announce = before


def as_rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Arrays by name as one dictionary for every row, as JSON has them."""
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]


def one_line(text: str, longest: int | None = _LONGEST) -> str:
    """Text of data for a terminal: not too long, and without what moves the cursor or turns writing."""
    text = text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."
    visible = (
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
    return "".join(visible)


def make_outputs_writable() -> None:
    """Let every text be printed: files and pipes get UTF-8, a terminal what it can show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            if stream.isatty():
                stream.reconfigure(errors="backslashreplace")
            else:
                stream.reconfigure(encoding="utf-8")


def program() -> str:
    """What to type to run this again: the script, by its path where that is needed, or this interpreter."""
    if shutil.which("nearwise"):
        return "nearwise"
    script = Path(sys.executable).with_name("nearwise")
    file, here = script if script.exists() else Path(sys.executable), Path.cwd()
    path = str(file.relative_to(here) if file.is_relative_to(here) else file)
    shown = shlex.quote(path if os.sep in path else f"{os.curdir}{os.sep}{path}")
    return shown if file == script else f"{shown} -m nearwise"


_OPTIONS: dict[str, dict[str, Any]] = {
    "seed": {
        "type": whole_number(0, 2**32 - 1),
        "default": 0,
        "metavar": "N",
        "help": "seed of everything that is drawn: same seed, same result (default 0)",
    },
    "threads": {
        "type": whole_number(1),
        "metavar": "N",
        "help": "use at most N threads (default: all processors; one where the data are small)",
    },
    "max-seconds": {
        "type": positive_number,
        "metavar": "S",
        "help": "stop learning after S seconds and keep the best found so far (exit code 1)",
    },
    "max-iter": {
        "type": whole_number(1),
        "metavar": "N",
        "help": "stop learning after N iterations of a solve and keep the best found so far (exit code 1)",
    },
    "force": {"action": "store_true", "help": "replace output files that exist"},
    "quiet": {"action": "store_true", "help": "print nothing but errors and results asked for"},
    "json": {"action": "store_true", "help": "print one JSON object on standard output, nothing else"},
}
