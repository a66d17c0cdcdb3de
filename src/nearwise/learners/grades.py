"""Scores with what single units contribute to them: what `nearwise.study` uses of the learners' grading."""

from nearwise.learners._grading import Grade, area_under_roc, by_neighbors, together

__all__ = ["Grade", "area_under_roc", "by_neighbors", "together"]
