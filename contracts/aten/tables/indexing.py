"""Overloads that select or write by indices and masks."""

from kfuzz.contracts.aten.rows import moved, shadowed

moved("index.Tensor", "A B", ("below A: K",), wraps=True)
moved("take", "A", "below A: K", wraps=True)
moved("take_along_dim", "N C", "below C: N K", dim=1, wraps=True)
moved("masked_fill.Scalar", "*", "bool: *", value=(0, 0.5, -1.0))
moved("index_fill.int_Scalar", "A B", "below A: K", dim=0, value=(0, 0.5, -1.0),
      wraps=True)  # fmt: skip
moved("where.ScalarOther", "bool: *", "*", other=(0, 0.5))
moved("where.ScalarSelf", "bool: *", "*", self=(0, 0.5))
moved("scatter.value", "N C", "below C: N K", dim=1, value=(0, 0.5, -1.0))
shadowed("index_put", "A B", ("below A: K",), "K B", accumulate=True,
         wraps=True)  # fmt: skip
