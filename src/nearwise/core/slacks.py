"""What a soft row costs as a function of its value p, one class for each sort of slack.

The reader will find `Slack`, all that a solver asks of such a cost; the two sorts that there are; and `SLACKS`,
the table in which a soft row has the first sort that suits it. A new sort is one class and one line there.

    bregman      c(p) = gamma D(p, b), the papers' slack eliminated in closed form: KSD09 (22), JKDD12 (7)
    quadratic    c(p) = gamma/2 phi''(s) (p - b)^2, its second-order expansion at the size s of the row

Here gamma is the penalty, b the bound, and D(x, y) the divergence of numbers. A cost is two-sided, convex, and
0 at the bound; that a row costs nothing on the allowed side is for `losses` to see to. Costs are computed
relative to b or s, so that no square overflows where values are as small as 1e-150 or as large as 1e150.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index, Mask
from nearwise.core.chords import chords
from nearwise.core.divergences import SpectralDivergence

TINY = float(np.finfo(np.float64).tiny)
_NEAR = 1e-5  # relative distance from a bound, below which two terms of a series have ten digits
_FARTHEST = 1e8  # times its value: how far a reply may run ahead of its variable in a step
_BISECTIONS = 16  # of a logarithm between -690 and 690: to 2 %, enough where a run starts


class Terms(Protocol):
    """What a sort of slack may look at to see which rows it suits, one entry for each row."""

    @property
    def divergence(self) -> SpectralDivergence: ...
    @property
    def relations(self) -> NDArray[np.int8]: ...
    @property
    def bounds(self) -> Array: ...
    @property
    def is_definite(self) -> Mask: ...


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
    """

    divergence: SpectralDivergence
    penalties: Array
    bounds: Array
    sizes: Array
    is_positive: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def suits(cls, rows: Terms) -> Mask:
        """The rows that may have this slack, were they soft."""

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
        """c(p) + c*(y) - y p >= 0, zero where y is the slope at p; no digits cancel."""

    @abstractmethod
    def compliance(self, y: Array, x: Array, room: Array) -> tuple[Array, Callable[[float], Array]]:
        """x = reply(y), linearised as dx = slope * dy + residual(mu): the slope, and the residual.

        For the interior point, where x is a variable of its own and mu the parameter of the central path. `room`
        is `largest_slope` - y, known to its own digits.
        """

    @abstractmethod
    def base(self) -> Array:
        """Where `stiffness` is taken."""

    @property
    def largest_slope(self) -> Array:
        """The supremum of c'."""
        return np.full(len(self.bounds), np.inf)

    @cached_property
    def stiffness(self) -> Array:
        """gamma phi''(a) a^2 with a from `base`, without overflow on the way where D has a degree."""
        a, degree = self.base(), self.divergence.degree
        if degree is None:
            return np.asarray(self.penalties * (self.divergence.curvature(a) * a**2))
        return np.asarray(self.penalties * (self.divergence.curvature(np.ones(1)) * a**degree))

    def second_order(self, off: Array) -> Array:
        """The cost at b + off to second order."""
        return np.asarray(0.5 * self.stiffness * np.square(off / self.base()))

    def slope_on_path(self, p: Array, mu: float) -> Array:
        """The slope at p of what the interior point takes for c at mu on the central path."""
        return self.slope(p)

    def central(self, p: Array, mu: float, sign: Array) -> Array:
        """The s > 0 with s * sign * slope(p + sign * s) = mu, where an interior point starts; sign is +-1."""
        low, high = np.full(len(p), -690.0), np.full(len(p), 690.0)
        if self.is_positive:
            high = np.where(sign < 0, np.log(np.maximum(p, TINY)), high)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            s = np.exp(middle)
            x = p + sign * s
            large = s * sign * self.slope_on_path(np.maximum(x, TINY) if self.is_positive else x, mu) > mu
            low, high = np.where(large, low, middle), np.where(large, middle, high)
        return np.asarray(np.exp(high))

    def subset(self, rows: Index | Mask) -> Self:
        """That of some of its rows, with what is known of them already."""
        found = object.__new__(type(self))
        vars(found).update({k: v[rows] if isinstance(v, np.ndarray) else v for k, v in vars(self).items()})
        return found


