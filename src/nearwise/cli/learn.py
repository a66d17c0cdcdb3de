"""`nearwise learn`: a distance from labels, pairs, triplets or distances, measured before and after."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nearwise.cli import _in_pieces, _shown, _side
from nearwise.cli._common import (
    STANDARD,
    BadInput,
    add_columns,
    add_data,
    add_options,
    add_preparation,
    check_distinct,
    check_output,
    columns,
    existing_told_last,
    limit_threads,
    number_that,
    preparation,
    program,
    refusing_bad_input,
    settings,
    status,
    tell,
    whole_number,
)

if TYPE_CHECKING:
    from nearwise.data.beside import Beside
    from nearwise.data.tables import Table
    from nearwise.study import Outcome, Settings

METHODS = ("logdet", "vonneumann", "fixed-rank")
KERNELS = ("auto", "linear", "rbf", "polynomial", "laplacian", "cosine")
_SUFFIX = ".safetensors"
# what other programs write models as, and what holds tables
_PROGRAMS = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".onnx", ".h5")
_TABLES = (".csv", ".tsv", ".txt", ".json", ".npy", ".npz", ".parquet", ".xlsx", ".html", ".gz")
_SMALL = 500_000  # numbers in the data up to which threads only wait for each other
_LARGE = 10_000_000  # bytes of a model file from which on its size is worth a word


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_data(parser)
    _side.add_options(parser)
    add_columns(parser)
    add_preparation(parser)
    _shown.add_options(parser, color_by=True)
    how = parser.add_argument_group("how to learn")
    how.add_argument(
        "--method",
        choices=METHODS,
        default="logdet",
        help="nearest to the distance before by LogDet (the default) or von Neumann divergence; or a matrix "
        "of fixed rank",
    )
    how.add_argument(
        "--rank",
        type=whole_number(1),
        metavar="K",
        help="learn in K dimensions only; from labels, 2 or 3 make a map (fixed-rank: default 10, or number "
        "of classes less one, up to 30)",
    )
    how.add_argument(
        "--structure",
        choices=("diagonal", "blocks"),
        help="learn a weight for every feature, or a matrix for every group of columns (--group), not one "
        "matrix of all",
    )
    how.add_argument(
        "--group",
        action="append",
        default=[],
        type=_names,
        metavar="NAMES",
        help="columns of one block, with commas between; once for each group. Columns in no group are alone",
    )
    how.add_argument(
        "--kernel",
        choices=KERNELS,
        help="auto: a linear distance, one of scores that an RBF kernel gives, or both, whichever does best "
        "on a part that is held out (the default, from labels); linear; or a kernel to start from",
    )
    how.add_argument(
        "--penalty",
        type=_penalty,
        default="auto",
        metavar="P",
        help="cost of violating what is known: a number, inf (never), or auto, chosen on a part "
        "that is held out (the default)",
    )
    how.add_argument(
        "--scale",
        choices=("auto", "standard", "none"),
        default="auto",
        help="standardise the features; auto: columns of numbers yes, vectors no (default)",
    )
    how.add_argument(
        "--held-out",
        type=_share,
        metavar="SHARE",
        help="measure on this share of what is known, learn from the rest; 0 for none (default 0.2, at most "
        "5000)",
    )
    add_options(how, "seed", "threads", "max-seconds", "max-iter")
    outputs = parser.add_argument_group("what to write")
    outputs.add_argument(
        "-o", "--output", metavar="MODEL", help="the model (default: named after DATA, in this folder)"
    )
    outputs.add_argument("--report", metavar="FILE", help="a page about it, one HTML file")
    outputs.add_argument(
        "--suspects",
        metavar="FILE",
        help="labels and answers that may be wrong, the clearest first: .csv or .tsv",
    )
    outputs.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="store the state in FILE while learning, and go on from there if it exists",
    )
    add_options(outputs, "force", "quiet", "json")
    _in_pieces.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Learn, write the model and the report, and show what came out."""
    _check(arguments)
    target = default_output(arguments.data) if arguments.output is None else arguments.output
    if _in_pieces.wanted(arguments):
        _check_outputs(arguments, target)
        return _in_pieces.run(arguments, target)
    from nearwise import study
    from nearwise.cli._lines import exit_code
    from nearwise.data import tables

    with status("reading", arguments.quiet) as line:
        with existing_told_last(lambda: _check_outputs(arguments, target)), refusing_bad_input():
            beside = _shown.read(arguments)
            wanted = {"labels": arguments.labels, **columns(arguments), **preparation(arguments)}
            table = tables.read(arguments.data, **(learned := _shown.without_words(wanted, beside)))
            known = study.with_files(table, **_side.files(arguments))
        beside = _shown.of_rows(beside, table)
        small = table.X.size <= _SMALL
        with limit_threads(1 if arguments.threads is None and small else arguments.threads):
            how = _settings(arguments, table)
            outcome = study.learn(known, how, study.Watch(how, line.update))
            written = _write(arguments, outcome, target, beside)
    _tell(arguments, outcome, target)
    tell(written, arguments.quiet)
    if only_shown := [name for name in learned["drop"] if name not in arguments.drop]:
        names = ", ".join(map(repr, only_shown))
        tell([f"shown, and not learned from, because not all are numbers: {names}"], arguments.quiet)
    return exit_code(outcome.status)


