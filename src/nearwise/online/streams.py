"""Streams of feedback on distances, followed by one of three updates whose state is a dict of arrays.

`start` makes the state of the identity, `follow` updates it by a stream, `factor` gives B with M = B B^T. A
new update is one class with these three methods and one line in `UPDATES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array
from nearwise.online._states import EigenState, FactorState, part_of

if TYPE_CHECKING:
    from nearwise.linalg.loops.online import Feedback
    from nearwise.linalg.loops.online_spectral import Room, Spectrum

State = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Stream:
    """Pieces of feedback, in order: what values d(i, j) - d(k, l), or d(i, j), shall be.

    Attributes
    ----------
    features : one row per object
    rows : (m, 4) row numbers i, j, k, l; k = l = -1 for a single distance
    relation : -1 for value <= target, +1 for >=, 0 for ==
    target : (m,)
    slope : (m,) how much of a learned threshold is taken from the value, 0 where there is none to learn
    rate : (m,) learning rates; errors count relative to the distances compared
    """

    features: Array
    rows: NDArray[np.int64]
    relation: NDArray[np.int8]
    target: Array
    slope: Array
    rate: Array

    def feedback(self) -> Feedback:
        from nearwise.linalg.loops.online import Feedback

        return Feedback(self.features, self.rows, self.relation, self.target, self.rate, True)


class Update(Protocol):
    """How a matrix follows a stream."""

    learning_rate: float
    decay: float

    def start(self, r: int) -> State: ...

    def follow(self, state: State, stream: Stream) -> tuple[State, int, int]:
        """The state after all rows, how many of them could be done, and how many were not met before."""

    def factor(self, state: State) -> Array: ...


class LogDetUpdate:
    """Implicit updates for the squared relative error, see `LogDetOnline`."""

    learning_rate = 0.2
    decay = 0.75

    def start(self, r: int) -> State:
        return {"transposed": np.eye(r)}

    def follow(self, state: State, stream: Stream) -> tuple[State, int, int]:
        held, values = FactorState(state["transposed"]), np.empty(len(stream.rows))
        done = held.follow(stream.feedback(), values)
        return {"transposed": held.transposed}, done, _n_missed(stream, values, done)

    def factor(self, state: State) -> Array:
        return FactorState(state["transposed"]).factor


class ExponentiatedUpdate:
    """Unnormalised exponentiated gradients of the squared relative error, TRW05 (3.4)."""

    learning_rate = 0.1
    decay = 0.75

    def start(self, r: int) -> State:
        return _as_dict(EigenState(np.zeros(r), np.eye(r)))

    def follow(self, state: State, stream: Stream) -> tuple[State, int, int]:
        from nearwise.linalg.loops.online_spectral import follow_exponentiated

        feedback, values = stream.feedback(), np.empty(len(stream.rows))

        def step(first: int, last: int, spectrum: Spectrum, room: Room) -> int:
            cut = slice(first, last)
            return int(follow_exponentiated(part_of(feedback, cut), spectrum, False, values[cut], room))

        held = EigenState(**state)
        done = held.follow(len(values), step)
        return _as_dict(held), done, _n_missed(stream, values, done)

    def factor(self, state: State) -> Array:
        root: Array = state["vectors"].T * np.exp(state["values"] / 2)
        return root


class PolaUpdate:
    """Projections onto half spaces and the cone, with a threshold for pairs without bounds, see `Pola`."""

    learning_rate = 1.0
    decay = 0.0

    def start(self, r: int) -> State:
        return _as_dict(EigenState(np.ones(r), np.eye(r))) | {"threshold": np.ones(1)}

    def follow(self, state: State, stream: Stream) -> tuple[State, int, int]:
        from nearwise.linalg.loops.online_spectral import follow_pola

        feedback, m = stream.feedback(), len(stream.rows)
        values, errors, threshold = np.empty(m), np.zeros(m), state["threshold"].copy()

        def step(first: int, last: int, spectrum: Spectrum, room: Room) -> int:
            cut = slice(first, last)
            part, slope = part_of(feedback, cut), stream.slope[cut]
            return int(follow_pola(part, spectrum, slope, threshold, values[cut], errors[cut], room))

        held = EigenState(state["values"], state["vectors"], state["counts"])
        done = held.follow(m, step)
        return _as_dict(held) | {"threshold": threshold}, done, int(np.count_nonzero(errors))

    def factor(self, state: State) -> Array:
        root: Array = state["vectors"].T * np.sqrt(state["values"])
        return root


UPDATES: dict[str, Update] = {
    "logdet": LogDetUpdate(),
    "exponentiated_gradient": ExponentiatedUpdate(),
    "pola": PolaUpdate(),
}


def _as_dict(state: EigenState) -> State:
    return {"values": state.values, "vectors": state.vectors, "counts": state.counts}


def _n_missed(stream: Stream, values: Array, done: int) -> int:
    excess = (values - stream.target)[:done]
    relation = stream.relation[:done]
    return int(np.count_nonzero(np.where(relation == 0, excess != 0.0, relation * excess < 0.0)))
