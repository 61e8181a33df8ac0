"""What calls on a GPU are made to meet: poison, other work, errors left behind.

Shared memory is poisoned for this process alone: what other processes run on the GPU in
between may overwrite it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.witnesses.gpu import launching
from kfuzz.core.budget import Depth
from kfuzz.core.errors import BuildError, HarnessError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.cuda.code import compiled, largest_shared
from kfuzz.cuda.driver import torch_runtime
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.surroundings import (
    POISON_BYTES,
    Company,
    Surroundings,
    _stream,
    hold_multiprocessors,
    poison_free,
    poison_shared,
    stir_memory,
    surroundings_of,
    word_of,
)
from kfuzz.execution.memory.poison import Poison
from tests.helpers.judged_cases import bench_of

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda", 0)
ROOT = Path(__file__).resolve().parents[2]
THREADS = 64
MANY_BLOCKS = 1 << 17  # more than a grid may have in y and z

SOURCE = """
extern "C" __global__ void relu(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

// Adds what lies in shared memory, which is 0 if it was set.
extern "C" __global__ void relu_shared(const float *x, float *y, int n, int set) {
  __shared__ volatile float tile[64];
  if (set) tile[threadIdx.x] = 0.0f;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (x[i] > 0.0f ? x[i] : 0.0f) + tile[threadIdx.x];
}

// Two warps exchange their elements. Each block reads after a time of its own, which
// for some is about as long as a load takes.
extern "C" __global__ void relu_exchange(const float *x, float *y, int n, int wait) {
  __shared__ volatile float tile[64];
  int t = threadIdx.x, other = t ^ 32;
  int i = blockIdx.x * 64 + t, j = blockIdx.x * 64 + other;
  tile[t] = 0.0f;
  __syncthreads();
  long long start = clock64();
  if (i < n) tile[t] = x[i] > 0.0f ? x[i] : 0.0f;
  if (wait) __syncthreads();
  while (clock64() - start < (blockIdx.x * 29) % 1500) {}
  if (j < n) y[j] = tile[other];
}

extern "C" __global__ void sum_atomic(const float *x, float *y, int n, int all) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < all) atomicAdd(y + i / n, x[i]);
}

// Copies what shared memory holds when a block starts.
extern "C" __global__ void look(unsigned *seen, int words) {
  extern __shared__ volatile unsigned memory[];
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    seen[blockIdx.x * words + i] = memory[i];
}

