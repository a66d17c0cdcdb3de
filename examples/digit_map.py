"""A map of handwritten digits from 100 labels: JKDD12 figure 2 (c, d), beside kernel PCA.

    NEARWISE_DATA=folder python examples/digit_map.py [picture.png]

Learns two coordinates from 100 labelled USPS digits (scikit-learn's digits where USPS is not there), places
2,000 unseen ones (or the other 1,697), and scores both maps by 5 nearest neighbours. With matplotlib and a
file name, it draws them.
"""

import sys

import numpy as np
from sklearn.decomposition import KernelPCA
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw


def main(picture: str | None = None) -> None:
    name = "usps" if "usps" in nw.datasets.available() else "digits"
    data = nw.datasets.load(name)
    order = np.random.default_rng(0).permutation(len(data.X))
    known, unseen = order[:100], order[100:2100]
    gamma = 1 / (data.X.shape[1] * data.X[known].var())
    maps = {
        "KernelReducer": nw.KernelReducer(2, gamma=gamma, random_state=0),
        "kernel PCA": KernelPCA(2, kernel="rbf", gamma=gamma),
    }
    placed = {}
    for title, map_ in maps.items():
        map_.fit(data.X[known], data.y[known])
        knn = KNeighborsClassifier(5).fit(map_.transform(data.X[known]), data.y[known])
        placed[title] = map_.transform(data.X[unseen])
        score = knn.score(placed[title], data.y[unseen])
        print(
            f"{title}: recognises {score:.1%} of {len(unseen):,} unseen digits of {name} from two coordinates"
        )
    if picture:
        draw(placed, data.y[unseen], picture)


def draw(placed: dict[str, np.ndarray], labels: np.ndarray, picture: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(placed), figsize=(12, 6))
    for axis, (title, points) in zip(axes, placed.items(), strict=True):
        axis.scatter(*points.T, c=labels, cmap="tab10", s=4)
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(picture, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
