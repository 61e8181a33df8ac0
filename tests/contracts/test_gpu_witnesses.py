"""Witnesses for a GPU, as far as they can be tried without one."""

import ctypes
import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kfuzz.contracts.binding import REGISTRY
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.suite import select_classes
from kfuzz.contracts.witnesses.gpu import elementwise_cpp, launching, sums_cpp
from kfuzz.contracts.witnesses.gpu.faults import CONFORMING
from kfuzz.contracts.witnesses.roster import everywhere, roster
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Depth
from kfuzz.core.errors import BuildError, HarnessError
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport, Role, Verdict
from kfuzz.cuda.compilers import Nvrtc, Unit
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.functional import passes_functional
from tests.helpers.gpu_faults import CPP, FAULTS, TRITON
from tests.helpers.minima import ON_GPU

# Twins and faults of Triton kernels that the interpreter runs, fault or no fault.
INTERPRETED = (
    "triton_relu_prefetched", "triton_relu_pitched", "triton_relu_waited",
    "triton_relu_asserted", "triton_sum_atomic",
    "relu_reads_vector_past", "relu_prefetches_dense", "relu_clears_slack",
    "relu_empty_off_tile", "relu_waits_forever", "relu_asserts_falsely",
    "relu_rare_illegal_address", "sum_atomic_bitwise",
)  # fmt: skip
interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="Triton is compiled here; tests/gpu has them"
)
OWN = {w.kernel: w for w in (*CONFORMING, *(f.witness for f in FAULTS))}


def pinned(
    shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> TensorSpec:
    axes = tuple(f"d{i}" for i in range(len(shape)))
    raw = bytes(4 * torch.Size(shape).numel())
    return TensorSpec(shape, axes, "float32", strides, values=raw)


def judged(witness: Witness, case: Case) -> CaseReport:
    setting = setting_of("cpu", SIZE_BUDGETS["interpret"], select_classes((), ()))
    return Evaluator(witness.load(), setting).judge(case, Depth.FULL)


def test_every_bound_witness_is_listed() -> None:
    folder = Path(__file__).parents[2] / "contracts" / "witnesses" / "gpu"
    bound = set()
    for path in folder.glob("*.py"):
        name = f"kfuzz.contracts.witnesses.gpu.{path.stem}"
        importlib.import_module(name)
        bound |= {b.name for b in REGISTRY.get(name, ())}
    assert bound == {n for n, w in OWN.items() if w.module.startswith("gpu.")}


def test_faults_are_listed_once_in_each_form() -> None:
    forms = [(f.text, f.form) for f in FAULTS]
    assert len(set(forms)) == len(forms)
    assert {form for _, form in forms} == {TRITON, CPP}
    for fault in FAULTS:
        assert fault.contracts <= set(CLASSES)
        assert fault.witness.load().name == fault.witness.kernel
        assert fault.witness.backends == ("cuda",)
        assert ON_GPU[fault.witness.kernel].text


def test_calibration_on_a_gpu_searches_each_of_them_once() -> None:
    entries = list(roster("cuda"))
    names = [e.witness.kernel for e in entries]
    assert len(names) == len(set(names))
    conforming = {e.witness.kernel for e in entries if e.role is Role.CONFORMING}
    assert {w.kernel for w in CONFORMING} <= conforming
    alone = {e.witness.kernel for e in entries if e.alone}
    assert {"relu_reads_one_past", "relu_asserts_falsely"} <= alone
    assert "cuda_sum" not in alone


@interpreted
@pytest.mark.parametrize("name", INTERPRETED)
def test_triton_ones_pass_the_plain_functional_test(name: str) -> None:
    assert passes_functional(OWN[name])


@interpreted
@pytest.mark.parametrize(
    ("name", "twin", "case", "contract"),
    [
        ("relu_reads_vector_past", "", Case({"x": pinned((4,))}), "K-MEM-01"),
        (
            "relu_prefetches_dense", "triton_relu_prefetched",
            Case({"x": pinned((2, 4), (0, 1))}), "K-MEM-01",
        ),
        (
            "relu_clears_slack", "triton_relu_pitched",
            Case({"x": pinned((2, 1))}, layout="padded"), "K-MEM-01",
        ),
        ("relu_empty_off_tile", "", Case({"x": pinned((1,))}), "K-MEM-02"),
    ],
)  # fmt: skip
def test_faults_of_memory_are_seen_in_the_interpreter_too(
    name: str, twin: str, case: Case, contract: str
) -> None:
    report = judged(OWN[name], case)
    assert report.failure is not None
    assert report.failure.contract == contract, report.failure.message
    assert case.elements <= ON_GPU[name].elements
    right = judged(OWN[twin] if twin else everywhere()["triton_relu"], case)
    assert right.failure is None, right.failure
    assert right.verdicts[contract] is Verdict.CONFORMS


@pytest.mark.parametrize("module", [elementwise_cpp, sums_cpp])
def test_cuda_cpp_compiles(module: object) -> None:
    try:
        assert Nvrtc().build(Unit(module.PROGRAM.source, "kernel.cu"), "sm_90").code
    except BuildError:
        raise
    except HarnessError as error:
        pytest.skip(f"no compiler: {error}")


def test_an_unchecked_launch_passes_addresses_and_drops_the_error() -> None:
    seen = []

    def launch(function, grid, block, addresses, shared, stream):
        number = ctypes.c_longlong.from_address(addresses[0]).value
        sizes = [(d.x, d.y, d.z) for d in (grid, block)]
        seen.append((function.value, sizes, number, shared, stream))
        return 9  # invalid configuration

    runtime, values = SimpleNamespace(cudaLaunchKernel=launch), [ctypes.c_longlong(5)]
    function = ctypes.c_void_p(77)
    launching._launched(runtime, function, (1, 70000), (256,), values, 0, 11)
    assert seen == [(77, [(1, 70000, 1), (256, 1, 1)], 5, 0, 11)]
