"""Memory of a burst's members is as that of a case alone, or the member is suspect."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.calls.batches import BatchRun, isolated, run_batch
from kfuzz.execution.calls.results import Invocation
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Expected
from tests.helpers import burst_kernels as kernels
from tests.helpers.poisoned import is_poison

MEMBERS = 9
SPEC = TensorSpec((4, 6), ("a", "b"), "float32", fill=Fill("randn"))
# Members 0 and 4 have storages of their own, the others share one.
MARKED = (1, 4, 7)
Kernel = Callable[[Tensor], Tensor]


pytestmark = pytest.mark.usefixtures("compiled")


def data() -> Tensor:
    """Return values of which the marked members hold a 7."""
    x = torch.randn((MEMBERS, 4, 6), generator=torch.Generator().manual_seed(0))
    x[list(MARKED), 1, 2] = 7
    return x


def run(call: Kernel, arena: Arena, spec: TensorSpec = SPEC) -> BatchRun:
    x = data() if spec is SPEC else torch.zeros((MEMBERS, *spec.shape))
    asked = Invocation(
        call, Case({"x": spec}), {"y": Expected(spec.shape, torch.float32)},
        alignment=16, around=Poison.NAN,
    )  # fmt: skip
    return run_batch(asked, {"x": x}, arena=arena, step=lambda: None)


def suspects(call: Kernel) -> set[int]:
    """Return the suspects against relu, in a second burst in the same memory."""
    arena = Arena("cpu")
    run(call, arena)
    made = run(call, arena)
    assert not made.unsupported
    wrong = ~torch.isclose(made.outputs["y"], data().clamp(min=0)).flatten(1).all(1)
    found = wrong | made.touched
    return {*found.nonzero().flatten().tolist(), *made.failed}


def test_a_view_past_the_end_raises_where_a_storage_ends() -> None:
    def padded(x: Tensor) -> Tensor:
        whole = x.as_strided((128,), (1,), x.storage_offset())
        return whole.clamp(min=0)[: x.numel()].reshape(x.shape)

    made = run(padded, Arena("cpu"))
    assert made.failed[0].startswith("raised RuntimeError: ")
    assert set(made.failed) == isolated(MEMBERS)


def test_views_within_a_tensor_are_nobody_s_matter() -> None:
    def flat(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        row = x.as_strided((6, 4), (1, 6))  # transposed
        last = torch.as_strided(out, (1,), (1,), out.storage_offset() + 23)
        last.fill_(0)
        out.t().copy_(row.clamp(min=0))
        return out

    assert suspects(flat) == set()


def constructor(x: Tensor) -> Tensor:
    return torch.Tensor(*x.shape)


def method(x: Tensor) -> Tensor:
    return x.new(x.shape)


def extended(x: Tensor) -> Tensor:
    return torch.empty(0).resize_(x.shape)


def grown_alike(x: Tensor) -> Tensor:
    return torch.empty(1).resize_as_(x)


@pytest.mark.parametrize(
    "make",
    [kernels.like, constructor, method, extended, grown_alike],
    ids=lambda m: m.__name__,
)
def test_what_few_members_allocate_otherwise_is_guarded(make: Kernel) -> None:
    fresh: list[Tensor] = []

    def right(x: Tensor) -> Tensor:
        out = kernels.relu(x)
        if kernels.marked(x):
            own = make(x)
            fresh.append(own.clone())
            out = own.copy_(out)
        return out

    assert suspects(right) == set()
    # Of each the last call counts, whose results were read.
    for number, own in zip(MARKED, fresh[-len(MARKED) :], strict=True):
        assert is_poison(own, Poison.FINITE if number % 2 else Poison.NAN).all()

    def past(x: Tensor) -> Tensor:
        if kernels.marked(x):
            own = make(x)
            kernels.poke(own, own.numel())
        return kernels.relu(x)

    assert suspects(past) == set(MARKED)


def test_a_result_in_memory_of_another_way_is_made_again() -> None:
    def past(x: Tensor) -> Tensor:
        if not kernels.marked(x):
            return kernels.relu(x)
        out = kernels.relu_default(x)
        kernels.poke(out, -1)
        return out

    assert suspects(past) == set(MARKED)


def test_an_argument_for_results_that_grows() -> None:
    def right(x: Tensor) -> Tensor:
        out = torch.empty(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch deprecates it
            return torch.clamp(x, min=0, out=out)

    assert suspects(right) == set()


def at_offset_zero(x: Tensor) -> bool:
    return x.storage_offset() == 0


def no_view(x: Tensor) -> bool:
    return not x._is_view()


def whole_storage(x: Tensor) -> bool:
    return x.untyped_storage().nbytes() == x.nbytes


@pytest.mark.parametrize("alone", [at_offset_zero, no_view, whole_storage])
@pytest.mark.parametrize("own", [False, True], ids=["argument", "own"])
def test_some_members_have_storages_of_their_own(
    alone: Callable[[Tensor], bool], own: bool
) -> None:
    def wrong(x: Tensor) -> Tensor:
        out = kernels.relu(x)
        return out.add_(1) if alone(out if own else x) else out

    assert {0, 4} <= suspects(wrong)
    assert own or suspects(wrong) == {0, 4}


def test_torch_s_functions_are_restored() -> None:
    places = [
        *((torch, n) for n in ("empty", "as_strided", "as_strided_")),
        *((Tensor, n) for n in ("as_strided", "set_", "new", "resize_", "__init__")),
        (kernels, "empty_like"),
    ]
    before = [getattr(owner, name) for owner, name in places]
    own = set(vars(Tensor))
    for kernel in (kernels.relu, kernels.raises_always):
        run(kernel, Arena("cpu"))
    assert [getattr(owner, name) for owner, name in places] == before
    assert set(vars(Tensor)) == own


def test_wrappers_of_tensors_have_no_storage_to_look_at() -> None:
    def right(x: Tensor) -> Tensor:
        def row(one: Tensor) -> Tensor:
            return torch.as_strided(one, (6,), (1,)).clamp(min=0)

        made: Tensor = torch.func.vmap(row)(x)
        return made

    assert suspects(right) == set()