extern "C" __global__ void write_nowhere(float *x) { x[threadIdx.x] = 1.0f; }
"""


PROGRAM = launching.Program(SOURCE)


def case_of(*shape: int, seed: int = 2, **scalars: int) -> Case:
    axes = tuple(f"d{i}" for i in range(len(shape)))
    spec = TensorSpec(shape, axes, "float32", fill=Fill("randn", seed))
    return Case({"x": spec}, scalars)  # type: ignore[arg-type]


def judged(
    operator: Operator,
    function: Callable[..., object],
    case: Case,
    *,
    depth: Depth = Depth.FULL,
    **claims: object,
) -> CaseReport:
    claims = {"dtypes": "float32", "layouts": "contiguous", **claims}
    return bench_of(operator, function, backend="cuda:0", **claims).judge(case, depth)


def launched(name: str, x: Tensor, *more: int) -> Tensor:
    """Launch a kernel with a thread for each element."""
    y = torch.empty_like(x)
    blocks = -(-x.numel() // THREADS)
    compiled(SOURCE, name, x.device)(blocks, THREADS, (x, y, x.numel(), *more))
    return y


def attributed(report: CaseReport) -> tuple[str, Kind]:
    assert report.failure is not None, f"nothing was found: {report}"
    return report.failure.contract, report.failure.kind


def clean(report: CaseReport) -> None:
    assert report.failure is None, report.failure
    assert report.error is None, report.error
    assert report.unsupported is None, report.unsupported


def test_everything_works_here() -> None:
    runtime, around = torch_runtime(), surroundings_of(GPU)
    assert runtime is not None, "torch's runtime library was not found"
    assert around is not None
    around.prepare()
    assert not around.lacking
    assert backend_of(GPU).ailment(GPU) is None
    assert runtime.last_error() == 0
    assert largest_shared(GPU) > 48 * 1024


def test_cuda_cpp_is_compiled_and_refusals_are_told() -> None:
    x = torch.randn(1000, device=GPU)
    assert torch.equal(launched("relu", x), torch.relu(x))
    with pytest.raises(BuildError, match=r"kernel\.cu\(1\): error"):
        compiled("this is no C++", "f", GPU)
    with pytest.raises(HarnessError, match="NOT_FOUND"):
        compiled(SOURCE, "no_such_kernel", GPU)
    look = compiled(SOURCE, "look", GPU)
    with pytest.raises(HarnessError, match="INVALID_VALUE"):
        look(1, 32, (x.int(), 0), largest_shared(GPU) + 1024)
    assert backend_of(GPU).ailment(GPU) is None


@pytest.mark.parametrize("poison", list(Poison))
@pytest.mark.parametrize("nbytes", [1024, 16 << 10, 48 << 10, 160 << 10])
def test_shared_memory_holds_poison(poison: Poison, nbytes: int) -> None:
    nbytes = min(nbytes, largest_shared(GPU))
    words = nbytes // 4
    blocks = torch.cuda.get_device_properties(GPU).multi_processor_count
    seen = torch.zeros(blocks, words, dtype=torch.int32, device=GPU)
    look, full = compiled(SOURCE, "look", GPU), []
    for _ in range(5):
        poison_shared(GPU, poison)
        look(blocks, 256, (seen, words), nbytes)
        held = (seen == word_of(poison)).sum(1).cpu()
        full.append(int((held == words).sum()))
    assert max(full) == blocks, (
        f"{full} of {blocks} blocks found nothing but poison in {nbytes} bytes; at "
        f"last {int(held.sum())} of {blocks * words} words were poison"
    )


@pytest.mark.parametrize("poison", list(Poison))
def test_free_memory_holds_poison(poison: Poison) -> None:
    runtime = torch_runtime()
    assert runtime is not None
    torch.cuda.empty_cache()
    kept = [torch.ones(1 << n, device=GPU) for n in (8, 12, 20)]
    del kept
    total = poison_free(GPU, poison, runtime)
    assert total >= 4 << 20, total
    for nbytes in (1 << 10, 1 << 14, 1 << 22):
        pointer = torch.cuda.caching_allocator_alloc(nbytes, GPU)
        try:
            # Compared on the CPU: what is made on the GPU lies in the same blocks.
            found = wrapped(pointer, (nbytes // 4,)).view(torch.uint8).cpu()
            share = float((found == POISON_BYTES[poison]).float().mean())
        finally:
            torch.cuda.caching_allocator_delete(pointer)
        assert share == 1.0, f"{share:.2%} of {nbytes} bytes are poison"
    x = torch.arange(1000, device=GPU)
    poison_free(GPU, poison, runtime)
    assert torch.equal(x.cpu(), torch.arange(1000)), "memory in use was overwritten"


class _Memory:
    """Float32 at an address, as other libraries take it; given back where owned."""

    def __init__(self, pointer: int, shape: tuple[int, ...], owned: bool) -> None:
        self.pointer, self.owned = pointer, owned
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "data": (pointer, False),
            "version": 3,
        }

    def __del__(self) -> None:
        if self.owned:
            torch.cuda.caching_allocator_delete(self.pointer)


def wrapped(pointer: int, shape: tuple[int, ...], *, owned: bool = False) -> Tensor:
    return torch.as_tensor(_Memory(pointer, shape, owned), device=GPU)


def below_python(x: Tensor) -> Tensor:
    """Return memory that no dispatch mode saw allocated."""
    pointer = torch.cuda.caching_allocator_alloc(4 * x.numel(), x.device)
    return wrapped(pointer, tuple(x.shape), owned=True)


def test_a_stale_result_from_below_python_is_found() -> None:
    report = judged(ops.relu, below_python, case_of(16, 64))
    assert attributed(report) == ("K-MEM-02", Kind.UNWRITTEN), report.failure


def test_memory_from_below_python_that_is_written_is_no_fault() -> None:
    def written(x: Tensor) -> Tensor:
        return below_python(x).copy_(torch.relu(x))

    clean(judged(ops.relu, written, case_of(16, 64)))


def test_a_stale_result_is_found_in_every_case() -> None:
    for seed in range(1, 9):
        case = case_of(8, 32, seed=seed)
        report = judged(
            ops.relu, lambda x: torch.empty_like(x), case, depth=Depth.SEARCH
        )
        assert attributed(report) == ("K-MEM-02", Kind.UNWRITTEN), report.failure


def test_uninitialised_shared_memory_is_found() -> None:
    report = judged(ops.relu, lambda x: launched("relu_shared", x, 0), case_of(8, 64))
    # What another process on the device leaves there varies from call to call, and may
    # be what it was in the call before.
    found = (
        ("K-MEM-02", Kind.UNWRITTEN),
        ("C-ORD-02", Kind.NONDETERMINISTIC),
        ("K-REF-01", Kind.STALE_RESULT),
        ("K-REF-01", Kind.SEED_DEPENDENT),
    )
    assert attributed(report) in found, report.failure


def test_shared_memory_that_is_set_is_no_fault() -> None:
    clean(judged(ops.relu, lambda x: launched("relu_shared", x, 1), case_of(8, 64)))


def through_runtime(
    name: str, x: Tensor, *, rows: int = 1, shared: int = 0, y: Tensor | None = None
) -> Tensor:
    """Launch as `<<<...>>>` does whose error nobody asks for."""
    y = torch.zeros_like(x) if y is None else y
    grid, values = (-(-x.numel() // THREADS), rows), (x, y, x.numel())
    PROGRAM.launch(name, grid, (THREADS,), values, checked=False, shared=shared)
    return y


# What the runtime calls a grid that is too large, by its version.
REFUSED = ("cudaErrorInvalidConfiguration", "cudaErrorInvalidValue")


@pytest.fixture(autouse=True)
def _nothing_pending() -> Iterator[None]:
    """Leave no error to the next test."""
    yield
    runtime = torch_runtime()
    if runtime is not None:
        runtime.clear_error()


def test_a_grid_that_is_too_large_is_charged() -> None:
    def unchecked(x: Tensor) -> Tensor:
        return through_runtime("relu", x, rows=MANY_BLOCKS)

    report = judged(ops.relu, unchecked, case_of(8, 32))
    assert attributed(report) == ("K-LIV-01", Kind.UNCHECKED_LAUNCH), report.failure
    assert report.failure is not None
    assert report.failure.detail in REFUSED
    # The next case starts clean.
    clean(judged(ops.relu, torch.relu, case_of(8, 32)))


def test_too_much_shared_memory_is_charged() -> None:
    def unchecked(x: Tensor) -> Tensor:
        return through_runtime("relu", x, shared=1 << 20)

    report = judged(ops.relu, unchecked, case_of(8, 32))
    assert attributed(report) == ("K-LIV-01", Kind.UNCHECKED_LAUNCH), report.failure
    assert report.failure is not None
    assert report.failure.detail == "cudaErrorInvalidValue"


def test_a_failed_launch_is_charged_though_the_result_is_right() -> None:
    def unchecked(x: Tensor) -> Tensor:
        y = torch.relu(x)
        through_runtime("relu", x, rows=MANY_BLOCKS, y=y)
        return y

    # Only what nothing but a launch leaves is charged beside a right result.
    x = torch.randn(64, device=GPU)
    through_runtime("relu", x, rows=MANY_BLOCKS, y=torch.empty_like(x))
    runtime = torch_runtime()
    assert runtime is not None
    name = runtime.name(runtime.clear_error())
    report = judged(ops.relu, unchecked, case_of(8, 32))
    if name == REFUSED[0]:
        assert attributed(report) == ("K-LIV-01", Kind.UNCHECKED_LAUNCH), report.failure
    else:
        clean(report)


def test_launches_that_succeed_are_no_fault() -> None:
    clean(judged(ops.relu, lambda x: through_runtime("relu", x), case_of(8, 32)))


def test_an_error_of_an_earlier_call_is_not_charged() -> None:
    x = torch.randn(64, device=GPU)
    torch.cuda.synchronize()
    through_runtime("relu", x, rows=MANY_BLOCKS, y=torch.empty_like(x))
    runtime = torch_runtime()
    assert runtime is not None
    assert runtime.name(runtime.last_error()) in REFUSED
    runtime.clear_error()
    assert runtime.last_error() == 0
    clean(judged(ops.relu, torch.relu, case_of(8, 32)))


def test_a_missing_barrier_is_a_race() -> None:
    def racing(x: Tensor) -> Tensor:
        return launched("relu_exchange", x, 0)

    report = judged(ops.relu, racing, case_of(64, 512))
    assert attributed(report) == ("C-ORD-02", Kind.NONDETERMINISTIC), report.failure


def test_with_the_barrier_there_is_none() -> None:
    def waiting(x: Tensor) -> Tensor:
        return launched("relu_exchange", x, 1)

    report = judged(ops.relu, waiting, case_of(64, 512))
    clean(report)
    assert report.verdicts["C-ORD-02"] is Verdict.CONFORMS


def atomic(x: Tensor, dim: int) -> Tensor:
    assert dim in (-1, x.dim() - 1)
    y = torch.zeros(x.shape[:-1], device=x.device)
    blocks = -(-x.numel() // THREADS)
    sizes = (x.shape[-1], x.numel())
    compiled(SOURCE, "sum_atomic", x.device)(blocks, THREADS, (x, y, *sizes))
    return y


SUMMED = case_of(4, 16384, dim=-1)


@pytest.mark.parametrize("claimed", ["bitwise", "run_to_run"])
def test_atomics_declared_deterministic_are_not(claimed: str) -> None:
    report = judged(ops.sum, atomic, SUMMED, dims={-1}, determinism=claimed)
    assert attributed(report) == ("C-ORD-02", Kind.NONDETERMINISTIC), report.failure


def test_atomics_that_promise_nothing_are_no_fault() -> None:
    report = judged(ops.sum, atomic, SUMMED, dims={-1}, determinism="none")
    clean(report)
    assert "C-ORD-02" not in report.verdicts


@pytest.mark.parametrize("seed", range(1, 9))
def test_torch_is_deterministic_under_load(seed: int) -> None:
    every = [
        judged(ops.relu, torch.relu, case_of(37, 65, seed=seed)),
        judged(
            ops.softmax,
            lambda x, dim: torch.softmax(x, dim),
            case_of(17, 300, seed=seed, dim=-1),
        ),
        judged(
            ops.sum,
            lambda x, dim: torch.sum(x, dim),
            case_of(9, 5000, seed=seed, dim=-1),
        ),
    ]
    for report in every:
        clean(report)
        assert report.verdicts["C-ORD-02"] is Verdict.CONFORMS
        assert not [n for n in report.notes if "poison" in n or "unseen" in n]


@pytest.mark.parametrize("company", ["held", "copies"])
def test_company_runs_beside_other_streams(company: str) -> None:
    x = torch.randn(64, device=GPU)
    launched("relu", x)
    beside = 0
    for _ in range(10):  # the first time it is compiled, or takes its memory
        torch.cuda.synchronize()
        if company == "held":
            hold_multiprocessors(GPU, Poison.NAN)
        else:
            stir_memory(GPU)
        y = torch.relu(x)
        torch.cuda.current_stream().synchronize()
        beside += not _stream(GPU).query()
        torch.cuda.synchronize()
    assert beside, "the other work was over before a small kernel was"
    assert torch.equal(y, torch.relu(x))


def test_a_replay_meets_the_delays_of_the_recipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[tuple[Company, int]] = []
    begin = Surroundings.begin

    def noted(
        around: Surroundings, company: Company, poison: Poison, delay: int = 0
    ) -> bool:
        if company is not Company.NONE:
            begun.append((company, delay))
        return begin(around, company, poison, delay)

    monkeypatch.setattr(Surroundings, "begin", noted)
    evaluator = bench_of(
        ops.relu, torch.relu, backend="cuda:0", dtypes="float32", layouts="contiguous"
    )
    pinned = evaluator.pin(case_of(37, 65))
    assert pinned.delays is not None
    clean(evaluator.judge(pinned, Depth.FULL))
    first = begun.copy()
    begun.clear()
    clean(evaluator.judge(pinned, Depth.FULL))
    assert begun == first
    assert {company for company, _ in first} == {Company.HELD, Company.STIRRED}
    assert len({delay for _, delay in first}) > 2
    begun.clear()
    clean(evaluator.judge(replace(pinned, delays=pinned.delays + 100), Depth.FULL))
    assert [company for company, _ in begun] == [company for company, _ in first]
    assert begun != first


FAULT = f"""
import torch
from kfuzz.execution.device.backends import backend_of
from kfuzz.cuda.code import compiled
from tests.gpu.test_probes_gpu import SOURCE
device = torch.device("cuda", 0)
gpu = backend_of(device)
assert gpu.ailment(device) is None, gpu.ailment(device)
import ctypes
compiled(SOURCE, "write_nowhere", device)(1, {THREADS}, (ctypes.c_void_p(64),))
print("ailing:", gpu.ailment(device))
"""


def test_a_device_after_a_fault_is_seen_to_be_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULT], cwd=ROOT, capture_output=True, text=True,
        timeout=80, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ailing: " in done.stdout, done.stderr[-2000:]
    assert "illegal" in done.stdout, done.stdout
    assert backend_of(GPU).ailment(GPU) is None
