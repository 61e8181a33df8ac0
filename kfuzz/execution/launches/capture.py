"""Launches that a kernel's wrapper makes, for sizes of any kind: nothing is run.

The wrapper is called on tensors without memory, in a process whose Triton compiles. It
finds the GPU that the interpreter's wrappers find. A number that it reads from a tensor
is 0 and a condition false, as for indices that are all in bounds; the launches that
real data gives are compared with what is captured here.
"""

import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import Case, TensorSpec, is_dtype
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device import declared
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.launches.launch import (
    Argument,
    ConstArgument,
    IntArgument,
    Launch,
    OtherArgument,
    TensorArgument,
)
from kfuzz.execution.launches.memoryless import LIMITS, Indices, Memoryless, storage_of

# Names of torch's types in Triton's signatures.
_TYPES: Final = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "bool": "i1", "uint8": "u8",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16",
    "uint32": "u32", "uint64": "u64",
}  # fmt: skip
_INTEGERS: Final = ("i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64")
_ALIGNED: Final = 16
# What a launch tells the compiler besides arguments; what others mean is theirs.
_OPTIONS: Final = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu",
    "matrix_instr_nonkdim", "kpack",
)  # fmt: skip


class NotCapturedError(Exception):
    """Why the launches of a call are not known.

    Attributes:
        limit: whether kfuzz cannot follow the wrapper: else it rejects the case.
    """

    def __init__(self, why: str, *, limit: bool = False) -> None:
        super().__init__(why)
        self.limit = limit


@dataclass
class Captured:
    """What a call on a case launches.

    Attributes:
        case: the case.
        launches: in order.
        functions: `triton.runtime.jit.JITFunction` of each.
        configs: how many configurations the kernel's autotuner has; 0 without one.
        unstored: whether a result holds nothing, and no launch and no operator of
            torch's is given its memory.
        reads: numbers that the wrapper read from tensors.
    """

    case: Case
    launches: list[Launch] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)
    configs: int = 0
    unstored: bool = False
    reads: int = 0


def capture(
    kernel: BoundKernel, case: Case, *, config: int = 0, answers: int = 0,
    stray: tuple[str, int] | None = None, free: frozenset[str] = frozenset(),
) -> Captured:  # fmt: skip
    """Return the launches of a call of a kernel on a case.

    Args:
        kernel: the bound kernel.
        case: shapes, strides and scalars; no values are made.
        config: which autotune configuration is launched, modulo their number.
        answers: 0, or a seed: what the wrapper reads from tensors is then any number.
        stray: an argument of indices, and what all of them are; by default 0.
        free: arguments of indices that may be any integers.

    Raises:
        NotCapturedError: if the call raises, launches with what is not understood, or
            needs memory for results whose shapes only its oracle knows.
    """
    if kernel.arguments.destinations:
        raise NotCapturedError("it is given memory for its results")
    made = Captured(case)
    mode = _mode()
    mode.begin(answers)
    with mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names: dict[int, tuple[str, TensorSpec]] = {}
        tensors = []
        for name, spec in case.tensors.items():
            tensor = _tensor(spec)
            names[storage_of(tensor)] = name, spec
            known = Indices.of(kernel, case, name)
            if known is not None:
                if name not in free:
                    mode.note(tensor, known)
                strayed, index = stray or ("", 0)
                mode.equal[storage_of(tensor)] = index if strayed == name else 0
            tensors.append(tensor)
        taken = kernel.arguments.scalars
        keywords: dict[str, object] = {
            name: getattr(torch, str(value)) if is_dtype(value) else value
            for name, value in case.scalars.items()
            if name in taken
        }
        keywords |= kernel.declaration.config(config)
        given = _Given(made, mode, names, sizes_of(case))
        with declared.gpu(), watch(config=config) as running, _instead(given.launch):
            try:
                results = kernel.taking(case.tensors)(*tensors, **keywords)
            except NotCapturedError:
                raise
            except Exception as error:
                text = str(error).strip().splitlines() or [""]
                why = f"{type(error).__name__}: {text[0]}"
                limit = isinstance(error, LIMITS) or "FakeTensor" in str(error)
                raise NotCapturedError(why, limit=limit) from error
        made.configs, made.reads = running.configs, mode.reads
        given.settle(results, inplace=kernel.declaration.inplace)
    return made


def sizes_of(case: Case) -> dict[str, int]:
    """Return the dimensions and integer scalars of a case by name."""
    scalars = {n: v for n, v in case.scalars.items() if type(v) is int}
    return {**case.dims, **scalars}