class BregmanSlack(Slack):
    """gamma D(p, b), where p and b are in the domain of phi.

    It suits rows with b > 0 whose values stay positive on the wrong side: "<=", and positive semidefinite A_i.
    Where D has degree 2, phi is quadratic, and the other slack is the same without a boundary at 0.
    """

    is_positive = True

    @classmethod
    def suits(cls, rows: Terms) -> Mask:
        if rows.divergence.degree == 2:
            return np.zeros(len(rows.bounds), bool)
        return (rows.bounds > 0) & (rows.is_definite | (rows.relations < 0))

    def base(self) -> Array:
        return self.bounds

    @cached_property
    def gradient_at_bound(self) -> Array:
        return self.divergence.gradient(self.bounds)

    def cost(self, p: Array, off: Array | None = None) -> Array:
        found = self.penalties * self.divergence.scalar(p, self.bounds)
        return found if off is None else np.where(self._near(off), self._series(off, off), found)

    def slope(self, p: Array) -> Array:
        return np.asarray(self.penalties * (self.divergence.gradient(p) - self.gradient_at_bound))

    def curvature(self, p: Array) -> Array:
        return np.asarray(self.penalties * self.divergence.curvature(p))

    def reply(self, y: Array) -> Array:
        return self.divergence.shifted(self.bounds, y / self.penalties)

    def fenchel(self, p: Array, y: Array, off: Array | None = None) -> Array:
        """gamma D(p, reply(y)), and p times what y lacks where it is below the slope at 0, where replies stop."""
        d, pull = self.divergence, y / self.penalties
        reply = np.maximum(d.shifted(self.bounds, pull), TINY)
        found = d.scalar(p, reply)
        stopped = reply <= TINY
        if np.count_nonzero(stopped):
            lacking = d.gradient(reply) - (self.gradient_at_bound + pull)
            found = found + np.where(stopped & (lacking > 0) & np.isfinite(lacking), lacking * p, 0.0)
        found = self.penalties * found
        if off is not None:
            at_bound = self.gradient_at_bound
            reply_off = pull * chords(d, at_bound + pull, at_bound, at_t=self.bounds)
            both = self._near(off) & self._near(reply_off)
            found = np.where(both, self._series(off - reply_off, off + 2 * reply_off), found)
        return np.asarray(found)

    @property
    def largest_slope(self) -> Array:
        return np.asarray(self.penalties * (self.divergence.largest_gradient - self.gradient_at_bound))

    def slope_on_path(self, p: Array, mu: float) -> Array:
        """Where phi is a barrier with weight w, that of the slack counts as mu if mu is more than gamma w.

        Otherwise the central path of a row with a small penalty would have a pole at `largest_slope`.
        """
        w = self.divergence.barrier
        return self.slope(p) - np.maximum(mu - self.penalties * w, 0.0) / p if w else self.slope(p)

    def compliance(self, y: Array, x: Array, room: Array) -> tuple[Array, Callable[[float], Array]]:
        """By the chord of (phi')^-1 from x to reply(y): for a barrier the scaling of Nesterov and Todd."""
        d, gamma, w = self.divergence, self.penalties, self.divergence.barrier
        bounded, most = np.isfinite(d.largest_gradient), np.maximum(_FARTHEST * x, self.bounds)
        t = d.largest_gradient - room / gamma if bounded else self.gradient_at_bound + y / gamma
        reply, here = d.gradient_inverse(t), d.gradient(x)
        chord = chords(d, t, here, at_s=reply, at_t=x)
        limit = most / np.maximum(np.abs(t - here), TINY)
        slope = np.where(np.isfinite(chord) & (reply < most), chord, limit) / gamma
        largest = self.largest_slope
        drift = _beyond_rounding(largest - y - room, y, largest) if bounded else 0.0

        def residual(mu: float) -> Array:
            aim = reply * np.maximum(1.0, mu / (gamma * w)) if w else reply
            return np.asarray(np.minimum(aim - x, most) - slope * drift)

        return slope, residual

    def _near(self, off: Array) -> Mask:
        return np.abs(off) <= _NEAR * self.bounds

    def _series(self, difference: Array, triple: Array) -> Array:
        """gamma D(x, y) near b from x - y; `triple` is x + 2 y - 3 b, since phi'' counts a third of the way."""
        curvature = self.divergence.curvature
        return np.asarray(
            self.second_order(difference) * (curvature(self.bounds + triple / 3) / curvature(self.bounds))
        )


class QuadraticSlack(Slack):
    """gamma/2 phi''(s) (p - b)^2: for every row, also where p and b may be of any sign."""

    @classmethod
    def suits(cls, rows: Terms) -> Mask:
        return np.ones(len(rows.bounds), bool)

    def base(self) -> Array:
        return self.sizes

    def cost(self, p: Array, off: Array | None = None) -> Array:
        return self.second_order(p - self.bounds if off is None else off)

    def slope(self, p: Array) -> Array:
        return np.asarray(self.stiffness * ((p - self.bounds) / self.sizes) / self.sizes)

    def curvature(self, p: Array) -> Array:
        return np.asarray(self.stiffness / self.sizes / self.sizes)

    def reply(self, y: Array) -> Array:
        return self.bounds + self._give(y)

    def fenchel(self, p: Array, y: Array, off: Array | None = None) -> Array:
        return self.second_order((p - self.bounds if off is None else off) - self._give(y))

    def compliance(self, y: Array, x: Array, room: Array) -> tuple[Array, Callable[[float], Array]]:
        residual = self.reply(y) - x
        return self._give(np.ones_like(y)), lambda mu: residual

    def central(self, p: Array, mu: float, sign: Array) -> Array:
        """The positive root of s^2 + q s = mu / c''."""
        q, product = sign * (p - self.bounds), self._give(np.full(len(p), mu))
        root = np.hypot(q, 2 * np.sqrt(product))
        return np.where(q < 0, (root - q) / 2, 2 * product / (root + q))

    def _give(self, y: Array) -> Array:
        """y / c''."""
        return np.asarray(self.sizes * (y * self.sizes / self.stiffness))


SLACKS: dict[str, type[Slack]] = {"bregman": BregmanSlack, "quadratic": QuadraticSlack}


def _beyond_rounding(drift: Array, *terms: Array) -> Array:
    """A difference of terms, or 0 where it is but their rounding."""
    size = np.maximum.reduce([np.abs(term) for term in terms])
    return np.where(np.abs(drift) > 1e-15 * size, drift, 0.0)
