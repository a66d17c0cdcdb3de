"""One browser for all tests of pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from browsing import CHROMIUM, FLAGS, PATIENCE


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    home = tmp_path_factory.mktemp("home")
    with sync_api.sync_playwright() as playwright:
        environment = os.environ | {"HOME": str(home)}
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS], env=environment, timeout=PATIENCE
        )
        yield found
        found.close()
