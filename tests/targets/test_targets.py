"""Kernels as people have them: launches, operators of libraries, modules."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor, nn

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import REGISTRY
from kfuzz.core.errors import BindingError, BuildError
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.evaluation.probes import building as opchecking
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.targets.load import Source, identity, load, load_all, target_of
from tests.contracts.test_attribution import layer_norm_case
from tests.helpers.judged_cases import judged, row_case, x_case

CASE = x_case("randn", (4, 8))


@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    place = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + place, mask=place < n, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + place, e / tl.sum(e, 0), mask=place < n)


@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (8, 16)], key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < (tl.num_programs(0) * BLOCK if EVEN else n)
    x = tl.load(x_ptr + place, mask=inside)
    tl.store(y_ptr + place, tl.where(x < 0, 0.0, x), mask=inside)


def rows(x: Tensor) -> tuple[int]:
    return (x.numel() // max(x.shape[-1], 1),)


def row_arguments(x: Tensor, y: Tensor) -> tuple[Any, ...]:
    return x, y, x.shape[-1], x.shape[-1]


interpreted = pytest.mark.skipif(not interpreting(), reason="Triton compiles here")
OUT = {"out": ("y",), "layouts": "contiguous", "dtypes": "float32"}


@interpreted
@pytest.mark.parametrize("shape", [(4, 33), (3, 0), (0, 5)])
def test_a_bare_kernel_is_launched_by_its_recipe(shape: tuple[int, int]) -> None:
    made = kfuzz.launch(softmax_kernel, grid=rows, args=row_arguments, BLOCK=64)
    report = judged(ops.softmax, made, row_case("randn", shape), dims={-1}, **OUT)
    assert report.failure is None
    assert report.error is report.unsupported is report.refusal is None


@interpreted
def test_a_fault_of_a_bare_kernel_is_charged_to_its_line() -> None:
    made = kfuzz.launch(
        softmax_kernel,
        grid=rows,
        args=lambda x, y: (x, y, x.shape[-1], x.shape[-1] + 1),
        BLOCK=64,
    )
    report = judged(ops.softmax, made, row_case("randn", (4, 33)), dims={-1}, **OUT)
    assert report.failure is not None
    assert report.failure.contract == "K-MEM-01"
    line = softmax_kernel.fn.__code__.co_firstlineno + 6
    assert f"test_targets.py:{line}" in report.failure.message


@interpreted
def test_autotuned_kernels_with_heuristics_are_launched_with_meta() -> None:
    made = kfuzz.launch(
        relu_kernel,
        grid=lambda x, meta: (triton.cdiv(x.numel(), meta["BLOCK"]),),
        args=lambda x, y: {"x_ptr": x, "y_ptr": y, "n": x.numel()},
    )
    report = judged(ops.relu, made, CASE, **OUT)
    assert report.failure is None
    assert report.error is report.unsupported is None
    assert report.verdicts["C-CMP-02"] == "conforms"


def test_a_launch_is_its_kernel() -> None:
    made = kfuzz.launch(softmax_kernel, grid=(1,), args=row_arguments, BLOCK=64)
    bound = kfuzz.kernel(ops.softmax, dims={-1}, **OUT)(made)
    assert bound.name == "softmax_kernel"
    assert bound.__wrapped__.__wrapped__ is softmax_kernel.fn
    assert bound.arguments.tensors == ("x",)
    assert bound.arguments.destinations == ("y",)
    assert identity(made) == identity(rows)  # the file that both stand in


@pytest.mark.parametrize(
    ("recipe", "claims", "words"),
    [
        (
            {"grid": (1,), "args": lambda *t: t},
            OUT,
            "which tensors these are is not stated",
        ),
        ({"grid": (1,), "args": (1, 2)}, OUT, "args is tuple, no function"),
        ({"grid": lambda a, b: (1,), "args": row_arguments}, OUT, "grid takes a, b"),
        ({"grid": (1,), "args": row_arguments}, {}, "its results need memory"),
        ({"grid": (1,), "args": lambda x: (x,)}, OUT, "for its destination 'y'"),
    ],
)
def test_a_recipe_that_does_not_fit_says_why(
    recipe: dict[str, Any], claims: dict[str, Any], words: str
) -> None:
    with pytest.raises(BindingError, match=words):
        kfuzz.kernel(ops.relu, name="unfit", **claims)(
            kfuzz.launch(softmax_kernel, **recipe)
        )


def test_what_is_no_kernel_of_tritons_is_not_launched() -> None:
    with pytest.raises(BindingError, match=r"no @triton\.jit kernel"):
        kfuzz.launch(rows, grid=(1,), args=row_arguments)


def test_every_example_of_the_readme_binds_a_kernel() -> None:
    root = Path(__file__).parents[2]
    text = (root / "kfuzz" / "targets" / "README.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(examples) == 8
    library = torch.library.Library("my_library", "DEF")
    library.define("relu(Tensor x) -> Tensor")
    given = {
        "__name__": "readme", "kfuzz": kfuzz, "ops": ops, "torch": torch,
        "__file__": str(root / "tests" / "gpu" / "targets" / "readme.py"),
        "softmax_kernel": softmax_kernel,
        "helion": SimpleNamespace(Config=dict, kernel=lambda configs: lambda f: f),
    }  # fmt: skip
    for example in examples:
        exec(example, given)
    bound = [kernel.name for kernel in REGISTRY.pop("readme")]
    assert bound[4:] == [
        "softmax_kernel", "softmax_rows", "relu", "their_norm", "gated",
        "numba_relu", "helion_softmax",
    ]  # fmt: skip


LIBRARY = torch.library.Library("kfuzz_test_targets", "DEF")


def define(schema: str, function: Any) -> Any:
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    return getattr(torch.ops.kfuzz_test_targets, name)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.cat((torch.relu(x).flatten(), torch.relu(x).flatten()))
    return both[: x.numel()].view(x.shape), both[x.numel() :].view(x.shape)


def same(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.relu(x)
    return y, y.view(x.shape)


def normed(x: Tensor, eps: float, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    wide = [None if t is None else t.double() for t in (x, weight, bias)]
    y = nn.functional.layer_norm(wide[0], x.shape[-1:], wide[1], wide[2], eps)
    return y.to(x.dtype)


RELU = define("relu(Tensor x) -> Tensor", torch.relu)
NORM = define("norm(Tensor x, float eps, Tensor weight, Tensor? bias=None) -> Tensor",
              normed)  # fmt: skip
INTO = define("into(Tensor x, Tensor(a!) y) -> ()",
              lambda x, y: (y.copy_(torch.relu(x)), None)[1])  # fmt: skip
LIES = define("lies(Tensor x, Tensor y) -> ()",
              lambda x, y: (y.copy_(torch.relu(x) + 0), None)[1])  # fmt: skip
HALVES = define("halves(Tensor x) -> (Tensor, Tensor)", halves)
SAME = define("same(Tensor x) -> (Tensor, Tensor)", same)
TWICE = kfuzz.Operator(
    "relu_twice", inputs=ops.relu.inputs, outputs=("y", "z"),
    oracle=lambda x: (torch.relu(x), torch.relu(x)),
    error_model=kfuzz.numerics.elementwise(ulps=0),
)  # fmt: skip


@torch.library.custom_op("kfuzz_test_targets::faked", mutates_args=())
def faked(x: Tensor) -> Tensor:
    return torch.relu(x)


@faked.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("kfuzz_test_targets::unfaked", mutates_args=())
def unfaked(x: Tensor) -> Tensor:
    return torch.relu(x)


@torch.library.custom_op("kfuzz_test_targets::misfaked", mutates_args=())
def misfaked(x: Tensor) -> Tensor:
    return torch.relu(x)


@misfaked.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1])


@torch.library.custom_op("kfuzz_test_targets::laid_out", mutates_args=())
def laid_out(x: Tensor) -> Tensor:
    return torch.relu(x).contiguous()


@laid_out.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)  # with the strides of x


@pytest.fixture
def in_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have opcheck run here, as it does in a child."""
    monkeypatch.setattr(opchecking, "is_child", lambda: True)
    return


