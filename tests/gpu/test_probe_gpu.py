"""What matrix units are, by probes, against what is published of them."""

import sys
import threading
from pathlib import Path

import pytest
import torch

from kfuzz.features.lab.probe import search as readings
from kfuzz.features.lab.probe.search import KernelReadings, Probing
from kfuzz.features.lab.probe.sums import Outcome, Reading

pytestmark = pytest.mark.gpu
PLATFORM = "kfuzz.contracts.platform"
PROBES = (
    "order", "accumulator", "alignment", "fused", "operands", "subnormals", "store",
)  # fmt: skip


def is_hopper() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


hopper = pytest.mark.skipif(not is_hopper(), reason="the numbers are Hopper's")


def probed(
    folder: Path, *targets: str, probes: tuple[str, ...] = PROBES, terms: int = 64,
    dtypes: tuple[str, ...] = (),
) -> list[KernelReadings]:  # fmt: skip
    """Probe on the GPU, and print all that was read and observed."""
    probing = Probing(
        targets, folder, folder / "corpus", device="cuda", terms=terms, probes=probes,
        dtypes=dtypes, max_time=80.0,
    )  # fmt: skip
    told = [str(event)[:400] for event in probing.events(stop=threading.Event())]
    lines = []
    for kernel in probing.kernels:
        lines += readings.reading_lines(kernel, verbose=True)
    lines += [line for line in told if "Notice" in line or "Finding" in line]
    sys.stdout.write("\n".join(lines))
    return probing.kernels


def last(kernels: list[KernelReadings], probe: str, dtype: str) -> Reading:
    """Return the reading of the longest sums in a format."""
    found = [
        r for k in kernels for r in k.readings if (r.probe, r.dtype) == (probe, dtype)
    ]
    assert found, f"{probe} said nothing of {dtype}"
    return found[-1]


@hopper
def test_16_bit_products_are_added_as_published_of_hopper(tmp_path: Path) -> None:
    """F = 25: 16 products and the sum before them, aligned, cut, added at once."""
    target = f"{PLATFORM}.torch_cuda:torch_matmul_full_reduction"
    made = probed(tmp_path, target, terms=128)
    for dtype in ("float16", "bfloat16"):
        order, aligned = last(made, "order", dtype), last(made, "alignment", dtype)
        assert "up to 17 terms at once" in order.found, (order.found, order.reason)
        assert aligned.found.startswith("25 bits"), aligned.observed
        fused = last(made, "fused", dtype)
        assert fused.found == "several at once, then truncated", fused.observed
        width = last(made, "accumulator", dtype)
        assert width.outcome is Outcome.AS_DECLARED, width.observed
        assert last(made, "store", dtype).found == "to nearest, ties to even"
    kept = last(made, "subnormals", "float16")
    assert kept.found == "kept", kept.observed
    differing = [r for k in made for r in k.readings if r.outcome is Outcome.DIFFERS]
    assert differing == []


@hopper
def test_tf32_products_are_added_as_published_of_hopper(tmp_path: Path) -> None:
    """Operands of 11 bits; 25 fractional bits, at most 8 products at once."""
    target = f"{PLATFORM}.torch_cuda:torch_matmul_tf32"
    made = probed(tmp_path, target)
    operands = last(made, "operands", "float32")
    assert operands.found.startswith("TF32"), operands.observed
    assert operands.outcome is Outcome.AS_DECLARED
    order, aligned = last(made, "order", "float32"), last(made, "alignment", "float32")
    assert order.found.startswith(("fused: up to 9", "fused: up to 5")), order.found
    assert aligned.found.startswith("25 bits"), aligned.observed
    differing = [r for k in made for r in k.readings if r.outcome is Outcome.DIFFERS]
    assert differing == []


@hopper
def test_8_bit_products_are_added_as_published_of_hopper(tmp_path: Path) -> None:
    """F = 13, 32 products and the sum before them at once, 14 bits kept."""
    made = probed(
        tmp_path, "tests.helpers.scaled_product:torch_scaled_mm_fast",
        probes=("order", "accumulator", "alignment"), dtypes=("float32",),
    )  # fmt: skip
    dtype = "float8_e4m3fn"
    order, aligned = last(made, "order", dtype), last(made, "alignment", dtype)
    assert "up to 33 terms at once" in order.found, (order.found, order.reason)
    assert aligned.found.startswith("13 bits"), aligned.observed
    width = last(made, "accumulator", dtype)
    assert width.found == "14 bits", (width.found, width.observed)


def test_float32_products_without_tf32_keep_their_operands(tmp_path: Path) -> None:
    made = probed(
        tmp_path, "torch.matmul", dtypes=("float32",),
        probes=("order", "operands", "contraction", "accumulator"),
    )  # fmt: skip
    operands = last(made, "operands", "float32")
    assert operands.found == "float32", operands.observed
    differing = [r for k in made for r in k.readings if r.outcome is Outcome.DIFFERS]
    assert differing == []


def test_atomic_sums_change_from_call_to_call(tmp_path: Path) -> None:
    """The order differs, which is a finding unless it is declared."""
    text = """
import torch
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

def added(x, dim=-1):
    rows = x.reshape(-1, x.shape[-1])
    m, n = rows.shape
    index = torch.arange(m, device=x.device).repeat_interleave(n)
    y = torch.zeros(m, device=x.device)
    return y.index_add_(0, index, rows.reshape(-1)).reshape(x.shape[:-1])

claims = dict(dtypes="float32", dims={-1}, shape_class="N >= 1")
kernel(ops.sum, name="declared", determinism="none", **claims)(added)
"""
    path = tmp_path / "atomics.py"
    path.write_text(text)
    made = probed(tmp_path, str(path), terms=256, probes=("accumulator", "store"))
    assert last(made, "accumulator", "float32").outcome is Outcome.AS_DECLARED
