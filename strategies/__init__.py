"""Strategies: what the inputs of an operator look like, as recipes."""

from kfuzz.strategies.parameters import dim as dim
from kfuzz.strategies.parameters import dtype as dtype
from kfuzz.strategies.parameters import indices as indices
from kfuzz.strategies.parameters import lists as lists
from kfuzz.strategies.parameters import longest as longest
from kfuzz.strategies.parameters import masks as masks
from kfuzz.strategies.parameters import offsets as offsets
from kfuzz.strategies.parameters import scalar as scalar
from kfuzz.strategies.parameters import size as size
from kfuzz.strategies.parameters import spans as spans
from kfuzz.strategies.parameters import tensors as tensors
