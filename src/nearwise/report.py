"""The report: one HTML page that needs nothing but itself.

It shows the figures before and after, how far apart similar and dissimilar pairs are, how the solver
converged, the constraints violated most, and what is needed to repeat the run. All text is escaped, the
pictures are inline SVG, and the page's content security policy allows its own style sheet and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearwise import __version__
from nearwise.result import Record, Violation

Array = NDArray[np.float64]

GENERATOR = '<meta name="generator" content="nearwise">'


@dataclass(frozen=True, eq=False)
class Report:
    """What the page shows; `distances` maps a caption to squared distances of (similar, dissimilar) pairs."""

    title: str
    summary: str
    scores: Sequence[tuple[str, str, str]]
    history: Sequence[Record]
    distances: Mapping[str, tuple[Array, Array]]
    worst: Sequence[Violation]
    settings: Mapping[str, object]


def render(report: Report) -> str:
    """The page as text."""
    violations = [(v.name, _number(v.value), f"{v.relative:.0%}") for v in report.worst]
    settings = {**report.settings, **versions()}
    sections = {
        "Before and after": _table(("", "before", "after"), report.scores),
        "Distances of held-out pairs": _histograms(report.distances) + _LEGEND,
        "Convergence": _convergence(report.history),
        "Constraints violated most": _table(("constraint", "value", "off by"), violations) + _SOFT,
        "To repeat it": _table((), [(key, str(value)) for key, value in settings.items()]),
    }
    body = "".join(
        f"<section><h2>{escape(name)}</h2>{content}</section>" for name, content in sections.items()
    )
    title = escape(report.title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">{GENERATOR}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{title}</h1><p>{escape(report.summary)}</p>{body}</main></body></html>\n"
    )


def is_report(path: Path) -> bool:
    """Whether the file is a page that `render` made, and so may be replaced by the next one."""
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(1024)


def versions() -> dict[str, str]:
    """The versions of what computed the result."""
    packages = ("numpy", "scipy", "scikit-learn", "numba")
    return {
        "nearwise": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: metadata.version(name) for name in packages},
    }


def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column names the rows. Without a header its cells are text, otherwise numbers."""
    if not rows:
        return "<p>None.</p>"
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    lines = ""
    for name, *cells in rows:
        values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines += f'<tr><th scope="row">{escape(name)}</th>{values}</tr>'
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    kind = "numbers" if header else "facts"
    return f'<div class="wide"><table class="{kind}">{top}<tbody>{lines}</tbody></table></div>'


# The pictures share one frame, in SVG units: the plot lies between these edges.
_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 344.0, 12.0, 182.0


def _convergence(history: Sequence[Record]) -> str:
    """The relative gap at each iteration, on a logarithmic scale."""
    points = [(r.iteration, max(r.gap, 1e-16)) for r in history if math.isfinite(r.gap)]
    if not points:
        return "<p>No finite gap was recorded.</p>"
    exponents = [math.log10(gap) for _, gap in points]
    low = math.floor(min(exponents))
    high = max(math.ceil(max(exponents)), low + 1)
    first = points[0][0]
    last = max(points[-1][0], first + 1)
    line, dots = [], ""
    for (iteration, gap), exponent in zip(points, exponents, strict=True):
        x, y = _place(iteration, first, last, _LEFT, _RIGHT), _place(exponent, low, high, _BOTTOM, _TOP)
        line.append(f"{x},{y}")
        hover = f"<title>iteration {iteration}: gap {gap:.1e}</title>"
        dots += f'<circle class="gap" cx="{x}" cy="{y}" r="3">{hover}</circle>'
    decades = range(low, high + 1, max(1, math.ceil((high - low) / 6)))
    axes = _axes(
        [(f"{_LEFT}", str(first)), (f"{_RIGHT}", str(last))],
        [(_place(e, low, high, _BOTTOM, _TOP), f"1e{e}") for e in decades],
        "iteration",
    )
    description = f"{points[-1][1]:.1e} after {points[-1][0]} iterations"
    return _picture(
        "relative gap", description, f'{axes}<polyline class="gap" points="{" ".join(line)}"/>{dots}'
    )


