"""Probes: what a kernel's arithmetic is, against what the kernel declares.

A probe is an input whose result tells one arithmetic from another (a construction), and
what is concluded from the result (a decision). Both are pure. A probe
reports no violation: where it sees something other than declared, the contracts judge
the same input as they judge any case.

`sums` has what operators become as machines that add, `orders` the order of additions,
`arithmetic` all other probes. `search` probes kernels, has differences judged and puts
what it read into documents; `verb` is `kfuzz probe`.

The constructions are those of FPRev (Xie et al., 2025) for the order of additions, and
of Fasi, Higham, Mikaitis and Pranesh (2021) for matrix units.
"""
