"""What was learned, as one HTML page."""

from nearwise.show.report import Report, from_estimator, from_outcome, is_report, render

__all__ = ["Report", "from_estimator", "from_outcome", "is_report", "render"]
