"""What the command line, a notebook and a page share: learn from what is known, and say how good it is.

`from_files` and `from_arrays` gather what is `Known` about some data; `learn` holds a part of it out, fits,
and measures the distance before and after on that part: an `Outcome`. `load` opens a model file to apply it
to other data, `measure` gives its figures there, `nearest` the nearest rows, and `describe` what it says of
itself. `suspects` are the labels and answers that an outcome contradicts most. `calibrated` finds the `Rule`
by which `decide` calls pairs the same or not, and `near_duplicates` searches for all that are.
"""

from nearwise._common.errors import Refused
from nearwise.study.deciding import (
    Decisions,
    Duplicates,
    Rule,
    calibrated,
    decide,
    keep,
    near_duplicates,
    rule_of_model,
)
from nearwise.study.figures import Figure, Interval
from nearwise.study.fitted import Fitted, describe, facts, load
from nearwise.study.fitting import Fit, Settings, Watch
from nearwise.study.holding_out import Split, hold_out
from nearwise.study.known import Known, from_arrays, from_files, with_files
from nearwise.study.measuring import Measurement, measure
from nearwise.study.neighbors import nearest
from nearwise.study.outcome import Outcome, learn
from nearwise.study.suspicion import Suspect, suspects

__all__ = [
    "Decisions",
    "Duplicates",
    "Figure",
    "Fit",
    "Fitted",
    "Interval",
    "Known",
    "Measurement",
    "Outcome",
    "Refused",
    "Rule",
    "Settings",
    "Split",
    "Suspect",
    "Watch",
    "calibrated",
    "decide",
    "describe",
    "facts",
    "from_arrays",
    "from_files",
    "hold_out",
    "keep",
    "learn",
    "load",
    "measure",
    "near_duplicates",
    "nearest",
    "rule_of_model",
    "suspects",
    "with_files",
]
