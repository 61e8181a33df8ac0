"""What Triton's interpreter is seen to do to memory, and what is legal."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Access
from kfuzz.execution.calls.results import Invocation, Options, execute
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Run
from tests.helpers import address_kernels as kernels

pytestmark = [
    pytest.mark.skipif(not interpreting(), reason="Triton compiles kernels here"),
    pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated"),
]
SOURCE = Path(kernels.__file__).read_text(encoding="utf-8").splitlines()
FIRST = (0, 0, 0)
BLOCK_POINTERS = hasattr(
    sys.modules["triton.runtime.interpreter"], "BlockPointerHandle"
)


def run(call: Callable[..., object], *specs: TensorSpec, **options: object) -> Run:
    """Run a kernel's wrapper on 1, 2, 3, ... in each argument."""
    made = attempted(call, *specs, **options)
    assert made.raised is None, made.raised
    return made


def attempted(
    call: Callable[..., object], *specs: TensorSpec, **options: object
) -> Run:
    """Run it where it may raise."""
    names = ["x", "z"][: len(specs)]
    values = {}
    for name, spec in zip(names, specs, strict=True):
        dtype = getattr(torch, spec.dtype)
        values[name] = torch.arange(1, spec.numel + 1).to(dtype).reshape(spec.shape)
    case = Case(dict(zip(names, specs, strict=True)))
    asked = Invocation(call, case, {}, alignment=16, around=Poison.NAN)
    return execute(asked, values, arena=Arena("cpu"), fresh=Poison.NAN, **options)


def accesses(call: Callable[..., object], *specs: TensorSpec) -> tuple[Access, ...]:
    return run(call, *specs).accesses


def vector(n: int, dtype: str = "float32", **layout: object) -> TensorSpec:
    return TensorSpec((n,), ("N",), dtype, values=bytes(0), **layout)


def line(mark: str) -> str:
    (number,) = (i for i, text in enumerate(SOURCE, 1) if text.endswith(f"# {mark}"))
    return f"tests/helpers/address_kernels.py:{number}"


