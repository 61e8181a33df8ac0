"""Mutants of the correct Triton kernels, and what searches make of them."""
