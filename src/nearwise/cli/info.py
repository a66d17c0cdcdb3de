"""`nearwise info`: what a model is, what it was learned from, and how good it was found to be."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from nearwise.cli._common import DONE, add_options, one_line, refusing_bad_input


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help="a model that nearwise learn or nw.save wrote")
    add_options(parser, "json")


def run(arguments: argparse.Namespace) -> int:
    """Load and show."""
    from nearwise import study
    from nearwise.cli._lines import table_lines
    from nearwise.data.models import written_by

    with refusing_bad_input():
        version = written_by(arguments.model)
        fitted = study.load(arguments.model)
        described, facts = study.describe(fitted), study.facts(fitted)
        figures = () if fitted.memory is None else fitted.memory.study["figures_as_text"]
    if arguments.json:
        found = {"file": arguments.model, "nearwise": version, **described}
        print(json.dumps(found, indent=2, allow_nan=False))
        return DONE
    size = Path(arguments.model).stat().st_size
    print(f"{arguments.model}: written by nearwise {version}, {size:,} bytes")
    width = max(map(len, facts))
    for name, text in facts.items():
        print(f"{name:{width}}  {one_line(text, longest=None)}")
    if figures:
        print("", *table_lines(figures), sep="\n")
    return DONE
