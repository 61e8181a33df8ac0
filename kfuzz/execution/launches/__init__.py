"""Launches of Triton kernels as their wrappers make them, with nothing run.

Whatever reads what a kernel is compiled to, here or for other GPUs, begins with these:
the launches that a call on a case makes, recorded on tensors without memory, in a
process whose Triton compiles.
"""
