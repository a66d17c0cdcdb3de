"""The page in a real browser: headless Chromium opens it, points at it, resizes it, and does not complain."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import nearwise as nw
from browsing import CHROMIUM, DESKTOP, PATIENCE, PHONE, opened, overflow
from nearwise import cli
from nearwise.show import report

EVIL = (
    "<script>window.owned=1</script>",
    '"><img src=x onerror="window.owned=1">',
    "</title></svg><svg onload='window.owned=1'>",
    "javascript:window.owned=1",
    "\u202e\x00]]>--><!--",
    "very long " * 500,
)

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path")]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "report.html"
    assert cli.main(["demo", "--quiet", "-o", str(path)]) == 0
    return path


def bring(page: Any, part: int) -> None:
    """Scroll to a map, and wait until the page has noticed: scrolling hides the tip."""
    page.locator("svg[data-group=map]").nth(part).scroll_into_view_if_needed()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def mark(page: Any, part: int, k: int) -> tuple[float, float, str]:
    """Where mark k of a map is on the screen, and what its title says."""
    found: tuple[float, float, str] = page.evaluate(
        """([part, k]) => {
            const svg = document.querySelectorAll('svg[data-group=map]')[part];
            const path = svg.querySelectorAll('.marks path')[k];
            const [x, y] = path.getAttribute('d').match(/-?[\\d.]+/g).map(Number);
            const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
            return [box.left + x * scale, box.top + y * scale, path.querySelector('title').textContent];
        }""",
        [part, k],
    )
    return found


def rings(page: Any) -> list[float]:
    """The radii of the rings in the maps: 0 where no mark is chosen."""
    found: list[float] = page.evaluate(
        "[...document.querySelectorAll('svg[data-group=map] .ring')].map(r => Number(r.getAttribute('r')))"
    )
    return found


def test_demo_s_figures_are_found_by_role_and_heading(browser: Any, demo: Path) -> None:
    with opened(browser, demo) as visit:
        page = visit.page
        assert page.get_by_role("heading", level=1).count() == 1
        titles = page.get_by_role("heading", level=2).all_inner_texts()
        assert {"Distances of similar and dissimilar pairs", "Maps", "Spectrum", "Convergence"} <= set(titles)
        assert {"Neighbours of some rows", "Recall of every class", "Penalty and score"} <= set(titles)
        images = page.locator("svg[role=img]")
        assert images.count() == 10
        for k in range(images.count()):
            box = images.nth(k).bounding_box()
            assert box["width"] > 200
            assert box["height"] > 100
        assert page.get_by_role("table").count() >= 2


def test_a_mark_that_is_pointed_at_shows_its_label(browser: Any, demo: Path) -> None:
    with opened(browser, demo) as visit:
        page = visit.page
        tip = page.get_by_role("status")
        assert not tip.is_visible()
        bring(page, 0)
        x, y, title = mark(page, 0, 0)
        assert re.fullmatch(r".+ · \d", title)
        page.mouse.move(x, y)
        assert tip.is_visible()
        assert tip.inner_text() == title
        assert all(radius > 0 for radius in rings(page))  # the same row in the other map
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= DESKTOP["width"]
        page.mouse.move(5, 5)
        assert not tip.is_visible()
        assert rings(page) == [0, 0]


def test_marks_are_reached_by_keys(browser: Any, demo: Path) -> None:
    with opened(browser, demo) as visit:
        page = visit.page
        tip = page.get_by_role("status")
        bring(page, 1)
        page.locator("svg[data-group=map]").nth(1).focus()
        page.keyboard.press("ArrowRight")
        first = tip.inner_text()
        assert first == mark(page, 1, 0)[2]
        page.keyboard.press("ArrowLeft")
        assert tip.inner_text() not in ("", first)
        page.keyboard.press("Escape")
        assert not tip.is_visible()


def test_a_label_goes_with_its_mark_when_the_page_scrolls(browser: Any, demo: Path) -> None:
    with opened(browser, demo) as visit:
        page = visit.page
        tip = page.get_by_role("status")
        bring(page, 1)
        page.locator("svg[data-group=map]").nth(1).press("ArrowRight")
        before = tip.bounding_box()
        page.evaluate(
            """() => new Promise(done => {
                addEventListener("scroll", () => requestAnimationFrame(done), { once: true });
                scrollBy(0, 30);
            })"""
        )
        assert tip.inner_text() == mark(page, 1, 0)[2]
        assert tip.bounding_box()["y"] == pytest.approx(before["y"] - 30, abs=1)


def test_a_tap_shows_the_label_and_another_hides_it(browser: Any, demo: Path) -> None:
    with opened(browser, demo, PHONE, has_touch=True, is_mobile=True) as visit:
        page = visit.page
        bring(page, 1)
        x, y, title = mark(page, 1, 3)
        page.touchscreen.tap(x, y)
        tip = page.get_by_role("status")
        assert tip.inner_text() == title
        page.get_by_role("heading", name="Maps").tap()
        assert not tip.is_visible()


def test_a_class_is_picked_out_in_the_legend(browser: Any, demo: Path) -> None:
    with opened(browser, demo) as visit:
        page = visit.page
        button = page.get_by_role("list", name="Classes").get_by_role("button").first
        faded = page.locator("svg[data-group=map] .faded")
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert 0 < faded.count() < page.locator("svg[data-group=map] .marks path").count()
        button.click()
        assert faded.count() == 0


@pytest.mark.parametrize("width", [320, 360, 768])
def test_nothing_is_wider_than_the_window(browser: Any, demo: Path, width: int) -> None:
    with opened(browser, demo, {"width": width, "height": 800}) as visit:
        assert overflow(visit.page) == 0


def test_the_scheme_is_the_reader_s(browser: Any, demo: Path) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        with opened(browser, demo, color_scheme=scheme) as visit:
            ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
            grounds[scheme] = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert grounds["light"] > 200
    assert grounds["dark"] < 60


def test_without_scripts_the_page_is_whole_and_titles_remain(browser: Any, demo: Path) -> None:
    with opened(browser, demo, java_script_enabled=False) as visit:
        assert visit.page.locator("svg[role=img]").count() == 10
        assert visit.page.locator("svg[data-group=map] .marks title").count() > 100


def test_no_script_of_the_data_runs(browser: Any, tmp_path: Path) -> None:
    wine = nw.datasets.load("wine")
    n, d = wine.X.shape
    texts = [EVIL[k % len(EVIL)] for k in range(n)]
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(wine.X, wine.y)
    found = report.from_estimator(
        model,
        wine.X,
        y=texts,
        ids=[f"{text}{k}" for k, text in enumerate(texts)],
        names=texts[:d],
        title="".join(EVIL[:5]),
        summary="".join(EVIL[:5]),
        settings=dict(zip(EVIL, EVIL, strict=True)) | {"command": EVIL[0]},
        describe=lambda row: texts[row % n],
        show={EVIL[0]: texts},
        color_by=(EVIL[1], texts),
    )
    path = tmp_path / "hostile.html"
    path.write_text(report.render(found), encoding="utf-8")
    for size in (PHONE, DESKTOP):
        with opened(browser, path, size) as visit:
            page = visit.page
            bring(page, 0)
            for k in range(0, n, 7):
                page.mouse.move(*mark(page, 0, k)[:2])
            assert page.evaluate("window.owned") is None
            assert page.evaluate("document.scripts.length") == 1
            assert page.locator("img").count() == 0
            assert page.get_by_role("heading", level=1).inner_text().startswith("<script>window.owned=1")
            assert overflow(page) == 0


def test_the_policy_stops_what_would_be_injected(browser: Any, demo: Path, tmp_path: Path) -> None:
    """Were a text not escaped, its script would still not run: the test of the tests above."""
    path = tmp_path / "injected.html"
    text = demo.read_text(encoding="utf-8")
    path.write_text(text.replace("</main>", "<script>window.owned=1</script></main>"), encoding="utf-8")
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(path.as_uri())
    assert page.evaluate("window.owned") is None
    assert any("Content Security Policy" in text for text in said)
    context.close()
