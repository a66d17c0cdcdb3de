"""The page as text: sections and tables, the style sheet and the script, and the policy that allows them."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np

from nearwise import __version__
from nearwise.core import Violation
from nearwise.show.report import _charts, _graded, _maps, _objects
from nearwise.show.report._contents import Report
from nearwise.show.report._objects import Objects
from nearwise.show.report._text import LINE, html, number, prose
from nearwise.study.by_kind import Weights
from nearwise.study.examples import Example
from nearwise.study.suspicion import Suspect

GENERATOR = '<meta name="generator" content="nearwise">'
COMMAND = "command"  # the setting that is shown as something to type
WEIGHTS = 20  # of features or blocks that are shown
SUSPECTS = 8  # labels and answers of a kind that are shown


def render(report: Report) -> str:
    """The page: one HTML document without any other file."""
    notice = f'<p class="notice" role="note">{prose(report.notice)}</p>' if report.notice else ""
    recall = _charted("Recall of every class", report.recall, _graded.recall)
    margins = _charted("Margins of triplets", report.margins, _graded.margins, report.graded)
    conflicts = "".join(f"<li>{html(text)}</li>" for text in report.conflicts)
    parts = [
        f'<p class="lead">{prose(report.summary)}</p>{notice}</header>',
        _section("Before and after", _graded.figures(report.figures)) if report.figures else "",
        _charted(
            "Neighbours of some rows",
            report.examples,
            lambda found: _objects.neighbours(found, report.objects),
        ),
        _charted(
            "Distances of similar and dissimilar pairs", report.distances, _charts.histograms, report.pairs
        ),
        _charted("Maps", report.maps, lambda found: _maps.maps(found, report.look)),
        _side_by_side(recall, margins) if recall or margins else "",
        _charted("Measured and learned distances", report.measured, _graded.measured, report.graded),
        _charted(
            "Labels and answers to check", report.suspects, lambda found: _suspects(found, report.objects)
        ),
        _section("Repeated and different answers", f"<ul>{conflicts}</ul>") if conflicts else "",
        _side_by_side(
            _charted("Features that matter", report.features, _charts.features),
            _charted("Spectrum", report.spectrum, _charts.spectrum),
        ),
        _charted("Weights", report.weights, _weights),
        _side_by_side(
            _charted("Penalty and score", report.penalties, _graded.penalties),
            _charted("Convergence", report.convergence, _charts.convergence),
        ),
        _charted("Constraints violated most", report.worst, _violations),
        _section("To repeat it", _settings(report.settings)),
    ]
    return _document(report.title, "".join(parts), bool(report.objects.pictures))


def render_neighbours(
    title: str, summary: str, examples: Sequence[Example], data: Objects, queries: Objects | None = None
) -> str:
    """A page with objects and their neighbours alone; `queries` shows the objects, where not `data` does."""
    found = _objects.cards(examples, data, queries)
    note = " ".join(part.pictures.note() for part in (data, queries) if part is not None).strip()
    head = f'<p class="lead">{prose(summary)}</p><p class="note">{html(note)}</p></header>'
    return _document(title, f"{head}<section>{found}</section>", bool(data.pictures))


def _document(title: str, body: str, pictures: bool) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; {'img-src data:; ' if pictures else ''}style-src {_digest(style)}; "
        f"script-src {_digest(script)}; base-uri 'none'; form-action 'none'"
    )
    name = html(title, LINE)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">{GENERATOR}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{style}</style></head><body><main>"
        f"<header><h1>{name}</h1>{body}"
        f"<footer>Made by nearwise {__version__}. This page loads nothing and sends nothing.</footer>"
        f"</main><script>{script}</script></body></html>\n"
    )


def is_report(path: Path) -> bool:
    """Whether the file is a page that `render` made, and so may be replaced by the next one."""
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(2048)


def versions() -> dict[str, str]:
    """The versions of what computed the result."""
    packages = ("numpy", "scipy", "scikit-learn", "numba")
    return {
        "nearwise": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: metadata.version(name) for name in packages},
    }


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _charted(title: str, part: Any, draw: Callable[[Any], str], note: str = "") -> str:
    """A section with a picture, or with the sentence that says why there is none; without either, nothing."""
    if isinstance(part, str):
        return _section(title, f"<p>{html(part)}</p>") if part else ""
    return _section(title, (f'<p class="note">{html(note)}</p>' if note else "") + draw(part))


def _side_by_side(*sections: str) -> str:
    return f'<div class="two">{"".join(sections)}</div>'


def _weights(found: Weights) -> str:
    """Those that changed most, of features or of blocks of features."""
    with np.errstate(all="ignore"):
        change = np.abs(np.log(found.after) - np.log(found.before))
    chosen = np.argsort(-np.nan_to_num(change, nan=0.0, posinf=np.inf), kind="stable")[:WEIGHTS]
    chosen = chosen[np.argsort(-found.after[chosen], kind="stable")]
    titles = ("block" if found.of_blocks else "feature", "after", "before")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    lines = "".join(
        f'<tr><th scope="row"><bdi title="{html(", ".join(found.columns[k]), LINE)}">'
        f"{html(found.names[k], LINE)}</bdi></th>"
        f"<td>{number(float(found.after[k]))}</td><td>{number(float(found.before[k]))}</td></tr>"
        for k in chosen
    )
    what = "blocks" if found.of_blocks else "features"
    some = f"The {len(chosen)} of {len(found.names):,} {what} whose weights changed most. "
    note = some if len(chosen) < len(found.names) else ""
    note += "The weight of a block is the mean of its diagonal." if found.of_blocks else ""
    body = f'<table class="numbers small"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
    return body + (f'<p class="note">{note.strip()}</p>' if note else "")


def _violations(worst: Sequence[Violation]) -> str:
    head = (
        '<th scope="col">constraint</th><th scope="col">value</th>'
        '<th scope="col" class="spare">bound</th><th scope="col">off by</th>'
    )
    lines = "".join(
        f'<tr><th scope="row"><bdi>{html(v.name, LINE)}</bdi></th><td>{number(v.value)}</td>'
        f'<td class="spare">{number(v.bound)}</td>'
        f"<td>{number(100 * v.relative)} %</td></tr>"
        for v in worst
    )
    return (
        f'<table class="numbers small"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
        '<p class="note">Values and bounds of distances are squared.</p>'
    )


def _suspects(found: Sequence[Suspect], objects: Objects) -> str:
    kinds = list(dict.fromkeys(suspect.kind for suspect in found))
    shown = [s for kind in kinds for s in [s for s in found if s.kind == kind][:SUSPECTS]]
    lines = ""
    for s in shown:
        source = f'<span class="soft">{html(s.where, LINE)}</span>' if s.where else ""
        lines += (
            f'<tr><th scope="row"><bdi>{html(", ".join(map(objects.name, s.rows)), LINE)}</bdi>'
            f'<span class="soft">{s.kind}{", held out" if s.held_out else ""}</span></th>'
            f'<td>{html(s.given, LINE)}<span class="soft">rather: {html(s.suggested, LINE)}</span></td>'
            f"<td>{html(s.why, LINE)}{source}</td></tr>"
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("rows", "given", "because"))
    more = len(found) - len(shown)
    rest = f" {more:,} more {'is' if more == 1 else 'are'} not shown." if more else ""
    return (
        '<p class="note">What the learned distance contradicts most. None of it is proven wrong: these '
        f"are the ones to look at first.{rest}</p>"
        f'<table class="small told"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
    )


def _settings(settings: Mapping[str, object]) -> str:
    rows = {key: value for key, value in settings.items() if key != COMMAND} | versions()
    lines = "".join(
        f'<tr><th scope="row">{html(key, LINE)}</th><td>{html(value)}</td></tr>'
        for key, value in rows.items()
    )
    command = settings.get(COMMAND)
    typed = "" if command is None else f"<pre><code>{html(command)}</code></pre>"
    return f'{typed}<table class="facts"><tbody>{lines}</tbody></table>'


@cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    """As a content security policy names a script or a style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
