"""Compiled loops over arrays, one file per use. Importing a file of this folder imports numba.

Callers import them late and only for large arrays. The loops release the interpreter's lock, so that callers
can run several at once on blocks of their own.
"""
