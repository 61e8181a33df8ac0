"""What torch's own kernels are declared to do, and the defects listed by name."""

import math
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import pytest
import torch
from torch.nn import functional

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.operators import relu
from kfuzz.contracts.platform import torch_cpu, torch_cuda
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.contracts.platform.table import (
    DEFECTS,
    DEVICES,
    IMPLEMENTATIONS,
    PROCESSORS,
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


def test_every_claim_and_defect_says_how_it_is_known() -> None:
    for kernel in IMPLEMENTATIONS.values():
        for claim in kernel.claims:
            assert len(claim.source) > 20, (kernel.name, claim)
    for defect in DEFECTS:
        assert len(defect.evidence) > 20
        assert defect.where
        assert not defect.processor or defect.processor in PROCESSORS


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


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(BindingError, match="is no version"):
        holds(Claim("approx", True, "read", since="2.11"), "cpu", "main")


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
    assert [n for n in range(6) if shapes.accepts({"N": n})] == [0, 2, 4]


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


def gelu_of_infinity() -> bool:
    pairs = (torch.tensor([INF, 0.0], dtype=d) for d in (torch.float32, torch.bfloat16))
    return any(bool(functional.gelu(x).isnan().any()) for x in pairs)


def product_beside_infinity() -> bool:
    a = torch.zeros(63, 33, dtype=torch.bfloat16)
    a[48, 15] = -INF
    return bool((a @ torch.zeros(33, 2, dtype=torch.bfloat16))[47].isnan().any())


def conv2d_of_channels_innermost() -> bool:
    x = torch.zeros(1, 4, 2, 2).to(memory_format=torch.channels_last)
    x[0, :, 0, 0] = 1
    weight = torch.tensor([1.0, 3, 2, 4, 5, 7, 6, 8]).as_strided(
        (2, 2, 1, 2), (4, 1, 1, 2)
    )
    return functional.conv2d(x, weight, groups=2)[0, :, 0, 0].tolist() != [4, 12]


def conv2d_beside_infinity() -> bool:
    x = torch.zeros(1, 7, 3, 2, dtype=torch.bfloat16)
    x[0, 6, 2, 1] = INF
    weight = torch.zeros(1, 7, 2, 1, dtype=torch.bfloat16)
    # Column 0 does not meet the infinity in column 1.
    return bool(functional.conv2d(x, weight, dilation=2)[..., 0].isnan().any())


def conv3d_of_one_padded_element() -> bool:
    found = False
    for _ in range(3):
        x = torch.randint(-3, 4, (1, 6, 1, 1, 1)).bfloat16()
        weight = torch.randint(-2, 3, (2, 3, 3, 3, 3)).bfloat16()
        y = functional.conv3d(x, weight, padding=2, groups=2)
        wide = functional.conv3d(x.double(), weight.double(), padding=2, groups=2)
        found |= not torch.equal(y.double(), wide)
    return found


def conv2d_ends_its_process() -> bool:
    script = (
        "import torch\n"
        "w = torch.zeros(255).as_strided((1, 255, 1, 1), (255, 1, 255, 255))\n"
        "for _ in range(10):\n"
        "    torch.conv2d(torch.zeros(2, 255, 2, 1), w, torch.zeros(1), 2, 3, 2)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    return done.returncode == -signal.SIGSEGV


def weight_norm_without_rows() -> bool:
    script = (
        "import torch\n"
        "torch._weight_norm(torch.zeros(0, 3), torch.zeros(0)[:, None], 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    return done.returncode == -signal.SIGFPE


def attention_without_keys() -> bool:
    q = torch.ones(1, 4, 500, 64, dtype=torch.float16)
    k = torch.ones(1, 4, 0, 64, dtype=torch.float16)
    for _ in range(20):
        held = [torch.full((1 << n,), NAN) for n in range(10, 19)]
        del held
        if bool(functional.scaled_dot_product_attention(q, k, k).isnan().any()):
            return True
    return False


def attention_without_a_number() -> bool:
    ones = torch.ones(1, 1, 2, 4)
    y = functional.scaled_dot_product_attention(ones, ones * NAN, ones)
    return not bool(y.isnan().any())


def erf_of_small_numbers() -> bool:
    x = torch.tensor([1e-7, 1e-6], dtype=torch.bfloat16)
    exact = torch.erf(x.to(torch.float64))
    return bool(((torch.erf(x) - exact).abs() > 2.0**-7 * exact).any())


def logsumexp_of_many_zeros() -> bool:
    return bool(torch.logsumexp(torch.zeros(65520, dtype=torch.float16), 0).isinf())


def normalize_of_zeros() -> bool:
    y = functional.normalize(torch.zeros(3, dtype=torch.float16), dim=0)
    return bool(y.isnan().any())


def take_along_dim_beyond() -> bool:
    try:
        torch.take_along_dim(torch.tensor([[5.0]]), torch.tensor([[1, 7]]), -1)
    except (RuntimeError, IndexError):
        return False
    return True


def product_of_an_odd_k() -> bool:
    # oneDNN chooses its code when it is first asked: in a process of its own.
    script = (
        "import torch\n"
        "a = torch.ones(55, 15, dtype=torch.bfloat16)\n"
        "a[3, 14] = float('inf')\n"
        "b = torch.ones(15, 5, dtype=torch.bfloat16)\n"
        "raise SystemExit(bool((a @ b).isnan().any()))\n"
    )
    limited = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    return subprocess.run([sys.executable, "-c", script], env=limited).returncode == 1


def linear_of_distant_columns() -> bool:
    distance, shape = 2**30 + 1, (5, 3)
    no_reserve = 0x4000  # MAP_NORESERVE of Linux: few of the pages are touched
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    room = mmap.mmap(-1, 4 * (2 * distance + 5), flags)
    x = torch.frombuffer(room, dtype=torch.float32).as_strided(shape, (1, distance))
    near = torch.arange(15.0).reshape(shape)
    weight = torch.arange(12.0).reshape(4, 3)
    return not torch.equal(
        functional.linear(x.copy_(near), weight), functional.linear(near, weight)
    )


def gradient_of_strided_weights() -> bool:
    x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    weight = torch.tensor([1.0, NAN, 2.0, NAN, 3.0])[::2]
    mean, var, bias = torch.zeros(3), torch.ones(3), torch.zeros(3)
    y = functional.batch_norm(x, mean, var, weight, bias)
    g = torch.ones_like(y, memory_format=torch.channels_last)
    return bool(torch.autograd.grad(y, x, g)[0].isnan().any())


# By class, first kernel and processor.
SHOWN: Final[dict[tuple[str, ...], Callable[[], bool]]] = {
    ("K-LIV-01", "torch_weight_norm"): weight_norm_without_rows,
    ("C-EXC-01", "torch_gelu"): gelu_of_infinity,
    ("C-EXC-01", "torch_matmul", "AMX"): product_beside_infinity,
    ("C-EXC-01", "torch_matmul", "AVX-512 without BF16"): product_of_an_odd_k,
    ("K-MEM-01", "torch_linear", "Intel AVX-512"): linear_of_distant_columns,
    ("K-GRD-01", "torch_batch_norm.backward"): gradient_of_strided_weights,
    ("C-EXC-01", "torch_conv2d_bfloat16"): conv2d_beside_infinity,
    ("K-VAL-01", "torch_conv2d"): conv2d_of_channels_innermost,
    ("K-VAL-01", "torch_conv3d_bfloat16"): conv3d_of_one_padded_element,
    ("K-MEM-02", "torch_conv3d_bfloat16"): conv3d_of_one_padded_element,
    ("K-LIV-01", "torch_conv2d"): conv2d_ends_its_process,
    ("C-EXC-01", "torch_attention"): attention_without_a_number,
    ("K-MEM-02", "torch_attention"): attention_without_keys,
    ("C-PRC-02", "torch.erf"): erf_of_small_numbers,
    ("C-PRC-02", "torch_logsumexp"): logsumexp_of_many_zeros,
    ("C-EXC-01", "torch_l2_normalize"): normalize_of_zeros,
    ("C-EXC-02", "torch_take_along_dim"): take_along_dim_beyond,
}
# What these show depends on the vector instructions of the processor,
VECTOR: Final = {
    ("C-EXC-01", "torch_gelu"), ("C-EXC-01", "torch_conv2d_bfloat16"),
    ("C-PRC-02", "torch.erf"), ("K-VAL-01", "torch_conv2d"),
    ("C-EXC-01", "torch_matmul", "AVX-512 without BF16"),
}  # fmt: skip
# and these on what the allocator hands out, and on how oneDNN divides the work.
BY_CHANCE: Final = {
    ("K-MEM-02", "torch_attention"), ("C-EXC-01", "torch_matmul", "AMX"),
    ("K-VAL-01", "torch_conv3d_bfloat16"), ("K-MEM-02", "torch_conv3d_bfloat16"),
    ("K-MEM-01", "torch_linear", "Intel AVX-512"),
}  # fmt: skip
ON_CPU: Final = [d for d in DEFECTS if d.device != "cuda"]


@pytest.mark.slow
@pytest.mark.parametrize("defect", ON_CPU, ids=lambda d: f"{d.contract} {d.kernels[0]}")
def test_a_listed_defect_is_still_there(defect: Defect) -> None:
    """If it is gone, it was mended: give the entry an "Until"."""
    key = (defect.contract, defect.kernels[0], *filter(None, [defect.processor]))
    shown = SHOWN[key]()
    capable = torch.backends.cpu.get_cpu_capability() == "AVX512"
    if not shown and (key in BY_CHANCE or (key in VECTOR and not capable)):
        pytest.skip("it does not show here")
    assert shown is holds(defect, "cpu", VERSION)
