"""Memory that a kernel is given or allocates, and what has happened to it.

A case alone is a batch of one. Whatever is guarded is a slot between zones, at the
same place in every row (`slots`), filled by `poison`. `placement` lays arguments out
and compares them with a snapshot; a case alone may have an argument beside a page that
faults (`fences`). `changes` says which elements changed, and what was to be written.

A kernel's own allocations have two guards in `allocations`, one as fast as the other is
complete: a dispatch mode that sees every operator, and for the calls of a batch memory
that is prepared by what the mode saw the first of them ask for. Both fill and check the
same slots.
"""