def _histograms(distances: Mapping[str, tuple[Array, Array]], bins: int = 40) -> str:
    """The share of pairs at each squared distance, with the same axes in all pictures.

    The distances are on a logarithmic scale, whose ends take in the outermost pairs.
    """
    positive = [d[d > 0] for pair in distances.values() for d in pair if d.any()]
    low = math.log10(min((np.quantile(d, 0.005) for d in positive), default=1.0))
    high = math.log10(max((np.quantile(d, 0.995) for d in positive), default=1.0))
    high = max(high, low + 0.1)
    shares = {
        caption: [_shares(d, low, high, bins) for d in (similar, dissimilar)]
        for caption, (similar, dissimilar) in distances.items()
    }
    peak = max(share.max() for pair in shares.values() for share in pair)
    margin = (high - low) / 8
    decades = [e for e in range(math.ceil(low), math.floor(high) + 1) if low + margin < e < high - margin]
    axes = _axes(
        [(_place(e, low, high, _LEFT, _RIGHT), _number(10.0**e)) for e in (low, *decades, high)],
        [(f"{_BOTTOM}", "0"), (f"{_TOP}", f"{peak:.0%}")],
        "squared distance, logarithmic",
    )
    pictures = ""
    for caption, pair in shares.items():
        shapes = "".join(
            f'<path class="{kind}" d="{_steps(share, peak)}"/>'
            for kind, share in zip(("near", "far"), pair, strict=True)
        )
        near, far = (_number(np.median(d)) for d in distances[caption])
        description = f"median {near} for similar pairs, {far} for dissimilar ones"
        pictures += _picture(caption, description, axes + shapes)
    return f'<div class="pair">{pictures}</div>'


def _shares(distances: Array, low: float, high: float, bins: int) -> Array:
    """The share of the distances in each bin of their logarithm."""
    exponents = np.log10(np.clip(distances, 10.0**low, 10.0**high))
    return np.histogram(np.clip(exponents, low, high), bins, (low, high))[0] / len(distances)


def _steps(share: Array, peak: float) -> str:
    """The outline of a histogram, as the path of an SVG."""
    steps = "".join(
        f"V{_place(height, 0, peak, _BOTTOM, _TOP)}H{_place(i + 1, 0, len(share), _LEFT, _RIGHT)}"
        for i, height in enumerate(share)
    )
    return f"M{_LEFT} {_BOTTOM}{steps}V{_BOTTOM}Z"


def _picture(caption: str, description: str, content: str) -> str:
    label = escape(f"{caption}: {description}")
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{content}</svg>'
        f"<figcaption><b>{escape(caption)}</b> {escape(description)}</figcaption></figure>"
    )


def _axes(x_ticks: Sequence[tuple[str, str]], y_ticks: Sequence[tuple[str, str]], x_title: str) -> str:
    lines = "".join(
        f'<path class="grid" d="M{_LEFT} {y}H{_RIGHT}"/>'
        f'<text class="y" x="{_LEFT - 6}" y="{y}">{label}</text>'
        for y, label in y_ticks
    )
    lines += "".join(f'<text class="x" x="{x}" y="{_BOTTOM + 16}">{label}</text>' for x, label in x_ticks)
    return f'{lines}<text class="x" x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 32}">{x_title}</text>'


def _place(value: float, low: float, high: float, start: float, end: float) -> str:
    """The coordinate of a value on an axis from low (drawn at start) to high (drawn at end)."""
    return f"{start + (value - low) / (high - low) * (end - start):.1f}"


def _number(value: float) -> str:
    """Three digits, with an exponent only where it is shorter: 3700 rather than 3.7e+03."""
    return f"{float(f'{value:.3g}'):g}"


_LEGEND = (
    '<p class="legend"><span class="near">similar pairs</span> <span class="far">dissimilar pairs</span></p>'
)

_SOFT = '<p class="note">A soft constraint may stay violated; the objective then counts its loss.</p>'

_STYLE = """
:root{color-scheme:light dark;
--page:#fff;--ink:#1c2128;--soft:#57606a;--rule:#d8dee4;--near:#0a66c2;--far:#b9500f}
@media(prefers-color-scheme:dark){
:root{--page:#14181d;--ink:#e6eaef;--soft:#9aa5b1;--rule:#333c46;--near:#6cb2ff;--far:#ff9d5c}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:52rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.25rem 0}.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.3rem 1.5rem .3rem 0;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}
th:last-child,td:last-child{padding-right:0}.numbers :is(th,td):not(:first-child){text-align:right}
th{font-weight:400;color:var(--soft)}.numbers tbody th{color:var(--ink)}
.note{font-size:.9rem;color:var(--soft)}
figure{margin:0;max-width:24.5rem}svg{display:block;width:100%;height:auto}
svg text{font-size:11px;fill:var(--soft)}
svg .x{text-anchor:middle}svg .y{text-anchor:end;dominant-baseline:middle}
figcaption{font-size:.9rem;color:var(--soft)}figcaption b{color:var(--ink)}
.pair{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr))}
.grid{stroke:var(--rule);fill:none}polyline.gap{stroke:var(--near);stroke-width:2;fill:none}circle.gap{fill:var(--near)}
path.near{fill:var(--near);stroke:var(--near);fill-opacity:.3}path.far{fill:var(--far);stroke:var(--far);fill-opacity:.3}
.legend span{margin-right:1rem}.legend span::before{content:"";display:inline-block;width:.8em;height:.8em;
margin-right:.4em;background:currentColor}.legend .near{color:var(--near)}.legend .far{color:var(--far)}
"""
