"""Formats, error bounds, acceptance and the comparator."""

from kfuzz.numerics.elementwise import elementwise

__all__ = ["elementwise"]
