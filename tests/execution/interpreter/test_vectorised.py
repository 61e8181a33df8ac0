"""All programs of a launch at once do what they do one after the other, bit for bit."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.suite import select_classes
from kfuzz.contracts.witnesses.roster import Entry, roster
from kfuzz.core.recipe import Case, poison_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.interpreter import vectorised
from kfuzz.execution.interpreter.watch import Launches, interpreting, watch
from kfuzz.numerics.run import Run
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.kernel_draws import drawn

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)

# Where the same arguments lie differs from call to call.
PLACES = ("arguments", "results", "alone")
INTERPRETED = [e for e in roster("cpu") if e.backend == "interpret" and not e.alone]
QUICK = {
    "triton_softmax", "triton_matmul", "triton_attention", "triton_layer_norm",
    "triton_cumsum", "triton_argmax", "triton_gelu", "triton_sum_float8",
    "triton_adamw_inplace", "relu_reads_one_past", "relu_tail_store_unmasked",
    "softmax_tail_zero", "amax_stale_partials",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorised, "_skipped", {})
    monkeypatch.setattr(vectorised, "_sizes", {})


def bits(tensor: Tensor) -> tuple[object, ...]:
    flat = tensor.detach().contiguous().reshape(-1)
    return tensor.shape, tensor.dtype, flat.view(torch.uint8).numpy().tobytes()


def shown(run: Run) -> dict[str, object]:
    made: dict[str, object] = {
        f.name: repr(getattr(run, f.name)) for f in fields(run) if f.name not in PLACES
    }
    made["outputs"] = {name: bits(output) for name, output in run.outputs.items()}
    return made


@pytest.mark.parametrize(
    "entry",
    [
        e if e.witness.kernel in QUICK else pytest.param(e, marks=pytest.mark.slow)
        for e in INTERPRETED
    ],
    ids=lambda e: e.witness.kernel,
)
def test_a_witness_gives_the_same_outputs_and_findings(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = entry.load()
    setting = setting_of("cpu", SIZE_BUDGETS["interpret"], select_classes((), ()))
    evaluator = Evaluator(kernel, setting)

    def called(case: Case, least: int) -> dict[str, object]:
        monkeypatch.setattr(vectorised, "LEAST_PROGRAMS", least)
        vectorised._skipped.clear()
        derived = Derived(case, evaluator.values(case))
        return shown(evaluator.caller(case).run(derived, {}, poison_of(case)))

    for case in map(evaluator.settled, drawn(kernel, 6, "interpret")):
        assert called(case, 2) == called(case, 1 << 40)


# What kernels do besides. Each takes (x, y, n, BLOCK): BLOCK elements a program.


@triton.jit
def branches(x, y, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    if program % 2 == 0:
        value = tl.exp(value)
    elif program == 3:
        tl.store(y + at, value)
        value += 1
    tl.store(y + at, value)


@triton.jit
def loops(x, y, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(program % 3, 4):
        total += tl.load(x + part * BLOCK + tl.arange(0, BLOCK))
    turns = 0
    while turns < program % 2 + 1:
        total = total * 0.5
        turns += 1
    tl.store(y + program * BLOCK + tl.arange(0, BLOCK), total)


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b * 1.0)


@triton.jit
def pairs(a, i, b, j):
    return tl.where(a > b, a, b), tl.where(a > b, i, j)


@triton.jit
def reductions(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    best, place = tl.reduce((value, tl.arange(0, BLOCK)), 0, pairs)
    scanned = tl.associative_scan(value, 0, larger, reverse=True)
    square = tl.reshape(value, (BLOCK // 4, 4))
    rows = tl.sum(tl.trans(square), axis=0, keep_dims=True)
    whole = tl.reduce(square, None, larger)
    value = scanned + best + place + whole + tl.sum(tl.exp(square)) + tl.max(rows)
    value += tl.sum(value.to(tl.bfloat16)).to(tl.float32)
    tl.store(y + at, tl.cumsum(value.to(tl.float16), 0).to(tl.float32))


@triton.jit
def shapes(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    even, odd = tl.split(tl.reshape(value, (BLOCK // 2, 2)))
    value = tl.reshape(tl.join(odd, even), (BLOCK,))
    value = tl.gather(value, (tl.arange(0, BLOCK) * 3) % BLOCK, 0)
    value += tl.flip(tl.sort(value, 0), 0)
    counted = tl.histogram((tl.abs(value) * 4).to(tl.int32), BLOCK)
    tl.store(y + at, value + counted.to(tl.float32))


@triton.jit
def functions(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    half = (value.to(tl.float16) * 3 + 1).to(tl.float32)
    eighth = value.to(tl.float8e5).to(tl.float32)
    made = tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=r,r", [value],
        dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    value = libdevice.erf(value) + libdevice.tanh(value) + tl.erf(value) + made
    tl.store(y + at, tl.fma(value, half, eighth) + libdevice.lgamma(half))


@triton.jit
def products(x, y, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK // 4)[:, None] * 4
    a = tl.load(x + rows + tl.arange(0, 4)[None, :])
    b = tl.load(x + rows + tl.arange(0, 4)[None, :]).to(tl.bfloat16)
    made = tl.dot(tl.trans(a), a) + tl.dot(tl.trans(b), b)
    made = tl.dot(a.to(tl.float16), made.to(tl.float16))
    tl.store(y + rows + tl.arange(0, 4)[None, :], made)


@triton.jit
def descriptors(x, y, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    given = tl.make_tensor_descriptor(x, [n], [1], [BLOCK])
    taken = tl.make_tensor_descriptor(y, [n - 3], [1], [BLOCK])
    taken.store([program * BLOCK], given.load([program * BLOCK + 4]))


@triton.jit
def counts(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.atomic_add(y + tl.arange(0, BLOCK) % 5, tl.load(x + at))
    tl.store(y + BLOCK + at, before, mask=at < n - BLOCK)


@triton.jit
def out_of_range(x, y, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    whole = (tl.load(x + program) * 1e6).to(tl.uint32)
    tl.store(y + program, whole.to(tl.float32, bitcast=True))


@triton.jit
def agrees(x, y, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(y + 512, 1.0)
    tl.store(y + at + 16 * (program // 4), tl.load(x), mask=at % 7 > program % 3)
    tl.atomic_add(y + 256 + program // 2, 1.0)


TOGETHER = [
    out_of_range, agrees,
    branches, loops, reductions, shapes, functions, products, descriptors, counts,
]  # fmt: skip


@triton.jit
def shifts(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(y + at + 1, mask=at + 1 < n) + tl.load(x + at))


@triton.jit
def queues(x, y, n, BLOCK: tl.constexpr):
    place = tl.atomic_add(y, 1.0).to(tl.int32)
    tl.atomic_add(y, 1.0)
    tl.store(y + 1 + place, tl.load(x + tl.program_id(0)))


@triton.jit
def locks(x, y, n, BLOCK: tl.constexpr):
    state = y.to(tl.pointer_type(tl.int32), bitcast=True)
    while tl.atomic_cas(state, 0, 1) == 1:
        pass
    tl.store(y + 1, tl.load(y + 1) + tl.load(x + tl.program_id(0)))
    tl.atomic_xchg(state, 0)


@triton.jit
def changes(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, 2.0)
    tl.store(y, 1.0)


@triton.jit
def agree_late(x, y, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    if program > 20:
        tl.store(y + 1, 2.0)
    tl.store(y + 1, 1.0)


@triton.jit
def prints(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))
    tl.device_print("program", tl.program_id(0))


@triton.jit
def differs(x, y, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    total = tl.load(x + program)
    for _ in range(program):
        total += 1
    tl.store(y + program, total)


@triton.jit
def fails(x, y, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    tl.store(y + program, tl.load(x + program))
    assert program < 5, "no such program"


ALONE = {
    shifts: "a store meets another program's load",
    queues: "an atomic meets another program's atomic",
    changes: "a store meets another program's store",
    agree_late: "a store meets another program's store",
    locks: "a compare-and-swap",
    prints: "values are printed",
    differs: "programs take many paths",
    fails: "AssertionError",
}


def launched(
    made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, least: int, **how: Any
) -> tuple[list[object], Launches]:
    monkeypatch.setattr(vectorised, "LEAST_PROGRAMS", least)
    chance = torch.Generator().manual_seed(7)
    x = torch.randn(24 * 32, generator=chance)
    x[::41], x[5::43], x[7::47] = -0.0, torch.inf, -3e4
    y = torch.zeros(24 * 32)
    raised = ""
    with watch(**how) as seen:
        try:
            made[(24,)](x, y, x.numel(), BLOCK=32)
        except Exception as error:
            raised = repr(error)
    return [bits(x), bits(y), raised], seen


@pytest.mark.parametrize("made", [*TOGETHER, *ALONE], ids=lambda k: k.__name__)
@pytest.mark.parametrize("how", [{}, {"reverse": True}, {"last": (2, 0, 0)}], ids=str)
def test_programs_run_at_once_where_that_changes_nothing(
    made: Callable[..., Any],
    how: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, seen = launched(made, monkeypatch, 2, **how)
    printed = capsys.readouterr().out
    wanted, alone = launched(made, monkeypatch, 1 << 40, **how)
    assert found == wanted
    assert printed == capsys.readouterr().out
    assert (alone.at_once, alone.programs) == (0, seen.programs)
    assert seen.at_once == (made in TOGETHER)
    assert dict(seen.alone) == ({ALONE[made]: 1} if made in ALONE else {})


def test_a_grid_is_cut_where_values_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = "kfuzz.execution.interpreter.programs.LIMIT_BYTES"
    monkeypatch.setattr(limit, 2048)
    for made in TOGETHER:
        found, seen = launched(made, monkeypatch, 2)
        assert found == launched(made, monkeypatch, 1 << 40)[0], made
        many = made is branches  # three paths of three parts
        assert seen.alone == ({"programs take many paths": 1} if many else {})
    monkeypatch.setattr(limit, 512)
    _, seen = launched(products, monkeypatch, 2)
    assert seen.alone == {"its blocks are large": 1}


def test_a_kernel_that_must_run_alone_is_tried_less_and_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []
    original = vectorised._run

    def counted(*operands: Any) -> None:
        tried[-1] += 1
        original(*operands)

    monkeypatch.setattr(vectorised, "_run", counted)
    for _ in range(8):
        tried.append(0)
        why = launched(shifts, monkeypatch, 2)[1].alone
        assert list(why) == ["a store meets another program's load"]
    # Once more where it is seen that it loads what it stores.
    assert tried == [1, 0, 1, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numpy_computes_each_program_as_it_does_alone(dtype: Any) -> None:
    chance = np.random.default_rng(1)
    unary = [np.exp, np.exp2, np.log, np.log2, np.sin, np.cos, np.sqrt, np.tanh]
    sums = [np.add, np.fmax, np.fmin, np.multiply]
    for width in (1, 3, 8, 17, 64, 130, 9000):
        x = (chance.standard_normal((5, width)) * 30).astype(dtype)
        x[:, ::11], x[:, 7::13] = -0.0, np.nan
        word = f"u{x.itemsize}"
        with np.errstate(all="ignore"):
            for function in unary if dtype != np.float16 else (np.sqrt,):
                alone = np.stack([function(row) for row in x])
                assert np.array_equal(function(x).view(word), alone.view(word))
            for layout in (x, x.reshape(5, -1, 1), np.stack([x, -x], 2)):
                for reduced in sums:
                    for axis in range(1, layout.ndim):
                        made = reduced.reduce(layout, axis=axis)
                        rows = [reduced.reduce(part, axis=axis - 1) for part in layout]
                        alone = np.stack(rows)
                        assert np.array_equal(made.view(word), alone.view(word))
