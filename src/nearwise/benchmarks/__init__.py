"""Benchmarks: every public module here is one, run by `nearwise bench NAME` through its `main(argv)`.

A benchmark measures us and what we are compared with in one run and in turns, so that both see the same
machine, and prints ratios beside their targets.
"""
