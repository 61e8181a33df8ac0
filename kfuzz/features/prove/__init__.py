"""Proofs of memory and race properties of Triton kernels, for all sizes at once."""
