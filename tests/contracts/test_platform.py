"""What torch's own kernels are declared to do, and the defects listed by name."""

import math
from typing import Final

import pytest
import torch

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.operators import relu
from kfuzz.contracts.platform import products, torch_cpu, torch_cuda
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.contracts.platform.defects import DEFECTS
from kfuzz.contracts.platform.table import (
    DEVICES,
    IMPLEMENTATIONS,
    Claim,
    Defect,
    Implementation,
    excuses,
    holds,
)
from kfuzz.contracts.witnesses import torch_ops
from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.core.declaration import ShapeClass
from kfuzz.core.errors import BindingError
from tests.helpers.listed import is_listed

INF, NAN = math.inf, math.nan
VERSION: Final = str(torch.__version__)
VERSIONS: Final = ("2.11.0", "2.12.1+cu130", "2.13.0", VERSION)


def bound(module: object) -> dict[str, BoundKernel]:
    return {b.name: b for b in REGISTRY[getattr(module, "__name__", "")]}


# --- claims ---------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("device", DEVICES)
def test_every_kernel_s_claims_are_declarations(device: str, version: str) -> None:
    made = list(kernels(device, version))
    assert len(made) > 50
    for kernel in made:
        for claims in (kernel.claims, kernel.excused):
            kernel.operator.defaults.declare(kernel.name, **claims)


@pytest.mark.parametrize(
    ("since", "until", "version", "expected"),
    [
        ("", "", "2.11.0", True),
        ("2.12", "", "2.11.1", False),
        ("2.12", "", "2.12.0a0+git", True),
        ("", "2.13", "2.12.1+cu130", True),
        ("", "2.13", "2.13.0", False),
        ("2.9", "", "2.13.0", True),
    ],
)
def test_a_claim_holds_from_one_version_to_another(
    since: str, until: str, version: str, expected: bool
) -> None:
    claim = Claim("approx", True, "read", since=since, until=until)
    assert holds(claim, "cpu", version) is expected


def test_a_claim_holds_on_its_device() -> None:
    assert not holds(Claim("approx", True, "read", device="cuda"), "cpu", "2.13.0")
    assert holds(Claim("approx", True, "read"), "cuda", "2.13.0")


def test_contradicting_claims_are_refused() -> None:
    twice = (
        Claim("accumulator", "float32", "read"),
        Claim("accumulator", "tf32", "read", device="cuda"),
    )
    kernel = Implementation("k", relu, torch.relu, twice, DEVICES)
    assert kernel.declared("cpu", "2.13.0") == {"accumulator": "float32"}
    with pytest.raises(BindingError, match="two claims of accumulator="):
        kernel.declared("cuda", "2.13.0")


def test_kernels_are_bound_as_declared_for_their_device() -> None:
    cpu, cuda = bound(torch_cpu), bound(torch_cuda)
    assert set(cpu) == {k.name for k in kernels("cpu", VERSION)}
    assert set(cuda) == {k.name for k in kernels("cuda", VERSION)}
    # A default of torch's on CUDA, its flag the other way, and the CPU.
    assert cuda["torch_conv2d"].declaration.accumulator == "tf32"
    assert cuda["torch_conv2d_ieee"].declaration.accumulator == "float32"
    assert cpu["torch_conv2d"].declaration.accumulator == "float32"
    for dtype in ("float16", "bfloat16"):
        reduced = cuda[f"torch_matmul_{dtype}"].declaration
        assert reduced.accumulator == f"splitk({products.PARTS}, {dtype})"
        assert reduced.dtypes == (dtype,)
    assert cuda["torch_matmul_full_reduction"].declaration.accumulator == "float32"
    assert "torch_matmul_tf32" not in cpu


