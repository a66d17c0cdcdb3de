"""`nearwise demo`: learn a distance for scikit-learn's digits, show before and after, write a report.

It is `nearwise learn dataset:digits --labels target --held-out 0.5` with a page and without a model file.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from nearwise.cli._common import (
    add_options,
    check_output,
    limit_threads,
    program,
    refusing_bad_input,
    status,
    tell,
)

_NEXT = "learn dataset:iris --labels target -o iris.safetensors --report iris.html"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), help="the report (default %(default)s)"
    )
    add_options(parser, "seed", "force", "quiet", "json")


def run(arguments: argparse.Namespace) -> int:
    """Learn, write the report, and print the figures."""
    from nearwise.show.report import is_report

    output: Path = arguments.output
    check_output(output, arguments.force, is_report)
    from nearwise import study
    from nearwise._common.files import write_whole
    from nearwise.cli._lines import exit_code, outcome_lines
    from nearwise.show.report import from_outcome, render

    settings = study.Settings(scale=True, seed=arguments.seed, held_out=0.5)
    # for data of this size, more threads only wait for each other
    with limit_threads(1), status("learning", arguments.quiet) as line:
        known = study.from_files("dataset:digits", labels="target")
        outcome = study.learn(known, settings, study.Watch(settings, line.update))
        command = shlex.join(["nearwise", *arguments.words])
        images = known.table.X.reshape(-1, 8, 8)
        title = "A distance for handwritten digits"
        page = render(from_outcome(outcome, title, {"command": command}, images=images))
        with refusing_bad_input():
            write_whole(output, page.encode())
    next_command = f"{program()} {_NEXT}"
    if arguments.json:
        written = {"report": str(output), "next": next_command}
        print(json.dumps(outcome.as_json() | written, indent=2, allow_nan=False))
    elif not arguments.quiet:
        print(*outcome_lines(outcome), f"report: {output}", f"next:   {next_command}", sep="\n")
    tell(outcome.notices, arguments.quiet)
    return exit_code(outcome.status)
