"""What a soft row costs as a function of its value p, one class for each sort of slack.

The reader will find `Slack`, all that solvers ask of such a cost; the sorts that there are; and `SLACKS`, in
which a soft row has the first sort that suits it. A new sort is one class and one line there.

    bregman      c(p) = gamma D(p, b), the papers' slack eliminated in closed form: KSD09 (22), JKDD12 (7)
    square       the same where phi is quadratic, with no boundary at 0
    quadratic    c(p) = gamma/2 phi''(s) (p - b)^2, its second-order expansion at the size s of the row

Here gamma is the penalty, b the bound, and D(x, y) the divergence of numbers. Costs are two-sided and convex,
with minimum 0 at b; `losses` sees to it that rows cost nothing on the allowed side. They are computed
relative to b or s, so that no square overflows where values are as small as 1e-150 or as large as 1e150.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.core.chords import chords
from nearwise.core.divergences import SpectralDivergence

if TYPE_CHECKING:
    from nearwise.core.losses import Loss

TINY, LARGEST = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)
_NEAR = 1e-5  # relative distance from b, below which a series has ten digits, and D of rounded numbers fewer
_FARTHEST = 1e8  # times a variable: how far its reply may be beyond; 1e6 to 1e12 solve the same, 100 less
_BISECTIONS = 16  # of a logarithm between -690 and 690: the slacks of a first point to 2 %


@dataclass(frozen=True, eq=False)
class Slack(ABC):
    """The two-sided costs c(p) of some soft rows; everything is elementwise.

    Attributes
    ----------
    divergence : D
    penalties : gamma > 0, finite
    bounds : b
    sizes : s > 0, the size of each row under the prior
    is_positive : whether c is finite for positive numbers alone
    constants : properties of rows that are computed once for all, before some of the rows are taken
    """

    divergence: SpectralDivergence
    penalties: Array
    bounds: Array
    sizes: Array
    is_positive: ClassVar[bool] = False
    constants: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def suits(cls, loss: Loss) -> Mask:
        """The rows that may have this slack, if they are soft."""

    @property
    @abstractmethod
    def centre(self) -> Array:
        """Where `stiffness` is taken."""

    @abstractmethod
    def cost(self, p: Array, off: Array | None = None) -> Array:
        """c(p); `off` is p - b where that is known better than from p itself."""

    @abstractmethod
    def slope(self, p: Array) -> Array:
        """c'(p)."""

    @abstractmethod
    def curvature(self, p: Array) -> Array:
        """c''(p)."""

    @abstractmethod
    def reply(self, y: Array) -> Array:
        """The p where the slope is y: the bound after it gave way to the multiplier y."""

    @abstractmethod
    def fenchel(self, p: Array, y: Array, off: Array | None = None) -> Array:
        """c(p) + c*(y) - y p >= 0, zero where y is the slope at p, without cancellation."""

    @property
    def largest_slope(self) -> Array:
        """The supremum of c'."""
        return np.full(len(self.bounds), np.inf)

    @cached_property
    def stiffness(self) -> Array:
        """gamma phi''(a) a^2 at the centre a; positive, and without overflow where D has a degree."""
        degree, curvature, a = self.divergence.degree, self.divergence.curvature, self.centre
        bend = curvature(a) * a**2 if degree is None else curvature(np.ones(1)) * a**degree
        return np.clip(self.penalties * bend, TINY, LARGEST)

    def second_order(self, off: Array) -> Array:
        """The cost at b + off to second order."""
        return np.asarray(0.5 * self.stiffness * np.square(off / self.centre))

    def compliance(self, y: Array, x: Array, room: Array) -> tuple[Array, Callable[[float], Array]]:
        """x = reply(y) linearised as dx = slope * dy + residual(mu), for the interior point.

        There x is a variable of its own, mu the parameter of the central path, and `room`, known to digits of
        its own, is `largest_slope` - y. The base class takes the tangent at y.
        """
        reply = self.reply(y)
        return 1.0 / self.curvature(reply), lambda mu: reply - x

    def slope_on_path(self, p: Array, mu: float) -> Array:
        """The slope at p of what the interior point takes for c at mu on the central path."""
        return self.slope(p)

    def central(self, p: Array, mu: float, sign: Array) -> Array:
        """The s > 0 with s * sign * slope(p + sign * s) = mu; sign is +1 or -1."""
        low, high = np.full(len(p), -690.0), np.full(len(p), 690.0)
        if self.is_positive:
            high = np.where(sign < 0, np.log(np.maximum(p, TINY)), high)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            s = np.exp(middle)
            x = p + sign * s
            y = self.slope_on_path(np.maximum(x, TINY) if self.is_positive else x, mu)
            is_large = s * sign * y > mu
            low, high = np.where(is_large, low, middle), np.where(is_large, middle, high)
        return np.asarray(np.exp(high))

    def subset(self, rows: Index | Mask) -> Self:
        """That of some of its rows, with all that is known of them already."""
        for name in self.constants:
            getattr(self, name)
        found = object.__new__(type(self))
        known = vars(self).items()
        vars(found).update({key: v[rows] if isinstance(v, np.ndarray) else v for key, v in known})
        return found


