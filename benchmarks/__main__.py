"""`python -m benchmarks`: list the benchmarks, or run one; what follows its name are its own options."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from benchmarks import first_line, public_modules


def main(argv: Sequence[str]) -> int:
    """Run one benchmark, or list them all, and return the exit code."""
    benchmarks = public_modules("benchmarks")
    if not argv or argv[0] in ("-h", "--help"):
        for name, module in benchmarks.items():
            print(f"{name:12} {first_line(module)}")
        return 0
    name, *options = argv
    if name not in benchmarks:
        print(f"benchmarks: {name!r} is none of {', '.join(benchmarks)}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(benchmarks[name]).main(options)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("benchmarks: interrupted")
