"""Findings made by hand and by Hypothesis, for the tests of codec and corpus."""

import math
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.finding import (
    Change,
    Explanation,
    Finding,
    Fingerprint,
    Mark,
    Reduction,
    Target,
)
from kfuzz.core.recipe import Case, Destination, Fill, Plant, TensorSpec
from kfuzz.core.verdict import Access, Failure, Feature, Kind, Signature, State

NAMES = st.text("abcXYZ_019", min_size=1, max_size=6)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def pinned(values: bytes, *, dtype: str = "float32") -> TensorSpec:
    n = len(values) // DTYPES[dtype].itemsize
    return TensorSpec((1, n), ("M", "N"), dtype, values=values)


def finding(*, kernel: str = "softmax", n: int = 3, **changes: Any) -> Finding:
    """Return a confirmed, explained finding with n pinned float32 elements."""
    values = b"\x00\x00\x80\x3f" * n
    case = Case({"x": pinned(values)}, {"dim": -1})
    first = Case(
        {"x": TensorSpec((4, 70), ("M", "N"), "float32", fill=Fill("randn", 7))},
        {"dim": -1},
    )
    made = Finding(
        signature=Signature(kernel, "C-PRC-01", Kind.VALUE, "out"),
        target=Target("kernels/mine.py", kernel),
        operator="softmax",
        device="cpu",
        case=case,
        first=first,
        failure=Failure("C-PRC-01", Kind.VALUE, "off by 3", "out", ratio=41.0),
        declaration=Declaration(),
        fingerprint=Fingerprint(python="3.11"),
        state=State.CONFIRMED,
        history=(Change(State.NEW, "2026-01-01T00:00:00Z"),),
        explanation=Explanation((Feature.TAIL,), ("n = 4 passes",)),
        reduction=Reduction(12),
        seed=7,
    )
    return replace(made, **changes)


def marks() -> st.SearchStrategy[Mark]:
    links = st.sampled_from(["", "https://example.com/7"])
    needed = st.sets(st.sampled_from(Feature)).map(tuple)
    return st.builds(Mark, NAMES, links, needed, NAMES | st.just(""))


@st.composite
def specs(draw: st.DrawFn) -> TensorSpec:
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 20), max_size=3)))
    axes = tuple(draw(NAMES) for _ in shape)
    strides = draw(st.none() | st.tuples(*(st.integers(0, 9) for _ in shape)))
    size = DTYPES[dtype].itemsize
    plants, fill, values = (), None, None
    if draw(st.booleans()):
        raw = draw(st.binary(min_size=1, max_size=16)) * (math.prod(shape) * size)
        values = raw[: math.prod(shape) * size]
        if dtype == "bool":
            values = bytes(b & 1 for b in values)
    else:
        source = draw(st.none() | NAMES)
        fill = Fill(draw(NAMES), draw(st.integers(0, 2**64 - 1)), -1, source)
        top = (1 << 8 * size) - 1
        if math.prod(shape):
            places = st.tuples(*(st.integers(0, n - 1) for n in shape))
            plants = tuple(
                draw(st.lists(st.builds(Plant, places, st.integers(0, top))))
            )
    return TensorSpec(shape, axes, dtype, strides, draw(st.integers(0, 9)), fill,
                      plants, values)  # fmt: skip


def cases() -> st.SearchStrategy[Case]:
    scalars = st.booleans() | st.integers() | st.floats(allow_nan=False)
    return st.builds(
        Case,
        st.dictionaries(NAMES, specs(), max_size=3),
        st.dictionaries(NAMES, scalars, max_size=3),
        layout=st.none() | st.sampled_from(["contiguous", "padded"]),
        destinations=st.dictionaries(NAMES, destinations(), max_size=1),
    )


def destinations() -> st.SearchStrategy[Destination]:
    sizes = st.tuples(st.integers(0, 9), st.integers(0, 9))
    return st.builds(Destination, sizes, st.just("bool"), sizes, st.integers(0, 9))


def accesses() -> st.SearchStrategy[Access]:
    programs = st.none() | st.tuples(*[st.integers(0, 9)] * 3)
    return st.builds(
        Access,
        st.sampled_from(["load", "store", "atomic", "access"]),
        NAMES | st.just(""),
        TEXT,
        st.sampled_from(["before", "after", "slack", "unwritten", "race", "elsewhere"]),
        offset=st.integers(-(2**40), 2**40),
        program=programs,
        other=programs,
        line=TEXT,
    )


def findings() -> st.SearchStrategy[Finding]:
    numbers = st.none() | st.floats(allow_nan=False)
    ratios = st.none() | st.floats(min_value=0)
    failures = st.builds(
        Failure, NAMES, st.sampled_from(Kind), TEXT, NAMES, TEXT,
        st.none() | st.tuples(st.integers(0, 9)),
        numbers, numbers, numbers, numbers, ratios, st.integers(0, 99), TEXT,
        st.lists(accesses(), max_size=2).map(tuple),
    )  # fmt: skip
    declarations = st.builds(
        Declaration().declare,
        st.just(""),
        dims=st.none() | st.sets(st.integers(-4, 3), min_size=1).map(tuple),
        shape_class=st.none() | st.just("N % 16 == 0 and N <= 4096"),
        dtypes=st.sets(st.sampled_from(["float64", "float16"]), min_size=1),
        inplace=st.lists(NAMES, max_size=2).map(tuple),
        out=st.lists(NAMES, max_size=2).map(tuple),
        own_kernels_only=st.booleans(),
        store=st.sampled_from(["rne", "stochastic"]),
        nonfinite=st.sampled_from(["propagate", "mask", "raise"]),
        determinism=st.sampled_from(["bitwise", "none"]),
        algorithm=st.sampled_from(["", "tanh_form"]),
        approx=st.booleans(),
    )
    explanations = st.builds(
        Explanation,
        st.sets(st.sampled_from(Feature)).map(tuple),
        st.lists(TEXT, max_size=2).map(tuple),
        st.booleans(),
    )
    return st.builds(
        Finding,
        signature=st.builds(Signature, NAMES, NAMES, st.sampled_from(Kind), NAMES),
        target=st.builds(Target, st.just("a/b.py"), NAMES),
        operator=NAMES,
        device=st.sampled_from(["cpu", "cuda"]),
        case=cases(),
        first=cases(),
        failure=failures,
        declaration=declarations,
        fingerprint=st.builds(
            Fingerprint, TEXT, TEXT, flags=st.sampled_from([(), ("a=1", "b=x")])
        ),
        state=st.sampled_from(State),
        history=st.lists(
            st.builds(Change, st.sampled_from(State), TEXT, TEXT, st.booleans()),
            max_size=2,
        ).map(tuple),
        explanation=st.none() | explanations,
        reduction=st.none() | st.builds(Reduction, st.integers(0, 9)),
        seed=st.integers(0, 2**64 - 1),
        mark=st.none() | marks(),
    )
