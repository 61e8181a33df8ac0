"""Probes: what a kernel's arithmetic is, against what the kernel declares.

A probe is an input whose result tells one arithmetic from another (a construction), and
what is concluded from the result (a decision). Both are pure; see `catalogue`. What a
probe says accuses nobody: where it sees something other than declared, the contracts
judge the same input as they judge any case (`search`).

The constructions are those of FPRev (Xie et al., 2025) for the order of additions, and
of Fasi, Higham, Mikaitis and Pranesh (2021) for matrix units.
"""
