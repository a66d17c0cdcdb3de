"""What tests of pages share: headless Chromium, and pages that are opened so that nothing is missed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 800}
PATIENCE = 120_000  # milliseconds before the browser counts as hung; 30,000 are too few on a busy machine


@dataclass
class Visit:
    """An open page, and what the browser said and asked for meanwhile."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Any, path: Path, size: dict[str, int] = DESKTOP, **options: Any) -> Iterator[Visit]:
    """The page in a fresh context; at the end nothing was said, and nothing asked for but the page itself."""
    context = browser.new_context(viewport=size, **options)
    context.set_default_timeout(PATIENCE)
    visit = Visit(context.new_page())
    visit.page.on("console", lambda message: visit.said.append(f"{message.type}: {message.text}"))
    visit.page.on("pageerror", lambda error: visit.said.append(f"error: {error}"))
    visit.page.on("request", lambda request: visit.asked.append(request.url))
    visit.page.goto(path.as_uri())
    try:
        yield visit
        assert visit.said == []
        assert visit.asked == [path.as_uri()]
    finally:
        context.close()


def overflow(page: Any) -> int:
    """By how many pixels the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
