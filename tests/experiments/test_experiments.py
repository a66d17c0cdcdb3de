"""The papers' experiments in their quick form: the shape of each claim, and the files that are written."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from benchmarks.baselines.hmrf_kmeans import hmrf_kmeans
from benchmarks.baselines.mcml import mcml
from experiments import _data, _finished, finished
from experiments.__main__ import main
from experiments._outcome import Curve, Outcome, Panel, Row, Sample, followed, shown
from experiments.mnist import deskewed

Run = Callable[[str], dict[str, Row]]


@pytest.fixture(scope="module")
def ran() -> Run:
    """The rows of an experiment by setting; each is run once, on bundled data where others are missing."""
    done: dict[str, dict[str, Row]] = {}

    def run(name: str) -> dict[str, Row]:
        if name not in done:
            module = importlib.import_module(f"experiments.{name.replace('-', '_')}")
            outcome = module.run(True, 0, lambda *_: None)
            assert outcome.name == name
            assert outcome.title
            done[name] = {row.setting: row for row in outcome.rows}
            assert len(done[name]) == len(outcome.rows), "two rows have the same name"
            assert all(row.ours is None or math.isfinite(row.ours) for row in outcome.rows)
        return done[name]

    return run


def value(rows: dict[str, Row], *parts: str) -> float:
    """The figure of the one row whose name has all the parts."""
    (found,) = [row for name, row in rows.items() if all(part in name for part in parts)]
    assert found.ours is not None
    return found.ours


@pytest.mark.long
def test_constraints_improve_clusters_and_neighbours_of_digits(ran: Run) -> None:
    rows = ran("digits")
    for divergence in ("LogDet", "von Neumann"):
        assert value(rows, "NMI", f"{divergence}, 120 ") > value(rows, "NMI, input")
        assert value(rows, "accuracy", f"{divergence}, 120 ") > value(rows, "accuracy, input")
        assert value(rows, "sweeps", divergence, " 30 ") < value(rows, "sweeps", divergence, " 120 ")
    assert rows["sweeps, LogDet, 30 constraints"].published == 17


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "way"), [("spambase", "logarithms of one variance"), ("nursery", "codes of one variance")]
)
def test_constraints_with_slack_improve_clusters(ran: Run, name: str, way: str) -> None:
    rows = ran(name)
    for divergence in ("LogDet", "von Neumann"):
        assert value(rows, "NMI", way, divergence, " 200 ") > value(rows, "NMI", way, "input")


@pytest.mark.long
def test_exact_projections_need_far_fewer_sweeps_than_a_symmetric_range(ran: Run) -> None:
    rows = ran("convergence")
    assert value(rows, "sweeps", "symmetric") > 10 * value(rows, "sweeps", "von Neumann, exact")


@pytest.mark.long
def test_metrics_beat_euclidean_on_uci_sets(ran: Run) -> None:
    rows = ran("uci")
    euclidean = value(rows, "KSD09", "iris, Euclidean")
    for method in ("von Neumann", "LogDet online", "MCML"):
        assert value(rows, "KSD09", f"iris, {method}") < euclidean


@pytest.mark.long
def test_deskewing_helps_on_images_of_digits(ran: Run) -> None:
    rows = ran("mnist")
    upright = rows["error %, upright"]
    assert upright.published == 2.35
    if "mnist" in nw.datasets.available():
        assert value(rows, "as they are") > upright.ours
        assert upright.ours > rows["error %, upright and centred"].ours
    assert value(rows, "error %, upright, LogDet") <= upright.ours + 1.0


@pytest.mark.long
def test_pairs_help_clusters_more_than_their_penalty_does(ran: Run) -> None:
    rows = ran("clustering")
    for name in ("ionosphere", "digits-389"):
        assert value(rows, name, "LogDet") < value(rows, f"{name}, k-means")


@pytest.mark.long
def test_a_learned_metric_of_text_beats_latent_semantic_analysis(ran: Run) -> None:
    rows = ran("text")
    assert value(rows, "classic3", "LogDet") > value(rows, "classic3", "LSA")


@pytest.mark.long
def test_a_learned_map_of_digits_is_better_than_kernel_pca_s(ran: Run) -> None:
    rows = ran("usps-embedding")
    assert len(rows) == 8
    accuracies = {name: row.ours for name, row in rows.items() if name.startswith("5-NN accuracy")}
    assert len(accuracies) == 4
    assert min(accuracies.values()) > 0.4  # guessing: a tenth
    if "usps" in nw.datasets.available():
        learned, principal = (
            value(rows, "accuracy", method, "Gaussian") for method in ("KernelReducer", "kernel PCA")
        )
        assert learned > principal


@pytest.mark.long
def test_the_online_loss_stays_below_its_bound(ran: Run) -> None:
    rows = ran("online-kernel")
    assert value(rows, "total loss after") < value(rows, "bound on the total loss")


@pytest.mark.long
def test_corrections_reach_the_optimum_and_the_printed_algorithm_does_not(ran: Run) -> None:
    rows = ran("projection")
    best = value(rows, "divergence, certified")
    assert value(rows, "divergence, exact") == pytest.approx(best, rel=1e-2)
    assert value(rows, "divergence, approximate steps with") == pytest.approx(best, rel=1e-2)
    assert value(rows, "divergence", "as printed") > 1.05 * best


def test_deskewing_undoes_a_shear() -> None:
    upright = np.zeros((1, 20, 20))
    upright[0, 4:16, 9:11] = 1.0
    leaning = np.zeros_like(upright)
    for row in range(4, 16):
        leaning[0, row, row - 1 : row + 1] = 1.0
    straight = deskewed(leaning, centred=True)[0]
    columns = straight.sum(axis=0)
    assert columns[8:12].sum() > 0.9 * straight.sum()
    assert np.abs(deskewed(upright, centred=True)[0].sum() - upright.sum()) < 0.1 * upright.sum()


def test_deskewing_leaves_the_centre_of_mass_where_it_is_unless_asked() -> None:
    leaning = np.zeros((1, 20, 20))
    for row in range(2, 10):
        leaning[0, row, row + 6 : row + 8] = 1.0
    places = np.arange(20.0)
    for centred, expected in ((False, (5.5, 12.0)), (True, (9.5, 9.5))):
        straight = deskewed(leaning, centred)[0]
        found = straight.sum(axis=1) @ places, straight.sum(axis=0) @ places
        assert np.allclose(np.array(found) / straight.sum(), expected, atol=0.1)
        spread = straight.sum(axis=0) @ (places - expected[1]) ** 2 / straight.sum()
        assert spread < 1.0


def test_mcml_is_at_a_minimum_of_its_definition() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.integers(0, 2, 30)
    X[:, 0] += y

    def cost(L: np.ndarray) -> float:
        D = ((X[:, None] @ L - X @ L) ** 2).sum(axis=2)
        total = 0.0
        for i in range(len(X)):
            others = np.delete(np.arange(len(X)), i)
            p = np.exp(-D[i, others]) / np.exp(-D[i, others]).sum()
            mine = y[others] == y[i]
            total -= np.log(p[mine]).mean()
        return total

    found = mcml(X, y, 0)(np.eye(3))
    best = cost(found)
    assert best < cost(np.eye(3))
    for _ in range(20):
        assert cost(found + 1e-2 * rng.normal(size=(3, 3))) > best - 1e-6


def test_hmrf_kmeans_keeps_links_that_k_means_breaks() -> None:
    X = np.array([[0.0], [0.4], [1.0], [1.4]])
    same, different = np.array([(0, 2), (1, 3)]), np.array([(0, 1), (2, 3)])
    labels = hmrf_kmeans(X, 2, same, different, seed=0)
    assert labels[0] == labels[2] != labels[1] == labels[3]


def test_a_missing_set_is_replaced_in_quick_runs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(nw.datasets.VARIABLE, raising=False)
    data, said = _data.load("usps", True, "digits")
    assert data.name == "digits"
    assert said == ("usps is not here: these are figures of digits instead.",)
    with pytest.raises(nw.datasets.DatasetUnavailable, match=r"usps\.npz"):
        _data.load("usps", False, "digits")


def fake(name: str, rows: list[Row]) -> Any:
    def run(quick: bool, seed: int, progress: Any) -> Outcome:
        assert quick
        list(followed([1, 2], "things", progress))
        panels = [Panel("p", "x", "y", [Curve("a", [1, 2], [1.0, 2.0], spread=[0.1, 0.1])])]
        return Outcome(name, f"the {name}", rows, panels, ("A remark.",))

    return run


@pytest.mark.long
def test_the_command_prints_a_table_and_writes_json_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = importlib.import_module("experiments.digits")
    monkeypatch.setattr(
        digits, "run", fake("digits", [Row("a", 0.5, 0.25, 0.01, 2.0), Row("b", None, math.inf)])
    )
    monkeypatch.chdir(tmp_path)
    command = ["digits", "--quick", "--out", "out", "--page", "page.md"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "the digits" in said.out
    assert "0.25" in said.out
    assert "A remark." in said.out
    keys = {"setting", "published", "ours", "spread", "seconds"}
    records = json.loads(Path("out/digits.json").read_text())
    assert [set(record) for record in records] == [keys, keys]
    assert records[0]["published"] == 0.5
    assert records[1]["ours"] is None
    assert Path("out/digits.svg").read_text().startswith("<?xml")
    assert Path("out/digits.png").read_bytes().startswith(b"\x89PNG")
    page = Path("page.md").read_text()
    assert "| a | 0.5 | 0.25 | 0.01 | 2 |" in page
    assert "](out/digits.svg)" in page
    before = Path("out/digits.svg").read_bytes()
    with pytest.raises(SystemExit, match="2"):  # nothing is overwritten unasked
        main(command)
    assert main([*command, "--force", "--quiet"]) == 0
    assert Path("out/digits.svg").read_bytes() == before


@pytest.mark.long
def test_a_finished_experiment_is_taken_up_where_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = importlib.import_module("experiments.digits")
    measured = fake("digits", [Row("a", 0.5, 0.25, 0.01, 2.0), Row("b", None, math.inf)])
    seeds: list[int] = []

    def run(quick: bool, seed: int, progress: Any) -> Outcome:
        seeds.append(seed)
        return measured(quick, seed, progress)

    monkeypatch.setattr(digits, "run", run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv(nw.datasets.VARIABLE, str(tmp_path / "data"))
    command = ["digits", "--quick", "--out", "out", "--page", "page.md", "--resume"]
    assert main(command) == 0
    written = {path.name: path.read_bytes() for path in (*Path("out").glob("digits.*"), Path("page.md"))}
    assert len(written) == 4
    assert b"seconds of processor time" in written["page.md"]
    assert "earlier run" not in capsys.readouterr().err
    assert main(command) == 0
    assert seeds == [0]
    assert "note: digits: as an earlier run found it" in capsys.readouterr().err
    assert written == {
        path.name: path.read_bytes() for path in (*Path("out").glob("digits.*"), Path("page.md"))
    }
    out = Path("out")
    assert finished("digits", out, True, 0) is not None
    assert finished("digits", out, True, 1) is None
    assert finished("digits", out, False, 0) is None
    (out / ".finished" / "uci.json").write_text("{")  # by something else, half
    assert finished("uci", out, True, 0) is None
    (tmp_path / "data" / "new.npz").write_bytes(b"")
    assert finished("digits", out, True, 0) is None


def test_other_code_makes_a_finished_experiment_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(nw.datasets.VARIABLE, raising=False)
    before = {name: _finished.fingerprint(name, True, 0) for name in ("digits", "uci")}
    changed = "experiments/uci.py"
    read = Path.read_text
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path, **options: read(path, **options) + "# more" * path.as_posix().endswith(changed),
    )
    assert _finished.fingerprint("digits", True, 0) == before["digits"]
    assert _finished.fingerprint("uci", True, 0) != before["uci"]
    changed = "nearwise/methods/driver.py"
    assert _finished.fingerprint("digits", True, 0) != before["digits"]


def test_the_command_lists_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    for name in ("digits", "spambase", "nursery", "convergence", "uci", "mnist", "clustering", "text"):
        assert f"\n{name} " in f"\n{listed}"
    for name in ("usps-embedding", "online-kernel", "projection"):
        assert f"\n{name} " in f"\n{listed}"


def test_an_unknown_experiment_is_refused_with_the_names_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])
    said = capsys.readouterr().err
    assert "nothing" in said
    assert "digits" in said
    assert "[]" not in said


def test_the_list_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_an_experiment_without_its_data_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(nw.datasets.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["nursery"]) == 2
    assert "nursery.npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "text"), [(None, ""), (0.12345, "0.123"), (17.0, "17"), (3220, "3220"), (math.inf, "inf")]
)
def test_numbers_in_tables(number: float | None, text: str) -> None:
    assert shown(number) == text


def test_samples_have_a_mean_and_a_spread() -> None:
    sample = Sample()
    sample.add(1.0, 2.0)
    assert sample.row("x") == Row("x", None, 1.0, None, 2.0)
    sample.add(3.0, 4.0)
    assert sample.row("x", 5.0) == Row("x", 5.0, 2.0, math.sqrt(2.0), 3.0)
