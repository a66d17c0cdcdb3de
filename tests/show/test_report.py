"""The page: every part of it, missing parts, hostile text, its policy, its size, its colours."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise.show import charts, report, text as texts
from nearwise.show.chart import Scale, linear_ticks, log_scale
from nearwise.show.report import Report, maps, svg
from nearwise.study import inspection
from nearwise.study.figures import Figure, Interval

HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "'&amp;</title></svg></style>",
    "\u202eevil\u2066 right to left",
    "nul\x00 and \x1b[31m escape",
    "\ud800 lone surrogate",
    "long " * 20_000,
    "",
]
NO_VALUE = re.compile(r"\b(nan|NaN|inf|None)\b")  # what a number that is not there would be written as
FIGURES = (
    Figure("5-NN error", Interval(0.103, 0.089, 0.118), Interval(0.05, 0.04, 0.06), lower_is_better=True),
    Figure("recall@5", Interval(0.9, 0.9, 0.9), Interval(0.9, 0.9, 0.9), lower_is_better=False),
)
WORDS: dict[str, Any] = {
    "title": "A title",
    "summary": "A sentence.",
    "settings": {"command": "nearwise x"},
}


class Page(HTMLParser):
    """Collects the tags, attributes and text of a page, and notices a tag that is not closed in order."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def values(self, name: str) -> list[str]:
        """What the attributes of that name hold."""
        return [value or "" for found, value in self.attributes if found == name]


