"""`from_outcome`: the report of a whole study, with all that it takes to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nearwise.data.beside import Beside
from nearwise.show.report._contents import FINGERPRINT, Report, from_estimator
from nearwise.study.outcome import Outcome
from nearwise.study.suspicion import suspects


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
    described = {found["row"]: _with_origin(found) for found in outcome.worst}
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
    constraints = outcome.split.held if len(outcome.split.held) else outcome.known.constraints
    report = from_estimator(
        outcome.fit.model,
        table.X,
        y=outcome.known.labels,
        ids=table.ids,
        names=table.names if table.named or not table.scalars else None,
        held_out=outcome.pairs,
        held_rows=outcome.split.held_rows,
        constraints=constraints,
        show=None if beside is None else beside.show,
        images=images if beside is None or images is not None else beside.image,
        color_by=None if beside is None else beside.color_by,
        figures=outcome.figures,
        title=title,
        summary=outcome.summary(),
        settings={**(settings or {}), **facts},
        describe=lambda row: described[row],
    )
    aside = "held out" if len(outcome.split.held) else "learned from, which flatters the distance"
    found = suspects(outcome)
    checked = found or "None of the labels and answers is far from what the learned distance says."
    return replace(report, graded=f"These were {aside}.", suspects=checked)


def _with_origin(found: Mapping[str, Any]) -> str:
    return f"{found['constraint']} ({found['from']})" if found["from"] else str(found["constraint"])
