"""Memory that a kernel is given or allocates, and what has happened to it.

A case alone is a batch of one. Whatever is guarded is a slot between zones, at the
same place in every row (`rows`); widths, alignment and slots are in `zones`, what
fills them in `poison`. `placement` lays arguments out in rows that it compares with a
snapshot; it has two more places for the arguments of a case alone: beside a page that
faults (`arena`, `pages`), and in memory that is compared in windows (`windows`).
`touches` says which elements changed, `destinations` and `writes` what was to be
written.

A kernel's own allocations have two guards, one as fast as the other is complete.
`allocations` is a dispatch mode that sees every operator, and costs more than most
kernels; `prepared` hands out, in the calls of a batch, what the mode saw the first of
them ask for (`constructors`: where torch's functions are found). Both fill and check
the same slots.
"""
