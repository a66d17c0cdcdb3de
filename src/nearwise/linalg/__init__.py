"""Numerics that know nothing of learning: spectra, their updates, factorisations, and compiled loops."""
