"""The sections of the page, in their order: a new one is a line in `SECTIONS`, at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from nearwise.show import charts
from nearwise.show.report import maps, objects
from nearwise.show.report.subject import Subject
from nearwise.show.report.svg import draw
from nearwise.show.text import LINE, count, html, number
from nearwise.study import by_kind, inspection
from nearwise.study.before_after import Missing, learner_of
from nearwise.study.examples import examples
from nearwise.study.figures import UNCLEAR, VERDICTS

WORST = 10  # violated constraints that are shown
SUSPECTS = 8  # labels and answers of a kind that are shown


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes
    ----------
    title : its heading
    content : what stands below, as HTML; empty for no section. Where it raises `Missing`, the message stands
        there, or nothing where the section is optional
    half : whether it is a chart that stands beside another one
    """

    title: str
    content: Callable[[Subject], str]
    half: bool = False
    optional: bool = False


def drawn(subject: Subject) -> str:
    """All sections; charts that follow each other side by side, and then what there is to say without one."""
    text = ""
    for half, several in groupby(SECTIONS, key=lambda section: section.half):
        beside = below = ""
        for section in several:
            try:
                found, has_chart = section.content(subject), half
            except Missing as error:
                found, has_chart = "" if section.optional else f"<p>{html(error)}</p>", False
            part = titled(section.title, found) if found else ""
            beside, below = (beside + part, below) if has_chart else (beside, below + part)
        text += (f'<div class="two">{beside}</div>' if beside else "") + below
    return text


def titled(title: str, content: str) -> str:
    """Content with its heading."""
    return f"<section><h2>{title}</h2>{content}</section>"


def _figures(s: Subject) -> str:
    """A table with its note, and the chart of all intervals."""
    lines = []
    for item in s.figures:
        better = f"{'lower' if item.lower_is_better else 'higher'} is better"
        better += "" if item.change is None else f"; change: {item.verdict}"
        cells = (text.partition(" (") for text in item.texts())  # the interval has a line of its own
        values = [(f"<b>{html(value)}</b>", bracket.strip() + interval) for value, bracket, interval in cells]
        lines.append([(html(item.name, LINE), better), *values])
    if not lines:
        return ""
    unclear = any(item.change is not None and item.verdict == VERDICTS[-1] for item in s.figures)
    note = _note(f"In parentheses: 95 % intervals.{f' {UNCLEAR.capitalize()}.' if unclear else ''}")
    chart = charts.intervals(s.figures)
    table = _table({"figure": "", "before": "before", "after": "after"}, lines, "numbers")
    return f'<div class="two"><div>{table}{note}</div><div>{draw(chart) if chart.rows else ""}</div></div>'


def _neighbours(s: Subject) -> str:
    return objects.neighbours(examples(s.model, s.X, s.codes, s.held, s.learned), s.objects)


def _distances(s: Subject) -> str:
    """Of held-out pairs, or else of pairs of labels."""
    if s.pairs is None and s.objects.labels is None:
        raise Missing("Neither labels nor held-out pairs say which rows are similar.")
    pairs, similar = s.pairs or inspection.label_pairs(s.objects.labels or ())
    found = inspection.pair_distances(s.model, s.X, pairs, similar)
    which = f" that {'was' if len(pairs) == 1 else 'were'} not learned from."
    if s.pairs is None:
        which = " of equal and of different labels, drawn at random, also among rows learned from."
    return _note(count(len(pairs), "pair") + which) + draw(charts.distances(found))


def _recall(s: Subject) -> str:
    if s.codes is None:
        return ""
    classes = inspection.label_codes(s.objects.labels or ())[1]
    return draw(charts.recall(by_kind.class_recall(s.model, s.X, s.codes, classes, s.held, s.learned)))


def _margins(s: Subject) -> str:
    found = charts.margins(by_kind.margins(s.model, s.X, s.constraints))
    return _note(s.graded) + draw(found)


def _measured(s: Subject) -> str:
    found = charts.measured(by_kind.measured_distances(s.model, s.X, s.constraints))
    return _note(s.graded) + draw(found)


