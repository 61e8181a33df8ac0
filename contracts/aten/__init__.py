"""Torch's operators by name: `kfuzz.kernel("aten::add.Tensor")(f)`; see README.md."""
