"""Solvers: how a problem is solved. Each is a frozen dataclass of settings with one method, `iterates`."""

from nearwise.solvers.newton import Newton

__all__ = ["Newton"]
