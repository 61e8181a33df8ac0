"""Recordings of what kernels computed on a device, and their comparison."""
