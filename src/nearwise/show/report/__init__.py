"""The report: one HTML page that shows what a learner learned, and needs nothing but itself.

`from_estimator` (`contents`) gathers what a page is about (`subject`) and the numbers of its sections
(`sections`, the list of all there are); `from_outcome` (`outcome`) those of a whole study. `render` (`page`)
writes the page, with charts (`svg`), maps and objects with their neighbours. All text that comes from data
goes through `show.text`, and the page's content security policy allows its own style sheet and script, by
their hashes, and nothing else.
"""

from nearwise.show.report.contents import Report, from_estimator
from nearwise.show.report.objects import Objects
from nearwise.show.report.outcome import from_outcome, named_rows
from nearwise.show.report.page import is_report, render, render_neighbours
from nearwise.show.report.pictures import Pictures

__all__ = [
    "Objects",
    "Pictures",
    "Report",
    "from_estimator",
    "from_outcome",
    "is_report",
    "named_rows",
    "render",
    "render_neighbours",
]
