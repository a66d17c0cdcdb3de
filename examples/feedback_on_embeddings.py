"""Feedback on embeddings: learn from pairs what near shall mean, and search with it in a faiss index.

    NEARWISE_DATA=folder python examples/feedback_on_embeddings.py

The data are questions to a bank as sentence embeddings (Banking77). Their nearest neighbours are about the
same product; wanted are those about the same problem, in any product. 3,000 pairs, "the same problem" or
"another one", teach it. Where the data are not there, scikit-learn's digits stand in, with near meaning that
both are odd or both even, and other digits taking the place of other products. Needs the extra "ann" (faiss).
"""

import time

import faiss
import numpy as np

import nearwise as nw

N_PAIRS, FIRST, NEIGHBORS = 3000, 300, 10


def main() -> None:
    name, train, problem, test, test_problem, test_product = questions()
    feedback = nw.constraints.from_labels(problem, n_pairs=N_PAIRS, random_state=0)
    start = time.perf_counter()
    learner = nw.MetricLearner(random_state=0).fit(train, constraints=feedback)
    print(f"{name}: learned from {len(feedback):,} pairs in {time.perf_counter() - start:.1f} s")

    # Both indexes take the raw vectors: the learned map goes in front of the second.
    indexes = {
        "as they are": faiss.IndexFlatL2(test.shape[1]),
        "learned": learner.to_faiss(faiss.IndexFlatL2(test.shape[1])),
    }
    for title, index in indexes.items():
        index.add(np.float32(test))
        _, near = index.search(np.float32(test), FIRST)
        found = precision(near, test_problem, test_product)
        print(f"{title}: of {NEIGHBORS} neighbours in other products, {found:.1%} have the same problem")


def questions() -> tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A name, training vectors and their problem, test vectors, their problem and product."""
    if "banking77_minilm" in nw.datasets.available():
        data = nw.datasets.load("banking77_minilm")
        known, asked = data.extra["problem"] != "", data.extra["problem_test"] != ""
        extra = (data.extra["problem_test"][asked], data.extra["product_test"][asked])
        return "Banking77", data.X[known], data.extra["problem"][known], data.X_test[asked], *extra
    digits = nw.datasets.load("digits")
    X, y = digits.X / 16.0, digits.y
    return "digits", X[:900], y[:900] % 2, X[900:], y[900:] % 2, y[900:]


def precision(near: np.ndarray, problem: np.ndarray, product: np.ndarray) -> float:
    """The share of a row's own problem among the first neighbours that are about another product."""
    shares = []
    for row, found in enumerate(near):
        others = found[product[found] != product[row]][:NEIGHBORS]
        shares.append(np.mean(problem[others] == problem[row]) if len(others) else 0.0)
    return float(np.mean(shares))


if __name__ == "__main__":
    main()
