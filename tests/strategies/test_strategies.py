import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from kfuzz.core.budget import SizeBudget
from kfuzz.core.declaration import Declaration, ShapeClass
from kfuzz.core.dtypes import DTYPES, bits_to_number
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.value_families import FAMILIES, TILES
from kfuzz.evaluation.drawing import search_round
from kfuzz.execution.values.fills import logical_values
from kfuzz.strategies import layouts, scalar, tensors, values
from kfuzz.strategies.cases import cases
from kfuzz.strategies.layouts import layout_name
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.strategies_draws import OPERATORS, drawn, strategy

N = 900
SEEDS = (1, 2)


class Drawn(Mapping):
    """Cases by operator, drawn when they are first asked for."""

    def __init__(self):
        self._found = {}

    def __getitem__(self, name):
        if name not in self._found:
            self._found[name] = [
                case
                for seed in SEEDS
                for case in drawn(name, N, from_seed=seed, phases=[Phase.generate])
            ]
        return self._found[name]

    def __iter__(self):
        return iter(OPERATORS)

    def __len__(self):
        return len(OPERATORS)


@pytest.fixture(scope="module")
def plain():
    return Drawn()


def first(case):
    return next(iter(case.tensors.values()))


def reduced_axis(operator, case):
    spec = first(case)
    if "dim" in case.scalars:
        axis = case.scalars["dim"]
        return axis if axis < 0 else axis - len(spec.shape)
    return -1


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_case_is_possible_and_sizes_are_shared(operator, plain):
    for case in plain[operator]:
        sizes = {}
        for spec in case.tensors.values():
            assert spec.problem() is None
            for axis, n in zip(spec.axes, spec.shape, strict=True):
                assert sizes.setdefault(axis, n) == n
            rank = len(spec.shape)
            assert -max(rank, 1) <= spec.fill.axis < 0
        assert len({spec.dtype for spec in case.tensors.values()}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("backend", SIZE_BUDGETS)
def test_budgets_are_kept(operator, backend):
    budget, tall = SIZE_BUDGETS[backend], 0
    for case in drawn(operator, 300, backend=backend):
        rows = 0
        for spec in case.tensors.values():
            assert spec.numel <= budget.elements
            if layout_name(spec) == "huge":
                assert spec.span * DTYPES[spec.dtype].itemsize <= budget.span
            else:
                # Every third element, or padded rows.
                outer = math.prod(max(n, 1) for n in spec.shape[:-1])
                padded = outer * ((spec.shape or (1,))[-1] + max(layouts._PADS))
                assert spec.span <= max(3 * spec.numel, padded)
        if operator == "matmul":
            m, n = case.dims["M"], case.dims["N"]
            assert m * n <= budget.elements
            rows = math.ceil(m / 16) * math.ceil(n / 16)
        elif operator != "relu":
            shape = list(first(case).shape)
            if shape:
                del shape[reduced_axis(operator, case)]
            rows = math.prod(shape)
        assert rows <= max(budget.rows, budget.tall)
        tall += rows > budget.rows
    assert tall < 100  # of those whose one large dimension is that of rows


def test_sizes_of_every_class_appear(plain):
    for operator in ("softmax", "layer_norm", "matmul"):
        seen = Counter()
        for case in plain[operator]:
            seen[first(case).shape[reduced_axis(operator, case)]] += 1
        tiles = [t for t in TILES if t <= 1024]
        for near in (0, 1, -1):
            assert sum(seen[t + near] > 0 for t in tiles) >= len(tiles) - 2
        assert any(seen[2 * t - 1] for t in tiles)
        assert seen[1]
        assert seen[2]
        assert any(seen[p] for p in (127, 257, 509, 1009))
        assert any(n >= 4095 for n in seen)


def test_zero_sizes_appear_now_and_then_but_not_where_nothing_reduces_them(plain):
    for operator, found in plain.items():
        empty = sum(first(case).numel == 0 for case in found) / len(found)
        assert 0 < empty < 0.2, operator
    assert any(c.dims["K"] == 0 and c.dims["M"] > 0 for c in plain["matmul"])
    for operator in ("amax", "layer_norm"):
        for case in plain[operator]:
            assert first(case).shape[reduced_axis(operator, case)] > 0


def test_every_family_dtype_and_layout_appears(plain):
    for operator in ("softmax", "relu", "matmul"):
        specs = [s for case in plain[operator] for s in case.tensors.values()]
        families = {s.fill.family for s in specs}
        expected = set(FAMILIES)
        if operator != "matmul":
            expected -= {"transpose_of"}
        assert families == expected
        assert {s.dtype for s in specs} == {"float32", "float16", "bfloat16"}
        names = Counter(layout_name(s) for s in specs)
        kinds = {"contiguous", "offset", "odd_size1", "expanded", "transposed"}
        assert kinds | {"stepped", "padded"} <= set(names)
        assert 0.35 < names["contiguous"] / len(specs) < 0.75
    assert "0-d" in {layout_name(first(case)) for case in plain["relu"]}


def test_variances_are_mostly_not_negative_and_always_finite():
    found = Counter()
    parameters = {"x": tensors("C L"), "var": tensors("C", role="variance")}

    @settings(max_examples=300, phases=(Phase.generate,), database=None, deadline=None)
    @seed(3)
    @given(cases(parameters, declaration=Declaration(), budget=SIZE_BUDGETS["cpu"]))
    def draw(case):
        found[case.tensors["var"].fill.family] += 1
        assert not case.tensors["var"].plants

    draw()
    positive = ("uniform01", "ones", "zeros")
    assert sum(found[f] for f in positive) > 0.6 * sum(found.values())
    assert len(found) > 8
    assert not {f for f in found if FAMILIES[f].group == "special"}


@pytest.mark.slow
def test_undefined_nonfinite_excludes_nan_and_infinities():
    for operator in ("softmax", "matmul"):
        for case in drawn(operator, 500, nonfinite="undefined"):
            for spec in case.tensors.values():
                special = FAMILIES[spec.fill.family].group == "special"
                assert not special or spec.fill.family == "signed_zeros"
                for plant in spec.plants:
                    assert math.isfinite(bits_to_number(plant.bits, spec.dtype))


@pytest.mark.slow
def test_declared_layouts_are_kept():
    for operator in OPERATORS:
        for case in drawn(operator, 200, layouts="contiguous"):
            for spec in case.tensors.values():
                assert spec.strides is None
                assert spec.offset == 0
    names = Counter()
    for case in drawn("softmax", 800, layouts="inner_contiguous", alignment=32):
        spec = first(case)
        names[layout_name(spec)] += 1
        assert not spec.shape or spec.element_strides[-1] == 1
        assert spec.offset * DTYPES[spec.dtype].itemsize % 32 == 0
        assert not overlapping(spec)
    assert {"contiguous", "padded", "transposed", "stepped", "offset"} <= set(names)
    for case in drawn("relu", 500, inplace=("x",)):
        assert not overlapping(first(case))


@pytest.mark.slow
def test_a_few_views_reach_past_2_31_elements_where_that_costs_no_memory(plain):
    found = [s for cases in plain.values() for c in cases for s in c.tensors.values()]
    huge = [s for s in found if layout_name(s) == "huge"]
    assert 0.005 < len(huge) / len(found) < 0.04
    for spec in huge:
        [axis] = [i for i, s in enumerate(spec.strides) if s > 2**30]
        # The stride is a 32-bit number, the last index lies beyond any.
        assert spec.strides[axis] < 2**31 <= (spec.shape[axis] - 1) * spec.strides[axis]
        rest = [n for i, n in enumerate(spec.shape) if i != axis]
        assert spec.span - 1 == math.prod(rest) - 1 + (
            (spec.shape[axis] - 1) * spec.strides[axis]
        )
    assert {len(s.shape) for s in huge} >= {1, 2, 3}
    inner = drawn("softmax", 900, layouts="inner_contiguous")
    assert "huge" in {layout_name(first(c)) for c in inner}
    for claims in ({"backend": "cuda"}, {"layouts": "contiguous"}):
        for case in drawn("softmax", 300, **claims):
            assert layout_name(first(case)) != "huge"


def overlapping(spec):
    if spec.numel == 0:
        return False
    reach = 0
    steps = zip(spec.element_strides, spec.shape, strict=True)
    for stride, n in sorted((s, n) for s, n in steps if n > 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("softmax", "N % 16 == 0 and N <= 4096"),
        ("softmax", "N == 1000"),
        ("softmax", "17 <= N and N < 300 and N % 7 == 3"),
        ("softmax", "M <= 8 and N > 100"),
        ("softmax", "M % 4 == 0 and M > 0"),
        ("softmax", "M * N <= 4096 and N > 2"),
        ("softmax", "d1 % 32 == 0 and d0 >= 3"),
        ("softmax", "N % 2 == 0 or N > 1000"),
        ("relu", "N % 8 == 0 and M <= 4"),
        ("layer_norm", "N >= 64 and N % 64 == 0"),
        ("matmul", "K % 64 == 0 and M >= 64 and N >= 64"),
        ("matmul", "M == N"),
        ("matmul", "M == N and K == N"),
        ("matmul", "M > 2 * K"),
        ("matmul", "not K % 16"),
    ],
)
@pytest.mark.parametrize("backend", ["interpret", "cpu"])
def test_shape_classes_hold_with_few_rejections(operator, text, backend):
    shape_class = ShapeClass.parse(text)
    calls, found = [0], []

    @seed(3)
    @settings(
        max_examples=100, phases=[Phase.generate], database=None, deadline=None,
        derandomize=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(counting(strategy(operator, shape_class=text, backend=backend), calls))
    def record(case):
        found.append(case)

    record()
    assert len(found) > 0.5 * calls[0]
    shapes = set()
    for case in found:
        spec = first(case)
        axis = reduced_axis(operator, case) if spec.shape else 0
        others = [n for i, n in enumerate(spec.shape) if i != axis + len(spec.shape)]
        names = {"N": spec.shape[axis] if spec.shape else 1, "M": math.prod(others)}
        assert shape_class.accepts({**names, **case.dims})
        assert spec.numel <= SIZE_BUDGETS[backend].elements
        shapes.add(spec.shape)
    assert len(shapes) > 5


def counting(cases_, calls):
    from hypothesis import strategies as st

    @st.composite
    def counted(draw):
        calls[0] += 1
        return draw(cases_)

    return counted()


@pytest.mark.slow
def test_declared_dims_and_omitted_arguments():
    for case in drawn("softmax", 200, dims=(-1,)):
        assert case.scalars == {"dim": -1}
    ranks = {len(first(c).shape) for c in drawn("softmax", 200, dims=(1,))}
    assert ranks == {2, 3, 4}
    for case in drawn("softmax", 200, omitted=frozenset({"dim"})):
        assert case.scalars == {}
        assert first(case).fill.axis == -1
    for case in drawn("layer_norm", 100, omitted=frozenset({"bias", "eps"})):
        assert tuple(case.tensors) == ("x", "weight")
        assert case.scalars == {}


@pytest.mark.parametrize(
    "claims",
    [
        {"shape_class": "N >= 100000"},
        {"shape_class": "N > 5 and N < 3"},
        {"shape_class": "N % 4 == 1 and N % 2 == 0"},
        {"shape_class": "d5 > 1"},
        {"shape_class": "M == 1000003 * N"},
        {"dims": (7,)},
    ],
)
def test_a_declaration_that_leaves_nothing_is_an_error(claims):
    with pytest.raises(BindingError, match="allows no shape"):
        strategy("softmax", **claims)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_cases_in_every_process():
    script = str(Path(__file__).parents[1] / "helpers" / "strategies_draws.py")
    root = str(Path(__file__).parents[2])
    digests = set()
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": root}
        run = [sys.executable, script, "5"]
        out = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
        digests.add(out.stdout.strip())
    assert len(digests) == 1
    other = drawn("softmax", 30, from_seed=6)
    assert drawn("softmax", 30, from_seed=5) != other


def test_a_small_budget_still_draws():
    found = []

    @seed(1)
    @settings(max_examples=50, database=None, deadline=None, phases=[Phase.generate])
    @given(
        cases(
            OPERATORS["softmax"][0],
            declaration=Declaration(),
            budget=SizeBudget(elements=1, rows=1),
        )
    )
    def record(case):
        found.append(first(case).numel)

    record()
    assert set(found) <= {0, 1}


def drawn_of(parameters, *, backend="interpret", count=600, **extra):
    budget = SIZE_BUDGETS[backend]
    found = []
    made = cases(parameters, declaration=Declaration(), budget=budget, **extra)
    search_round(made, found.append, cases=count, seed_value=1)
    return found


def held(case, name):
    return logical_values(case, name, torch.device("cpu"))


def test_ends_of_intervals_come_together_in_several_arguments():
    states = {
        "a": tensors("N", within="[-inf, inf)"),
        "v": tensors("N D"),
        "b": tensors("N", dtype="float32", within="[-inf, inf)"),
    }
    found = [c for c in drawn_of(states) if c.tensors["a"].numel]
    empty = [(held(c, "a") == -math.inf, held(c, "b") == -math.inf) for c in found]
    both = sum(bool((a & b).any()) for a, b in empty)
    either = sum(bool((a | b).any()) for a, b in empty)
    assert both > 0.12 * len(found)
    assert either > 1.3 * both  # one alone is empty, too


def test_ends_meet_along_the_dimensions_that_arguments_share():
    sums = {
        "x": tensors("T E", within=(-3, 5)),
        "bias": tensors("E", within=(0, 5)),
    }
    found = [c for c in drawn_of(sums) if c.tensors["x"].numel]
    most = [(held(c, "x") == 5, held(c, "bias") == 5) for c in found]
    assert sum(bool((x & b).any()) for x, b in most) > 0.05 * len(found)
    for case in found:
        assert float(held(case, "x").min()) >= -3
        assert float(held(case, "bias").max()) <= 5


def test_numbers_that_rise_are_finite_and_never_fall():
    found = drawn_of({"x": tensors("N"), "edges": tensors("E", rising=True)})
    every = [held(case, "edges") for case in found]
    assert any(len(set(edges.tolist())) > 2 for edges in every)
    for edges in every:
        assert torch.isfinite(edges).all()
        assert (edges.diff() >= 0).all()


ATTENTION = {
    "q": tensors("B H S D"),
    "k": tensors("B G T D"),
    "window": scalar(None, domain=(1, 7, 33)),
}
GROUPED = {
    "shape_class": "G >= 1 and H >= 1 and D >= 1 and H % G == 0",
    "reduced": "T",
    "workspaces": ("B H S T",),
}


def test_lengths_around_a_window_are_drawn():
    found = drawn_of(ATTENTION, **GROUPED)
    windows = [c for c in found if c.scalars["window"] == 33]
    near = [c for c in windows if {32, 33, 34, 66} & {c.dims["S"], c.dims["T"]}]
    assert len(near) > 0.15 * len(windows)


def test_what_a_shape_class_leaves_free_is_mostly_not_at_its_least():
    found = drawn_of(ATTENTION, **GROUPED)
    tiny = [c for c in found if c.dims["S"] == c.dims["T"] == 1]
    assert 0 < len(tiny) < 0.15 * len(found)


def test_every_dimension_is_sometimes_the_large_one():
    found = drawn_of(ATTENTION, backend="cuda", **GROUPED)
    most = {axis: sum(c.dims[axis] > 128 for c in found) for axis in "STD"}
    assert most["T"] > max(most["S"], most["D"])
    assert min(most.values()) > 0.03 * len(found)


def masked(columns, seed):
    fill = Fill("ninf_head", seed)
    return TensorSpec((2, columns), ("M", "N"), "float32", fill=fill)


def test_in_long_rows_whole_blocks_are_hidden() -> None:
    """A running maximum of a hidden first block is taken from itself: NaN."""
    data = tensors("M N")
    families = values.allowed_families(Declaration())
    long, short = (
        values.family_options(data, families, shape=(2, n)).count("ninf_head")
        for n in (8193, 33)
    )
    assert long > 3 * short
    made = [
        logical_values(Case({"x": masked(33, seed)}), "x", torch.device("cpu")).isinf()
        for seed in range(20)
    ]
    assert any(x[0, 0] and not x[0, -1] and x[0].diff().sum() == 1 for x in made)
