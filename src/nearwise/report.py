"""What was learned, as one HTML page."""

from nearwise.show.report import Report, from_estimator, is_report, render

__all__ = ["Report", "from_estimator", "is_report", "render"]
