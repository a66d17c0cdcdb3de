"""`from_outcome`: the report of a whole study, with all that it takes to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearwise.show.report._contents import FINGERPRINT, Report, from_estimator
from nearwise.study.outcome import Outcome


def from_outcome(outcome: Outcome, title: str, settings: Mapping[str, object] | None = None) -> Report:
    """Gather what `nearwise.study.learn` found.

    Parameters
    ----------
    outcome : what it returned
    title : of the page
    settings : what the page names first of what it takes to repeat the run; "command" is shown as one
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
    return from_estimator(
        outcome.fit.model,
        table.X,
        y=outcome.known.labels,
        ids=table.ids,
        names=table.names,
        held_out=outcome.pairs,
        figures=outcome.figures,
        title=title,
        summary=outcome.summary(),
        settings={**(settings or {}), **facts},
        describe=lambda row: described[row],
    )


def _with_origin(found: Mapping[str, Any]) -> str:
    return f"{found['constraint']} ({found['from']})" if found["from"] else str(found["constraint"])
