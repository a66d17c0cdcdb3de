"""Learners with the interface of scikit-learn, one file each; what they share is in the private files.

`fit` validates the data, turns objects into features, learns a matrix for them, and exposes it: `_side` reads
labels and constraints, `_bases` and `_kernel_bases` make features, `_fits` learns, and `base` does the rest.
"""
