"""A coverage-guided fuzzer over the readers of models, checkpoints, tables, feedback and rows: make fuzz.

    python tests/hostile/fuzz.py SECONDS

Every input is a byte that chooses a reader, and a file. A reader may return or refuse the file in one line;
anything else is a find, whose input is written beside the corpus, in a folder that is named. What is found
becomes a row of a table in `tests/hostile`. The corpus is made anew each time, from what nearwise writes.
"""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

try:
    import atheris
except ImportError:
    print(
        "nearwise: atheris is not installed (pip install 'nearwise[fuzz]'); nothing was fuzzed",
        file=sys.stderr,
    )
    sys.exit(1)

with atheris.instrument_imports(
    include=["nearwise._common", "nearwise.data", "nearwise.distributed", "nearwise.learners._checkpoint"]
):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import nearwise as nw
    from nearwise._common.files import sealed
    from nearwise.data import side_files, tables
    from nearwise.distributed import open_vectors
    from nearwise.learners._checkpoint import Checkpoint

FOLDER = Path(tempfile.mkdtemp(prefix="nearwise-fuzz-"))


def _model(path: Path) -> None:
    nw.load(path)


def _sealed_model(path: Path) -> None:
    """With a digest that fits, so that what is behind it is reached."""
    try:
        path.write_bytes(sealed(path.read_bytes()))
    except Exception:
        return
    nw.load(path)


def _checkpoint(path: Path) -> None:
    Checkpoint(path, "job")


def _sealed_checkpoint(path: Path) -> None:
    try:
        path.write_bytes(sealed(path.read_bytes()))
    except Exception:
        return
    Checkpoint(path, "job")


def _table(path: Path) -> None:
    tables.read(str(path), ids_optional=True, ids="id")


def _prepared(path: Path) -> None:
    """With all that is done to columns that are not numbers."""
    tables.read(str(path), missing="impute", categorical="onehot")


OBJECTS = side_files.Objects(5, np.array(["a", "b", "c", "2", "3"]))
ROW_NUMBERS = side_files.Objects(5)


def _pairs(path: Path) -> None:
    side_files.read_pairs(str(path), ROW_NUMBERS)


def _answers(path: Path) -> None:
    """By name, with ratings, and the majority's where they differ."""
    side_files.read_pairs(str(path), OBJECTS, side_files.Reading(similar_above=2.5, conflicts="majority"))


def _triplets(path: Path) -> None:
    side_files.read_triplets(str(path), OBJECTS, side_files.Reading(conflicts="drop"))


def _distances(path: Path) -> None:
    side_files.read_distances(str(path), ROW_NUMBERS, side_files.Reading(conflicts="majority"))


def _rows(path: Path) -> None:
    found = open_vectors(path)
    found.take(np.arange(min(len(found), 3)))


READERS: list[tuple[str, Callable[[Path], None]]] = [
    ("model", _model),
    ("model", _sealed_model),
    ("checkpoint", _checkpoint),
    ("checkpoint", _sealed_checkpoint),
    ("table.npy", _table),
    ("table.npz", _table),
    ("table.parquet", _table),
    ("table.csv", _table),
    ("table.csv", _prepared),
    ("table.csv.gz", _table),
    ("pairs.csv", _pairs),
    ("answers.csv", _answers),
    ("answers.parquet", _answers),
    ("triplets.csv", _triplets),
    ("distances.csv", _distances),
    ("rows.npy", _rows),
    ("rows.parquet", _rows),
]


def try_one(data: bytes) -> None:
    """What atheris calls."""
    if not data:
        return
    name, read = READERS[data[0] % len(READERS)]
    path = FOLDER / name
    path.write_bytes(data[1:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a file without a digest is told so
            read(path)
    except ValueError as error:
        text = str(error)
        if name not in text or len(text.splitlines()) != 1:
            raise AssertionError(f"not one line that names the file: {text!r}") from error


def seeds() -> list[bytes]:
    """Files as nearwise writes them, one or more for each reader."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), np.arange(12) % 2
    found: list[bytes] = []

    def add(name: str, content: bytes) -> None:
        found.extend(bytes([k]) + content for k, (own, _) in enumerate(READERS) if own == name)

    for model in (nw.Metric(X[:2]), nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)):
        nw.save(model, FOLDER / "seed")
        add("model", (FOLDER / "seed").read_bytes())
    memory = Checkpoint(FOLDER / "seed.checkpoint", "job")
    memory.finished, memory.legs, memory.factor, memory.records = [X[:3]], 1, X[:2], [[1.0, 0.1]]
    memory.passes["1"] = {"value": X[:2]}
    add("checkpoint", (FOLDER / "seed.checkpoint").read_bytes())
    ids = [f"object {k}" for k in range(12)]
    for suffix in (".npz", ".parquet", ".csv", ".csv.gz"):
        tables.write(str(FOLDER / f"seed{suffix}"), ["a", "b"], X, ids=ids, force=True)
        add(f"table{suffix}", (FOLDER / f"seed{suffix}").read_bytes())
    buffer = io.BytesIO()
    np.save(buffer, X)
    add("table.npy", buffer.getvalue())
    add("rows.npy", buffer.getvalue())
    tables.write(str(FOLDER / "rows.parquet"), ["a", "b"], X, force=True)
    add("rows.parquet", (FOLDER / "rows.parquet").read_bytes())
    add("pairs.csv", b"one,other,similar\n0,1,yes\n2,3,no\n")
    answers = {
        "left": ["a", "b", "b"],
        "right": ["b", "a", "c"],
        "rating": [1, 4, 5],
        "rater": ["x", "y", "x"],
    }
    answers["weight"] = [1.0, 0.5, 0.0]
    pq.write_table(pa.table(answers), FOLDER / "answers.parquet")
    add("answers.parquet", (FOLDER / "answers.parquet").read_bytes())
    add("answers.csv", b"left;right;rating;rater;weight\na;b;1;x;1\nb;a;4;y;0,5\nb;c;5;x;0\n")
    add("triplets.csv", b"anchor,nearer,farther,weight\na,b,c,1\na,c,b,2\n3,2,b,1\n")
    add("distances.csv", b"i,j,distance,relation\n0,1,1.5,<=\n1,2,0,==\n0,2,2.5,==\n0,2,2.5,==\n")
    add("table.csv", b"a,b,c,d\n1.5,red,2020-01-02,yes\n,blue,2021-02-03,no\n3,red,2022-12-31,yes\n")
    add("table.csv", 'a;b\n"1,5";x\n2,5;"y""z"\n'.encode("utf-16"))
    add("table.csv.gz", gzip.compress(b"a\tb\n1\t2\n3\t4\n"))
    return found


def main() -> None:
    """Write the corpus, and let atheris search."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    for k, content in enumerate(seeds()):
        (corpus / f"seed-{k}").write_bytes(content)
    print(f"corpus and finds are in {FOLDER}", file=sys.stderr)
    limits = ["-max_len=16384", "-timeout=20", "-rss_limit_mb=3000", f"-max_total_time={seconds}"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={FOLDER}/", str(corpus)], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