def copied(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    kernels.copy[(2,)](x, y, x.numel(), BLOCK=4)
    return y


def test_masked_lanes_are_nobodys_business() -> None:
    assert accesses(copied, vector(5)) == ()


def test_an_unmasked_load_is_seen_though_its_values_are_unused() -> None:
    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        kernels.load_all[(3,)](x, y, x.numel(), BLOCK=4)
        return y

    made = run(call, vector(5))
    assert made.accesses == (
        Access(
            "load", "x", "x", "after", distance=1, offset=5, count=3 + 4,
            program=(1, 0, 0), line=line("load_all: stray"),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("programs", [1, 16])
def test_what_lies_beside_is_no_part_of_an_argument(programs: int) -> None:
    def call(x: Tensor) -> Tensor:
        n = 4 * programs - 1
        memory = torch.zeros(2 * n).numpy()
        y, beside = torch.from_numpy(memory[:n]), torch.from_numpy(memory[n:])
        assert beside.data_ptr() == y.data_ptr() + 4 * n
        kernels.load_all[(programs,)](y, beside, n, BLOCK=4)
        return x.clone()

    (found,) = run(call, vector(5)).accesses
    assert (found.access, found.where, found.distance) == ("load", "after", 1)
    assert found.count == 1


@pytest.mark.parametrize(
    ("kernel", "access"), [("store_all", "store"), ("add_all", "atomic")]
)
def test_a_stray_write_is_seen_and_not_carried_out(kernel: str, access: str) -> None:
    def call(x: Tensor) -> Tensor:
        y = torch.zeros(5).contiguous()
        out = torch.empty(5)
        out.copy_(y)
        getattr(kernels, kernel)[(1,)](x, out, 5, BLOCK=8)
        return out

    made = run(call, vector(5))
    (found,) = made.accesses
    assert (found.access, found.argument, found.where) == (access, "", "after")
    assert found.memory == "its own float32[5]"
    assert (found.distance, found.offset, found.count) == (1, 5, 3)
    assert found.line == line(f"{kernel}: stray")
    assert made.strays == ()


@pytest.mark.parametrize(("where", "side", "far"), [(3, "after", 1), (-2, "before", 2)])
def test_a_stray_compare_and_swap_is_dropped(where: int, side: str, far: int) -> None:
    def call(x: Tensor) -> None:
        kernels.swap_past[(1,)](x, where)

    made = run(call, vector(3, "int32"))
    (found,) = made.accesses
    assert (found.access, found.where, found.distance) == ("atomic", side, far)
    assert made.touches == ()


def test_the_storage_in_front_of_a_view_is_not_the_kernels() -> None:
    def call(x: Tensor) -> None:
        kernels.load_at[(1,)](x, torch.empty(1), -1)

    (found,) = accesses(call, vector(3, offset=4))
    assert (found.access, found.argument, found.where) == ("load", "x", "before")
    assert (found.distance, found.offset) == (1, -1)


def test_slack_may_be_loaded_but_not_stored_to() -> None:
    def loads(x: Tensor) -> None:
        kernels.load_at[(1,)](x, torch.empty(1), 1)

    def stores(x: Tensor) -> None:
        kernels.store_at[(1,)](x, 4)

    spaced = vector(3, strides=(3,))
    assert accesses(loads, spaced) == ()
    made = run(stores, spaced)
    (found,) = made.accesses
    assert (found.access, found.argument, found.where) == ("store", "x", "slack")
    assert (found.distance, found.offset, found.count) == (1, 4, 1)
    assert made.touches == ()


def test_the_line_is_that_of_the_users_innermost_function() -> None:
    def call(x: Tensor) -> None:
        kernels.sum_inner[(1,)](x, torch.empty(1), BLOCK=4)

    (found,) = accesses(call, vector(3))
    assert found.line == line("inner_load: stray")


def test_far_away_the_argument_is_still_known() -> None:
    def call(x: Tensor) -> None:
        kernels.load_at[(1,)](x, torch.empty(1), 1 << 33)

    (found,) = accesses(call, vector(3))
    assert (found.argument, found.where) == ("x", "after")
    assert (found.offset, found.distance) == (1 << 33, (1 << 33) - 2)


def test_offsets_that_overflow_int32_are_seen_without_the_memory() -> None:
    def call(x: Tensor) -> None:
        y = torch.empty(3, 4)
        kernels.load_rows[(3,)](x, y, x.stride(0), COLUMNS=4)

    spec = TensorSpec(
        (3, 4), ("M", "N"), "float32", strides=(1 << 30, 1), values=bytes(0)
    )
    (found,) = accesses(call, spec)
    assert (found.argument, found.where, found.program) == ("x", "before", (2, 0, 0))
    assert (found.distance, found.count) == (2**31 - 3, 4)
    assert found.line == line("load_rows: stray")


def test_stray_loads_give_poison() -> None:
    got = []

    def call(x: Tensor) -> None:
        y = torch.empty(1)
        kernels.load_at[(1,)](x, y, 3)
        got.append(y.view(torch.int32).item())

    run(call, vector(3))
    assert got == [0x7FC5A5A5]


def test_reads_of_what_nothing_wrote() -> None:
    def call(x: Tensor) -> Tensor:
        scratch, y = torch.empty(4), torch.empty(4)
        kernels.copy[(1,)](x, scratch, 3, BLOCK=4)
        kernels.load_all[(1,)](scratch, y, 4, BLOCK=4)
        return y

    (found,) = accesses(call, vector(3))
    assert (found.access, found.where, found.memory) == (
        "load", "unwritten", "its own float32[4]",
    )  # fmt: skip
    assert (found.offset, found.count, found.distance) == (3, 1, 0)


WRITERS = {
    "fill": lambda y: y.fill_(2.0),
    "view": lambda y: y[1:].zero_(),
    "out": lambda y: torch.add(torch.ones(4), 1.0, out=y),
    "numpy": lambda y: np.copyto(y.numpy(), 3.0),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_torch_or_numpy_wrote_is_written(writer: str) -> None:
    def call(x: Tensor) -> None:
        scratch = torch.empty(4)
        WRITERS[writer](scratch)
        kernels.load_all[(1,)](scratch, torch.empty(4), 4, BLOCK=4)

    assert accesses(call, vector(3)) == ()


def test_two_programs_that_store_different_values_race() -> None:
    def call(x: Tensor) -> Tensor:
        y = torch.empty(1)
        kernels.store_program[(2,)](y)
        return y

    (found,) = accesses(call, vector(3))
    assert found == Access(
        "store", "", "its own float32[1]", "race", program=(1, 0, 0), other=FIRST,
        line=line("store_program: race"), other_access="store",
        other_line=line("store_program: race"),
    )  # fmt: skip


def test_an_atomic_elsewhere_orders_nothing() -> None:
    def call(x: Tensor) -> None:
        counters = torch.zeros(3, dtype=torch.int32)
        kernels.store_after_unrelated_atomic[(3,)](counters, torch.empty(1))

    (found,) = accesses(call, vector(3))
    assert (found.where, found.program, found.other) == ("race", (1, 0, 0), FIRST)
    assert found.count == 2


def locked(x: Tensor) -> None:
    y, lock = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    kernels.locked[(4,)](lock, y)
    assert y.item() == 1 * 4 + 2 * 2 + 3


def last_one(x: Tensor) -> None:
    counter = torch.zeros(1, dtype=torch.int32)
    kernels.last_one_stores[(3,)](counter, torch.empty(1), PROGRAMS=3)


UNCHARGED = {
    "the same value": lambda x: kernels.store_one[(3,)](torch.empty(1)),
    "atomics": lambda x: kernels.count[(3,)](torch.zeros(1)),
    "neighbouring bytes": lambda x: kernels.store_bytes[(3,)](
        torch.empty(4, dtype=torch.int8)
    ),
    "bfloat16 atomics": lambda x: kernels.add_in_bf16[(3,)](
        torch.zeros(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16), 3,
        BLOCK=4,
    ),
    "a spin lock": locked,
    "the last to arrive": last_one,
}  # fmt: skip


@pytest.mark.parametrize("call", UNCHARGED)
def test_what_is_ordered_or_equal_is_no_race(call: str) -> None:
    assert accesses(UNCHARGED[call], vector(3)) == ()


def test_two_launches_in_turn_do_not_race() -> None:
    def call(x: Tensor) -> None:
        y = torch.empty(1)
        kernels.store_one[(2,)](y)
        kernels.store_at[(1,)](y, 0)
        kernels.store_program[(1,)](y)

    assert accesses(call, vector(3)) == ()


class Kept:
    """A wrapper that keeps a workspace, as many do."""

    workspace: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.workspace is None:
            self.workspace = torch.empty(8)
        y = torch.empty_like(x)
        kernels.copy[(1,)](x, self.workspace, 3, BLOCK=4)
        kernels.copy[(1,)](self.workspace, y, 3, BLOCK=4)
        return y


def test_a_workspace_kept_between_calls_is_legal() -> None:
    call = Kept()
    assert accesses(call, vector(3)) == ()
    assert accesses(call, vector(3)) == ()


def tables(x: Tensor) -> None:
    y = torch.empty(3)
    table = torch.tensor([x.data_ptr(), y.data_ptr()])
    kernels.through_table[(1,)](table, 3, BLOCK=4)


OUTSIDE = torch.ones(3)


def unknown_tables(x: Tensor) -> None:
    unseen = torch.zeros(3)  # lies where kfuzz does not look, and is alive
    table = torch.tensor([OUTSIDE.data_ptr(), unseen.data_ptr()])
    kernels.through_table[(1,)](table, 3, BLOCK=4)
    assert unseen.tolist() == [1.0, 1.0, 1.0]


def test_a_descriptor_store_past_the_end_of_a_row_fills_its_sector() -> None:
    def call(x: Tensor) -> None:
        target = TensorDescriptor(x, [3, 6], [8, 1], [4, 8])
        full = TensorDescriptor(torch.ones(3, 8), [3, 8], [8, 1], [4, 8])
        kernels.given_descriptors[(1,)](full, target)

    def rows(columns: int) -> TensorSpec:
        axes = ("M", "N")
        return TensorSpec((3, columns), axes, "float32", strides=(8, 1), values=b"")

    # Of the last row there is nothing beyond its elements.
    last, others = accesses(call, rows(6))
    assert (last.access, last.where, last.offset, last.count) == (
        "store", "after", 22, 2,
    )  # fmt: skip
    assert (others.where, others.offset, others.count) == ("slack", 6, 4)
    assert accesses(call, rows(8)) == ()


def descriptors(x: Tensor) -> None:
    a, b = torch.ones(3, 8), torch.empty(3, 8)
    kernels.through_descriptor[(1,)](a, b, 3, 8, BLOCK=8)
    given = [TensorDescriptor(t, [3, 8], [8, 1], [4, 8]) for t in (a, b)]
    kernels.given_descriptors[(1,)](*given)


LEGAL = {
    "a copy": lambda x: copied(x[::2].contiguous()),
    "a view": lambda x: copied(x[1:]),
    "zeros": lambda x: kernels.copy[(1,)](x, torch.zeros(3), 3, BLOCK=4),
    "a parameter": lambda x: copied(torch.nn.Parameter(torch.ones(3)).data),
    "a tuple": lambda x: kernels.add_pairs[(1,)]((x, torch.empty(3)), 3, BLOCK=4),
    "pointer tables": tables,
    "tables of tensors unknown": unknown_tables,
    "descriptors": descriptors,
}


if BLOCK_POINTERS:
    LEGAL["blocks"] = lambda x: kernels.through_blocks[(1,)](
        x, torch.empty(3), 3, BLOCK=4
    )


@pytest.mark.parametrize("call", LEGAL)
def test_what_a_launch_may_reach(call: str) -> None:
    assert accesses(LEGAL[call], vector(3)) == ()


@pytest.mark.skipif(not BLOCK_POINTERS, reason="this Triton has none")
def test_an_unchecked_block_pointer_is_seen() -> None:
    def call(x: Tensor) -> None:
        kernels.unchecked_block[(1,)](x, torch.empty(1), 3, BLOCK=4)

    (found,) = accesses(call, vector(3))
    assert (found.argument, found.where, found.distance) == ("x", "after", 1)
    assert found.line == line("unchecked_block: stray")


def test_a_table_s_pointer_that_strays_in_kfuzz_s_memory_is_charged() -> None:
    def call(x: Tensor) -> None:
        table = torch.tensor([x.data_ptr(), torch.empty(4).data_ptr()])
        kernels.through_table[(1,)](table, 4, BLOCK=4)

    (found,) = accesses(call, vector(3))
    assert (found.argument, found.where, found.distance) == ("x", "after", 1)


def test_programs_can_run_in_reverse() -> None:
    def call(x: Tensor) -> Tensor:
        kernels.store_program[(3,)](x)
        return x

    made = run(call, vector(1), options=Options(reverse=True))
    (found,) = made.accesses
    assert (found.program, found.other) == ((1, 0, 0), (2, 0, 0))


def taking_turns(x: Tensor, *, programs: int, after: bool) -> Tensor:
    turn = torch.zeros(1, dtype=torch.int32)
    kernels.take_turns[(programs,)](turn, x, AFTER=after)
    return x


def test_a_wait_for_a_later_program_is_not_judged() -> None:
    # It would wait for ever here, and on a GPU it need not.
    def call(x: Tensor) -> Tensor:
        return taking_turns(x, programs=2, after=True)

    made = attempted(call, vector(1))
    assert made.raised is not None
    assert made.raised.backend
    assert "waits for one that comes after it" in made.raised.message


def test_an_order_that_a_kernel_forbids_is_given_up() -> None:
    def call(x: Tensor) -> Tensor:
        return taking_turns(x, programs=3, after=False)

    assert run(call, vector(1)).accesses == ()
    assert attempted(call, vector(1), options=Options(reverse=True)).raised is not None


def test_a_scalar_loaded_often_is_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfuzz.execution.interpreter.memory._MOST_POLLS", 8)

    def call(x: Tensor) -> None:
        kernels.fill_with_first[(2,)](x, torch.empty(40), 40)

    assert accesses(call, vector(1)) == ()


def test_accesses_survive_an_exception() -> None:
    def call(x: Tensor) -> None:
        kernels.load_at[(1,)](x, torch.empty(1), 3)
        raise ValueError("afterwards")

    made = attempted(call, vector(3))
    assert made.raised is not None
    assert [a.where for a in made.accesses] == ["after"]
