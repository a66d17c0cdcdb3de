"""Random small problems: how many are decided, how fast, and whether the answers are right.

Each problem is drawn from its own seed, solved with default settings, and judged by its definition in
extended precision, from the user's numbers. Moderate problems have ordinary scales, wild ones scales from
1e-100 to 1e100, larger ones orders up to 40. A problem of the campaign runs alone with `--only 17`
(moderate), `--only w17` (wild) or `--only l17` (larger).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import repeat

import numpy as np

import nearwise as nw
from benchmarks import _dense_peers, _judge, _tables
from benchmarks._judge import Outcome
from benchmarks._random_problems import FAMILIES, LARGER, MODERATE, Family, draw, named
from benchmarks._tables import Row, Table, Target, counted
from benchmarks.baselines import require
from nearwise import constraints as c
from nearwise.methods import Status

TARGETS = {
    "moderate": Target(99.5, at_least=True),
    "wild": Target(98.0, at_least=True),
    "none": Target(0),
    "faster": Target(10, at_least=True),
    "never slower": Target(1, at_least=True),
    "seconds": Target(_judge.SLOW),
}
_DIVERGENCES = ("LogDet", "VonNeumann", "Frobenius")
_SHOWN = 60  # failures that are described one by one


@dataclass(frozen=True)
class Sizes:
    """How many problems, and from which seed."""

    problems: int = 5000
    wild: int = 2000
    larger: int = 200
    peers: int = 300
    larger_peers: int = 60
    seed: int = 0
    jobs: int = 1


QUICK = Sizes(problems=40, wild=20, larger=4, peers=12, larger_peers=2)


def main(argv: list[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    summary = (__doc__ or "").partition("\n")[0]
    own = argparse.ArgumentParser(prog="python -m benchmarks decide", description=summary)
    own.add_argument("--problems", type=_count, metavar="N", help="moderate problems (default: 5000)")
    own.add_argument("--wild", type=_count, metavar="N", help="wild problems (default: 2000)")
    own.add_argument("--larger", type=_count, metavar="N", help="larger problems (default: 200)")
    own.add_argument("--peers", type=_count, metavar="N", help="problems beside other solvers (default: 300)")
    own.add_argument("--larger-peers", type=_count, metavar="N", help="larger ones beside them (default: 60)")
    own.add_argument("--seed", type=_count, metavar="S", help="of the campaign (default: 0)")
    own.add_argument("--jobs", type=_count, metavar="N", help="processes side by side (default: 1)")
    own.add_argument(
        "--only", action="append", metavar="K", help="a section, or a problem: 17, w17 if wild, l17 if larger"
    )
    own.add_argument("--no-peer", action="store_true", help="leave the comparison with other solvers out")
    own.add_argument("--quick", action="store_true", help="few problems, to see that it runs: no evidence")
    own.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    given = own.parse_args(argv)
    rest = ["--quick"] * given.quick + ([] if given.json is None else ["--json", given.json])
    chosen = {f.name: getattr(given, f.name) for f in fields(Sizes) if getattr(given, f.name) is not None}
    numbers = [name for name in given.only or () if name not in SECTIONS]
    if numbers:
        for label in numbers:
            try:
                family, number = named(label)
            except ValueError as error:
                own.error(f"--only takes a section ({', '.join(SECTIONS)}) or a problem: {error}")
            _show(chosen.get("seed", Sizes.seed), family, number)
        return 0
    sections = {name: part for name, part in SECTIONS.items() if name != "peers" or not given.no_peer}
    for name in given.only or ():
        rest += ["--only", name]
    options = "".join(f" --{name.replace('_', '-')} {value}" for name, value in chosen.items())
    return _tables.run(
        rest, "decide", summary, sections, replace(Sizes(), **chosen), replace(QUICK, **chosen), options
    )


def peers(sizes: Sizes) -> Iterator[Table]:
    """The first problems beside Clarabel, and von Neumann beside a dense dual."""
    require("cvxpy", "cvxpy")
    for family, count in ((MODERATE, sizes.peers), (LARGER, sizes.larger_peers)):
        if count:
            yield _beside_peers(family, count, sizes.seed)


def _beside_peers(family: Family, count: int, seed: int) -> Table:
    table = Table(
        f"{count:,} {family.name} problems beside other solvers, seed {seed}",
        [
            "peer: cvxpy with Clarabel, SCS where that fails; for von Neumann L-BFGS-B on its dense dual, "
            "which takes too long for larger problems; each gets the problem reduced and scaled",
            "compared: where the peer says optimal and we say SOLVED; ratio: its seconds of CPU over ours, "
            f"the least of up to {_dense_peers.TURNS} in turns; as called: cvxpy with its model over Problem "
            "and solve; alone: Clarabel, which gets its cones ready made, over solve",
            f"disagree: objectives differ by over {_dense_peers.AGREEMENT:g} more than the peer's violations "
            "explain, or one calls it infeasible",
        ],
    )
    compared = [name for name in _DIVERGENCES if name != "VonNeumann" or family is MODERATE]
    found = []
    for number in counted(range(count), count):
        case = draw(seed, number, family)
        if type(case.divergence).__name__ in compared:
            pair = _dense_peers.compared(case, number, family)
            found += [] if pair is None else [pair]
    for divergence in compared:
        part = [pair for pair in found if pair.outcome.divergence == divergence]
        both = [pair for pair in part if pair.is_common]
        as_called = np.array([pair.ratio for pair in both] or [np.nan])
        alone = np.array([pair.ratio_alone for pair in both] or [np.nan])
        disagreeing = [pair.outcome.label for pair in part if pair.disagrees]
        table.rows.append(
            {
                "divergence": divergence,
                "accepted": len(part),
                "peer optimal": sum(pair.peer.status == "optimal" for pair in part),
                "of these, ours not": sum(
                    pair.peer.status == "optimal" and not pair.is_common for pair in part
                ),
                "compared": len(both),
                "as called, median": float(np.median(as_called)),
                str(TARGETS["faster"]): _verdict("faster", divergence, float(np.median(as_called))),
                "least": float(as_called.min()),
                str(TARGETS["never slower"]): _verdict("never slower", divergence, float(as_called.min())),
                "alone, median": float(np.median(alone)),
                "alone, least": float(alone.min()),
                "alone, slower": int(np.count_nonzero(alone < 1)),
                "worst difference": max((abs(pair.difference) for pair in both), default=0.0),
                "disagree": len(disagreeing),
            }
        )
        slower = [pair.outcome.label for pair in both if pair.ratio_alone < 1]
        table.notes.append(
            f"{divergence} disagree: {' '.join(disagreeing)}; alone, slower: {' '.join(slower)}"
        )
    return table


def outcomes(seed: int, count: int, family: Family, jobs: int = 1) -> Iterator[Outcome]:
    """The problems of a campaign, one after the other."""
    _warm_up()
    arguments = repeat(seed), range(count), repeat(family)
    if jobs <= 1:
        yield from map(_judge.run, *arguments)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(_judge.run, *arguments)


def _warm_up() -> None:
    """Whatever is imported or compiled at the first use is left out of the times."""
    G = np.random.default_rng(0).normal(size=(6, 2))
    side = c.at_most([(0, 1), (2, 3)], 0.5) + c.closer([(0, 1, 2)]) + c.similarity([(4, 4)], 1.0, "==")
    for divergence in (nw.LogDet(), nw.VonNeumann(), nw.Frobenius()):
        for penalty in (1.0, np.inf):
            nw.solve(nw.Problem(G, side, divergence, penalty=penalty), max_seconds=5.0)


def campaign(family: Family, sizes: Sizes) -> Iterator[Table]:
    """As many problems of a family as are asked for, judged one by one."""
    count = {"moderate": sizes.problems, "wild": sizes.wild, "larger": sizes.larger}[family.name]
    if count == 0:
        return
    found = list(counted(outcomes(sizes.seed, count, family, sizes.jobs), count))
    yield _counts(found, family, sizes.seed)
    yield _accuracy(found)
    yield _failures(found)


def _counts(found: Sequence[Outcome], family: Family, seed: int) -> Table:
    table = Table(
        f"{len(found):,} {family.name} problems, seed {seed}",
        [
            "decided: SOLVED or INFEASIBLE, of those accepted; faulty: wrong SOLVED, false INFEASIBLE",
            f"seconds: of CPU for Problem and solve, at most {_judge.LIMIT:g}; slow: over {_judge.SLOW:g}",
        ],
    )
    by_divergence = {d: [o for o in found if o.divergence == d] for d in _DIVERGENCES} | {"all": [*found]}
    accepted = {d: [o for o in part if o.ending != "refused"] for d, part in by_divergence.items()}

    def add(
        label: str, measure: Callable[[list[Outcome]], float | int], target: Target | None = None
    ) -> None:
        cells: Row = {"": label, **{d: measure(part) for d, part in accepted.items()}}
        verdict = "" if target is None else f"{target}: {target.verdict(measure(accepted['all']))}"
        table.rows.append(cells | {"target": verdict})

    table.rows.append({"": "refused", **{d: len(by_divergence[d]) - len(accepted[d]) for d in accepted}})
    for label, test in CLASSES.items():
        add(label, partial(_number, test), TARGETS["none"] if label in UNWANTED else None)
    add("decided, %", _share_decided, TARGETS.get(family.name))
    add("median seconds", partial(_quantile, 0.5))
    add("seconds of 99 %", partial(_quantile, 0.99))
    add("most seconds", partial(_quantile, 1.0), None if family is LARGER else TARGETS["seconds"])
    return table


def _accuracy(found: Sequence[Outcome]) -> Table:
    table = Table(
        "answers that say SOLVED, recomputed from the definition in extended precision",
        [
            f"loose: gap or hard violation over {_judge.TOL:g}; rounding: over {_judge.MARGIN:g} times that, "
            "which rounding of the answer or of a full prior to double precision explains",
        ],
    )
    for divergence in (*_DIVERGENCES, "all"):
        solved = [o for o in found if o.ending == "SOLVED" and divergence in (o.divergence, "all")]
        gaps = np.array([o.gap for o in solved] or [0.0])
        violations = np.array([o.violation for o in solved] or [0.0])
        wrong = sum(bool(o.fault) for o in solved)
        table.rows.append(
            {
                "divergence": divergence,
                "SOLVED": len(solved),
                "median gap": float(np.median(gaps)),
                "worst gap": float(gaps.max()),
                "worst hard violation": float(violations.max()),
                "loose": sum(o.is_loose for o in solved),
                "rounding": sum(o.is_rounding for o in solved),
                "wrong": wrong,
                str(TARGETS["none"]): TARGETS["none"].verdict(wrong),
            }
        )
    return table


def _failures(found: Sequence[Outcome]) -> Table:
    table = Table("the problems that failed, by number: what --only takes", [])
    accepted = [o for o in found if o.ending != "refused"]
    for label, test in FAILURES.items():
        failed = [o.label for o in accepted if test(o)]
        table.notes.append(f"{label}: {len(failed)}{': ' if failed else ''}{' '.join(failed)}")
    severe = [o for o in accepted if o.fault or o.warned or o.has_nan or CLASSES["exception"](o)]
    for o in severe[:_SHOWN]:
        what = o.fault or (f"{o.ending}: {o.text}" if CLASSES["exception"](o) else "")
        what = what or ("NaN" if o.has_nan else "; ".join(dict.fromkeys(o.warned)))
        table.rows.append({"problem": o.label, "ending": o.ending, "what": what[:120], "drawn": o.name})
    return table


def _show(seed: int, family: Family, number: int) -> None:
    """One problem, its answer and the verdict."""
    case = draw(seed, number, family)
    print(f"problem {family.prefix}{number} of seed {seed}: {case.name}")
    for name in ("features", "prior", "root", "widening", "penalty", "is_feasible"):
        print(f"{name}: {getattr(case, name)!r}")
    for row in range(len(case.constraints)):
        print(case.constraints.describe(row))
    result, outcome = _judge.attempt(case, number, family)
    if result is not None:
        print(f"reported: {result.certificate}")
        print(f"dual: {result.dual!r}")
        outcome = _judge.judged(case, result, outcome)
    for name, value in vars(outcome).items():
        print(f"{name}: {value}")


def _verdict(name: str, divergence: str, value: float) -> str:
    """The targets are about Clarabel, which does not know von Neumann's divergence of matrices."""
    return "" if divergence == "VonNeumann" else TARGETS[name].verdict(value)


