"""Compiled loops over arrays, one file per use. Importing a file of this folder imports numba.

Callers import them late and only for large arrays. The loops release the interpreter's lock, so that callers
can run several at once on blocks of their own.

Compiled code is cached on disk, by file: after a change of a function that one in another file calls, delete
the `*.nbi` files in `__pycache__`.
"""
