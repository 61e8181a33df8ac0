"""amin(x, dim): the least element along a dimension."""

from kfuzz.contracts.operators.reductions.amax import extremum

amin = extremum("amin", "least")
