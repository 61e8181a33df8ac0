"""Kernels of other languages: functions of arrays, Helion's configurations."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import REGISTRY
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.execution.device.backends import CPU, guess, resolve
from kfuzz.targets.load import Source, import_source
from kfuzz.targets.own_code import imports_none, launches_no_triton
from tests.helpers.judged_cases import judged, spec

NUMPY = np.from_dlpack


def report(
    function: Callable[..., Any],
    through: Callable[[Tensor], Any] = NUMPY,
    shape: tuple[int, ...] = (3, 40),
    dtype: str = "float32",
    **claims: Any,
) -> CaseReport:
    made = Case({"x": spec("randn", shape, dtype)}, {})
    return judged(ops.relu, kfuzz.arrays(through)(function), made, **claims)


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def into(x: Any, y: Any) -> None:
    np.maximum(x, 0, out=y)


def test_a_function_of_arrays_is_judged_as_one_of_tensors() -> None:
    for made in (report(relu), report(into, out=("y",)), report(relu, shape=())):
        assert made.failure is made.error is made.unsupported is None
        assert made.verdicts["K-VAL-01"] == "conforms"


def test_what_it_writes_into_its_arguments_is_seen() -> None:
    def skips(x: Any, y: Any) -> None:
        np.maximum(x[:, :32], 0, out=y[:, :32])

    failure = report(skips, out=("y",)).failure
    assert failure is not None
    assert failure.contract == "K-MEM-02"


def test_results_that_torch_has_no_view_of_are_copied() -> None:
    def backwards(x: Any) -> Any:
        return relu(x)[::-1, ::-1][::-1, ::-1][::-1].copy()[::-1]

    def of_records(x: Any) -> Any:
        made = np.zeros(x.shape, [("y", "f4"), ("valid", "i1")])
        made["y"] = relu(x)
        return made["y"]

    for function in (backwards, of_records):
        assert report(function).failure is None


def test_calls_do_not_overlap() -> None:
    assert report(relu).verdicts.get("C-ORD-03") != "conforms"


def test_a_type_that_a_library_lacks_is_no_fault_of_the_kernel() -> None:
    for dtype in ("bfloat16", "float8_e4m3fn"):
        with pytest.raises(TypeError, match=rf"numpy.from_dlpack takes no {dtype}: "):
            kfuzz.kernel(ops.relu, name=dtype)(kfuzz.arrays(NUMPY)(relu))(
                torch.zeros(3, dtype=getattr(torch, dtype))
            )
    made = report(relu, dtype="bfloat16", dtypes={"bfloat16"})
    assert made.failure is made.error is None
    assert "numpy.from_dlpack takes no bfloat16" in (made.unsupported or "")


def test_an_array_of_another_type_is_not_passed_on() -> None:
    def narrowed(x: Tensor) -> Any:  # as JAX without its 64-bit types
        return x.half().numpy()

    assert "makes torch.float16 of float32" in (
        report(relu, narrowed).unsupported or ""
    )


def test_a_copy_is_not_written_into() -> None:
    def copied(x: Tensor) -> Any:
        return x.numpy().copy()

    assert report(relu, copied).unsupported is None
    made = report(into, copied, out=("y",))
    assert "copies: what is written there is lost" in (made.unsupported or "")


def test_an_operator_that_a_host_lacks_needs_a_gpu() -> None:
    x = torch.zeros(2, 2, dtype=torch.float16)
    with pytest.raises(NotImplementedError) as raised:
        torch.mm(x, x, out_dtype=torch.float32)  # what Helion's eager mode calls
    assert "aten::mm.dtype" in CPU.lack_of_gpu(raised.value)
    with pytest.raises(NotImplementedError) as other:
        torch.q_scale(x)  # the host has it, of other tensors
    assert not CPU.lack_of_gpu(other.value)


def test_helions_eager_mode_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert resolve("auto")[0].name == "interpret"
    monkeypatch.setenv("HELION_INTERPRET", "1")
    assert resolve("auto")[0].name == "cpu"
    assert guess("auto") is not resolve("interpret")[0]


@pytest.fixture
def helion(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Stand in for a Helion: kernels that are compiled for one of their blocks."""
    pytest.importorskip("triton.runtime.interpreter")  # a Helion imports Triton

    class Kernel:
        settings = SimpleNamespace(ref_mode=SimpleNamespace(value="off"))

        def __init__(self, blocks: tuple[int, ...]) -> None:
            self.configs = [{"block_sizes": [block]} for block in blocks]

        def normalize_args(self, *args: Any) -> tuple[Any, ...]:
            return args

        def bind(self, args: object) -> Any:
            default = SimpleNamespace(default_config=lambda: {"block_sizes": [64]})
            return SimpleNamespace(compile_config=self.compiled, config_spec=default)

        def compiled(self, config: dict[str, list[int]]) -> Callable[..., Tensor]:
            return lambda x: torch.cat(
                [x[:, : config["block_sizes"][0]].relu(), x[:, 64:]], 1
            )

        def __call__(self, x: Tensor) -> Tensor:
            raise AssertionError("it would tune for minutes")

    module = ModuleType("helion.runtime.kernel")
    module.Kernel = Kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Kernel