class Recorder:
    """Turns launches into records.

    Args:
        made: takes the records.
        sizes: of the case.
    """

    def __init__(self, made: Captured, sizes: Mapping[str, int]) -> None:
        self.made, self._sizes = made, sizes

    def launch(self, function: Any, *given: Any, grid: Any, **named: Any) -> None:
        """Record one launch in place of making it."""
        signature = inspect.signature(function.fn)
        parameters = {n: v for n, v in named.items() if n in signature.parameters}
        options = {n: v for n, v in named.items() if n not in signature.parameters}
        options = {n: v for n, v in options.items() if n in _OPTIONS}
        bound = signature.bind(*given, **parameters)
        bound.apply_defaults()
        if callable(grid):
            grid = grid(dict(bound.arguments))
        if isinstance(grid, int):
            grid = (grid,)
        x, y, z = (*(int(n) for n in grid), 1, 1, 1)[:3]
        arguments = {
            parameter.name: self._argument(
                parameter, bound.arguments[parameter.name], function
            )
            for parameter in function.params
        }
        code = function.fn.__code__
        self.made.launches.append(
            Launch(
                function.fn.__name__, code.co_filename, code.co_firstlineno,
                arguments, (x, y, z), options, self._sizes,
            )
        )  # fmt: skip
        self.made.functions.append(function)

    def _argument(self, parameter: Any, value: Any, function: Any) -> Argument:
        if parameter.is_constexpr or value is None:
            return ConstArgument(value, _text(value))
        if isinstance(value, Tensor):
            return self.tensor(value)
        wanted = parameter.annotation_type
        if isinstance(value, bool):
            return IntArgument(wanted or "u1", int(value), declared=True)
        if isinstance(value, int):
            if wanted and wanted not in _INTEGERS:
                return OtherArgument(wanted)
            narrow = -(2**31) <= value < 2**31
            kind = wanted or ("i32" if narrow else "i64")
            return IntArgument(kind, value, declared=bool(wanted))
        if isinstance(value, float):
            return OtherArgument(wanted or "fp32")
        module = type(value).__module__
        if module.startswith("triton.") and "Descriptor" in type(value).__name__:
            made = self.tensor(value.base)
            return replace(made, block=tuple(value.block_shape))
        if hasattr(value, "dtype") and hasattr(value, "base"):  # a reinterpreted one
            made = self.tensor(value.base)
            name = str(value.dtype).removeprefix("torch.")
            return replace(made, type=f"*{_TYPES.get(name, name)}")
        if isinstance(value, torch.dtype) or module.startswith("triton."):
            return ConstArgument(value, _text(value))
        raise NotCapturedError(
            f"{function.fn.__name__} is given a {type(value).__name__}", limit=True
        )

    def tensor(self, tensor: Tensor) -> TensorArgument:
        """Return a tensor as an argument, as if it were all of its memory."""
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind not in _TYPES:
            raise NotCapturedError(f"a tensor of {kind}", limit=True)
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        made = TensorArgument(
            f"*{_TYPES[kind]}", tensor.itemsize, shape, strides, 0, 0, 0
        )
        return replace(made, after=made.span)


class _Given(Recorder):
    """Tells also what the memory of the tensors is.

    Args:
        made: takes the records.
        mode: the mode that the call runs in.
        names: operator arguments by storage.
        sizes: of the case.
    """

    def __init__(
        self,
        made: Captured,
        mode: Memoryless,
        names: Mapping[int, tuple[str, TensorSpec]],
        sizes: Mapping[str, int],
    ) -> None:
        super().__init__(made, sizes)
        self._mode, self._names = mode, names
        self._storages: dict[int, int] = {}

    def tensor(self, tensor: Tensor) -> TensorArgument:
        """Return a tensor with the memory that it is part of."""
        made = super().tensor(tensor)
        key = storage_of(tensor)
        self._mode.kept.append(tensor)
        number = self._storages.setdefault(key, len(self._storages))
        name, spec = self._names.get(key, ("", None))
        known = self._mode.indices.get(key)
        size, start = tensor.itemsize, int(tensor.storage_offset())
        if spec is None or DTYPES[spec.dtype].itemsize != size:
            low, high = 0, tensor.untyped_storage().nbytes() // size
            name = ""
        else:
            low, high = spec.offset, spec.offset + spec.span
        return replace(
            made, storage=number, before=start - low, after=high - start, name=name,
            below=known.below if known else None,
            ignored=known.ignored if known else None,
            filled=key not in self._mode.empty,
            aligned=start * size % _ALIGNED == 0,
        )  # fmt: skip

    def settle(self, results: Any, *, inplace: tuple[str, ...]) -> None:
        """Note which of the storages hold results."""
        outputs = {
            storage_of(leaf)
            for leaf in tree_leaves(results)
            if isinstance(leaf, FakeTensor)
        }
        outputs |= {key for key, (name, _) in self._names.items() if name in inplace}
        numbers = {n for key, n in self._storages.items() if key in outputs}
        bare = {
            storage_of(leaf)
            for leaf in tree_leaves(results)
            if isinstance(leaf, FakeTensor) and leaf.numel()
        }
        bare &= self._mode.empty - self._mode.written - set(self._storages)
        self.made.unstored = bool(bare)
        self.made.launches = [
            replace(
                launch,
                arguments={
                    name: replace(a, output=a.storage in numbers)
                    if isinstance(a, TensorArgument)
                    else a
                    for name, a in launch.arguments.items()
                },
            )
            for launch in self.made.launches
        ]


@contextmanager
def _instead(launch: Any) -> Iterator[None]:
    """Have launches recorded, not made."""
    jit: Any = sys.modules.get("triton.runtime.jit")
    with Patches() as patches:
        if jit is not None:

            def run(
                self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any
            ) -> None:
                launch(self, *args, grid=grid, **kwargs)

            patches.set(jit.JITFunction, "run", run)
        yield


@cache
def _mode() -> Memoryless:
    """Return the mode of all captures: making one takes longer than a call."""
    return Memoryless()


def _tensor(spec: TensorSpec) -> Tensor:
    held = getattr(torch, spec.dtype)
    room = torch.empty(spec.offset + max(spec.span, 0), dtype=held)
    return room.as_strided(spec.shape, spec.element_strides, spec.offset)


def _text(value: Any) -> str:
    if hasattr(value, "fn"):
        return f"function {value.fn.__qualname__}"
    return repr(value) if not isinstance(value, float) else value.hex()