@pytest.mark.parametrize(
    "name", ["torch_matmul_tf32", "torch_matmul_full_reduction", "torch_conv2d_ieee"]
)
def test_a_kernel_that_sets_a_flag_restores_it(name: str) -> None:
    def flags() -> tuple[bool, ...]:
        gemm = torch.backends.cuda.matmul
        return (
            gemm.allow_tf32,
            gemm.allow_fp16_reduced_precision_reduction,
            gemm.allow_bf16_reduced_precision_reduction,
            torch.backends.cudnn.allow_tf32,
        )

    before, x = flags(), torch.ones(1, 1, 2, 2)
    arguments = (x, x, torch.zeros(1)) if "conv2d" in name else (x[0, 0], x[0, 0])
    kernel = bound(torch_cuda)[name]
    assert kernel(*arguments).flatten()[0] in (2, 4)
    assert flags() == before
    with pytest.raises((RuntimeError, TypeError)):
        kernel(*arguments[:-1], None if "matmul" in name else torch.zeros(3, 3))
    assert flags() == before


# --- the conforming witnesses -----------------------------------------------------


def test_torch_s_kernels_on_the_cpu_are_all_witnesses() -> None:
    witnesses = {w.kernel for w in everywhere().values() if w.module == "torch_ops"}
    assert witnesses == set(bound(torch_cpu)) == set(bound(torch_ops))


def test_witnesses_claim_less_only_where_a_defect_is_listed() -> None:
    for name, honest in bound(torch_cpu).items():
        claims = bound(torch_ops)[name].declaration
        given = excuses(name, DEFECTS, "cpu", VERSION)
        assert claims == (
            honest.operator.defaults.declare(
                name, **{n: getattr(honest.declaration, n) for n in honest.explicit}
                | given,
            )
        )  # fmt: skip
        if not given:
            assert claims == honest.declaration


# --- defects ----------------------------------------------------------------------


def test_defects_name_kernels_and_classes() -> None:
    for defect in DEFECTS:
        assert defect.contract in CLASSES
        for name in defect.kernels:
            if name.startswith("torch."):
                assert callable(getattr(torch, name.removeprefix("torch.")))
                continue
            devices = IMPLEMENTATIONS[name.removesuffix(".backward")].devices
            assert not defect.device or defect.device in devices


def test_a_finding_is_listed_by_kernel_and_class() -> None:
    defect = Defect("C-EXC-01", ("k",), "Inf", "NaN", device="cpu", until="2.14")
    assert is_listed("k", "C-EXC-01", [defect], "cpu", "2.13.0")
    assert not is_listed("k", "C-EXC-01", [defect], "cpu", "2.14.0")
    assert not is_listed("k", "C-EXC-01", [defect], "cuda", "2.13.0")
    assert not is_listed("k", "C-PRC-01", [defect], "cpu", "2.13.0")
    assert not is_listed("other", "C-EXC-01", [defect], "cpu", "2.13.0")


def test_excuses_hold_together() -> None:
    defects = [
        Defect(
            "K-LIV-01", ("k",), "a", "b", excuse=(("shape_class", "N > 1 or N == 0"),)
        ),
        Defect("K-VAL-01", ("k",), "c", "d", excuse=(("shape_class", "N % 2 == 0"),)),
        Defect("C-EXC-01", ("other",), "e", "f", excuse=(("shape_class", "N > 7"),)),
    ]
    found = excuses("k", defects, "cpu", "2.13.0")
    shapes = ShapeClass.parse(found["shape_class"])
    assert [n for n in range(6) if shapes.admits({"N": n})] == [0, 2, 4]


@pytest.mark.parametrize("present", [True, False])
def test_a_defect_is_excused_where_the_processor_shows_it(
    present: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    defect = Defect(
        "C-EXC-01", ("k",), "Inf", "NaN",
        excuse=(("nonfinite", "undefined"),), processor="AMX",
    )  # fmt: skip
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: present)
    expected = {"nonfinite": "undefined"} if present else {}
    assert excuses("k", [defect], "cpu", "2.13.0") == expected
    assert is_listed("k", "C-EXC-01", [defect], "cpu", "2.13.0")
