"""Kernel learning for a support vector machine: few labels, and pairs of which only "same or not" is known.

    python examples/kernel_for_svm.py

A support vector machine has 50 labelled digits. Besides, 1,000 pairs of other digits were marked as the same
digit or not, which says nothing about which digit it is, so a classifier cannot learn from it. A kernel can.
"""

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import nearwise as nw


def main() -> None:
    data = nw.datasets.load("digits")
    X, X_test, y, y_test = train_test_split(
        data.X / 16.0, data.y, train_size=800, stratify=data.y, random_state=0
    )
    labelled = np.arange(50)
    pairs = nw.constraints.from_labels(y, n_pairs=1000, random_state=0)

    learner = nw.KernelLearner(kernel="rbf", random_state=0).fit(X, constraints=pairs)
    plain = SVC(kernel="rbf", C=10.0).fit(X[labelled], y[labelled])
    print(f"rbf kernel: {plain.score(X_test, y_test):.1%} of {len(y_test)} test digits recognised")

    learned = SVC(kernel="precomputed", C=10.0).fit(learner.learned_kernel(X[labelled]), y[labelled])
    score = learned.score(learner.learned_kernel(X_test, X[labelled]), y_test)
    print(f"learned kernel: {score:.1%}")
    certificate = learner.result_.certificate
    print(f"{learner.status_.name}: penalty {learner.penalty_:.3g}, relative gap {certificate.gap:.0e}")


if __name__ == "__main__":
    main()
