"""The recipes of CONTRIBUTING, followed in a copy of the package: all methods take what each adds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import nearwise

PROBLEM = """
    import numpy as np
    import nearwise as nw
    from nearwise import constraints as c

    rng = np.random.default_rng(0)
    G = rng.normal(size=(12, 4))
    pairs = np.array([(k, k + 1) for k in range(10)])
    side = c.at_most(pairs[:5], 0.5) + c.at_least(pairs[5:], 4.0)
    side += c.closer([(0, 3, 6), (1, 4, 7)], margin=1.0)
    SOLVERS = [None, nw.solvers.Newton(), nw.solvers.InteriorPoint()]
    DIVERGENCES = [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()]
"""


@pytest.fixture
def copy(tmp_path: Path) -> Callable[..., str]:
    """Make a copy of the package, with files added and texts replaced, and run a script on it."""
    package = tmp_path / "nearwise"
    shutil.copytree(Path(nearwise.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def run(script: str, files: dict[str, str], lines: dict[str, tuple[str, str]]) -> str:
        for name, text in files.items():
            (package / name).write_text(textwrap.dedent(text), encoding="utf-8")
        for name, (before, after) in lines.items():
            text = (package / name).read_text(encoding="utf-8")
            assert text.count(before) == 1
            (package / name).write_text(text.replace(before, after), encoding="utf-8")
        code = textwrap.dedent(PROBLEM) + textwrap.dedent(script)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


COSH = '''
class CoshSlack(Slack):
    """k s^2 (cosh((p - b) / s) - 1): quadratic next to the bound, and far beyond it exponential."""

    @classmethod
    def suits(cls, loss: Loss) -> Mask:
        return np.ones(len(loss.bounds), bool)

    @property
    def centre(self) -> Array:
        return self.sizes

    def cost(self, p: Array, off: Array | None = None) -> Array:
        return self.stiffness * (np.cosh(((p - self.bounds) if off is None else off) / self.sizes) - 1)

    def slope(self, p: Array) -> Array:
        return self.stiffness / self.sizes * np.sinh((p - self.bounds) / self.sizes)

    def curvature(self, p: Array) -> Array:
        return self.stiffness / self.sizes**2 * np.cosh((p - self.bounds) / self.sizes)

    def reply(self, y: Array) -> Array:
        return self.bounds + self.sizes * np.arcsinh(y * self.sizes / self.stiffness)

    def fenchel(self, p: Array, y: Array, off: Array | None = None) -> Array:
        here, there = (p - self.bounds) / self.sizes, np.arcsinh(y * self.sizes / self.stiffness)
        rise = np.cosh(here) - np.cosh(there) - np.sinh(there) * (here - there)
        return np.maximum(self.stiffness * rise, 0.0)


SLACKS: dict[str, type[Slack]] = {"cosh": CoshSlack, '''


def test_a_slack_is_one_class_and_one_line(copy: Callable[..., str]) -> None:
    script = """
        for divergence in DIVERGENCES:
            problem = nw.Problem(G, side, divergence, penalty=0.3)
            loss = problem.formulation.loss
            k = 0.3 * divergence.curvature(loss.sizes)
            found = [nw.solve(problem, solver, tol=1e-8) for solver in SOLVERS]
            for result in found:
                assert result.status is nw.Status.SOLVED, (divergence, result)
                off = problem.values(result.matrix) - problem.bounds
                wrong = off * np.where(problem.relations > 0, -1, 1) > 0
                costs = k * loss.sizes**2 * (np.cosh(off / loss.sizes) - 1)
                expected = divergence.value(result.matrix, np.eye(4)) + costs[wrong].sum()
                np.testing.assert_allclose(result.objective, expected, rtol=1e-9)
                np.testing.assert_allclose(result.objective, found[0].objective, rtol=1e-7)
        print("solved")
    """
    line = "SLACKS: dict[str, type[Slack]] = {"
    assert copy(script, {}, {"core/slacks.py": (line, COSH.lstrip("\n"))}) == "solved\n"


def test_a_divergence_gets_every_solver(copy: Callable[..., str]) -> None:
    file = '''
        """phi(x) = x^1.5."""

        from dataclasses import dataclass

        import numpy as np

        from nearwise.core.divergences import SpectralDivergence


        @dataclass(frozen=True)
        class ThreeHalves(SpectralDivergence):
            """A divergence between those of von Neumann and Frobenius."""

            degree = 1.5

            def scalar(self, x, y):
                a, b = np.sqrt(x), np.sqrt(y)
                return (a - b) ** 2 * (a + b / 2)

            def gradient(self, x):
                return 1.5 * np.sqrt(x)

            def gradient_inverse(self, t):
                return (np.maximum(t, 0) / 1.5) ** 2

            def curvature(self, x):
                return 0.75 / np.sqrt(x)
    '''
    script = """
        from nearwise.core.three_halves import ThreeHalves

        for penalty in (0.1, 10.0, np.inf):
            problem = nw.Problem(G, side, ThreeHalves(), penalty=penalty)
            found = [nw.solve(problem, solver, tol=1e-7) for solver in SOLVERS]
            expected = "INFEASIBLE" if np.isinf(penalty) else "SOLVED"
            assert {result.status.name for result in found} == {expected}, (penalty, found)
            if expected == "SOLVED":
                np.testing.assert_allclose([r.objective for r in found], found[0].objective, rtol=1e-5)
        print("solved")
    """
    assert copy(script, {"core/three_halves.py": file}, {}) == "solved\n"


def test_a_solver_is_one_file(copy: Callable[..., str]) -> None:
    file = '''
        """Mirror descent."""

        from dataclasses import dataclass

        import numpy as np

        from nearwise.core.iterates import Iterate


        @dataclass(frozen=True)
        class MirrorDescent:
            """Steps of one length on phi'(M)."""

            length: float = 0.1

            def iterates(self, form):
                theta = form.theta(np.zeros((form.order, form.order)))
                while True:
                    t, U = np.linalg.eigh(theta)
                    factor = U * np.sqrt(form.divergence.gradient_inverse(t))
                    sums = form.measured.measure(factor)
                    yield Iterate(factor, sums=sums)
                    theta = (1 - self.length) * theta + self.length * form.theta(sums.adjoint)
    '''
    script = """
        from nearwise.methods.mirror_descent import MirrorDescent

        problem = nw.Problem(G, side, nw.VonNeumann(), penalty=0.05)
        mine, ours = nw.solve(problem, MirrorDescent()), nw.solve(problem)
        assert mine.solver == "MirrorDescent" and mine.status is nw.Status.SOLVED, mine
        np.testing.assert_allclose(mine.objective, ours.objective, rtol=3e-6)
        print("solved")
    """
    assert copy(script, {"methods/mirror_descent.py": file}, {}) == "solved\n"


def test_a_stopping_rule_is_a_tolerance(copy: Callable[..., str]) -> None:
    script = """
        class Satisfied(nw.Tolerance):
            def is_met(self, certificate):
                return certificate.satisfied >= 0.3

        problem = nw.Problem(G, side, penalty=5.0)
        early, late = (nw.solve(problem, nw.solvers.Newton(), tol=tol) for tol in (Satisfied(), 1e-6))
        assert early.status is late.status is nw.Status.SOLVED
        assert early.certificate.satisfied >= 0.3 and early.n_iter < late.n_iter, (early, late)
        loose = nw.solve(problem, nw.solvers.Newton(), tol=nw.Tolerance(gap=0.5, violation=1e-9))
        assert loose.certificate.gap <= 0.5 and loose.n_iter <= late.n_iter, (loose, late)
        print("solved")
    """
    assert copy(script, {}, {}) == "solved\n"