def shown(report: CaseReport) -> tuple[str, Kind] | None:
    assert report.error is report.unsupported is report.refusal is None
    made = report.failure
    return None if made is None else (made.contract, made.kind)


@pytest.mark.usefixtures("in_child")
@pytest.mark.parametrize("given", [RELU, RELU.default, faked, unfaked])
def test_operators_of_a_library_are_functions(given: Any) -> None:
    report = judged(ops.relu, given, CASE)
    assert shown(report) is None
    fake = "it has no fake implementation: torch.compile cannot trace it"
    assert report.notes == ((fake,) if given is unfaked else ())


@pytest.mark.usefixtures("in_child")
def test_scalars_of_a_schema_are_passed_by_name_wherever_they_stand() -> None:
    assert shown(judged(ops.layer_norm, NORM, layer_norm_case("randn", (4, 8)))) is None
    assert shown(judged(ops.relu, INTO, CASE, out=("y",))) is None


@pytest.mark.usefixtures("in_child")
def test_what_an_operator_says_of_itself_has_to_be_true() -> None:
    assert shown(judged(ops.relu, misfaked, CASE)) == ("K-MET-01", Kind.FALSE_FAKE)
    assert shown(judged(ops.relu, LIES, CASE, out=("y",))) == (
        "K-MET-01",
        Kind.FALSE_SCHEMA,
    )
    assert shown(judged(TWICE, SAME, CASE)) == ("K-MEM-04", Kind.FALSE_SCHEMA)


