"""The page's figures in a real browser: on a phone and a desk, light and dark, with texts and pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from browsing import CHROMIUM, opened, overflow
from nearwise import constraints as c, report, study

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path"), pytest.mark.long]

SIZES = {"phone": {"width": 390, "height": 800}, "desk": {"width": 1280, "height": 900}}
everywhere = pytest.mark.parametrize("size", SIZES)
schemes = pytest.mark.parametrize("scheme", ["light", "dark"])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Digits with pictures and more classes than colours, and wines with pairs, triplets and distances."""
    folder = tmp_path_factory.mktemp("pages")
    digits = nw.datasets.load("digits")
    rows, labels = digits.X[:240], [f"{digit} {k % 2}" for k, digit in enumerate(digits.y[:240])]
    quick = study.Settings(penalty=1.0)
    outcome = study.learn(study.from_arrays(rows, labels), quick)
    with_pictures = report.from_outcome(outcome, "Digits", images=rows.reshape(-1, 8, 8))
    wine = nw.datasets.load("wine")
    X = (wine.X - wine.X.mean(axis=0)) / wine.X.std(axis=0)
    rng = np.random.default_rng(0)
    pairs = np.array([rng.permutation(178)[:2] for _ in range(240)])
    alike = wine.y[pairs[:, 0]] == wine.y[pairs[:, 1]]
    squared = np.sum((X[pairs[:60, 0], :3] - X[pairs[:60, 1], :3]) ** 2, axis=1) + 0.1
    side = c.similar(pairs[alike]) + c.dissimilar(pairs[~alike]) + c.equal(pairs[:60, ::-1], squared)
    side += c.closer([rng.permutation(178)[:3] for _ in range(60)])
    told = study.learn(study.from_arrays(X, constraints=side, names=wine.feature_names), quick)
    texts = [f"a wine of grower {grower}, and what is said of it at length" for grower in wine.y]
    with_texts = report.from_estimator(
        told.fit.model, X, held_out=told.pairs, constraints=told.known.constraints,
        show={"note": texts}, color_by=("alcohol", wine.X[:, 0].tolist()), figures=told.figures,
    )  # fmt: skip
    found = {"pictures": with_pictures, "texts": with_texts}
    for name, page in found.items():
        (folder / f"{name}.html").write_text(report.render(page), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in found}


def ratio(page: Any, one: str, other: str) -> float:
    """The contrast, as WCAG has it, of two colours as the browser names them."""

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@everywhere
@schemes
@pytest.mark.parametrize("name", ["pictures", "texts"])
def test_everything_fits_and_is_drawn(
    browser: Any, pages: dict[str, Path], name: str, size: str, scheme: str
) -> None:
    with opened(browser, pages[name], SIZES[size], color_scheme=scheme) as visit:
        page = visit.page
        assert overflow(page) == 0
        figures = page.locator("svg[role=img]")
        widths = [figures.nth(k).bounding_box()["width"] for k in range(figures.count())]
        assert min(widths) > 250
        assert max(widths) < 500  # no picture is blown up
        clipped = page.evaluate(
            """[...document.querySelectorAll('svg[role=img] text')].filter(text => {
                const box = text.getBoundingClientRect(), svg = text.closest('svg').getBoundingClientRect();
                return box.left < svg.left - 8 || box.right > svg.right + 8;
            }).map(text => text.textContent)"""
        )
        assert clipped == []
        small = page.evaluate(
            """Math.min(...[...document.querySelectorAll('svg[role=img] text')].map(
                text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))"""
        )
        assert small >= 9.0  # pixels
        colours = page.evaluate(
            """['.card .said', '.tag.other', '.new', '.asked p', 'summary', '.told td'].flatMap(name => {
                const found = document.querySelector(name);
                return found ? [[name, getComputedStyle(found).color]] : [];
            })"""
        )
        assert len(colours) >= 3
        ground = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        for what, colour in colours:
            assert ratio(page, colour, ground) >= 4.5, what


@everywhere
def test_pictures_are_seen(browser: Any, pages: dict[str, Path], size: str) -> None:
    with opened(browser, pages["pictures"], SIZES[size]) as visit:
        images = visit.page.locator("img")
        assert images.count() == visit.page.locator("article").count() * 11
        shown = visit.page.evaluate(
            "[...document.images].map(i => i.complete && i.naturalWidth === 8 && i.clientWidth >= 24)"
        )
        assert all(shown)
        tops = visit.page.evaluate(
            """[...document.querySelectorAll('.strip')].map(
                strip => new Set([...strip.children].map(item => item.offsetTop)).size)"""
        )
        assert set(tops) == {1}  # five neighbours stand side by side


@everywhere
def test_before_and_after_stand_beside_each_other_where_there_is_room(
    browser: Any, pages: dict[str, Path], size: str
) -> None:
    with opened(browser, pages["texts"], SIZES[size]) as visit:
        sides = visit.page.locator(".sides").first.locator("> div")
        before, after = (sides.nth(k).bounding_box() for k in range(2))
        if size == "desk":
            assert before["y"] == after["y"]
            assert before["x"] + before["width"] <= after["x"]
        else:
            assert before["y"] + before["height"] <= after["y"]


def test_held_out_rows_are_picked_out(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["pictures"], SIZES["desk"]) as visit:
        page = visit.page
        page.get_by_role("list", name="Parts").get_by_role("button", name="held out").click()
        marks, faded = (page.locator(f"svg[data-group=map] .marks {kind}") for kind in ("path", ".faded"))
        assert faded.count() == marks.count() - page.locator("svg[data-group=map] .held").count() > 0
        assert page.locator("svg[data-group=map] .held.faded").count() == 0
        fills = page.evaluate(
            """['held', 'seen'].map(kind =>
                getComputedStyle(document.querySelector(`svg[data-group=map] .${kind}`)).fill)"""
        )
        assert fills[0] != "none"
        assert fills[1] == "none"


def test_a_long_legend_is_folded_and_works(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["pictures"], SIZES["phone"]) as visit:
        page = visit.page
        summary = page.locator("summary")
        if summary.count():
            summary.click()
        button = page.get_by_role("list", name="Classes").get_by_role("button").nth(12)
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        left = page.locator("svg[data-group=map] .marks path:not(.faded)")
        assert 0 < left.count() < 60
        assert page.locator("svg[data-group=map] text.name").count() > 4


def test_a_mark_says_the_text_of_its_row(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["texts"], SIZES["desk"]) as visit:
        page = visit.page
        page.locator("svg[data-group=map]").first.press("ArrowRight")
        assert re.match(r"row \d+ · a wine of grower \d", page.get_by_role("status").inner_text())
        lines = page.evaluate(
            """[...document.querySelectorAll('svg[data-group=map] .pair')].map(
                line => getComputedStyle(line).strokeDasharray !== 'none')"""
        )
        assert lines == [True, False, True, False]  # dissimilar pairs are dashed, on both maps


def test_without_scripts_everything_is_read(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["texts"], SIZES["phone"], java_script_enabled=False) as visit:
        titles = visit.page.get_by_role("heading", level=2).all_inner_texts()
        assert {"Neighbours of some rows", "Margins of triplets", "Measured and learned distances"} <= set(
            titles
        )
        assert visit.page.locator(".card .said").first.is_visible()