def _number(test: Callable[[Outcome], bool], part: list[Outcome]) -> int:
    return sum(test(outcome) for outcome in part)


def _share_decided(part: list[Outcome]) -> float:
    return 100.0 * sum(outcome.is_decided for outcome in part) / len(part) if part else 100.0


def _quantile(share: float, part: list[Outcome]) -> float:
    return float(np.quantile([outcome.seconds for outcome in part] or [0.0], share))


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a whole number >= 0, got {text}")
    return int(text)


def _ended(*names: str) -> Callable[[Outcome], bool]:
    return partial(_has_ending, names)


def _has_ending(names: tuple[str, ...], outcome: Outcome) -> bool:
    return outcome.ending in names


def _is_exception(outcome: Outcome) -> bool:
    return outcome.ending not in (*Status.__members__, "refused", "out of time")


# the columns of the first table, and whether an outcome counts
CLASSES: dict[str, Callable[[Outcome], bool]] = {
    "SOLVED": _ended("SOLVED"),
    "INFEASIBLE": _ended("INFEASIBLE"),
    "LIMIT": _ended("LIMIT"),
    "STALLED": _ended("STALLED"),
    "over 20 s": _ended("out of time"),
    "exception": _is_exception,
    "slow": lambda o: o.seconds > _judge.SLOW,
    "warned": lambda o: bool(o.warned),
    "NaN": lambda o: o.has_nan,
    "faulty": lambda o: bool(o.fault),
}

FAILURES: dict[str, Callable[[Outcome], bool]] = {
    "wrong SOLVED": lambda o: o.ending == "SOLVED" and bool(o.fault),
    "false INFEASIBLE": lambda o: o.ending == "INFEASIBLE" and bool(o.fault),
    "LIMIT": _ended("LIMIT"),
    "STALLED": _ended("STALLED"),
    "over 20 s": _ended("out of time"),
    "exception": _is_exception,
    "NaN": lambda o: o.has_nan,
    "warned": lambda o: bool(o.warned),
    "slow": lambda o: o.seconds > _judge.SLOW,
    "SOLVED, excused by rounding": lambda o: o.is_rounding,
    "SOLVED, loose": lambda o: o.is_loose and not o.fault,
}

UNWANTED = ("exception", "warned", "NaN", "faulty")

# what no problem may end in, whether it is decided or not
SEVERE = ("wrong SOLVED", "false INFEASIBLE", "exception", "NaN", "warned")

# each section by name, and the functions that measure it
SECTIONS: dict[str, tuple[Callable[[Sizes], Iterator[Table]], ...]] = {
    **{family.name: (partial(campaign, family),) for family in FAMILIES},
    "peers": (peers,),
}
