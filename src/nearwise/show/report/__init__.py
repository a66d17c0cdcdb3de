"""The report: one HTML page that shows what a learner learned, and needs nothing but itself.

`from_estimator` gathers what there is to see (`_contents`), `from_outcome` what a whole study found
(`_outcome`); `render` writes the page (`_page`), with charts and maps as inline SVG (`_charts`, `_maps`,
`_svg`). All text that comes from data goes through `_text`, and the page's content security policy allows its
own style sheet and script, by their hashes, and nothing else.
"""

from nearwise.show.report._contents import Report, from_estimator
from nearwise.show.report._objects import Objects
from nearwise.show.report._outcome import from_outcome, named_rows
from nearwise.show.report._page import is_report, render, render_neighbours
from nearwise.show.report._pictures import Pictures

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
