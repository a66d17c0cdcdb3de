"""How a fit runs: it is whole or has not happened, and tells callbacks of its progress.

These are the learner's own callback, and scikit-learn's where there are any (1.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from nearwise._common.checks import callable_or_none

try:
    from sklearn.callback import CallbackSupportMixin as Callbacks, with_callbacks
except ImportError:

    class Callbacks:  # type: ignore[no-redef]
        """Nothing, before scikit-learn 1.9."""

    def with_callbacks(method: Any) -> Any:
        """The method itself."""
        return method


Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(eq=False)
class Report:
    """Called after every iteration; counts them, and answers whether some callback has asked to stop.

    The answer is kept: a fit of several solves stops also where the first of them had just ended by itself.
    """

    estimator: Any
    X: Any
    y: Any
    context: Any
    n_iterations: int = 0
    stop: bool = False

    def __call__(self, record: Any) -> bool:
        self.n_iterations += 1
        if self.context is not None:
            task = self.context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)
            self.stop |= bool(task.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y))
        own = self.estimator.callback
        self.stop |= bool(own is not None and own(record))
        return self.stop


@contextmanager
def progress(estimator: Any, X: Any, y: Any) -> Iterator[Report]:
    """The report of a fit, from its begin to its end."""
    if not getattr(estimator, "_skl_callbacks", None):
        yield Report(estimator, X, y, None)
        return
    context = estimator._init_callback_context(max_subtasks=None)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
    yield Report(estimator, X, y, context)
    context.call_on_fit_task_end(estimator=estimator, X=X, y=y)


def whole(method: Method) -> Method:
    """A method after which its estimator is as it was, where it ends in an error or by Ctrl-C."""

    @wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        callable_or_none(getattr(self, "callback", None), "callback")
        before = dict(vars(self))
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return cast(Method, run)


__all__ = ["Callbacks", "Report", "progress", "whole", "with_callbacks"]