class BregmanSlack(Slack):
    """gamma D(p, b), for rows whose values are positive on the wrong side."""

    is_positive = True
    constants = ("slope_of_bound",)

    @classmethod
    def suits(cls, loss: Loss) -> Mask:
        return _is_inside(loss)

    @property
    def centre(self) -> Array:
        return self.bounds

    @cached_property
    def slope_of_bound(self) -> Array:
        """phi'(b)."""
        return self.divergence.gradient(self.bounds)

    def cost(self, p: Array, off: Array | None = None) -> Array:
        found = self.penalties * self.divergence.scalar(p, self.bounds)
        return found if off is None else np.where(self._is_near(off), self._series(off, 0.0), found)

    def slope(self, p: Array) -> Array:
        return np.asarray(self.penalties * (self.divergence.gradient(p) - self.slope_of_bound))

    def curvature(self, p: Array) -> Array:
        return np.asarray(self.penalties * self.divergence.curvature(p))

    def reply(self, y: Array) -> Array:
        return self.divergence.shifted(self.bounds, y / self.penalties)

    def fenchel(self, p: Array, y: Array, off: Array | None = None) -> Array:
        """gamma D(p, reply(y)), and where replies stop at 0, p times what y lacks of the slope there."""
        d, change = self.divergence, y / self.penalties
        reply = np.maximum(d.shifted(self.bounds, change), TINY)
        found = np.fmin(self.penalties * d.scalar(p, reply), np.inf)  # inf where a formula overflows to nan
        is_stopped = reply <= TINY
        if np.count_nonzero(is_stopped):
            found += np.where(is_stopped, np.maximum(self.slope(reply) - y, 0.0) * p, 0.0)
        if off is not None:
            b, t = self.bounds, self.slope_of_bound
            reply_off = change * chords(d, t + change, t, at_t=b)
            are_near = self._is_near(off) & self._is_near(reply_off)
            found = np.where(are_near, self._series(off, reply_off), found)
        return found

    @property
    def largest_slope(self) -> Array:
        return np.asarray(self.penalties * (self.divergence.largest_gradient - self.slope_of_bound))

    def compliance(self, y: Array, x: Array, room: Array) -> tuple[Array, Callable[[float], Array]]:
        """By the chord of (phi')^-1 between x and reply(y): for -log the scaling of Nesterov and Todd."""
        d, gamma, w, largest = self.divergence, self.penalties, self.divergence.barrier, self.largest_slope
        most = np.maximum(_FARTHEST * x, self.bounds)
        t, drift = self.slope_of_bound + y / gamma, np.zeros(1)
        if np.isfinite(
            d.largest_gradient
        ):  # then t is known from `room` to more digits, and what that is off
            t, drift = d.largest_gradient - room / gamma, largest - y - room
            drift = np.where(np.abs(drift) > 1e-15 * np.maximum(np.abs(y), np.abs(largest)), drift, 0.0)
        reply, here = d.gradient_inverse(t), d.gradient(x)
        chord = chords(d, t, here, at_s=reply, at_t=x)
        limit = most / np.maximum(np.abs(t - here), TINY)
        slope = np.where(np.isfinite(chord) & (reply < most), chord, limit) / gamma

        def residual(mu: float) -> Array:
            target = reply * np.maximum(1.0, mu / (gamma * w)) if w else reply
            return np.asarray(np.minimum(target - x, most) - slope * drift)

        return slope, residual

    def slope_on_path(self, p: Array, mu: float) -> Array:
        """Where phi is a barrier of weight w, the slack's own counts as mu if mu is more than gamma w.

        Otherwise the central path of a row with a small penalty would have a pole at `largest_slope`.
        """
        w = self.divergence.barrier
        return self.slope(p) - np.maximum(mu - self.penalties * w, 0.0) / p if w else self.slope(p)

    def _is_near(self, off: Array) -> Mask:
        return np.abs(off) <= _NEAR * self.bounds

    def _series(self, x_off: Array, y_off: Array | float) -> Array:
        """gamma D(b + x_off, b + y_off) near b: second order with phi'' a third of the way from y to x."""
        bend = self.divergence.curvature(self.bounds + (x_off + 2 * y_off) / 3)
        return np.asarray(self.second_order(x_off - y_off) * (bend / self.divergence.curvature(self.bounds)))


