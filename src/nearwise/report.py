"""What was learned, as one HTML page."""

from nearwise.show.report import (
    Objects,
    Pictures,
    Report,
    from_estimator,
    from_outcome,
    is_report,
    render,
    render_neighbours,
)

__all__ = [
    "Objects",
    "Pictures",
    "Report",
    "from_estimator",
    "from_outcome",
    "is_report",
    "render",
    "render_neighbours",
]
