"""Faults that can be planted in any operator, by the class that forbids them."""