class QuadraticSlack(Slack):
    """gamma/2 phi''(s) (p - b)^2, for every row: p and b may be of any sign."""

    constants = ("stiffness",)

    @classmethod
    def suits(cls, loss: Loss) -> Mask:
        return np.ones(len(loss.bounds), bool)

    @property
    def centre(self) -> Array:
        return self.sizes

    def cost(self, p: Array, off: Array | None = None) -> Array:
        return self.second_order(p - self.bounds if off is None else off)

    def slope(self, p: Array) -> Array:
        return np.asarray(self.stiffness * ((p - self.bounds) / self.sizes) / self.sizes)

    def curvature(self, p: Array) -> Array:
        return np.asarray(self.stiffness / self.sizes / self.sizes)

    def reply(self, y: Array) -> Array:
        return self.bounds + self._reply_off(y)

    def fenchel(self, p: Array, y: Array, off: Array | None = None) -> Array:
        return self.second_order((p - self.bounds if off is None else off) - self._reply_off(y))

    def central(self, p: Array, mu: float, sign: Array) -> Array:
        """The positive root of s^2 + q s = mu / c''."""
        q, product = sign * (p - self.bounds), self._reply_off(np.full(len(p), mu))
        root = np.hypot(q, 2 * np.sqrt(product))
        return np.where(q < 0, (root - q) / 2, 2 * product / (root + q))

    def _reply_off(self, y: Array) -> Array:
        """How far the bound gives way."""
        return np.asarray(self.sizes * (y * self.sizes / self.stiffness))


class SquareSlack(QuadraticSlack):
    """gamma D(p, b) of degree 2, where phi'' is constant: replies may be negative. Values may not."""

    @classmethod
    def suits(cls, loss: Loss) -> Mask:
        return _is_inside(loss) & (loss.divergence.degree == 2)

    def fenchel(self, p: Array, y: Array, off: Array | None = None) -> Array:
        """With c*(y) = -c(0) where the slope is more than y already at 0."""
        found, lacking = super().fenchel(p, y, off), self.slope(np.zeros_like(p)) - y
        if np.count_nonzero(lacking > 0):
            found = np.where(lacking > 0, self.second_order(p) + lacking * p, found)
        return found


SLACKS: dict[str, type[Slack]] = {"square": SquareSlack, "bregman": BregmanSlack, "quadratic": QuadraticSlack}


def _is_inside(loss: Loss) -> Mask:
    """The rows with b > 0 and positive values on the wrong side: "<=", and positive semidefinite A_i."""
    return (loss.bounds > 0) & (loss.is_definite | (loss.relations < 0))
