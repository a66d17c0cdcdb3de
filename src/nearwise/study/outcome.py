"""Learning from what is known, end to end, and what there is to tell about it, as sentences and as JSON.

`learn` holds a part out, fits, and measures. `nearwise learn` and `nearwise demo` print its `Outcome`, and
`nearwise.report.from_outcome` makes a page of it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from nearwise._common.errors import Refused
from nearwise._common.types import Index
from nearwise.data.memory import Memory, Seen
from nearwise.data.steps import with_names
from nearwise.study import figures as graded, fitting
from nearwise.study.before_after import measures
from nearwise.study.figures import VERDICTS, Figure
from nearwise.study.fitting import Contradiction, Fit, Settings, Watch
from nearwise.study.holding_out import Split, counts, hold_out, listed, numbered
from nearwise.study.known import Known

Pairs = tuple[Index, NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was learned, from what, and how good it is.

    Attributes
    ----------
    known, settings, split, fit : data, wishes, what was held out, and the model
    figures : before and after, on what was held out
    pairs : held-out pairs of rows and which are similar, or None
    """

    known: Known
    settings: Settings
    split: Split
    fit: Fit
    figures: tuple[Figure, ...]
    pairs: Pairs | None

    @property
    def status(self) -> str:
        """How the fit ended: the name of a `Status`."""
        return str(self.fit.learner.status_.name)

    @property
    def notices(self) -> tuple[str, ...]:
        """Everything that the user should know, one sentence each."""
        said = (*self.fit.notices, self.fit.stopped, self.dimensions(), self.worse())
        found = (*self.known.notices, self.split.note, *said)
        return tuple(notice for notice in found if notice)

    @property
    def worst(self) -> list[dict[str, Any]]:
        """The constraints violated most, in the user's names."""
        certificate = getattr(getattr(self.fit.learner, "result_", None), "certificate", None)
        return [
            {
                "row": violation.row,
                "constraint": self.known.text(violation.stated, self.fit.rows),
                "from": self.known.origin(violation.stated, self.fit.rows),
                "value": violation.value,
                "bound": violation.bound,
                "relative": violation.relative,
            }
            for violation in (certificate.worst if certificate is not None else ())
            if not isinstance(violation.stated, str)
        ]

    def model(self) -> Any:
        """The model as it is stored: with the names of its features, the fingerprints of the rows that it
        learned from and what it remembers of them (`Memory`), and without times, which differ.
        """
        learner = copy.copy(self.fit.learner)
        named = [block.object_ids.ravel() for block in self.split.learned.blocks]
        rows = np.unique(np.concatenate([self.split.learned_rows, *named]))
        Seen.of(self.known.table.X[rows]).keep(learner)
        fitting.forget_times(learner)
        texts = [(figure.name, *figure.texts(), figure.verdict) for figure in self.figures]
        Memory.of(self.known.table, self.facts() | {"figures_as_text": texts}).keep(learner)
        names, steps = ["learn"], [learner]
        if isinstance(self.fit.model, Pipeline):
            names, steps = list(self.fit.model.named_steps), [*self.fit.model[:-1], learner]
        if self.known.table.scalars and self.known.table.named:
            steps = with_names(steps, self.known.table.names)
        return steps[0] if len(steps) == 1 else Pipeline(list(zip(names, steps, strict=True)))

    def origin(self) -> str:
        """What was learned from, as text."""
        parts = []
        if self.known.codes is not None and len(self.split.learned_rows):
            n_classes = len(np.unique(self.known.codes[self.split.learned_rows]))
            parts.append(f"{numbered(len(self.split.learned_rows), 'labelled rows')} in {n_classes} classes")
        parts += [numbered(count, kind) for kind, count in counts(self.split.learned).items()]
        return listed(parts) if parts else ""

    def measured_on(self) -> str:
        """What was held out, as text."""
        parts = [numbered(len(self.split.held_rows), "other rows")] if len(self.split.held_rows) else []
        parts += [numbered(count, f"other {kind}") for kind, count in counts(self.split.held).items()]
        return listed(parts) if parts else ""

    def dimensions(self) -> str:
        """That not all dimensions were learned, where nobody asked for that; else empty."""
        reduced = self.fit.reduced
        if reduced is None or self.settings.rank is not None:
            return ""
        count, most = reduced
        if self.fit.spans_rows:
            dimensions = numbered(self.fit.learner.rank_, "dimensions")
            learned = f"only {dimensions} in the span of {count:,} of {most:,} rows were learned, the default"
            return f"{learned} for so many rows; outside them the kernel is as before (rank K learns K)"
        learned = f"only {count:,} of {most:,} dimensions were learned, the default"
        if self.settings.method == "fixed-rank":
            return f"{learned} of the method fixed-rank; the others do not count (rank K learns K)"
        return f"{learned} for so many features; in the others the distance is as before (rank K learns K)"

    def worse(self) -> str:
        """In which figures the learned distance is clearly worse than the one before; else empty."""
        changes = [_change(figure) for figure in self.figures if figure.verdict == "worse"]
        if not changes:
            return ""
        advice = "try another method, rank, penalty or scaling before you use it"
        return f"the learned distance is worse than the one before in {listed(changes)}; {advice}"

    def choice(self) -> str:
        """Which kind of distance was chosen, and the scores of all that competed; empty where none did."""
        scores = getattr(self.fit.learner, "choice_scores_", ())
        if not scores:
            return ""
        shares = ", ".join(f"{name} {100 * score:.1f} %" for name, score in scores)
        return f"chosen: {self.fit.learner.choice_}; right neighbours while choosing: {shares}"

    def ending(self) -> str:
        """How the fit ended, in one line."""
        learner, rank = self.fit.learner, self.settings.rank
        # dependent directions make fewer dimensions than were asked for
        tail = "" if rank is None else f", {numbered(learner.rank_, 'dimensions')}"
        if self.fit.reduced is not None and rank is None:
            count, most = self.fit.reduced
            tail = f", {count:,} of {most:,} {'rows in the basis' if self.fit.spans_rows else 'dimensions'}"
        if self.settings.structure is not None:
            tail = ", a weight for every feature"
            if self.settings.structure == "blocks":
                tail = f", {numbered(int(learner.groups_.max()) + 1, 'blocks')} of features"
        time = f"after {numbered(learner.n_iter_, 'iterations')} in {self.fit.seconds:.1f} s"
        result, penalty = learner.result_, ""
        if learner.kept_prior_:
            reached = "the distance before is kept,"
        elif result is None:
            reached = "the scores of the kernel as they are,"
        elif self.settings.method == "fixed-rank":
            reached = f"cost {result.cost:.3g}"
        else:
            reached = result.certificate.gap_in_words
            penalty = f", penalty {learner.penalty_:.3g}{self._origin_of_penalty()}"
        return f"{self.status}: {reached} {time}{penalty}{tail}"

    def summary(self) -> str:
        """What was learned, in plain sentences for the report."""
        source = f"on {self.known.table.source}, from {self.origin()}"
        if getattr(self.fit.learner, "kept_prior_", False):
            return f"Nothing better than the distance before was found {source}."
        text = f"This distance was learned {source}."
        if choice := self.choice():
            text += f" {choice[:1].upper()}{choice[1:]}."
        if dimensions := self.dimensions():
            text += f" {dimensions[:1].upper()}{dimensions[1:]}."
        if not self.figures:
            return f"{text} Nothing was held out to measure it on."
        clear = [
            f"{verdict} than the one before in {listed(changes)}"
            for verdict in VERDICTS[:-1]
            if (changes := [_change(figure) for figure in self.figures if figure.verdict == verdict])
        ]
        unclear = [figure.name for figure in self.figures if figure.verdict == VERDICTS[-1]]
        found = f"it is {' and '.join(clear)}" if clear else "no figure differs clearly from before"
        rest = f"; in {listed(unclear)} no clear difference shows" if clear and unclear else ""
        return f"{text} On {self.measured_on()}, {found}{rest}."

    def as_json(self) -> dict[str, Any]:
        """Everything as numbers and texts; equal for equal runs but for `seconds`."""
        worst = [{key: item for key, item in found.items() if key != "row"} for found in self.worst]
        return self.facts() | {"seconds": self.fit.seconds, "worst": worst, "notices": list(self.notices)}

    def facts(self) -> dict[str, Any]:
        """What a model file keeps of it: all but times, sentences, and the rows violated most."""
        learner, table = self.fit.learner, self.known.table
        return {
            "data": table.source,
            "fingerprint": table.fingerprint(),
            "rows": len(table.X),
            "features": table.X.shape[1],
            "feedback": [answers.as_json() for answers in self.known.answers],
            "learned_from": self.origin(),
            "measured_on": self.measured_on(),
            "method": self.settings.method,
            "rank": int(learner.rank_),
            "structure": self.settings.structure,
            "kernel": self.settings.kernel,
            "choice": getattr(learner, "choice_", None),
            "choice_scores": [list(pair) for pair in getattr(learner, "choice_scores_", ())],
            "scaled": self.settings.scale,
            "seed": self.settings.seed,
            **fitting.facts_of(learner, self.status),
            "figures": [figure.as_json() for figure in self.figures],
        }

    def _origin_of_penalty(self) -> str:
        if self.settings.penalty != "auto":
            return ""
        if self.fit.choosing:
            return " (being tried)"
        return " (chosen)" if self.fit.learner.penalty_scores_ else " (too little is known to choose one)"


