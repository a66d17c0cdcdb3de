"""Descent on matrices of fixed rank: geometries, costs, directions, and the driver that runs them."""