def quietly(learner: Any, *arguments: Any, **more: Any) -> Any:
    """A fit whose warnings, of a prior kept or an early end, are expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return learner.fit(*arguments, **more)


@pytest.fixture(scope="module")
def wine() -> nw.datasets.Dataset:
    return nw.datasets.load("wine")


@pytest.fixture(scope="module")
def pipeline(wine: nw.datasets.Dataset) -> Any:
    return make_pipeline(StandardScaler(), nw.MetricLearner(penalty=1.0, random_state=0)).fit(wine.X, wine.y)


@pytest.fixture(scope="module")
def page(wine: nw.datasets.Dataset, pipeline: Any) -> str:
    """A page with everything on it."""
    found = report.from_estimator(
        pipeline,
        wine.X,
        y=wine.y,
        names=wine.feature_names,
        held_out=([[0, 1], [0, 100], [3, 150]], [True, False, False]),
        figures=FIGURES,
        **WORDS,
    )
    return report.render(found)


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", text)


def test_page_has_every_section_in_order(page: str) -> None:
    assert headings(page) == [
        "Before and after",
        "Neighbours of some rows",
        "Distances of similar and dissimilar pairs",
        "Maps",
        "Recall of every class",
        "Features that matter",
        "Spectrum",
        "Convergence",
        "Constraints violated most",
        "To repeat it",
    ]
    assert "<h1>A title</h1>" in page
    assert "A sentence." in page
    assert "<code>nearwise x</code>" in page
    assert f"<td>{nw.__version__}</td>" in page
    assert re.search(r"data fingerprint</th><td>[0-9a-f]{16}<", page)
    assert "10.3 %" in page
    assert "(8.9 to 11.8)" in page


def test_page_is_well_formed_and_loads_nothing(page: str) -> None:
    parsed = Page(page)
    assert page.count('role="img"') == 9
    assert not {"link", "img", "iframe", "object", "use", "image", "foreignObject"} & set(parsed.tags)
    names = {name for name, _ in parsed.attributes}
    assert not {"style", "src", "href", "srcset", "action"} & names
    assert not any(name.startswith("on") for name in names)
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp|innerHTML|\beval\b", page)
    assert not NO_VALUE.search(page)


def test_policy_allows_the_page_s_own_style_and_script_and_nothing_else(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    hashes = {}
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = hashlib.sha256(content.encode()).digest()
        hashes[tag] = f"'sha256-{base64.b64encode(digest).decode()}'"
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src {hashes['style']}",
        f"script-src {hashes['script']}",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_every_picture_says_what_it_shows_and_every_table_names_its_cells(page: str) -> None:
    pictures = re.findall(r"<svg[^>]*>", page)
    assert all('aria-label="' in tag or 'aria-hidden="true"' in tag for tag in pictures)
    assert all(len(label) > 10 for label in re.findall(r'role="img" aria-label="([^"]*)"', page))
    for head in re.findall(r"<th\b[^>]*>", page):
        assert re.match(r'<th scope="(row|col)"[ >]', head)
    assert '<html lang="en">' in page
    assert 'name="viewport"' in page


def test_map_marks_name_their_rows_in_both_maps(page: str, wine: nw.datasets.Dataset) -> None:
    before, after = re.findall(r'data-group="map".*?</svg>', page)
    titles = [re.findall(r"<title>(.*?)</title>", picture) for picture in (before, after)]
    assert titles[0] == titles[1]  # in the same order: the script shows both marks of a row
    assert sorted(titles[0]) == sorted(f"row {row} · {label}" for row, label in enumerate(wine.y))


def test_distances_before_and_after_share_their_axes(page: str) -> None:
    before, after = re.findall(r'aria-label="(?:Before|After): A similar.*?</svg>', page)
    labels = [re.findall(r"<text[^>]*>[^<]*</text>", picture) for picture in (before, after)]
    assert labels[0] == labels[1] != []


def test_the_order_of_pairs_in_the_caption_is_the_area_under_the_curve() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    similar = rng.random(400) < 0.3
    values = np.round(rng.exponential(size=400) + ~similar, 1)  # with ties
    area = roc_auc_score(~similar, values)
    found = inspection.Distances(similar, None, values**2)
    assert f"in {100 * area:.0f}\u00a0% of cases" in charts.distances(found)["after"].caption


@pytest.mark.parametrize("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_text_everywhere(evil: str, wine: nw.datasets.Dataset, pipeline: Any) -> None:
    n, d = wine.X.shape
    found = report.from_estimator(
        pipeline,
        wine.X,
        y=[f"{evil}{k % 3}" for k in range(n)],
        ids=[f"{evil}{k}" for k in range(n)],
        names=[f"{evil}{k}" for k in range(d)],
        figures=[Figure(evil, FIGURES[0].before, FIGURES[0].after, True)],
        title=evil,
        summary=evil,
        settings={evil: evil, "command": evil},
        describe=lambda row: f"{evil}{row}",
    )
    text = report.render(found)
    data = text.encode()  # a lone surrogate could not be written
    assert len(data) < 2_000_000
    parsed = Page(text)
    assert parsed.tags.count("script") == parsed.tags.count("style") == 1
    assert "img" not in parsed.tags
    assert not any(name.startswith("on") for name, _ in parsed.attributes)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert not NO_VALUE.search(text)


def test_text_is_escaped_clipped_and_made_visible() -> None:
    assert texts.html("<a href='&\">") == "&lt;a href=&#x27;&amp;&quot;&gt;"
    assert texts.shown("a\u202eb\x00c\ud800\U000e0001") == "a\\u202eb\\u0000c\\ud800\\U000e0001"
    assert texts.shown("x" * 50, 40) == "x" * 39 + "…"
    assert texts.shown("café 日本 👩\u200d🔬\n") == "café 日本 👩\u200d🔬\n"
    assert [texts.number(v) for v in (3700.4, 1.5e-11, math.nan, math.inf)] == [
        "3700",
        "1.5e-11",
        "unknown",
        "unknown",
    ]
    assert [texts.percent(v) for v in (0.314, 0.0421, 0.0048, -0.039, math.nan)] == [
        "31\u00a0%",
        "4.2\u00a0%",
        "0.48\u00a0%",
        "\u22123.9\u00a0%",
        "unknown",
    ]


@pytest.mark.long
def test_large_data_make_a_small_page(pipeline: Any, wine: nw.datasets.Dataset) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, wine.X.shape[1])) + wine.X[rng.integers(len(wine.X), size=20_000)]
    ids = ["<&" * 30 + str(k) for k in range(len(X))]
    y = [f"{'&' * 60}{k % 300}" for k in range(len(X))]
    found = report.from_estimator(pipeline, X, y=y, ids=ids, **WORDS)
    text = report.render(found)
    marks = re.findall(r'data-group="map".*?</svg>', text)
    assert [part.count("<title>") for part in marks] == [inspection.MAP_POINTS] * 2
    assert len(text.encode()) < 1_500_000
    assert "A sample of 1,000 of 20,000 rows" in text
    assert "220 other classes" in text


LEARNERS = {
    "labels": lambda X, y: nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y),
    "covariance": lambda X, y: nw.MetricLearner(prior="covariance", penalty=1.0, random_state=0).fit(X, y),
    "subspace": lambda X, y: nw.MetricLearner(rank=3, penalty=1.0, random_state=0).fit(X, y),
    "nothing known": lambda X, y: quietly(nw.MetricLearner(), X),
    "early end": lambda X, y: quietly(nw.MetricLearner(penalty=1.0, max_iter=1, tol=1e-12), X, y),
    "kernel": lambda X, y: nw.KernelLearner(rank=10, penalty=1.0, random_state=0).fit(X, y),
    "reducer": lambda X, y: nw.KernelReducer(rank=10, random_state=0).fit(X, y),
    "online": lambda X, y: nw.OnlineLearner(random_state=0).fit(X, y),
    "fixed rank": lambda X, y: nw.FixedRankLearner(2, random_state=0, check=False).fit(X, y),
    "one dimension": lambda X, y: nw.FixedRankLearner(1, random_state=0).fit(X, y),
    "fixed rank of a kernel": lambda X, y: nw.FixedRankLearner(
        2, kernel="rbf", n_basis=20, random_state=0, check=False
    ).fit(X, y),
    "regressor": lambda X, y: nw.FixedRankRegressor(2, random_state=0).fit(X, X[:, 0] ** 2),
    "sparse": lambda X, y: nw.MetricLearner(rank=3, penalty=1.0, random_state=0).fit(sparse.csr_array(X), y),
}


@pytest.mark.parametrize("with_labels", [True, False], ids=["labels", "no labels"])
@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_makes_a_page(name: str, with_labels: bool, wine: nw.datasets.Dataset) -> None:
    X, y = StandardScaler().fit_transform(wine.X)[::2], wine.y[::2]
    model = LEARNERS[name](X, y)
    shown = sparse.csr_array(X) if name == "sparse" else X
    text = report.render(report.from_estimator(model, shown, y=y if with_labels else None, **WORDS))
    parsed = Page(text)
    assert {"Maps", "Spectrum", "Convergence", "To repeat it"} <= set(headings(text))
    assert not NO_VALUE.search(text)
    sentences = " ".join(parsed.texts["p"])
    says = {
        "nothing known": "Nothing was learned: the learner kept what it started from",
        "early end": "The fit ended before it converged (LIMIT)",
        "online": "keeps no history",
        "regressor": "learns no distance",
        "kernel": "linear in the features",
    }
    if name in says:
        assert says[name] in sentences
    if name == "one dimension":
        assert "All rows lie on one line." in text
    if not with_labels and name != "regressor":
        assert "Neither labels nor held-out pairs" in sentences


def test_embedding_makes_a_page_with_and_without_the_distances() -> None:
    points = np.random.default_rng(0).standard_normal((20, 2))
    D = np.square(points[:, None] - points).sum(axis=2)
    model = nw.FixedRankEmbedding(tol=1e-9).fit(D)
    text = report.render(report.from_estimator(model, D, **WORDS))
    assert text.count('data-group="map"') == 2
    unknown = np.where(np.eye(20)[::-1] > 0, np.nan, D)
    text = report.render(report.from_estimator(model, unknown, **WORDS))
    assert text.count('data-group="map"') == 1
    assert not NO_VALUE.search(text)


def test_rows_that_are_all_equal_or_two_make_a_page() -> None:
    X = np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0], [2.5, 3.0]])
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, [0, 0, 1, 1])
    for rows in (np.ones((5, 2)), X[:2], X[:1]):
        text = report.render(report.from_estimator(model, rows, y=list("aabbc")[: len(rows)], **WORDS))
        assert not NO_VALUE.search(text)
        Page(text)


def test_arguments_of_the_wrong_length_are_refused(pipeline: Any, wine: nw.datasets.Dataset) -> None:
    for wrong in ({"y": [1, 2]}, {"ids": ["a"]}):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"{name} has {len(wrong[name])} entries, but X has 178 rows"):
            report.from_estimator(pipeline, wine.X, **wrong, **WORDS)
    with pytest.raises(ValueError, match="13 features, but 2 names"):
        report.from_estimator(pipeline, wine.X, names=["a", "b"], **WORDS)
    with pytest.raises(ValueError, match="pair 1: there are 178 rows"):
        report.from_estimator(pipeline, wine.X, held_out=([[0, 1], [2, 178]], [1, 0]), **WORDS)
    with pytest.raises(TypeError, match="got StandardScaler"):
        report.from_estimator(StandardScaler().fit(wine.X), wine.X, **WORDS)


def test_constraints_are_described_by_the_caller(pipeline: Any, wine: nw.datasets.Dataset) -> None:
    worst = pipeline[-1].result_.certificate.worst
    text = report.render(
        report.from_estimator(pipeline, wine.X, describe=lambda row: f"pairs.csv, line {row + 2}", **WORDS)
    )
    assert f"<bdi>pairs.csv, line {worst[0].row + 2}</bdi>" in text


def test_missing_labels_have_a_mark_of_their_own() -> None:
    found = inspection.classes(
        ["b", None, "a", float("nan"), "", "a", *map(str, range(12)), *map(str, range(12))]
    )
    assert found.names["none"] == "no label"
    assert found.sizes["none"] == 3
    assert found.names["other"] == "4 other classes"
    assert [found.names[str(k)] for k in range(10)] == [*map(str, range(10))]
    assert [inspection.label_text(label) for label in (3.0, 2.5, np.float64(7), "x", True)] == [
        "3",
        "2.5",
        "7",
        "x",
        "True",
    ]


def test_pictures_survive_what_a_solver_may_record() -> None:
    def picture(gaps: list[float]) -> str:
        series = {"relative gap": np.array(gaps)}
        steps = np.arange(len(gaps))
        found = inspection.Convergence(steps, steps * 0.1, series, "Newton", "LIMIT", 9)
        return svg.draw(charts.convergence(found))

    text = picture([math.inf, math.nan, 1e-3, 0.0, -1e-18])
    assert text.count("<title>") == 1  # a logarithmic scale has no place for zero
    assert "at the end relative gap 0." in text
    assert not NO_VALUE.search(text)
    assert picture([1e-3]).count("<title>") == 1
    for gaps, said in (([math.nan], "no finite value"), ([0.0], "relative gap 0")):
        with pytest.raises(inspection.Missing, match=said):
            picture(gaps)
    assert picture([10.0**-k for k in np.linspace(0, 9, 5000)]).count("<title>") == 200


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (0.0, 1.0, 5, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 3.0, 6, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]),
        (-0.04, 0.28, 4, [0.0, 0.1, 0.2]),
        (0.0, 1e-7, 4, [0.0, 5e-8, 1e-7]),
        (0.0, 97.0, 4, [0.0, 50.0]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, most: int, expected: list[float]) -> None:
    assert linear_ticks(low, high, most) == pytest.approx(expected)


def labels(scale: Scale) -> list[str]:
    return [label for _, label in scale.ticks()]


def test_ticks_of_whole_numbers_and_powers() -> None:
    assert labels(Scale("", 1, 9, "whole")) == ["2", "4", "6", "8"]
    assert labels(Scale("", 1, 4, "whole")) == ["1", "2", "3", "4"]
    assert labels(Scale("", 1, 2, "whole")) == ["1", "2"]
    assert labels(Scale("", 1, 64, "whole")) == ["20", "40", "60"]
    assert log_scale("", [1e-3, 1.0]) == Scale("", -3, 0, "log")
    close = log_scale("", [0.8, 1.1])
    assert close.low < math.log10(0.8) < math.log10(1.1) < close.high
    assert labels(close) == ["0.5", "1", "2"]
    assert labels(Scale("", -2, 0, "log")) == ["10⁻²", "10⁻¹", "10⁰"]
    assert labels(Scale("", -12, 0, "log")) == [f"10{e}" for e in ("⁻¹²", "⁻¹⁰", "⁻⁸", "⁻⁶", "⁻⁴", "⁻²", "⁰")]
    powers = Scale("", -2, 0, "log")
    assert [powers.place(value) for value, _ in powers.ticks()] == [0.0, 0.5, 1.0]
    assert labels(Scale("", 300, 309, "log"))  # 10³⁰⁹ is no number


def test_a_report_is_known_by_its_first_bytes(tmp_path: Path, page: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    assert report.is_report(path)
    path.write_text("<p>Dear reader</p>", encoding="utf-8")
    assert not report.is_report(path)


def test_parts_that_are_not_there_leave_no_section() -> None:
    assert headings(report.render(Report("t", "s", {}))) == ["To repeat it"]


# The style sheet: contrast as WCAG defines it, and marks that can be told apart without seeing all colours.


def schemes() -> dict[str, dict[str, str]]:
    """The colours of the light and of the dark scheme."""
    style = (Path(report.__file__).parent / "page.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+):(#\w+)", block))
        for block in re.findall(r":root\{(.*?)\}", style, re.DOTALL)
    )
    assert light.keys() == dark.keys()
    return {"light": light, "dark": dark}


def linear(colour: str) -> np.ndarray:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    share = np.array([int(digits[k : k + 2], 16) for k in (0, 2, 4)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    bright, dim = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_text_and_marks_have_enough_contrast(name: str) -> None:
    colours = schemes()[name]
    for text, ground in itertools.product(("ink", "soft"), ("page", "card", "grid")):
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["ink"], colours["notice"]) >= 4.5
    assert contrast(colours["page"], colours["ink"]) >= 4.5  # the tip
    for mark, ground in itertools.product(
        ("near", "far", "old", *(f"c{k}" for k in range(10))), ("page", "card")
    ):
        assert contrast(colours[mark], colours[ground]) >= 3.0, mark


# Vienot, Brettel and Mollon (1999): what is left of linear RGB without one kind of cone
BLIND = {
    "protan": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    "deutan": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
}


@pytest.mark.parametrize("name", ["light", "dark"])
def test_classes_differ_in_shape_or_to_every_eye_in_colour(name: str) -> None:
    colours = schemes()[name]
    pairs = [*itertools.combinations(range(inspection.COLOURS), 2)]
    assert len({maps.SHAPES[k % len(maps.SHAPES)] for k in range(4)}) == 4
    for one, other in pairs:
        if (one - other) % len(maps.SHAPES) == 0:
            for eye in (np.eye(3), *BLIND.values()):
                seen = [np.cbrt(np.maximum(eye @ linear(colours[f"c{k}"]), 0.0)) for k in (one, other)]
                assert np.linalg.norm(seen[0] - seen[1]) >= 0.12, (one, other)
