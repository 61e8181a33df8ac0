"""Candidates that lie, each beside an honest one that looks alike."""