@pytest.mark.usefixtures("in_child")
def test_a_fake_is_asked_on_permuted_inputs_too() -> None:
    report = judged(ops.relu, laid_out, CASE)
    assert shown(report) == ("K-MET-01", Kind.FALSE_FAKE)
    assert report.failure is not None
    assert "(on permuted inputs)" in report.failure.message
    assert shown(judged(ops.relu, laid_out, CASE, layouts="contiguous")) is None


@pytest.mark.usefixtures("in_child")
def test_results_side_by_side_in_one_buffer_share_no_byte() -> None:
    report = judged(TWICE, HALVES, CASE)
    assert shown(report) is None
    assert any("no byte is shared" in note for note in report.notes)


def test_a_schema_that_does_not_fit_is_shown_beside_the_operators() -> None:
    both = r"norm\(x, weight, bias=None, \*, eps\).*relu\(x\)"
    with pytest.raises(BindingError, match=both):
        kfuzz.kernel(ops.relu)(NORM)
    with pytest.raises(BindingError, match=r"name one: torch\.ops\.aten\.add\.Tensor"):
        kfuzz.kernel(ops.add)(torch.ops.aten.add)


class Normed(nn.Module):
    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.inner = nn.LayerNorm(size, eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


NAMES = {"weight": "inner.weight", "bias": "inner.bias"}
NORM_CASE = layer_norm_case("randn", (4, 8))


def test_a_module_computes_with_the_parameters_that_are_drawn() -> None:
    made = kfuzz.module(lambda N, eps: Normed(N, eps), parameters=NAMES)
    bound = {"name": "normed"}
    kernel = kfuzz.kernel(ops.layer_norm, **bound)(made)
    assert kernel.arguments.tensors == ("x", "weight", "bias")
    assert kernel.arguments.scalars == ("eps",)
    x, weight, bias = torch.randn(3, 8), torch.randn(8), torch.randn(8)
    wanted = nn.functional.layer_norm(x, (8,), weight, bias, 0.1)
    assert torch.equal(kernel(x, weight, bias, eps=0.1), wanted)
    assert shown(judged(ops.layer_norm, made, NORM_CASE)) is None


def test_a_module_of_one_size_keeps_to_it_where_that_is_declared() -> None:
    names = {"weight": "weight", "bias": "bias"}
    made = kfuzz.module(nn.Linear(8, 5), parameters=names)
    kernel = kfuzz.kernel(ops.linear)(made)
    assert kernel.name == "Linear"
    x, weight, bias = torch.randn(3, 4), torch.randn(2, 4), torch.randn(2)
    assert torch.equal(kernel(x, weight, bias), nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize(
    ("source", "names", "words"),
    [
        (nn.Linear(2, 2), {"weight": "wait"}, "did you mean 'weight'"),
        (nn.Linear(2, 2), {"wait": "weight"}, "did you mean 'weight'"),
        (lambda M: nn.Linear(M, 2), {}, "'M' is no dimension or scalar"),
        (5, {}, "neither a module nor"),
    ],
)  # fmt: skip
def test_a_module_that_does_not_fit_says_why(
    source: Any, names: dict[str, str], words: str
) -> None:
    def bind() -> None:
        made = kfuzz.module(source, parameters=names)
        kfuzz.kernel(ops.layer_norm, name="unfit")(made)

    with pytest.raises(BindingError, match=words):
        bind()


def test_a_module_that_declines_sizes_is_a_kernel_that_does() -> None:
    names = {"weight": "weight", "bias": "bias"}
    declines = kfuzz.module(lambda N: nn.LayerNorm(-N), parameters=names)
    failure = judged(ops.layer_norm, declines, NORM_CASE).failure
    assert failure is not None
    assert (failure.contract, failure.detail) == ("K-LIV-01", "RuntimeError")
    other = kfuzz.module(lambda N: nn.Linear(N, N, bias=False), parameters=names)
    with pytest.raises(BuildError, match="no parameter or buffer 'bias'"):
        judged(ops.layer_norm, other, NORM_CASE)


def test_an_import_that_was_interrupted_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(
        "import pathlib\n"
        "from kfuzz.contracts import kernel, operators as ops\n"
        "@kernel(ops.relu)\ndef first(x): ...\n"
        "here = pathlib.Path(__file__).with_name('begun')\n"
        "if not here.exists():\n    here.touch()\n    raise KeyboardInterrupt\n"
        "@kernel(ops.relu)\ndef second(x): ...\n"
    )
    with pytest.raises(KeyboardInterrupt):
        load(Source(path), root=tmp_path)
    names = [loaded.kernel.name for loaded in load(Source(path), root=tmp_path)]
    assert sorted(names) == ["first", "second"]


def test_a_kernel_that_is_named_comes_with_its_gradients(tmp_path: Path) -> None:
    file = tmp_path / "graded.py"
    file.write_text(
        "import torch\nimport kfuzz\nfrom kfuzz.contracts import operators as ops\n"
        "@kfuzz.kernel(ops.relu, gradients=True)\ndef one(x):\n"
        "    return torch.relu(x)\n"
        "@kfuzz.kernel(ops.relu)\ndef other(x):\n    return torch.relu(x)\n"
    )
    loaded = load_all((f"{file}::one",), root=tmp_path)
    assert [each.kernel.name for each in loaded] == ["one", "one.backward"]
    loaded = load_all((f"{file}::one.backward",), root=tmp_path)
    assert [each.kernel.name for each in loaded] == ["one.backward"]


def test_a_file_that_leaves_while_it_is_imported_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "leaves.py"
    file.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(BindingError, match=r"leaves\.py:2: importing it raises System"):
        load(Source(file=file), root=tmp_path)


def test_a_files_name_in_findings_is_the_same_in_every_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name_of(file: bytes, encoding: str) -> str:
        path = tmp_path / file.decode(encoding, "surrogateescape")
        return target_of(Source(file=path), bound, tmp_path).file

    bound = kfuzz.kernel(ops.sum, name="own_sum")(lambda x, dim: torch.sum(x, dim))
    assert name_of("kärnel.py".encode(), "utf-8") == "kärnel.py"
    assert name_of(b"k\xe4rnel.py", "utf-8") == ""  # nothing that can be printed
    monkeypatch.setattr(os, "fsencode", lambda t: t.encode("ascii", "surrogateescape"))
    assert name_of("kärnel.py".encode(), "ascii") == "kärnel.py"


def test_a_file_that_bears_its_librarys_name_binds_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "installed" / "borrowed.py"
    file = tmp_path / "bindings" / "borrowed.py"
    for path in (library, file):
        path.parent.mkdir()
    library.write_text("def relu(x): return x.clamp(min=0)\n")
    file.with_name("neighbour.py").write_text("NAME = 'borrowed_relu'\n")
    file.write_text(
        "import borrowed, kfuzz, neighbour\n"
        "from kfuzz.contracts import operators as ops\n"
        "kfuzz.kernel(ops.relu, name=neighbour.NAME)(lambda x: borrowed.relu(x))\n"
    )
    monkeypatch.setattr("sys.path", [*sys.path, str(library.parent)])
    (loaded,) = load(Source(file), root=tmp_path)
    assert loaded.kernel.name == "borrowed_relu"
    assert loaded.kernel.function(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]
