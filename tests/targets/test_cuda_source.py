"""Kernels in CUDA C++: their declarations, builds and launches, without a GPU."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.core.errors import BindingError, BuildError, HarnessError
from kfuzz.cuda import compilers
from kfuzz.cuda import compilers as builds
from kfuzz.cuda.code import Parameter, Prototype, kernels, packed, prototype
from kfuzz.cuda.compilers import Unit
from kfuzz.execution.device.backends import backend_of
from kfuzz.targets.cuda_source import LaunchError
from tests.helpers.fake_cuda import floats, install
from tests.helpers.judged_cases import judged, x_case

SOURCE = r"""
// __global__ void not_me(int n);
typedef long long index_t;
using element = __half;
extern "C" __global__ void __launch_bounds__(256, 2) relu(
    const float *__restrict__ x, float *y, int n) { if (n) {} }
template <typename T, int N> __global__ void tiled(const T *x, int n) {}
extern "C" {
__global__ void block(double *const p, index_t a, unsigned long long b,
                      const unsigned c, size_t d, element h, bool t, float2 v) {}
}
__global__ void mangled(void) {}
"""
CASE = x_case("randn", (4, 8))


def relu(grid: Any, block: Any, args: Any) -> None:
    x, y, n = args
    source, made = floats(x, n.value), floats(y, n.value)
    for i in range(n.value):
        made[i] = 0.0 if source[i] < 0 else source[i]


def declared(name: str, source: str = SOURCE) -> Prototype:
    found = prototype(source, name)
    assert found is not None
    return found


def types(made: Prototype) -> list[str]:
    return [("*" if p.pointer else "") + p.type for p in made.parameters or ()]


def test_declarations_are_read_as_compilers_read_them() -> None:
    assert kernels(SOURCE) == ("relu", "tiled", "block", "mangled")
    assert types(declared("relu")) == ["*float32", "*float32", "int32"]
    expected = ["*float64", "int64", "uint64", "uint32", "uint64", "float16", "bool"]
    assert types(declared("block")) == [*expected, ""]
    assert declared("block").plain
    assert declared("mangled").parameters == ()
    assert not declared("mangled").plain
    assert declared("tiled<float, 3>").parameters is None
    assert prototype(SOURCE, "not_me") is None


def test_two_declarations_of_one_name_say_nothing() -> None:
    source = "#if A\n__global__ void f(int n) {}\n#else\n__global__ void f(long n) {}\n"
    assert declared("f", source).parameters is None


def test_numbers_have_the_types_of_the_declaration() -> None:
    values = [None, -(2**40), 2**63, 7, 8, 0.1, True, np.float64(1.5)]
    made = packed(declared("block"), values, "block")
    kinds = [ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64]
    assert [type(v) for v in made[1:5]] == kinds
    assert [v.value for v in made[1:5]] == values[1:5]
    assert made[0].value is None
    half = torch.tensor(0.1, dtype=torch.float16).view(torch.int16).item()
    assert made[5].value == half
    assert bytes(made[7]) == np.float64(1.5).tobytes()


def test_bfloat16_is_rounded_as_torch_rounds() -> None:
    made = prototype("__global__ void f(__nv_bfloat16 v);", "f")
    ties = (1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40)
    for number in (0.1, -3.3, *ties, 3e38, 1e39, float("nan"), 1e-40):
        wanted = torch.tensor(number, dtype=torch.float64).to(torch.bfloat16)
        [value] = packed(made, [number], "f")
        assert value.value == wanted.view(torch.uint16).item(), number


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("relu", (torch.ones(3), torch.ones(3)), "takes 3 arguments, 2 are given"),
        ("relu", (torch.ones(3), torch.ones(3), 0.5), "takes int32, the float 0.5"),
        ("relu", (torch.ones(3), torch.ones(3), np.int64(5)), "4 bytes, int64"),
        ("relu", (torch.ones(3), 5, 5), "takes a tensor, 5 is given"),
        ("relu", (torch.ones(3), torch.ones(3).half(), 5), "the tensor is float16"),
        ("tiled<float, 3>", (torch.ones(3), 5), r"np\.int32"),
        ("nowhere", (torch.ones(3), 5), r"np\.int32"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_say_why(
    name: str, values: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        packed(prototype(SOURCE, name), values, name)


def test_a_number_too_large_is_not_cut() -> None:
    with pytest.raises(OverflowError, match="int32"):
        packed(declared("relu"), (torch.ones(1), torch.ones(1), 2**31), "relu")


def test_the_first_error_is_what_is_shown() -> None:
    unit = Unit("", "softmax.cu")
    nvcc = "a.h(3): warning: x\nsoftmax.cu(12): error: identifier is undefined\n  y\n"
    clang = "softmax.cu:12:5: error: unknown type name\n"
    for log in (nvcc, clang):
        made = compilers.failure("nvcc", log, unit)
        assert made.where == "softmax.cu:12"
        assert "error: " in made.what
        assert "warning" not in made.what
    assert compilers.failure("nvcc", "killed", unit).where == "softmax.cu"


def test_names_in_machine_code_are_those_of_the_abi() -> None:
    code = b"\0.text._Z6scaledIfEvPKT_\0.text._Z1dPf\0.text._ZN1q1tILi3EEEvv\0.text.a\0"
    unit = Unit("", "x.cu")
    asked = ("scaled<float>", "d", "q::t<3>")
    found = [compilers.mangled(code, e, unit) for e in asked]
    assert found == ["_Z6scaledIfEvPKT_", "_Z1dPf", "_ZN1q1tILi3EEEvv"]
    with pytest.raises(BuildError, match="no function of the name nothing"):
        compilers.mangled(code, "nothing", unit)


def test_a_source_is_launched_as_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler, device = install(monkeypatch, tmp_path, {"relu": relu})
    source = kfuzz.cuda_source(SOURCE, options=("-O2",))
    assert compiler.built == []  # nothing is built before it is launched

    def bound(x: Tensor, y: Tensor) -> None:
        if x.numel():
            source.kernel("relu")[(1, 2), 128, 64](x, y, x.numel())

    claims = {"out": ("y",), "layouts": "contiguous", "dtypes": "float32"}
    report = judged(ops.relu, bound, CASE, **claims)
    assert report.failure is None
    assert report.error is None
    [unit] = compiler.built
    assert unit.options == ("-O2",)
    name, grid, block, args, shared = device.launches[0]
    assert (name, grid, block, shared) == ("relu", (1, 2), (128,), 64)
    assert args[2].value == 32


def test_functions_without_extern_c_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler, _ = install(monkeypatch, tmp_path, {"_Ztiled<float, 3>": lambda *_: None})
    source = kfuzz.cuda_source(SOURCE)
    source.kernel("tiled<float, 3>")[1, 1](torch.ones(3), np.int32(3))
    assert compiler.built[0].expressions == ("tiled<float, 3>",)


def test_a_build_is_kept_by_all_that_it_depends_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache, project = tmp_path / "cache", tmp_path / "project"
    compiler, _ = install(monkeypatch, cache, {"relu": relu})
    (project / "inner").mkdir(parents=True)
    (project / "k.cu").write_text(f'#include "inner/a.h"\n{SOURCE}')
    (project / "inner" / "a.h").write_text('#include "b.h"\n')
    (project / "inner" / "b.h").write_text("// 1\n")

    def launch(*options: str) -> int:
        before = len(compiler.built)
        source = kfuzz.cuda_source(project / "k.cu", options=options)
        x = torch.ones(3)
        source.kernel("relu")[1, 1](x, torch.empty(3), 3)
        return len(compiler.built) - before

    assert [launch(), launch(), launch("-O1"), launch("-O1")] == [1, 0, 1, 0]
    (project / "inner" / "b.h").write_text("// 2\n")
    assert [launch(), launch()] == [1, 0]
    kept = [p for p in cache.rglob("*") if p.is_file()]
    assert {p.suffix for p in kept} == {".bin"}
    for path in kept:  # cut off by a full disk, or by hand
        path.write_bytes(path.read_bytes()[:-1])
    assert [launch(), launch()] == [1, 0]
    monkeypatch.setattr(type(compiler), "version", lambda self: "fakecc 1.1")
    assert launch() == 1


def test_an_include_named_by_a_macro_is_never_taken_from_the_cache() -> None:
    unit = Unit("#include HEADER\n", "k.cu")
    assert builds.key_of(unit, "sm_90", "1") != builds.key_of(unit, "sm_90", "1")


def test_a_failed_build_is_no_fault_of_a_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler, _ = install(monkeypatch, tmp_path, {"relu": relu})
    (tmp_path / "k.cu").write_text(f"{SOURCE}\noops\n")
    source = kfuzz.cuda_source(tmp_path / "k.cu")

    def bound(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        source.kernel("relu")[1, 1](x, y, x.numel())
        return y

    for _ in range(2):  # in every case, and built once
        with pytest.raises(BuildError, match=r"k\.cu:14: fakecc cannot") as met:
            judged(ops.relu, bound, CASE)
        assert "error: oops is undefined" in str(met.value)
    kernel = kfuzz.kernel(ops.relu, name="unbuilt")(bound)
    # Whether this file counts as Triton's depends on what the process has imported.
    monkeypatch.setattr("kfuzz.evaluation.worker.interpreting", lambda: False)
    with pytest.raises(HarnessError, match="oops is undefined"):
        kfuzz.falsify(kernel, max_cases=3, device="cpu")
    assert len(compiler.built) == 1


def test_what_the_driver_refuses_is_the_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, {"relu": relu})
    source = kfuzz.cuda_source(SOURCE)

    def bound(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        source.kernel("relu")[0, 128](x, y, x.numel())
        return y

    failure = judged(ops.relu, bound, x_case("randn", (2, 3))).failure
    assert failure is not None
    assert (failure.contract, failure.detail) == ("K-LIV-01", "LaunchError")
    with pytest.raises(LaunchError, match="INVALID_VALUE"):
        source.kernel("relu")[0, 1](torch.ones(1), torch.ones(1), 1)


def test_what_a_source_lacks_is_said_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, {})
    with pytest.raises(BindingError, match=r"no file .*nowhere\.cu"):
        kfuzz.cuda_source("nowhere.cu")
    with pytest.raises(BindingError, match="unknown compiler 'gcc'"):
        kfuzz.cuda_source(SOURCE, compiler="gcc")
    source = kfuzz.cuda_source(SOURCE)
    with pytest.raises(BindingError, match="did you mean 'relu'"):
        source.kernel("rely")
    with pytest.raises(TypeError, match="two to four"):
        source.kernel("relu")[1]
    with pytest.raises(BuildError, match="cannot be loaded"):  # not in the code
        source.kernel("relu")[1, 1](torch.ones(1), torch.ones(1), 1)


CPU = torch.device("cpu")


def test_the_cpu_is_no_device_for_cuda() -> None:
    with pytest.raises(BuildError, match="does not run on cpu"):
        backend_of(CPU).loader(CPU)


def test_a_compiler_of_its_own_is_run_on_the_source(tmp_path: Path) -> None:
    program = tmp_path / "nvcc"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo fake && exit 0\n'
        'while [ $# -gt 2 ]; do [ "$1" = -o ] && out=$2; shift; done\n'
        'grep -q oops "$2" && echo "$2:3:1: error: oops" && exit 1\ncp "$2" "$out"\n'
    )
    program.chmod(0o755)
    compiler = compilers.Nvcc(str(program))
    assert "fake" in compiler.version()
    made = compiler.build(Unit("int a;", "k.cu"), "sm_90")
    assert made.code.startswith(b'#line 1 "k.cu"\nint a;')
    with pytest.raises(BuildError, match=r"^k\.cu:3: nvcc cannot build it:\nk\.cu:3:1"):
        compiler.build(Unit("oops", "k.cu"), "sm_90")


def test_kernels_after_one_another_keep_their_own_declarations() -> None:
    text = (
        "template <typename T> __global__ void g(const T* x) {}\n"
        "__global__ void f(__global__ int a, std::vector<int> const v[3]) {}\n"
        'extern "C" __global__ void __launch_bounds__(64) h(long long n);'
    )
    assert kernels(text) == ("g", "f", "h")
    assert prototype(text, "g") == Prototype("g", None, False)
    made = prototype(text, "f")
    assert made is not None
    assert made.parameters is not None
    assert [p.pointer for p in made.parameters] == [False, True]
    last = prototype(text, "h")
    assert last is not None
    assert last.plain
    assert last.parameters == (Parameter("long long n", False, "int64"),)
