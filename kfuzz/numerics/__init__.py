"""Formats, error bounds, acceptance and the comparator."""

from kfuzz.numerics.models.elementwise import elementwise

__all__ = ["elementwise"]