def default_output(data: str) -> str:
    """The model's file, named after the data, in the working folder."""
    if data == STANDARD:
        return f"model{_SUFFIX}"
    name = Path(data.removeprefix("dataset:")).name.removesuffix(".gz")
    return f"{Path(name).stem}{_SUFFIX}"


def _check(arguments: argparse.Namespace) -> None:
    """Refuse combinations that make no sense, by name."""
    _side.check(arguments)
    method = arguments.method
    if method == "fixed-rank":
        if arguments.kernel is not None:
            raise BadInput(f"--kernel goes with --method logdet or vonneumann, not {method}")
        if arguments.penalty != "auto":
            raise BadInput(f"--penalty goes with --method logdet or vonneumann, not {method}")
    if arguments.kernel == "auto" and arguments.rank is not None:
        raise BadInput("--kernel auto and --rank exclude each other: --kernel linear learns in K dimensions")
    if arguments.structure is not None:
        for option, given in (("--kernel", arguments.kernel), ("--rank", arguments.rank)):
            if given is not None:
                raise BadInput(f"--structure {arguments.structure} and {option} exclude each other")
        if method == "fixed-rank":
            raise BadInput(f"--structure goes with --method logdet or vonneumann, not {method}")
    if bool(arguments.group) != (arguments.structure == "blocks"):
        raise BadInput("--structure blocks and --group go together, as in --structure blocks --group age,sex")


def _check_outputs(arguments: argparse.Namespace, target: str) -> None:
    if target == STANDARD:
        raise BadInput("a model is not written to standard output; name a file with -o")
    if arguments.report == STANDARD:
        raise BadInput("a report is not written to standard output; name a file with --report")
    suffix = Path(target).suffix.lower()
    if suffix in (*_PROGRAMS, *_TABLES):
        name = Path(target).with_suffix(_SUFFIX)
        raise BadInput(f"a model is written as {_SUFFIX}, never as {suffix}: name it -o {name}")
    inputs = {"DATA": arguments.data, **{f"--{kind}": getattr(arguments, kind) for kind in _side.KINDS[1:]}}
    outputs = {"-o": target, "--report": arguments.report, "--suspects": arguments.suspects}
    outputs["--checkpoint"] = arguments.checkpoint
    check_distinct(inputs, outputs)
    # the command that left a checkpoint wrote what it had: the same command goes on
    goes_on = arguments.checkpoint is not None and Path(arguments.checkpoint).is_file()
    unfinished = "the model of an unfinished fit"
    check_output(target, arguments.force, _is_unfinished if goes_on else None, unfinished)
    check_output(arguments.report, arguments.force, _is_report if goes_on else None)
    check_output(arguments.suspects, arguments.force)
    if arguments.suspects is not None and not arguments.suspects.lower().endswith((".csv", ".tsv")):
        raise BadInput(f"cannot write {arguments.suspects}: the name must end in .csv or .tsv")
    check_output(arguments.checkpoint, force=True)


def _is_unfinished(path: Path) -> bool:
    """Whether a file is a model whose fit was stopped, and so may be replaced by the one that goes on."""
    from nearwise import study

    try:
        memory = study.load(path).memory
    except (ValueError, OSError):
        return False
    return memory is not None and memory.study.get("status") in ("LIMIT", "INTERRUPTED")


