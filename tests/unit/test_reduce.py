"""What the reducer keeps of a placement: a huge stride, an edge that is to blame."""

import math
import sys

from kfuzz.core.recipe import Case, Edge, TensorSpec
from kfuzz.engine.reduce import reduce_case
from kfuzz.engine.script import script
from tests.unit.findings import finding

FAR = 2**30 + 1


def pinned(shape, *, strides=None, offset=0):
    axes = tuple("abcd"[: len(shape)])
    values = b"\x00\x00\x80\x3f" * math.prod(shape)
    return TensorSpec(shape, axes, "float32", strides, offset, values=values)


def reduced(case, fails):
    minimum, reduction = reduce_case(
        case, fails, lambda case: True, deadline=float("inf")
    )
    assert reduction.stopped == "minimal"
    return minimum


def test_an_offset_beyond_32_bits_shrinks_to_three_rows():
    def wraps(case):
        spec = case.tensors["x"]
        steps = zip(spec.shape, spec.element_strides, strict=True)
        return any((n - 1) * s >= 2**31 for n, s in steps)

    case = Case({"x": pinned((5, 17, 9), strides=(9, FAR, 1))})
    spec = reduced(case, wraps).tensors["x"]
    assert (spec.shape, spec.strides) == ((3,), (FAR,))


def test_an_index_beyond_its_bound_shrinks_with_it():
    """Accepted up to one past a row padded to a power of 2: 6 at 5, 3 at 3."""

    def padded(case):
        n, label = case.dims["b"], int.from_bytes(case.tensors["i"].values, "little")
        return n <= label < 1 << (n - 1).bit_length()

    label = TensorSpec((1,), ("a",), "int64", values=b"\6" + bytes(7), below="b")
    case = Case({"x": pinned((1, 5)), "i": label})
    minimum = reduced(case, padded)
    assert minimum.dims["b"] == 3
    assert minimum.tensors["i"].values[0] == 3


def test_an_edge_is_kept_where_the_failure_needs_it():
    case = Case({"x": pinned((4, 6))}, edge=Edge("end", "x"))
    assert reduced(case, lambda c: c.edge is not None).edge == Edge("end", "x")
    assert reduced(case, lambda c: True).edge is None


def test_a_script_lays_a_huge_view_out_without_the_memory(monkeypatch):
    spec = pinned((3, 2), strides=(FAR, 1))
    text = script(finding(case=Case({"x": spec})))
    monkeypatch.setattr(sys, "argv", ["script.py"])
    scope = {}
    exec(text.partition("sys.path.insert")[0], scope)
    x = scope["tensor"](
        spec.shape, spec.strides, 0, scope["torch"].float32, spec.values.hex()
    )
    assert x.stride() == (FAR, 1)
    assert x.tolist() == [[1.0, 1.0]] * 3