def learn(known: Known, settings: Settings | None = None, watch: Watch | None = None) -> Outcome:
    """Hold a part out, fit, and measure.

    Parameters
    ----------
    known : the data and what is known about them
    settings : how to learn
    watch : sees every iteration, and can end the fit

    Raises `Refused` where what is known contradicts itself or the settings.
    """
    settings = Settings() if settings is None else settings
    watch = Watch(settings) if watch is None else watch
    split = hold_out(known.codes, known.constraints, settings.held_out, settings.seed)
    X = known.table.X
    try:
        fit = fitting.fit(known.table, known.codes, split.learned_rows, split.learned, settings, watch)
    except Contradiction as error:
        raise Refused(known.refusal(error.cause, error.rows)) from error
    watch.show("measuring on what was held out")
    figures: list[Figure] = []
    pairs: Pairs | None = None
    before, after = measures(fit.model, X)
    assert before is not None
    if known.codes is not None and len(split.held_rows):
        codes, held, seed = known.codes, split.held_rows, settings.seed
        figures += graded.from_labels(before, after, codes, held, split.learned_rows, seed)
        pairs = graded.labelled_pairs(codes, held, graded.PAIRS, seed)
    if len(split.held):
        figures += graded.from_constraints(before, after, split.held, len(X), settings.seed)
        pairs = pairs or _given_pairs(split)
    return Outcome(known, settings, split, fit, tuple(figures), pairs)


def _given_pairs(split: Split) -> Pairs | None:
    """Held-out pairs that are known as similar or dissimilar."""
    blocks = [block for block in split.held.blocks if block.tells_pairs]
    if not blocks:
        return None
    is_similar = [np.full(len(block), block.relation < 0) for block in blocks]
    return np.concatenate([block.object_ids for block in blocks]), np.concatenate(is_similar)


def _change(figure: Figure) -> str:
    """A figure with its values, like "5-NN error (from 4.5 % to 3.1 %)"."""
    before, after = (text.partition(" (")[0] for text in figure.texts())
    return f"{figure.name} (from {before} to {after})"
