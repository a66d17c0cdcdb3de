"""The figures of the page: intervals on one scale, maps with all that they mark, neighbours, suspects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearwise as nw
from nearwise import constraints as c, report, study
from nearwise.show import charts
from nearwise.show.report import maps, subject, svg
from nearwise.study import inspection
from nearwise.study.by_kind import ClassRecall, Margins, MeasuredDistances, PenaltyPath
from nearwise.study.examples import examples
from nearwise.study.figures import Figure, Interval
from nearwise.study.suspicion import Suspect

X, y = load_iris(return_X_y=True)
EVIL = '<b onclick="x">&'


@pytest.fixture(scope="module")
def learner() -> nw.MetricLearner:
    return nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)


def page(part: report.Report) -> str:
    return report.render(part)


def section(text: str, title: str) -> str:
    found = re.search(rf"<h2>{title}</h2>(.*?)</section>", text, re.DOTALL)
    assert found is not None
    return found[1]


def maps_of(text: str) -> list[list[tuple[str, str]]]:
    """The class and the title of every mark of both maps."""
    return [
        re.findall(r'<path class="([^"]*)" d="[^"]*"><title>(.*?)</title>', picture)
        for picture in re.findall(r'data-group="map".*?</svg>', text)
    ]


def test_a_page_needs_a_learner_data_and_labels_and_nothing_else(learner: nw.MetricLearner) -> None:
    text = page(report.from_estimator(learner, X, y))
    assert "<h1>What MetricLearner learned</h1>" in text
    assert "The distance of a fitted MetricLearner, shown on 150 rows, 150 of them with a label." in text
    assert "MetricLearner(penalty=1.0, random_state=0)" in section(text, "To repeat it")
    assert "<h1>What MetricLearner learned</h1>" in page(report.from_estimator(learner, X))


def test_intervals_share_one_scale_that_begins_at_zero() -> None:
    found = [
        Figure("error", Interval(0.5, 0.25, 0.75), Interval(0.25, 0.25, 0.25), lower_is_better=True),
        Figure("NMI", Interval(1.0, 1.0, 1.0), Interval(0.5, 0.5, 0.5), False, percent=False),
    ]
    text = svg.draw(charts.intervals(found))
    places = {kind: re.findall(rf'class="{kind} dot" d="M([\d.]+)', text) for kind in ("before", "after")}
    zero, whole = 10.0, 344.0
    assert [float(x) for x in places["before"]] == [(zero + whole) / 2, whole]
    assert [float(x) for x in places["after"]] == [round(zero + (whole - zero) / 4, 1), (zero + whole) / 2]
    labels = re.findall(r'<text class="x"[^>]*>([^<]*)<', text)
    assert labels[:-1] == ["0", "20\u00a0%", "40\u00a0%", "60\u00a0%", "80\u00a0%", "100\u00a0%"]
    assert "100 % stands for 1" in text
    unknown = Interval(float("nan"), float("nan"), float("nan"))
    assert not charts.intervals([Figure("x", unknown, unknown, False)]).rows
    some = [Figure("x", Interval(3.0, 2.0, 4.0), Interval(1.0, 1.0, 1.0), True)]
    large = svg.draw(charts.intervals(some))
    assert "400\u00a0%" in large


def test_held_out_rows_are_filled_and_come_last(learner: nw.MetricLearner) -> None:
    held = np.arange(0, 150, 10)
    text = page(report.from_estimator(learner, X, y, held_rows=held))
    for marks in maps_of(text):
        rows = {int(title.split()[1]): kind.split()[-1] for kind, title in marks}
        assert {row for row, kind in rows.items() if kind == "held"} == set(held.tolist())
        kinds = [kind.split()[-1] for kind, _ in marks]
        assert kinds == sorted(kinds, reverse=True)  # seen, then held, which nothing covers
    found = section(text, "Maps")
    assert "outlines were learned from, which flatters them" in found
    assert re.search(r'data-class="held">.*?held out</bdi> <span class="soft">15<', found)
    assert "held" not in {
        kind.split()[-1] for kind, _ in maps_of(page(report.from_estimator(learner, X, y)))[0]
    }


@pytest.mark.parametrize("rows", [[150], [-1]])
def test_held_rows_are_rows(learner: nw.MetricLearner, rows: list[int]) -> None:
    with pytest.raises(ValueError, match=rf"held_rows: X has 150 rows, and no row {rows[0]}"):
        report.from_estimator(learner, X, y, held_rows=rows)


def test_eighty_classes_differ_in_colour_or_shape(learner: nw.MetricLearner) -> None:
    labels = [f"class {k % 80:02d}" for k in range(150)]
    known = inspection.classes(labels, subject.CLASSES)
    looks = {(maps.style(slot, known).split()[0], maps.shape(slot, known)) for slot in known.names}
    assert len(looks) == len(known.names) == 80
    text = section(page(report.from_estimator(learner, X, labels)), "Maps")
    assert "<summary>80 classes</summary>" in text
    names = re.findall(r'<text class="name [^"]*"[^>]*>([^<]*)<', text)
    assert 4 < len(set(names)) <= 2 * maps._NAMES
    assert set(names) <= set(labels)
    few = section(page(report.from_estimator(learner, X, y)), "Maps")
    assert "<summary>" not in few
    assert 'class="name' not in few


def test_names_of_classes_do_not_cover_each_other() -> None:
    places = np.random.default_rng(0).uniform(0, 360, (400, 2))
    labels = [f"a class of name {k % 40}" for k in range(400)]
    known = inspection.classes(labels, 80)
    text = maps.names(places, known.slots, known)
    found = [
        (float(x), float(y), len(name))
        for x, y, name in re.findall(r'x="([\d.]+)" y="([\d.]+)">(.*?)<', text)
    ]
    assert found
    for k, (x, height, size) in enumerate(found):
        half = size * maps._LETTER / 2
        assert x - half >= 0
        assert x + half <= 360
        for other_x, other_height, other_size in found[:k]:
            apart = abs(x - other_x) >= half + other_size * maps._LETTER / 2 - 0.2
            assert apart or abs(height - other_height) >= maps._LINE - 0.2


def test_pairs_are_drawn_where_there_are_no_labels(learner: nw.MetricLearner) -> None:
    pairs = ([[0, 1], [2, 3], [0, 100]], [True, True, False])
    text = section(page(report.from_estimator(learner, X, held_out=pairs)), "Maps")
    near, far = (re.findall(rf'<path class="{kind} pair" d="([^"]*)"', text) for kind in ("near", "far"))
    assert [path.count("M") for path in near] == [2, 2]
    assert [path.count("M") for path in far] == [1, 1]
    assert "Lines are pairs that were held out" in text
    assert " pair" not in section(page(report.from_estimator(learner, X, y, held_out=pairs)), "Maps")


@pytest.mark.long
def test_objects_of_drawn_pairs_are_in_the_sample() -> None:
    many = np.random.default_rng(0).normal(size=(1500, 2))
    pairs = np.column_stack([np.arange(1400, 1440), np.arange(1450, 1490)])
    learner = nw.MetricLearner(penalty=1.0).fit(
        many, constraints=c.similar(pairs[:9]) + c.dissimilar([(0, 9)])
    )
    found = report.from_estimator(learner, many, held_out=(pairs, np.ones(40, bool)))
    rows = {int(title.split()[1]) for _, title in maps_of(page(found))[0]}
    assert set(pairs.ravel()) <= rows
    assert len(rows) == inspection.MAP_POINTS


def test_a_column_colours_the_maps(learner: nw.MetricLearner) -> None:
    found = report.from_estimator(learner, X, y, color_by=(EVIL, X[:, 0].tolist()))
    text = section(page(found), "Maps")
    assert "Colours are those of &lt;b onclick=&quot;x&quot;&gt;&amp;." in text
    assert {kind.split()[0] for kind, _ in maps_of(text)[0]} == {f"q{k}" for k in range(7)}
    plain = page(report.from_estimator(learner, X, color_by=("kind", y.tolist())))
    assert re.findall(r'data-class="c(\d)">.*?<bdi>(\d)</bdi>', plain) == [(k, k) for k in "012"]
    with pytest.raises(ValueError, match="color_by has 2 entries"):
        report.from_estimator(learner, X, color_by=("kind", [1, 2]))


def test_texts_stand_at_marks_and_beside_neighbours(learner: nw.MetricLearner) -> None:
    texts = [f"{EVIL} {k}" for k in range(150)]
    found = report.from_estimator(learner, X, y, show={"text": texts}, ids=[f"f{k}" for k in range(150)])
    text = page(found)
    assert EVIL not in text
    assert ("t0 c0", "f3 · 0 · &lt;b onclick=&quot;x&quot;&gt;&amp; 3") in maps_of(text)[0]
    cards = section(text, "Neighbours of some rows")
    shown = examples(learner, X, y).examples
    assert cards.count("<article") == len(shown)
    for example in shown:
        assert f"&amp; {example.row}</p>" in cards
    several = report.from_estimator(learner, X, show={"a": texts, "b": [None] * 150})
    assert "a: &lt;b" in section(page(several), "Neighbours of some rows")
    with pytest.raises(ValueError, match=r"show\['a'\] has 1 entries, but X has 150 rows"):
        report.from_estimator(learner, X, show={"a": ["b"]})


def test_neighbours_of_other_classes_and_new_ones_are_marked(learner: nw.MetricLearner) -> None:
    text = section(page(report.from_estimator(learner, X, y)), "Neighbours of some rows")
    shown = examples(learner, X, y).examples
    other = sum(
        int((y[rows] != y[example.row]).sum())
        for example in shown
        for rows in (example.before, example.after)
    )
    new = sum(len(set(e.after) - set(e.before)) for e in shown)
    assert text.count("≠ ") - 1 == other  # one is in the note
    assert text.count('class="new"') == new > 0


def test_numbers_are_shown_where_there_is_nothing_else(learner: nw.MetricLearner) -> None:
    named = report.from_estimator(learner, X, y, names=["a", "b", "c", "d"])
    text = section(page(named), "Neighbours of some rows")
    assert "The numbers are a, b, c, d." in text
    row = examples(learner, X, y).examples[0].row
    assert ", ".join(f"{value:.4g}" for value in X[row]) in text
    assert "The numbers are" not in page(
        report.from_estimator(learner, X, y)
    )  # without names, none means much


def test_pictures_are_allowed_only_where_there_are_some(learner: nw.MetricLearner) -> None:
    images = np.random.default_rng(0).random((150, 4, 4))
    text = page(report.from_estimator(learner, X, y, images=images))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "img-src data:" in policy
    assert set(re.findall(r'<img src="([^;]*);', text)) == {"data:image/png"}
    assert "img-src" not in page(report.from_estimator(learner, X, y))
    with pytest.raises(ValueError, match="images has 3 entries, but X has 150 rows"):
        report.from_estimator(learner, X, images=images[:3])


PARTS: dict[str, Any] = {
    "recall": ClassRecall((EVIL, "b"), np.array([3, 4]), np.array([0.0, 1.0]), np.array([0.5, 0.25])),
    "margins": Margins(np.array([-0.5, 0.5]), np.array([0.1, 0.6])),
    "measured": MeasuredDistances(np.array([1.0, 2.0]), np.array([2.0, 2.0]), np.array([1.1, 2.0])),
    "penalties": PenaltyPath(np.array([0.1, 1.0]), np.array([0.8, 0.9]), 0.7, 2.0),
}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("recall", "Recall rose in 1 class and fell in 1."),
        ("margins", "Of 2 triplets, 50\u00a0% hold before and 100\u00a0% after"),
        ("measured", "Half of 2 distances are off by 50\u00a0% or less"),
        ("penalties", "scores 90\u00a0%, the prior 70\u00a0%"),
    ],
)
def test_a_chart_says_what_it_shows(name: str, says: str) -> None:
    found = svg.draw(getattr(charts, name)(PARTS[name]))
    assert says in found
    assert 'role="img"' in found
    assert not re.search(r"\bnan\b|\binf\b|<b on", found)


def test_of_many_classes_the_worst_are_shown() -> None:
    shares = np.linspace(0, 1, 50)
    found = ClassRecall(tuple(f"k{k:02d}" for k in range(50)), np.full(50, 9), shares, shares)
    text = svg.draw(charts.recall(found))
    assert "of 50 classes, the 20 with the lowest are shown" in text
    assert re.findall(r">(k\d\d)</text>", text) == [f"k{k:02d}" for k in range(20)]


def test_penalties_that_did_not_help_are_told() -> None:
    path = PenaltyPath(np.array([0.1]), np.array([0.8]), 0.9, None)
    text = svg.draw(charts.penalties(path))
    assert "None scores better" in text
    assert 'class="chosen"' not in text


def test_suspects_and_conflicts_are_listed(learner: nw.MetricLearner) -> None:
    some = [
        Suspect("label", (k,), EVIL, "b", 0.9, "9 of its 10 nearest rows are b", "", True) for k in range(10)
    ] + [Suspect("pair", (1, 2), "similar", "dissimilar", 0.8, "farther", f"{EVIL}.csv, line 3", False)]
    text = page(report.from_estimator(learner, X, suspects=some, conflicts=[f"{EVIL} and its opposite"]))
    assert EVIL not in text
    found = section(text, "Labels and answers to check")
    assert "2 more are not shown" in found
    assert found.count("label, held out") == 8
    assert "row 1, row 2" in found
    assert "line 3" in found
    assert "&gt;&amp; and its opposite</li>" in section(text, "Repeated and different answers")


@pytest.mark.long
def test_the_page_of_a_study_marks_what_was_held_out() -> None:
    known = study.from_arrays(
        X, y.astype(str), constraints=c.closer([(k, k + 1, 149 - k) for k in range(40)])
    )
    outcome = study.learn(known, study.Settings(penalty=1.0))
    text = page(report.from_outcome(outcome, "t"))
    held = set(outcome.split.held_rows.tolist())
    assert {int(title.split()[1]) for kind, title in maps_of(text)[0] if kind.endswith("held")} == held
    asked = re.findall(r'<div class="asked"><div><b><bdi>row (\d+)<', text)
    assert set(map(int, asked)) <= held
    assert asked
    margins = section(text, "Margins of triplets")
    assert f"Of {len(outcome.split.held)} triplets" in margins
    assert "These were held out." in margins
    assert "<table" in section(text, "Labels and answers to check")
    without = study.learn(known, study.Settings(penalty=1.0, held_out=0.0))
    text = page(report.from_outcome(without, "t"))
    assert "These were learned from, which flatters the distance." in text
    assert 'data-class="held"' not in text


def test_public_names_are_all_of_what_the_page_takes_and_gives() -> None:
    for name in ("Objects", "Pictures", "Report", "from_estimator", "from_outcome", "render"):
        assert getattr(nw.report, name) is getattr(report, name)
    for module in (nw.report, nw.tables, nw.inspection, nw.study):
        assert module.__name__.removeprefix("nearwise.") in nw.__all__
        assert all(hasattr(module, name) for name in module.__all__)
    with pytest.raises(nw.inspection.Missing, match="no triplets"):
        nw.inspection.margins(nw.MetricLearner(penalty=1.0).fit(X, y), X, c.similar([(0, 1)]))


def test_neighbours_alone_are_a_page_too(tmp_path: Path) -> None:
    objects = report.Objects([EVIL, "b", "c"], None, {"text": ["one", None, EVIL]})
    example = nw.inspection.Example(0, "", None, np.array([1, 2]))
    text = report.render_neighbours("t", "s", [example], objects)
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    assert report.is_report(path)
    assert EVIL not in text
    assert text.count("<li>") == 2
