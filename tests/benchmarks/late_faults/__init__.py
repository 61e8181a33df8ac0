"""Kernels that are right up to a size and wrong beyond it: how soon found?"""
