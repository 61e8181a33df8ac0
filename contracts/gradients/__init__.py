"""Gradients: operators of vector-Jacobian products, and calls of autograd for them."""
