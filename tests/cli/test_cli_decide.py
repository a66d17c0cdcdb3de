"""`nearwise decide` and `nearwise duplicates`: thresholds given, calibrated and saved; precision."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise import cli, study
from nearwise.data import tables
from nearwise.learners.calibration import Calibration, Rates
from nearwise.study import deciding

Capture = pytest.CaptureFixture[str]
RNG = np.random.default_rng(0)
PEOPLE = 60
CENTRES = 3 * RNG.normal(size=(PEOPLE, 3))
X = np.repeat(CENTRES, 2, axis=0) + 0.05 * RNG.normal(size=(2 * PEOPLE, 3))  # everybody twice
WHO = np.array([f"person {row // 2}" for row in range(len(X))])
IDS = [f"p{row:03d}" for row in range(len(X))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people")
    tables.write(f"{path}/people.csv", ["a", "b", "c"], X, ids=IDS, force=False)
    model = make_pipeline(StandardScaler(), nw.MetricLearner(penalty=1.0, random_state=0))
    nw.save(model.fit(X, WHO), path / "model")
    rows = RNG.permutation(len(X) - 1)[:60]
    known = [(IDS[i], IDS[i + 1], int(i % 2 == 0)) for i in rows]
    (path / "known.csv").write_text("".join(f"{a},{b},{s}\n" for a, b, s in known), encoding="utf-8")
    (path / "asked.csv").write_text("first,second\np000,p001\np001,p002\np100,p101\n", encoding="utf-8")
    (path / "same.csv").write_text("p000,p001,1\np002,p003,1\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def said(capsys: Capture, *words: str) -> tuple[list[dict[str, str]], str]:
    assert cli.main([*words, "--id", "id"]) == cli.DONE
    found = capsys.readouterr()
    return list(csv.DictReader(io.StringIO(found.out))), found.err


def test_pairs_are_decided_in_the_order_of_their_file(capsys: Capture) -> None:
    rows, notes = said(
        capsys, "decide", "model", "people.csv", "--pairs", "asked.csv", "--calibrate", "known.csv"
    )
    assert [(row["first"], row["second"]) for row in rows] == [
        ("p000", "p001"),
        ("p001", "p002"),
        ("p100", "p101"),
    ]
    assert [row["same"] for row in rows] == ["1", "0", "1"]
    chances = [float(row["probability"]) for row in rows]
    assert chances[0] > 0.9 > 0.1 > chances[1]
    assert "100.0% of the same and 0.0% of the others" in notes
    assert "2 of 3 pairs are at most" in notes
    model = nw.load("model")
    scaled = model[0].transform(X)
    expected = model[-1].pair_distance([(0, 1), (1, 2), (100, 101)], scaled)
    np.testing.assert_allclose([float(row["distance"]) for row in rows], expected, rtol=1e-6)


def test_a_threshold_is_saved_with_the_model_and_used(capsys: Capture, tmp_path: Path) -> None:
    target = str(tmp_path / "better")
    words = ("people.csv", "--pairs", "known.csv", "--json", "--id", "id")
    assert cli.main(["decide", "model", *words, "--calibrate", "known.csv", "--save", target]) == cli.DONE
    first = json.loads(capsys.readouterr().out)
    assert cli.main(["decide", target, *words]) == cli.DONE
    second = json.loads(capsys.readouterr().out)
    assert "both --pairs and --calibrate" in first["notices"].pop()  # which the second command does not take
    assert second == first
    assert first["agreed"] == len(first["decisions"]) == 60
    learner = nw.load(target)[-1]
    assert learner.threshold_ == first["threshold"]
    assert learner.predict([(0, 1)], nw.load(target)[0].transform(X)).tolist() == [1]
    assert cli.main(["decide", "model", "people.csv", "--pairs", "asked.csv", "--id", "id"]) == cli.BAD_INPUT
    assert "without a threshold" in capsys.readouterr().err


def test_all_near_duplicates_are_found_and_counted(capsys: Capture) -> None:
    rows, notes = said(capsys, "duplicates", "model", "people.csv", "--calibrate", "known.csv")
    everybody = {(IDS[2 * k], IDS[2 * k + 1]) for k in range(PEOPLE)}
    assert everybody <= {(row["first"], row["second"]) for row in rows}
    distances = [float(row["distance"]) for row in rows]
    assert distances == sorted(distances)
    assert f"{len(rows):,} of 7,140 pairs" in notes
    assert "how many of them are the same cannot be estimated" in notes  # of so few known pairs
    wide, notes = said(capsys, "duplicates", "model", "people.csv", "--threshold", "1.5")
    model = nw.load("model")
    squared = model[-1].distances(model[0].transform(X), squared=True)
    i, j = np.triu_indices(len(X), 1)
    assert len(wide) == int((squared[i, j] <= 1.5**2).sum())
    assert "not known without --calibrate" in notes


@pytest.mark.parametrize("kernel", [False, True])
def test_blocks_find_what_one_matrix_of_distances_has(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "_TILE", 7)
    learner = nw.KernelLearner(penalty=1.0, random_state=0) if kernel else nw.MetricLearner(penalty=1.0)
    learner.fit(X, WHO)
    table = study.from_arrays(X).table
    whole = learner.distances(X)
    threshold = float(np.quantile(whole, 0.1))
    shares: list[float] = []
    found = study.near_duplicates(study.load(learner), table, study.Rule(threshold), shares.append)
    i, j = np.triu_indices(len(X), 1)
    near = whole[i, j] <= threshold
    assert {tuple(pair) for pair in found.pairs.tolist()} == set(zip(i[near], j[near], strict=True))
    np.testing.assert_allclose(found.distances, np.sort(whole[i, j][near]), rtol=1e-6)
    assert shares[-1] == 1.0
    monkeypatch.setattr(deciding, "MOST", 10)
    with pytest.raises(study.Refused, match="more than 10 pairs"):
        study.near_duplicates(study.load(learner), table, study.Rule(threshold))


def test_the_precision_is_near_the_truth_where_duplicates_are_rare() -> None:
    """Drawn from two distributions of distances, half of the known pairs and 2 % of all being the same."""
    rng = np.random.default_rng(1)
    near, far = rng.normal(1.0, 0.4, 2000), rng.normal(3.0, 0.8, 2000)
    found = Calibration(np.abs(np.r_[near, far]), np.arange(4000) < 2000)
    threshold = found.threshold("max_tnr", min_rate=0.9)
    same = rng.random(200_000) < 0.02
    distances = np.abs(np.where(same, rng.normal(1.0, 0.4, 200_000), rng.normal(3.0, 0.8, 200_000)))
    below = distances <= threshold
    rates: Rates = found.rates(threshold)
    estimate, low, high = rates.precision_among(float(below.mean()))
    truth = float(same[below].mean())
    assert low <= truth <= high
    assert abs(estimate - truth) < 0.1
    assert rates.precision > truth + 0.1  # that of the known pairs alone would be far too good


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--calibrate", "same.csv"], "all pairs are the same; both kinds"),
        (["--calibrate", "known.csv", "--strategy", "max_tpr"], "--strategy max_tpr needs --min-rate"),
        (["--threshold", "1", "--min-rate", "0.5"], "--strategy accuracy has no --min-rate"),
        (["--save", "new"], "--save keeps a new threshold; give --calibrate or --threshold"),
        (["--threshold", "1", "--save", "model"], "MODEL and --save are the same file"),
        (["--threshold", "1", "--json", "-o", "out.csv"], "leave out -o"),
        (["--calibrate", "-", "--pairs", "-"], "only one file can come from standard input"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], message: str, capsys: Capture) -> None:
    pairs = [] if "--pairs" in words else ["--pairs", "asked.csv"]
    assert cli.main(["decide", "model", "people.csv", "--id", "id", *pairs, *words]) == cli.BAD_INPUT
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--threshold", "-1"], ["--threshold", "x"], ["--min-rate", "2"]])
def test_numbers_out_of_range_are_refused(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["duplicates", "model", "people.csv", *words])
    assert stop.value.code == cli.BAD_INPUT
    assert "is not a" in capsys.readouterr().err


def test_a_metric_alone_decides_but_keeps_nothing(tmp_path: Path, capsys: Capture) -> None:
    nw.save(nw.MetricLearner(penalty=1.0).fit(X, WHO).metric_, tmp_path / "metric")
    words = ["decide", str(tmp_path / "metric"), "people.csv", "--pairs", "asked.csv", "--threshold", "1"]
    rows, _ = said(capsys, *words)
    assert len(rows) == 3
    assert cli.main([*words, "--id", "id", "--save", str(tmp_path / "new")]) == cli.BAD_INPUT
    assert "holds a Metric, which cannot keep a threshold" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
