"""Labels in a pipeline of scikit-learn: scale, learn a metric, classify by neighbours, in cross-validation.

    python examples/labels_in_a_pipeline.py

Compares 5 nearest neighbours on scikit-learn's digits with and without a learned metric on the same folds,
searches over settings of the learner, and stores the winner's metric.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearwise as nw


def main() -> None:
    data = nw.datasets.load("digits")
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        steps = StandardScaler(), nw.MetricLearner(random_state=0), KNeighborsClassifier(5)
        learned = make_pipeline(*steps, memory=folder)  # nothing is learned twice from the same rows
        plain = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
        for name, pipeline in {"Euclidean": plain, "learned": learned}.items():
            errors = 1.0 - cross_val_score(pipeline, data.X, data.y, cv=folds)
            print(f"{name}: error {errors.mean():.1%}, {errors.min():.1%} to {errors.max():.1%} in the folds")

        # The penalty needs no search: "auto" chooses it on held-out objects of each training part.
        settings = {
            "metriclearner__pairs": ["local", "random"],
            "kneighborsclassifier__n_neighbors": [1, 5],
        }
        search = GridSearchCV(learned, settings, cv=folds).fit(data.X, data.y)
        print(f"best: {search.best_params_}, error {1.0 - search.best_score_:.1%}")

        scale, learner = search.best_estimator_[0], search.best_estimator_[1]
        file = Path(folder) / "digits.safetensors"
        nw.save(learner, file)
        again = nw.load(file)
    rows = scale.transform(data.X[:10])
    same = np.array_equal(again.transform(rows), learner.transform(rows))
    print(f"stored and loaded, it transforms the same: {same}")


if __name__ == "__main__":
    main()
