"""The papers' experiments on the data that can be had, one file each: `run` measures, `Outcome` says what.

Every public module is an experiment. Its docstring begins with a line that `nearwise reproduce` shows, and
its function `run(quick, seed, progress)` returns an `Outcome`: rows with the published figure beside ours,
curves for the figure, and sentences on what differs. `quick` is the same experiment on less data, for tests.
"""