def test_helion_runs_the_configuration_of_the_case(helion: Any) -> None:
    def judge(kernel: Any, config: int) -> CaseReport:
        def called(x: Tensor) -> Any:
            return kernel(x)

        made = Case({"x": spec("randn", (3, 64))}, {}, config=config)
        return judged(ops.relu, called, made, ranks={2})

    assert judge(helion(()), 0).failure is None
    assert judge(helion((16, 64)), 1).failure is None
    failure = judge(helion((16, 64)), 0).failure
    assert failure is not None
    assert failure.kind is Kind.WRONG_SHAPE


def test_a_library_that_imports_no_triton_meets_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as TileLang, whose kernels on the CPU take no tensor that says "cuda"."""
    monkeypatch.syspath_prepend(tmp_path)
    text = "import kfuzz, {}\n"
    text += "@kfuzz.kernel('relu')\ndef relu(x):\n    return x.clamp(min=0)\n"
    told = '"""As\n    from triton\'s kernels."""'
    for library, line in {"tiled": told, "fused": "import os, triton"}.items():
        (tmp_path / library).mkdir()
        parts = {f"part{n}": "" for n in range(70)}
        parts["__init__"] = "\n".join(f"from . import {part}" for part in parts)
        parts["part69"] = f"def run():\n    {line}\n"
        for part, source in parts.items():
            (tmp_path / library / f"{part}.py").write_text(source)
        file = tmp_path / f"of_{library}.py"
        file.write_text(text.format(library))
        assert imports_none(file) == (library == "tiled")
        (bound,) = REGISTRY[import_source(Source(file, ""))]
        assert launches_no_triton(bound) == (library == "tiled")


_AT_A_CALL = "def relu(x):\n    if x.is_cuda:\n        {}\n    return x.clamp(min=0)\n"
_BOUND = "@kfuzz.kernel('relu')\ndef relu(x):\n    return borrowed(x)\n"


@pytest.mark.parametrize(
    ("own", "library"),
    [
        ("import importlib\n", "pass"),
        ("from importlib import import_module\n", "pass"),
        ("import importlib.util\n", "pass"),
        ("import runpy\n", "pass"),
        ("import pkgutil\n", "pass"),
        ("import beside_{0}\n", "pass"),
        ("", "from .launcher import launch"),
        ("", "from {0}.launcher import launch"),
        ("", "import importlib; importlib.import_module('triton')"),
        ("", "__import__('triton').jit"),
        ("", "import math; import triton"),
        ("", "if torch: import triton"),
        ("", "import math, \\\n            triton"),
    ],
)
def test_what_may_launch_triton_at_a_call_meets_the_gpu(
    own: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else such a call computes in torch on the CPU, and no launch is compared."""
    monkeypatch.syspath_prepend(tmp_path)
    name = tmp_path.name.replace("-", "_")
    (tmp_path / name).mkdir()
    text = "import torch\n" + _AT_A_CALL.format(library.format(name))
    (tmp_path / name / "__init__.py").write_text(text)
    (tmp_path / name / "launcher.py").write_text("import triton\n")
    (tmp_path / f"beside_{name}.py").write_text("import importlib\n")
    file = tmp_path / f"of_{name}.py"
    if own:  # else the library alone would tell
        (tmp_path / name / "launcher.py").unlink()
    text = f"{own.format(name)}import kfuzz\nfrom {name} import relu as borrowed\n"
    file.write_text(text + _BOUND)
    (bound,) = REGISTRY[import_source(Source(file, ""))]
    assert not launches_no_triton(bound)
