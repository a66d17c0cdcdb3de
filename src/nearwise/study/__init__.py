"""What the command line, a notebook and a page share: learn from what is known, and say how good it is.

`from_files` and `from_arrays` gather what is `Known` about some data; `learn` holds a part of it out, fits,
and measures the distance before and after on that part: an `Outcome`. `load` opens a model file to apply it
to other data, `measure` gives its figures there, `nearest` the nearest rows, and `describe` what it says of
itself. `suspects` are the labels and answers that an outcome contradicts most.
"""

from nearwise._common.refused import Refused
from nearwise.study.description import describe, facts
from nearwise.study.fitted import Fitted, load
from nearwise.study.fitting import Fit, Settings, Watch
from nearwise.study.holding_out import Split, hold_out
from nearwise.study.known import Known, from_arrays, from_files, with_files
from nearwise.study.measuring import Measurement, measure
from nearwise.study.neighbors import nearest
from nearwise.study.outcome import Outcome, learn
from nearwise.study.resampling import Figure, Interval
from nearwise.study.suspicion import Suspect, suspects

__all__ = [
    "Figure",
    "Fit",
    "Fitted",
    "Interval",
    "Known",
    "Measurement",
    "Outcome",
    "Refused",
    "Settings",
    "Split",
    "Suspect",
    "Watch",
    "describe",
    "facts",
    "from_arrays",
    "from_files",
    "hold_out",
    "learn",
    "load",
    "measure",
    "nearest",
    "suspects",
    "with_files",
]
