"""The displays: what they draw, into which axes, for every learner, and what they refuse."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise.plotting import ConvergenceDisplay, DistanceDisplay, EmbeddingDisplay, SpectrumDisplay
from nearwise.show import plotting, report
from nearwise.study import inspection
from nearwise.study.before_after import Missing

mpl.use("Agg")

import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    wine = nw.datasets.load("wine")
    return StandardScaler().fit_transform(wine.X)[::2], wine.y[::2]


@pytest.fixture(scope="module")
def learner(data: Any) -> Any:
    return nw.MetricLearner(penalty=1.0, random_state=0).fit(*data)


def drawn(ax: Any) -> list[Any]:
    """The labels of a legend."""
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_convergence_draws_the_history(learner: Any) -> None:
    display = ConvergenceDisplay.from_estimator(learner)
    gap, violation = display.lines_
    np.testing.assert_array_equal(gap.get_ydata(), [record.gap for record in learner.result_.history])
    np.testing.assert_array_equal(violation.get_xdata(), [r.iteration for r in learner.result_.history])
    assert display.ax_.get_yscale() == "log"
    assert drawn(display.ax_) == ["relative gap", "worst violation"]
    assert display.figure_ is display.ax_.figure


def test_convergence_leaves_out_what_a_logarithm_cannot_show() -> None:
    gaps = np.array([np.inf, np.nan, 0.1, 0.0, -1e-18, 1e-9])
    found = inspection.Convergence(np.arange(6), np.arange(6.0), {"relative gap": gaps}, "Newton", "LIMIT", 6)
    display = ConvergenceDisplay(found).plot()
    assert display.lines_[0].get_xdata().tolist() == [2, 5]
    display.figure_.canvas.draw()


def test_spectrum_draws_eigenvalues_and_the_prior(learner: Any) -> None:
    display = SpectrumDisplay.from_estimator(learner)
    values = np.linalg.eigvalsh(learner.get_mahalanobis_matrix())[::-1]
    np.testing.assert_allclose(display.line_.get_ydata(), values)
    assert display.line_.get_xdata().tolist() == [*range(1, 14)]
    assert drawn(display.ax_) == ["before", "learned"]


def test_distances_draw_shares_of_pairs(learner: Any, data: Any) -> None:
    X, y = data
    display = DistanceDisplay.from_estimator(learner, X, y, bins=10)
    before, after = display.ax_
    assert (before.get_title(), after.get_title()) == ("before", "after")
    for ax in display.ax_:
        heights = np.array([bar.get_height() for bar in ax.patches])
        assert len(heights) == 20
        np.testing.assert_allclose([heights[:10].sum(), heights[10:].sum()], 1.0)
    assert drawn(after) == ["similar", "dissimilar"]


def test_distances_of_given_pairs_are_plain_distances(learner: Any, data: Any) -> None:
    X, _ = data
    display = DistanceDisplay.from_estimator(
        learner, X, pairs=[[0, 1], [0, 2], [3, 4]], is_similar=[True, True, True], when="after", bins=100
    )
    far = learner.pair_distance([[0, 1], [0, 2], [3, 4]], X)
    bars = [bar for bar in display.ax_.patches if bar.get_height() > 0]
    assert all(any(b.get_x() - 1e-9 <= d <= b.get_x() + b.get_width() + 1e-9 for b in bars) for d in far)
    assert drawn(display.ax_) == ["similar"]


def test_maps_draw_every_row_by_class(learner: Any, data: Any) -> None:
    X, y = data
    display = EmbeddingDisplay.from_estimator(learner, X, y, s=5)
    found = inspection.maps(learner, X)
    for ax, points in zip(display.ax_, (found.before, found.after), strict=True):
        places = np.concatenate([part.get_offsets() for part in ax.collections])
        assert sorted(map(tuple, places)) == sorted(map(tuple, points))
        assert [len(part.get_offsets()) for part in ax.collections] == np.bincount(y).tolist()
        assert all(part.get_sizes() == [5] for part in ax.collections)
    assert drawn(display.ax_[-1]) == ["0", "1", "2"]
    assert EmbeddingDisplay.from_estimator(learner, X).ax_[0].get_legend() is None


def test_many_classes_share_a_grey(learner: Any, data: Any) -> None:
    X, _ = data
    ax = EmbeddingDisplay.from_estimator(learner, X, np.arange(len(X)), when="after").ax_
    assert len(drawn(ax)) == 11
    assert "79 other classes" in drawn(ax)


def test_axes_of_the_caller_are_drawn_into(learner: Any, data: Any) -> None:
    X, y = data
    figure, axes = plt.subplots(2, 2)
    assert ConvergenceDisplay.from_estimator(learner, ax=axes[0, 0]).ax_ is axes[0, 0]
    assert SpectrumDisplay.from_estimator(learner, ax=axes[0, 1], color="red").line_.get_color() == "red"
    display = DistanceDisplay.from_estimator(learner, X, y, ax=axes[1])
    assert list(display.ax_) == list(axes[1])
    assert display.figure_ is figure
    assert DistanceDisplay.from_estimator(learner, X, y, ax=axes[0, 0], when="before").ax_ is axes[0, 0]
    with pytest.raises(ValueError, match="ax must hold 2 axes, got 1; when='before' or when='after'"):
        EmbeddingDisplay.from_estimator(learner, X, y, ax=axes[0, 0])


def test_a_display_plots_again(learner: Any, data: Any) -> None:
    display = EmbeddingDisplay.from_estimator(learner, *data)
    first = display.ax_
    again = display.plot(when="after")
    assert again is display
    assert display.ax_ is not first
    assert display.ax_.get_title() == "after"


LEARNERS = {
    "pipeline": lambda X, y: make_pipeline(
        StandardScaler(), nw.MetricLearner(penalty=1.0, random_state=0)
    ).fit(X, y),
    "kernel": lambda X, y: nw.KernelLearner(rank=10, penalty=1.0, random_state=0).fit(X, y),
    "reducer": lambda X, y: nw.KernelReducer(rank=10, random_state=0).fit(X, y),
    "fixed rank": lambda X, y: nw.FixedRankLearner(1, random_state=0).fit(X, y),
    "online": lambda X, y: nw.OnlineLearner(random_state=0).fit(X, y),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_can_be_drawn(name: str, data: Any) -> None:
    X, y = data
    model = LEARNERS[name](X, y)
    displays = [
        SpectrumDisplay.from_estimator(model),
        DistanceDisplay.from_estimator(model, X, y),
        EmbeddingDisplay.from_estimator(model, X, y),
    ]
    if name == "online":
        with pytest.raises(Missing, match="keeps no history"):
            ConvergenceDisplay.from_estimator(model)
    else:
        displays.append(ConvergenceDisplay.from_estimator(model))
    for display in displays:
        display.figure_.canvas.draw()


def test_embedding_and_regressor_are_drawn_as_far_as_they_go(data: Any) -> None:
    X, _ = data
    D = np.square(X[:20, None] - X[:20]).sum(axis=2)
    model = nw.FixedRankEmbedding().fit(D)
    display = EmbeddingDisplay.from_estimator(model)
    assert display.ax_.get_title() == "after"
    assert len(EmbeddingDisplay.from_estimator(model, D).ax_) == 2
    with pytest.raises(Missing, match="starts from no distance"):
        EmbeddingDisplay.from_estimator(model, when="before")
    regressor = nw.FixedRankRegressor(2, random_state=0).fit(X, X[:, 0] ** 2)
    ConvergenceDisplay.from_estimator(regressor)
    SpectrumDisplay.from_estimator(regressor)
    with pytest.raises(Missing, match="learns no distance"):
        EmbeddingDisplay.from_estimator(regressor, X)


def test_wrong_arguments_are_named(learner: Any, data: Any) -> None:
    X, y = data
    with pytest.raises(ValueError, match="give y, or pairs and is_similar"):
        DistanceDisplay.from_estimator(learner, X)
    with pytest.raises(ValueError, match="belong together"):
        DistanceDisplay.from_estimator(learner, X, pairs=[[0, 1]])
    with pytest.raises(ValueError, match="when must be one of 'both', 'before', 'after', got 'now'"):
        EmbeddingDisplay.from_estimator(learner, X, when="now")
    with pytest.raises(ValueError, match="y has 2 labels"):
        EmbeddingDisplay.from_estimator(learner, X, y[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.PriorKeptWarning)
        kept = nw.MetricLearner().fit(X)
    with pytest.raises(Missing, match="no iterations"):
        ConvergenceDisplay.from_estimator(kept)


def test_plots_and_pages_have_the_same_colours() -> None:
    style = (Path(report.__file__).parent / "page.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--c(\d):(#\w+)", style.partition("@media")[0]))
    assert tuple(light[str(k)] for k in range(10)) == plotting.PALETTE
    assert len(plotting.PALETTE) == inspection.COLOURS


@pytest.mark.long
def test_without_matplotlib_the_error_names_the_extra() -> None:
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None\n"
        "import numpy as np, nearwise as nw\n"
        "X = np.random.default_rng(0).standard_normal((20, 2))\n"
        "model = nw.MetricLearner(penalty=1.0).fit(X, np.arange(20) % 2)\n"
        "try:\n"
        "    nw.plotting.SpectrumDisplay.from_estimator(model)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == 'plots need matplotlib: pip install "nearwise[plot]"\n'


@pytest.mark.long
def test_importing_the_displays_does_not_import_matplotlib() -> None:
    code = "import sys, nearwise as nw\nnw.plotting.SpectrumDisplay\nprint('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("ax", [3, "left", [1, 2]])
def test_what_are_no_axes_is_refused_by_name(learner: Any, data: Any, ax: Any) -> None:
    kind = type(ax[0] if isinstance(ax, list) else ax).__name__
    if not isinstance(ax, list):
        for display in (ConvergenceDisplay, SpectrumDisplay):
            with pytest.raises(TypeError, match=f"ax must be matplotlib axes, got {kind}"):
                display.from_estimator(learner, ax=ax)
    else:
        with pytest.raises(TypeError, match=f"ax must be matplotlib axes, got {kind}"):
            DistanceDisplay.from_estimator(learner, *data, ax=ax)
