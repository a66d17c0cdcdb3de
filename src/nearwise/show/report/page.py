"""The page as text: sections, style sheet and script, and the policy that allows these and no others."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path

from nearwise import __version__
from nearwise.show.report.contents import Report
from nearwise.show.report.objects import Objects, cards
from nearwise.show.report.sections import titled
from nearwise.show.text import LINE, html, prose
from nearwise.study.examples import Example

GENERATOR = '<meta name="generator" content="nearwise">'
COMMAND = "command"  # the setting that is shown as something to type


def render(report: Report) -> str:
    """The page: one HTML document without any other file."""
    notice = f'<p class="notice" role="note">{prose(report.notice)}</p>' if report.notice else ""
    head = f'<p class="lead">{prose(report.summary)}</p>{notice}</header>'
    body = report.body + titled("To repeat it", _settings(report.settings))
    return _document(report.title, head + body, report.pictures)


def render_neighbours(
    title: str, summary: str, examples: Sequence[Example], data: Objects, queries: Objects | None = None
) -> str:
    """A page with objects and their neighbours alone; `queries` shows the objects, where not `data` does."""
    found = cards(examples, data, queries)
    note = " ".join(part.pictures.note() for part in (data, queries) if part is not None).strip()
    head = f'<p class="lead">{prose(summary)}</p><p class="note">{html(note)}</p></header>'
    return _document(title, f"{head}<section>{found}</section>", bool(data.pictures))


def is_report(path: Path) -> bool:
    """Whether the file is a page that `render` made, and so may be replaced by the next one."""
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(2048)


def _settings(settings: Mapping[str, object]) -> str:
    rows = {key: value for key, value in settings.items() if key != COMMAND} | _versions()
    lines = "".join(
        f'<tr><th scope="row">{html(key, LINE)}</th><td>{html(value)}</td></tr>'
        for key, value in rows.items()
    )
    command = settings.get(COMMAND)
    typed = "" if command is None else f"<pre><code>{html(command)}</code></pre>"
    return f'{typed}<table class="facts"><tbody>{lines}</tbody></table>'


def _versions() -> dict[str, str]:
    """The versions of what computed the result."""
    packages = ("numpy", "scipy", "scikit-learn", "numba")
    return {
        "nearwise": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: metadata.version(name) for name in packages},
    }


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


@cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    """As a content security policy names a script or a style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
