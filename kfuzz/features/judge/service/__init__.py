"""Judging as a service: warm processes that answer with a verdict and a reward."""
