"""`from_outcome`: the report of a whole study, with all that it takes to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearwise.data.beside import Beside
from nearwise.data.side_files import Answers
from nearwise.data.tables import Table
from nearwise.show.report.contents import FINGERPRINT, Report, from_estimator
from nearwise.study.outcome import Outcome
from nearwise.study.suspicion import suspects

_LINES = 30  # of answers that differ, which the page names


def from_outcome(
    outcome: Outcome,
    title: str,
    settings: Mapping[str, object] | None = None,
    beside: Beside | None = None,
    images: Any = None,
) -> Report:
    """Gather what `nearwise.study.learn` found.

    Parameters
    ----------
    outcome : what it returned
    title : of the page
    settings : what the page names first of what it takes to repeat the run; "command" is shown as one
    beside : columns of the data file that are shown: texts, pictures, and what colours the maps
    images : pictures instead of those, as in `from_estimator`
    """
    table = outcome.known.table
    described = {
        found["row"]: found["constraint"] + (f" ({found['from']})" if found["from"] else "")
        for found in outcome.worst
    }
    facts = {
        "data": f"{table.source}, {len(table.X):,} rows, {table.X.shape[1]:,} features",
        FINGERPRINT: table.fingerprint(),
        "learned from": outcome.origin(),
        "held out": outcome.measured_on() or "nothing",
        "scaled": "standardised" if outcome.settings.scale else "as given",
        "learner": repr(outcome.fit.learner),
        "seed": outcome.settings.seed,
        "outcome": outcome.ending(),
    }
    held = outcome.split.held
    graded = "held out" if len(held) else "learned from, which flatters the distance"
    return from_estimator(
        outcome.fit.model,
        table.X,
        y=outcome.known.labels,
        ids=named_rows(table),
        names=table.names if table.named or not table.scalars else None,
        held_out=outcome.pairs,
        held_rows=outcome.split.held_rows,
        constraints=held if len(held) else outcome.known.constraints,
        show=None if beside is None else beside.show,
        images=images if beside is None or images is not None else beside.image,
        color_by=None if beside is None else beside.color_by,
        figures=outcome.figures,
        title=title,
        summary=outcome.summary(),
        settings={**(settings or {}), **facts},
        describe=lambda row: described[row],
        graded=f"These were {graded}.",
        suspects=suspects(outcome),
        conflicts=[_conflicts(answers) for answers in outcome.known.answers if answers.sentence()],
    )


def named_rows(table: Table) -> list[str] | None:
    """What rows are called where their numbers in the table do not say it; else None."""
    if table.ids is not None:
        return [str(name) for name in table.ids]
    return None if table.rows is None else [f"row {row}" for row in table.rows]


def _conflicts(answers: Answers) -> str:
    """What a file of answers holds, and where they differ."""
    some = ", ".join(map(str, answers.conflicting_lines[:_LINES]))
    more = ", and more" if len(answers.conflicting_lines) > _LINES else ""
    return answers.sentence() + (f". They differ in lines (or rows) {some}{more}" if some else "") + "."
