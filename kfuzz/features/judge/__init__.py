"""Candidates that nobody vouches for, held against references: see the README."""
