"""Correct kernels and faults of operators that libraries ship, in Triton or torch."""
