"""The page as text: sections and tables, the style sheet and the script, and the policy that allows them."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from nearwise import __version__
from nearwise.show.report import _charts, _maps
from nearwise.show.report._contents import Report
from nearwise.show.report._text import LINE, html, number, prose
from nearwise.study.evaluation import UNCLEAR, VERDICTS, Figure

GENERATOR = '<meta name="generator" content="nearwise">'
COMMAND = "command"  # the setting that is shown as something to type


def render(report: Report) -> str:
    """The page: one HTML document without any other file."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    title = html(report.title, LINE)
    notice = f'<p class="notice" role="note">{prose(report.notice)}</p>' if report.notice else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">{GENERATOR}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head><body><main>"
        f'<header><h1>{title}</h1><p class="lead">{prose(report.summary)}</p>{notice}</header>'
        f"{_figures(report.figures)}{_distances(report)}{_map_section(report)}"
        f'<div class="two">{_charted("Features that matter", report.features, _charts.features)}'
        f"{_charted('Spectrum', report.spectrum, _charts.spectrum)}</div>"
        f'<div class="two">{_charted("Convergence", report.convergence, _charts.convergence)}'
        f"{_violations(report)}</div>{_settings(report)}"
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


def _figures(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    lines = ""
    for item in figures:
        cells = "".join(f"<td>{_value(text)}</td>" for text in item.texts())
        better = f"{'lower' if item.lower_is_better else 'higher'} is better"
        if item.change is not None:
            better += f"; change: {html(item.verdict)}"
        lines += (
            f'<tr><th scope="row">{html(item.name, LINE)}<span class="soft">{better}</span></th>'
            f'{cells}<td class="roomy">{_charts.intervals(item)}</td></tr>'
        )
    head = '<th scope="col">figure</th>' + "".join(
        f'<th scope="col" class="{name}">{name}</th>' for name in ("before", "after")
    )
    table = (
        f'<table class="numbers"><thead><tr>{head}<td class="roomy"></td></tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )
    unclear = any(item.change is not None and item.verdict == VERDICTS[-1] for item in figures)
    legend = f" {UNCLEAR.capitalize()}." if unclear else ""
    note = f'<p class="note">In parentheses: 95 % intervals over resamples.{legend}</p>'
    return _section("Before and after", table + note)


def _value(text: str) -> str:
    """A value, and its interval on a line of its own."""
    value, bracket, interval = text.partition(" (")
    return f"<b>{html(value)}</b>" + (f'<span class="soft">({html(interval)}</span>' if bracket else "")


def _distances(report: Report) -> str:
    note = f'<p class="note">{html(report.pairs)}</p>' if report.pairs else ""
    return _charted(
        "Distances of similar and dissimilar pairs", report.distances, lambda d: note + _charts.histograms(d)
    )


def _map_section(report: Report) -> str:
    return _charted(
        "Maps",
        report.maps,
        lambda found: _maps.maps(found, report.classes, report.point_labels, report.n_rows),
    )


def _charted(title: str, part: Any, draw: Callable[[Any], str]) -> str:
    """A section with a picture, or with the sentence that says why there is none; without either, nothing."""
    if isinstance(part, str):
        return _section(title, f"<p>{html(part)}</p>") if part else ""
    return _section(title, draw(part))


def _violations(report: Report) -> str:
    def table(worst: Any) -> str:
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

    return _charted("Constraints violated most", report.worst, table)


def _settings(report: Report) -> str:
    rows = {key: value for key, value in report.settings.items() if key != COMMAND} | versions()
    lines = "".join(
        f'<tr><th scope="row">{html(key, LINE)}</th><td>{html(value)}</td></tr>'
        for key, value in rows.items()
    )
    command = report.settings.get(COMMAND)
    typed = "" if command is None else f"<pre><code>{html(command)}</code></pre>"
    return _section("To repeat it", f'{typed}<table class="facts"><tbody>{lines}</tbody></table>')


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


@cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    """As a content security policy names a script or a style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
