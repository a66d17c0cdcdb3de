"""`nearwise bench`: list the benchmarks, or run one."""

from __future__ import annotations

import argparse
import importlib

from nearwise.cli._common import DONE, first_line, public_modules

_PACKAGE = "nearwise.benchmarks"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        choices=tuple(public_modules(_PACKAGE)),
        help="the benchmark; without it, list them",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="options of the benchmark")


def run(arguments: argparse.Namespace) -> int:
    """Run one benchmark with its own options, or list them all."""
    benchmarks = public_modules(_PACKAGE)
    if arguments.name is None:
        for name, module in benchmarks.items():
            print(f"{name:12} {first_line(module)}")
        return DONE
    code: int = importlib.import_module(benchmarks[arguments.name]).main(arguments.arguments)
    return code
