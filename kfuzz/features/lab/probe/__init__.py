"""Probes: what a kernel's arithmetic is, against what the kernel declares.

A probe is an input whose result tells one arithmetic from another (a construction), and
what is concluded from the result (a decision). Both are pure; see `catalogue`. A probe
reports no violation: where it sees something other than declared, the contracts judge
the same input as they judge any case.

`catalogue` lists the probes of `order` (with `tree`), `width`, `operands`, `store`,
`functions` and `repeats`. What they ask a kernel is in `subject`, how operators become
machines that add in `sums`, numbers and rows of terms in `formats` and `rows`. `search`
probes kernels and has differences judged; `rendering` and `orders` lay out what was
read, `verb` is `kfuzz probe`.

The constructions are those of FPRev (Xie et al., 2025) for the order of additions, and
of Fasi, Higham, Mikaitis and Pranesh (2021) for matrix units.
"""
