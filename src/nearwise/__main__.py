"""`python -m nearwise`: the command line, where the `nearwise` script is not on the path."""

from nearwise.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