def _suspects(s: Subject) -> str:
    """Of every kind those to look at first."""
    if not s.suspects:
        nothing = "None of the labels and answers is far from what the learned distance says."
        return "" if s.suspects is None else f"<p>{nothing}</p>"
    kinds = dict.fromkeys(suspect.kind for suspect in s.suspects)
    shown = [each for kind in kinds for each in [one for one in s.suspects if one.kind == kind][:SUSPECTS]]
    lines = []
    for each in shown:
        rows = f"<bdi>{html(', '.join(map(s.objects.name, each.rows)), LINE)}</bdi>"
        kind = f"{each.kind}{', held out' if each.held_out else ''}"
        given = html(each.given, LINE), f"rather: {each.suggested}"
        lines.append([(rows, kind), given, (html(each.why, LINE), each.where)])
    more = len(s.suspects) - len(shown)
    rest = f" {more:,} more {'is' if more == 1 else 'are'} not shown." if more else ""
    note = "What the learned distance contradicts most, to be looked at first: none of it is proven wrong."
    table = _table({"rows": "", "given": "", "because": ""}, lines, "small told")
    return _note(note + rest) + table


def _conflicts(s: Subject) -> str:
    return f"<ul>{''.join(f'<li>{html(text)}</li>' for text in s.conflicts)}</ul>" if s.conflicts else ""


def _worst(s: Subject) -> str:
    """The constraints violated most, named by the caller."""
    certificate = getattr(getattr(learner_of(s.model), "result_", None), "certificate", None)
    if certificate is None:
        raise Missing("This fit has no certificate, which would name them.")
    if not certificate.worst:
        done = certificate.satisfied == 1.0
        text = "Every constraint is satisfied." if done else "The fit ended before it could name them."
        raise Missing(text)
    lines = []
    for v in certificate.worst[:WORST]:
        name = (v if s.describe is None else replace(v, stated=s.describe(v.row))).name
        numbers = (number(v.value), number(v.bound), f"{number(100 * v.relative)} %")
        lines.append([(text, "") for text in (f"<bdi>{html(name, LINE)}</bdi>", *numbers)])
    table = _table({"constraint": "", "value": "", "bound": "spare", "off by": ""}, lines, "numbers small")
    return table + _note("Values and bounds of distances are squared.")


def _note(text: str) -> str:
    return f'<p class="note">{html(text)}</p>' if text else ""


def _table(head: dict[str, str], lines: Sequence[Sequence[tuple[str, str]]], kind: str) -> str:
    """A table: titles of columns with their classes, and lines of cells, each HTML with a soft text below."""

    def cell(tag: str, more: str, content: str, soft: str = "") -> str:
        below = f'<span class="soft">{html(soft, LINE)}</span>' if soft else ""
        return f"<{tag}{more}>{content}{below}</{tag.split()[0]}>"

    named = [f' class="{name}"' if name else "" for name in head.values()]
    titles = "".join(cell('th scope="col"', *of) for of in zip(named, head, strict=True))
    tags = ['th scope="row"', *["td"] * (len(head) - 1)]
    rows = ""
    for line in lines:
        cells = zip(tags, named, line, strict=True)
        rows += f"<tr>{''.join(cell(tag, name, *item) for tag, name, item in cells)}</tr>"
    return f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>'


SECTIONS = (
    Section("Before and after", _figures),
    Section("Neighbours of some rows", _neighbours),
    Section("Distances of similar and dissimilar pairs", _distances),
    Section("Maps", maps.draw),
    Section("Recall of every class", _recall, half=True),
    Section("Margins of triplets", _margins, half=True, optional=True),
    Section("Measured and learned distances", _measured, optional=True),
    Section("Labels and answers to check", _suspects),
    Section("Repeated and different answers", _conflicts),
    Section(
        "Features that matter",
        lambda s: draw(charts.features(inspection.feature_shares(s.model, s.X, s.names))),
        half=True,
    ),
    Section("Weights", lambda s: draw(charts.weights(by_kind.weights(s.model, s.names))), True, True),
    Section("Spectrum", lambda s: draw(charts.spectrum(inspection.spectrum(s.model, s.X))), half=True),
    Section("Penalty and score", lambda s: draw(charts.penalties(by_kind.penalty_path(s.model))), True, True),
    Section("Convergence", lambda s: draw(charts.convergence(inspection.convergence(s.model))), half=True),
    Section("Constraints violated most", _worst),
)
