"""Programs observed: which kernels they launch, on what, and bindings for these."""
