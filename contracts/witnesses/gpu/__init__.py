"""Witnesses for faults that only a device has or shows; `faults` lists them.

Each passes the plain functional test; correct twins stand in the same files. A module
here imports everywhere: kernels are compiled when they are first called.
"""
