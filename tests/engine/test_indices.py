"""Index arguments: how they are drawn, filled, admitted, reduced and stored."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from kfuzz import strategies as ks
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.derive import Derived, friendly_shapes, ordinary_cases, tiled
from kfuzz.contracts.operator import Operator
from kfuzz.core.codec import decode, encode
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import unpack_numbers
from kfuzz.core.errors import BindingError, KfuzzError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.value_families import INDEX_FAMILIES
from kfuzz.core.value_families.tiles import edges
from kfuzz.core.verdict import Feature
from kfuzz.engine.confirm.explain import Fate, explain
from kfuzz.engine.reduce.reducer import reduce_case
from kfuzz.engine.reduce.slices import kept
from kfuzz.engine.search.case_drawing import strategy_of
from kfuzz.execution.values.fills import logical_values
from kfuzz.report.text import draw_tensor
from tests.helpers.asking_alone import one_by_one
from tests.helpers.budgets import SIZE_BUDGETS

CPU = torch.device("cpu")
CASES = 400
COUNTER = iter(range(10_000))
VALID = [name for name, f in INDEX_FAMILIES.items() if f.group == "index"]
HOSTILE = [name for name, f in INDEX_FAMILIES.items() if f.group == "hostile"]


def bound_kernel(operator: Operator, *taken: str, **claims: object) -> BoundKernel:
    """Bind a function that takes all tensors, and the scalars named."""
    arguments = [*operator.tensors, *[f"{n}=0" for n in taken]]
    function = eval(f"lambda {', '.join(arguments)}: None")
    return kernel(operator, name=f"drawn{next(COUNTER)}", **claims)(function)


def drawn(operator: Operator, *taken: str, **claims: object) -> list[Case]:
    """Return cases as a campaign draws them."""
    bound = bound_kernel(operator, *taken, **claims)
    strategy = strategy_of(bound, SIZE_BUDGETS["interpret"])
    found: list[Case] = []

    @seed(3)
    @settings(
        max_examples=CASES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def record(case: Case) -> None:
        assert bound.operator.admits(case, bound.declaration), case
        found.append(case)

    record()
    return found


def index_of(case: Case) -> tuple[str, TensorSpec]:
    return next((n, s) for n, s in case.tensors.items() if s.below)


def values_of(case: Case) -> torch.Tensor:
    return logical_values(case, index_of(case)[0], CPU)


def indices(values: list[int], dtype: str = "int64") -> TensorSpec:
    """Return pinned indices below V."""
    data = torch.tensor(values, dtype=getattr(torch, dtype)).numpy().tobytes()
    return TensorSpec((len(values),), ("d0",), dtype, values=data, below="V")


def table(rows: int, columns: int = 1, dtype: str = "float32") -> TensorSpec:
    """Return a pinned table that holds 1, 2, 3, …."""
    x = torch.arange(1, rows * columns + 1).to(getattr(torch, dtype))
    data = x.view(torch.uint8).numpy().tobytes()
    return TensorSpec((rows, columns), ("V", "D"), dtype, values=data)


def lookup(values: list[int], rows: int, columns: int = 1) -> Case:
    return Case({"weight": table(rows, columns), "indices": indices(values)})


# --- drawing ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["embedding", "gather", "cross_entropy"])
def test_drawn_cases_are_possible_and_a_few_are_hostile(name: str) -> None:
    budget, hostile, dtypes = SIZE_BUDGETS["interpret"], 0, Counter()
    for case in drawn(ops.OPERATORS[name], "ignore_index"):
        _, spec = index_of(case)
        n = case.dims[spec.below]
        assert spec.dtype == "int64"
        assert n or not spec.numel
        dtypes[case.data.dtype] += 1
        rows = case.dims["D"] if name == "embedding" else 1
        assert spec.numel * rows <= budget.elements
        for other in case.tensors.values():
            assert other.numel <= budget.elements
        assert spec.fill is not None
        hostile += spec.fill.family in HOSTILE
        if spec.fill.family in VALID and spec.numel:
            index = values_of(case)
            ignored = case.scalars.get("ignore_index", 0)
            assert bool(((index >= 0) & (index < n) | (index == ignored)).all())
    assert CASES / 20 < hostile < CASES / 4
    assert set(dtypes) == {"float32", "float16", "bfloat16"}


def test_embedding_draws_every_rank_and_sizes_of_both_kinds() -> None:
    cases = drawn(ops.embedding)
    assert {len(index_of(c)[1].shape) for c in cases} == {0, 1, 2, 3}
    assert max(c.dims["V"] for c in cases) > 1000
    assert max(c.dims["D"] for c in cases) > 1000
    assert max(index_of(c)[1].numel for c in cases) > 32
    assert any(index_of(c)[1].numel == 0 for c in cases)
    layouts = {index_of(c)[1].is_contiguous for c in cases}
    assert layouts == {True, False}


def test_some_targets_are_ignored_also_all_of_them() -> None:
    shares = Counter()
    for case in drawn(ops.cross_entropy):  # the scalar is not taken: its default
        target = values_of(case)
        if target.numel():
            ignored = target == -100
            shares[bool(ignored.all()), bool(ignored.any())] += 1
    assert shares[False, False] > CASES / 4
    assert shares[True, True] > 5
    assert shares[False, True] > 20


def test_declarations_settle_hostility_and_dtype() -> None:
    for case in drawn(ops.embedding, out_of_bounds="undefined"):
        fill = index_of(case)[1].fill
        assert fill is not None
        assert fill.family in VALID
    both = drawn(ops.gather, index_dtypes=("int64", "int32"))
    assert {index_of(c)[1].dtype for c in both} == {"int64", "int32"}


# --- filling ----------------------------------------------------------------


def filled(family: str, shape: tuple[int, ...], n: int, seed: int = 1) -> torch.Tensor:
    axes = tuple(f"d{i}" for i in range(len(shape)))
    x = TensorSpec(shape, axes, "int32", fill=Fill(family, seed), below="V")
    return logical_values(Case({"weight": table(n), "indices": x}), "indices", CPU)


@pytest.mark.parametrize("family", VALID)
def test_valid_families_stay_below_their_bound(family: str) -> None:
    for n in (1, 2, 3, 100, 4097):
        for shape in ((), (1,), (5, 33), (2, 3, 4), (0, 3)):
            x = filled(family, shape, n, seed=n)
            assert x.shape == shape
            assert x.dtype is torch.int32
            assert bool(((x >= 0) & (x < n)).all())


def test_families_look_as_they_are_named() -> None:
    n = 100
    assert set(filled("index_first", (3, 9), n).flatten().tolist()) == {0}
    assert set(filled("index_last", (3, 9), n).flatten().tolist()) == {n - 1}
    assert len(set(filled("index_equal", (3, 9), n).flatten().tolist())) == 1
    rising = filled("index_sorted", (4, 50), n)
    assert bool((rising.diff(dim=-1) >= 0).all())
    assert int(rising.max()) > n // 2
    falling = filled("index_reversed", (4, 50), n)
    assert bool((falling.diff(dim=-1) <= 0).all())
    once = filled("index_permuted", (4, 25), n).flatten().tolist()
    assert sorted(once) == list(range(n))
    assert set(filled("index_edges", (40, 40), n).flatten().tolist()) == set(edges(n))
    assert len(set(filled("index_uniform", (40, 40), n).flatten().tolist())) == n


@pytest.mark.parametrize(
    ("family", "value"),
    [
        ("index_negative", -1), ("index_bound", 7), ("index_beyond", 8),
        ("index_least", -(2**31)), ("index_greatest", 2**31 - 1),
    ],
)  # fmt: skip
def test_hostile_families_hold_their_value_in_one_place_or_all(
    family: str, value: int
) -> None:
    counts = Counter()
    for seed_value in range(24):
        x = filled(family, (3, 5), 7, seed=seed_value).flatten().tolist()
        counts[x.count(value)] += 1
        assert all(0 <= v < 7 for v in x if v != value)
    assert set(counts) == {1, 15}
    assert counts[1] > counts[15]


def test_impossible_index_recipes_say_why() -> None:
    with pytest.raises(KfuzzError, match="no index lies below dimension 'V' of size 0"):
        filled("index_first", (2,), 0)
    with pytest.raises(KfuzzError, match="unknown index family 'randn'"):
        filled("randn", (2,), 3)
    x = TensorSpec((2,), ("d0",), "float32", fill=Fill("index_first"), below="V")
    assert "not integers" in str(x.problem())
    plain = TensorSpec((2,), ("d0",), "float32", fill=Fill("index_first"))
    with pytest.raises(KfuzzError, match="unknown value family"):
        logical_values(Case({"x": plain}), "x", CPU)


# --- domain and binding -----------------------------------------------------


def test_what_an_operator_admits() -> None:
    case = lookup([0, 2], 3)
    claims = Declaration()
    assert ops.embedding.admits(case, claims)
    assert ops.embedding.admits(lookup([5, -1], 3), claims)  # judged by its policy
    narrow = case.with_tensor("indices", indices([0, 2], "int32"))
    assert not ops.embedding.admits(narrow, claims)
    both = Declaration().declare("t", index_dtypes=("int32", "int64"))
    assert ops.embedding.admits(narrow, both)
    assert not ops.embedding.admits(lookup([0], 0), claims)
    assert ops.embedding.admits(lookup([], 0), claims)
    unbounded = replace(case.tensors["indices"], below="")
    assert not ops.embedding.admits(case.with_tensor("indices", unbounded), claims)


def test_policies_that_an_operator_cannot_keep_are_refused() -> None:
    with pytest.raises(BindingError, match="valid: raise, clamp, undefined"):
        bound_kernel(ops.cross_entropy, out_of_bounds="zero")
    with pytest.raises(BindingError, match="did you mean 'clamp'"):
        bound_kernel(ops.embedding, out_of_bounds="clam")
    with pytest.raises(BindingError, match="relu has no index parameter"):
        bound_kernel(ops.relu, out_of_bounds="clamp")
    with pytest.raises(BindingError, match="'int16' is not a dtype of indices"):
        bound_kernel(ops.embedding, index_dtypes=("int16",))


def test_index_parameters_name_what_exists() -> None:
    x = ks.tensors("N C")
    with pytest.raises(BindingError, match="below='V' is no dimension"):
        Operator("o", {"x": x, "i": ks.indices("N", "V")}, oracle=max, error_model=max)
    bad = ks.indices("N", "C", ignored="skip")
    with pytest.raises(BindingError, match="ignored='skip' is no scalar"):
        Operator("o", {"x": x, "i": bad}, oracle=max, error_model=max)
    assert ops.cross_entropy.signature_text() == (
        "cross_entropy(logits, target, *, ignore_index, label_smoothing, reduction)"
    )
    assert "0 <= index < C or ignore_index" in ops.cross_entropy.domain_text()


# --- reducing ---------------------------------------------------------------


def numbers_in(case: Case) -> list[int]:
    spec = case.tensors["indices"]
    assert spec.values is not None
    return [int(v) for v in unpack_numbers(spec.values, spec.dtype)]


def test_indices_follow_the_rows_that_are_kept() -> None:
    case = lookup([0, 3, 5, 4, -1, 6, 7, 2**31 - 1], 6)
    smaller = kept(case, "V", [3, 5])
    # 3 and 5 are rows 0 and 1 now, others are taken modulo 2; 6 was the bound.
    assert numbers_in(smaller) == [0, 0, 1, 0, -1, 2, 3, 2**31 - 1]
    assert smaller.tensors["weight"].shape == (2, 1)
    assert numbers_in(kept(case, "d0", [1, 4])) == [3, -1]


@pytest.mark.parametrize("hostile", [-1, 6, 7, 2**62])
def test_the_minimum_of_a_bad_index_is_one_element(hostile: int) -> None:
    def fails(case: Case) -> bool:
        rows = case.dims["V"]
        return any(not 0 <= i < rows for i in numbers_in(case))

    def admits(case: Case) -> bool:
        return len(case.tensors["indices"].shape) == 1 and ops.embedding.admits(
            case, Declaration()
        )

    case = lookup([0, 3, hostile, 5], 6, 4)
    minimum, reduction = reduce_case(
        case, one_by_one(fails), admits, deadline=float("inf")
    )
    assert reduction.stopped == "minimal"
    assert minimum.tensors["weight"].shape == (1, 1)
    assert minimum.tensors["indices"].shape == (1,)
    assert numbers_in(minimum)[0] in (1, -1)


def test_reducing_widens_floats_and_leaves_indices() -> None:
    weight = table(3, 2, "bfloat16")
    case = Case({"weight": weight, "indices": indices([2, 1])})

    def fails(candidate: Case) -> bool:
        return 2 in numbers_in(candidate)

    minimum, _ = reduce_case(
        case,
        one_by_one(fails),
        lambda c: ops.embedding.admits(c, Declaration()),
        deadline=float("inf"),
    )
    assert minimum.data.dtype == "float32"
    assert minimum.tensors["indices"].dtype == "int64"
    assert numbers_in(minimum) == [2]


def test_explaining_varies_the_floats_only() -> None:
    tried: list[Case] = []

    def fate_of(case: Case) -> Fate:
        tried.append(case)
        return Fate.FAILS if case.data.dtype == "float32" else Fate.PASSES

    case = lookup([2**62], 1)
    explained = explain(
        case,
        fate_of,
        dtypes=("float32", "float16"),
        friendly=None,
        deadline=float("inf"),
    )
    assert explained.features == (Feature.FLOAT32,)
    assert {c.tensors["indices"].dtype for c in tried} == {"int64"}
    assert all(numbers_in(c) == [2**62] for c in tried)


# --- derived, stored and drawn ----------------------------------------------


def test_derived_cases_hold_valid_indices() -> None:
    claims, budget = Declaration(), SIZE_BUDGETS["cpu"]
    failing = lookup([4, 5], 6, 3)
    made = Derived(
        failing, {n: logical_values(failing, n, CPU) for n in failing.tensors}
    )
    shapes = list(friendly_shapes(ops.embedding, failing, claims, budget))
    assert len(shapes) > 5
    for friendly in shapes:
        spec = friendly.tensors["indices"]
        index = logical_values(friendly, "indices", CPU)
        assert bool((index < friendly.dims["V"]).all())
        tiles = tiled(ops.embedding, made, friendly).values["indices"]
        assert tuple(tiles.shape) == spec.shape
        assert bool(((tiles >= 0) & (tiles < friendly.dims["V"])).all())
    for case in ordinary_cases(ops.embedding, failing):
        assert bool((logical_values(case, "indices", CPU) < 6).all())


def test_recipes_of_indices_survive_storage_and_can_be_read() -> None:
    case = lookup([2**63 - 1, -(2**63), 1], 2)
    again = decode(Case, encode(case), "case")
    assert again == case
    assert draw_tensor("indices", case.tensors["indices"]) == (
        "indices: int64[3] contiguous = [9223372036854775807, -9223372036854775808, 1]"
    )
