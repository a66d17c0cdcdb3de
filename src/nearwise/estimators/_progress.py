"""Progress of a fit: the learner's own callback, and scikit-learn's callbacks where there are any (1.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nearwise.result import Record

try:
    from sklearn.callback import CallbackSupportMixin as Callbacks, with_callbacks
except ImportError:

    class Callbacks:  # type: ignore[no-redef]
        """Nothing, before scikit-learn 1.9."""

    def with_callbacks(method: Any) -> Any:
        """The method itself."""
        return method


@contextmanager
def progress(estimator: Any, X: Any, y: Any) -> Iterator[Callable[[Record], bool]]:
    """A function to call after every iteration; its answer says whether some callback asks to stop."""
    own = estimator.callback
    if not getattr(estimator, "_skl_callbacks", None):
        yield lambda record: own is not None and bool(own(record))
        return
    fit = estimator._init_callback_context(max_subtasks=None)
    fit.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def report(record: Record) -> bool:
        task = fit.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        stop = task.call_on_fit_task_end(estimator=estimator, X=X, y=y)
        return bool(own is not None and own(record)) or bool(stop)

    yield report
    fit.call_on_fit_task_end(estimator=estimator, X=X, y=y)


__all__ = ["Callbacks", "progress", "with_callbacks"]
