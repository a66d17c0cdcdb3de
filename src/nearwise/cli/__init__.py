"""The command line: a table of commands, each in a module with `configure(parser)` and `run(arguments)`.

Exit codes: 0 done, 1 not converged (the result is still written), 2 bad input, 130 interrupted. A command's
module is imported when that command is given, and numerical libraries and rich when it runs, so that
`nearwise --help` is immediate.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, NoReturn

from nearwise import __version__
from nearwise._common.errors import Refused
from nearwise.cli._common import (
    BAD_INPUT,
    DONE,
    INTERRUPTED,
    NOT_CONVERGED,
    BadInput,
    make_outputs_writable,
    telling_of_compilation,
)

__all__ = ["BAD_INPUT", "COMMANDS", "DONE", "INTERRUPTED", "NOT_CONVERGED", "BadInput", "main", "parser"]


class Command(NamedTuple):
    """A line of help and examples; the module of the same name has the options of the command and runs it."""

    help: str
    examples: tuple[str, ...]


COMMANDS = {
    "demo": Command(
        "learn on scikit-learn's digits, show before and after, write report.html",
        ("demo --seed 1 -o digits.html",),
    ),
    "learn": Command(
        "learn a distance from labels, pairs, triplets or measured distances",
        (
            "learn flowers.csv --labels species --report flowers.html",
            "learn embeddings.npy --pairs feedback.csv -o better.safetensors",
            "learn dataset:iris --labels target --kernel rbf",
        ),
    ),
    "apply": Command(
        "write the coordinates of data under a model",
        (
            "apply model.safetensors flowers.csv -o coordinates.csv",
            "apply model.safetensors flowers.csv --id name --drop species -o coordinates.parquet",
            "apply model.safetensors embeddings.npy -o better.npy",
        ),
    ),
    "evaluate": Command(
        "measure a model on other data, before and after",
        (
            "evaluate flowers.safetensors garden.csv --labels species",
            "evaluate better.safetensors embeddings.npy --pairs more.csv",
        ),
    ),
    "neighbors": Command(
        "list the nearest rows of data, by the learned distance",
        (
            "neighbors model.safetensors flowers.csv --id name",
            "neighbors model.safetensors flowers.csv -k 10 --query new.csv -o neighbors.csv",
        ),
    ),
    "decide": Command(
        "say which pairs of rows are the same, by a threshold of the learned distance",
        (
            "decide model.safetensors people.csv --id name --pairs asked.csv --calibrate known.csv",
            "decide model.safetensors people.csv --pairs asked.csv --threshold 0.8 -o decisions.csv",
        ),
    ),
    "duplicates": Command(
        "list the rows that are nearer to each other than a threshold, and how many of them are the same",
        (
            "duplicates model.safetensors people.csv --id name --calibrate known.csv",
            "duplicates model.safetensors people.csv --threshold 0.8 -o duplicates.csv",
        ),
    ),
    "info": Command(
        "show what a model is, what it was learned from, and how good it was found to be",
        ("info model.safetensors",),
    ),
    "completion": Command(
        "print a script that completes commands, options and files in a shell",
        (
            'completion bash   # in ~/.bashrc:  eval "$(nearwise completion bash)"',
            "completion zsh > _nearwise   # in a folder of $fpath",
            "completion fish > ~/.config/fish/completions/nearwise.fish",
        ),
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    make_outputs_writable()
    words = sys.argv[1:] if argv is None else list(argv)
    # options before the command take no value, so the first other word is the command
    command = next((word for word in words if not word.startswith("-")), None)
    chosen = parser([command] if command in COMMANDS else [])
    arguments = chosen.parse_args(words, argparse.Namespace(words=words))
    if command is None:
        chosen.print_help(sys.stderr)
        return BAD_INPUT
    try:
        with telling_of_compilation(getattr(arguments, "quiet", False)):
            code: int = arguments.run(arguments)
        sys.stdout.flush()
    except Refused as error:
        print(f"nearwise: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    except MemoryError as error:
        print(f"nearwise: not enough memory: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("nearwise: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has seen enough; nothing is left to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:  # of the system: a name that is too long, a disk that is full
        if error.filename is None:
            raise
        print(f"nearwise: {str(error.filename)[:200]}: {error.strerror}", file=sys.stderr)
        return BAD_INPUT
    return code


def parser(configured: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of all commands; of those not `configured`, no module is imported and no option known."""
    program = Parser(
        prog="nearwise",
        description='Learn what "near" means: distances and kernels from side information.',
        epilog=_epilog([command.examples[0] for command in COMMANDS.values()])
        + "\n\nnearwise COMMAND --help explains the options of a command.",
    )
    program.add_argument("--version", action="version", version=f"nearwise {__version__}")
    commands = program.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            epilog=_epilog(command.examples),
        )
        if name in configured:
            module = importlib.import_module(f"{__name__}.{name}")
            module.configure(sub)
            sub.set_defaults(run=module.run)
    return program


class Parser(argparse.ArgumentParser):
    """argparse, with errors in one line and examples kept as they are laid out."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **settings})

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong and where to read on, and exit with the code of bad input."""
        self.exit(BAD_INPUT, f"{self.prog}: {message}; {self.prog} --help explains\n")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks, and leaves the longest command room for its help on the same line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 4 + max(map(len, COMMANDS))


def _epilog(examples: Sequence[str]) -> str:
    word = "example" if len(examples) == 1 else "examples"
    return f"{word}:\n" + "\n".join(f"  nearwise {example}" for example in examples)