def _is_report(path: Path) -> bool:
    from nearwise.show.report import is_report

    return is_report(path)


def _settings(arguments: argparse.Namespace, table: Table) -> Settings:
    from nearwise.study import Settings

    n, d = table.X.shape
    spans_rows = arguments.kernel not in (None, "auto", "linear")
    largest, what = (n, "rows") if spans_rows else (d, "features")
    grows = any(kind == "category" for kind in table.kinds)  # to a number of columns that a step finds out
    if arguments.rank is not None and arguments.rank > largest and not grows:
        raise BadInput(f"--rank {arguments.rank}: {table.source} has {largest} {what}, and no higher rank")
    scale = table.scalars if arguments.scale == "auto" else arguments.scale == "standard"
    # a kernel is chosen where nothing that was asked for needs another
    chosen = arguments.kernel is None and arguments.rank is None and arguments.structure is None
    kernel = "auto" if chosen and arguments.method in ("logdet", "vonneumann") else arguments.kernel
    return Settings(**settings(arguments), groups=tuple(arguments.group), kernel=kernel, scale=scale)


def _write(
    arguments: argparse.Namespace, outcome: Outcome, target: str, beside: Beside | None
) -> tuple[str, ...]:
    """Write the files; returns what there is to say about them."""
    import nearwise as nw
    from nearwise._common.files import write_whole
    from nearwise.data.tables import write_columns
    from nearwise.study import suspicion

    page = None
    doubts = suspicion.suspects(outcome) if arguments.suspects and not arguments.report else ()
    if arguments.report is not None:
        from nearwise.show.report import from_outcome, render

        command = shlex.join(["nearwise", *arguments.words])
        title = f"A distance learned from {outcome.known.table.source}"
        found = from_outcome(outcome, title, {"command": command}, beside)
        page = render(found).encode()
        doubts = tuple(found.suspects)
    listed = suspicion.as_columns(doubts, outcome.known)
    with refusing_bad_input():
        nw.save(outcome.model(), target)
        if page is not None:
            write_whole(arguments.report, page)
        if arguments.suspects is not None:
            return write_columns(arguments.suspects, listed, force=arguments.force)
    return ()


def _tell(arguments: argparse.Namespace, outcome: Outcome, target: str) -> None:
    from nearwise.cli._lines import outcome_lines
    from nearwise.study import suspicion

    size = Path(target).stat().st_size
    next_command = _next(arguments, target)
    if arguments.json:
        files = {"model": target, "report": arguments.report, "suspects": arguments.suspects}
        files["next"] = next_command
        print(json.dumps(outcome.as_json() | files, indent=2, allow_nan=False))
    elif not arguments.quiet:
        large = f" ({size / 1e6:.0f} MB)" if size >= _LARGE else ""
        report = [] if arguments.report is None else [f"report: {arguments.report}"]
        report += [] if arguments.suspects is None else [f"to check: {arguments.suspects}"]
        written = [f"model:  {target}{large}", *report, f"next:   {next_command}"]
        print(*outcome_lines(outcome), *written, sep="\n")
    tell(outcome.notices, arguments.quiet)
    if arguments.suspects is not None or arguments.report is not None:
        tell(filter(None, [suspicion.left_out(outcome.known)]), arguments.quiet)


def _next(arguments: argparse.Namespace, target: str) -> str:
    """The command that most people want now: the learned coordinates of the same data."""
    words = ["apply", target, arguments.data, "-o", f"{Path(target).stem}-coordinates.csv"]
    options = {"--id": [arguments.id], "--drop": [arguments.labels, *arguments.drop]}
    options |= {"--features": arguments.features, "--header": [arguments.header]}
    options |= {"--decimal": [arguments.decimal], "--thousands": [arguments.thousands]}
    for option, chosen in options.items():
        words += [word for name in chosen if name is not None for word in (option, name)]
    return f"{program()} {shlex.join(words)}{' < DATA' if arguments.data == STANDARD else ''}"


_given_penalty = number_that(lambda value: value > 0.0, "auto, inf or a number greater than 0")
_share = number_that(lambda value: 0.0 <= value <= 0.9, "a share from 0 to 0.9")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"names of columns with commas between them, not {text!r}")
    return names


def _penalty(text: str) -> float | str:
    return text if text == "auto" else _given_penalty(text)
