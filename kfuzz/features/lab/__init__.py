"""Measurements: of a kernel's arithmetic, of kernels and contracts, of devices."""
