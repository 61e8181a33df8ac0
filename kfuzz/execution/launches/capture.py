"""Launches that a kernel's wrapper makes, for sizes of any kind: nothing is run.

The wrapper is called on tensors without memory, in a process whose Triton compiles. It
finds the GPU that the interpreter's wrappers find. A number that it reads from a tensor
is 0 and a condition false, as for indices that are all in bounds; the launches that
real data gives are compared with what is captured here.
"""

import inspect
import math
import operator
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from traceback import walk_tb
from typing import Any, Final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_leaves

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import Case, TensorSpec, is_dense, is_dtype, parsed, span_of
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device import simulated
from kfuzz.execution.interpreter.watch import watch
from kfuzz.strategies.parameters import IndexParameter, ignored_index

# Tensors without memory, and what is known of the numbers that they hold.

# Operators whose results hold values of their first argument and no others.
_MOVES: Final = frozenset(
    {"clone", "contiguous", "_to_copy", "copy", "view", "_unsafe_view", "reshape",
     "alias", "as_strided", "expand", "permute", "t", "transpose", "unsqueeze",
     "squeeze", "slice", "select", "detach", "flatten", "_reshape_alias", "ravel"}
)  # fmt: skip


# Operators whose results are the number that all elements of their argument are.
_SAME: Final = _MOVES | {"max", "min", "amax", "amin", "any", "all", "mean"}
# Operators whose results hold integers of their first argument and no others.
_KEEPS: Final = _MOVES | {"max", "min", "amax", "amin"}
# What torch raises where it would need values, or does not know an operator.
LIMITS: Final = (
    DataDependentOutputException, DynamicOutputShapeException,
    UnsupportedOperatorException, NotImplementedError,
)  # fmt: skip
_COMPARED: Final[Mapping[str, Callable[[int, int], int]]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "logical_and": operator.and_,
    "logical_or": operator.or_, "add": operator.add, "sub": operator.sub,
    "mul": operator.mul,
}  # fmt: skip


class Memoryless(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Tensors without memory; numbers read from one are 0, as if all indices were 0.

    What a wrapper asks of indices, such as whether the greatest is in bounds, is
    computed as if they were.

    Attributes:
        indices: what is known of the integers that a tensor holds, by storage.
        equal: the number that all elements of a tensor are, by storage.
        empty: storages that hold nothing yet.
        written: storages that an operator has written to.
        kept: what must not be freed, or another would get its storage's address.
        reads: numbers that were read.
        answers: 0, or a seed: what is read is then any number that may stand there.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.begin(0)

    def begin(self, answers: int) -> None:
        """Forget all tensors."""
        self.indices: dict[int, Indices] = {}
        self.equal: dict[int, int] = {}
        self.empty: set[int] = set()
        self.written: set[int] = set()
        self.kept: list[Any] = []
        self.reads, self.answers = 0, answers

    def dispatch(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Carry out an operator; what reads a value gives 0."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._read(args[0])
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else ""
        value = self._computed(name.removesuffix("_"), args)
        made = super().dispatch(func, types, args, kwargs)
        self._fill(name, args, made)
        self._write(func, args, kwargs or {})
        if not isinstance(made, Tensor):
            return made
        if value is not None and (not name.endswith("_") or _fills(made)):
            self.kept.append(made)
            self.equal[storage_of(made)] = value
        if name in _KEEPS and args and isinstance(args[0], Tensor):
            known = self.indices.get(storage_of(args[0]))
            if known is not None and known.fit(made.dtype):
                self.note(made, known)
        return made

    def _read(self, tensor: Tensor) -> bool | int | float:
        """Return the number that a tensor of one element holds."""
        self.reads += 1
        storage, kind = storage_of(tensor), tensor.dtype
        read: float = self.equal.get(storage, 0)
        if self.answers:
            chance = random.Random(f"{self.answers} {self.reads}")
            known = self.indices.get(storage)
            if known is not None:
                few = {0, known.below - 1, known.below // 2, known.ignored}
                read = chance.choice(sorted(n for n in few if n is not None))
            else:
                read = chance.choice((0, 1, 2, 3, 17, 100, 1000))
            if kind is torch.bool:
                read = chance.choice((0, 1))
        if kind.is_floating_point:
            return float(read)
        return bool(read) if kind is torch.bool else int(read)

    def _write(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Forget what is known of memory that an operator writes to."""
        schema = getattr(func, "_schema", None)
        if schema is None or not schema.is_mutable:
            return
        given = dict(zip((a.name for a in schema.arguments), args, strict=False))
        given |= kwargs
        for argument in schema.arguments:
            tensor = given.get(argument.name)
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written:
                for leaf in tree_leaves(tensor):
                    if isinstance(leaf, Tensor):
                        self.kept.append(leaf)
                        storage = storage_of(leaf)
                        self.indices.pop(storage, None)
                        self.equal.pop(storage, None)
                        self.written.add(storage)

    def _fill(self, name: str, args: Sequence[Any], made: Any) -> None:
        """Note which memory holds nothing, and which does from now on."""
        if name.startswith(("empty", "new_empty")) and isinstance(made, Tensor):
            self.kept.append(made)
            self.empty.add(storage_of(made))
        elif name in ("fill_", "zero_", "copy_") and isinstance(args[0], Tensor):
            self.empty -= {storage_of(args[0])} if _fills(args[0]) else set()

    def _computed(self, name: str, args: Sequence[Any]) -> int | None:
        """Return what all elements of a result are, None where that is not known."""
        known = [
            self.equal.get(storage_of(a)) if isinstance(a, Tensor) else a for a in args
        ]
        if not known or not any(isinstance(a, Tensor) for a in args):
            return None
        if not isinstance(known[0], int):
            return None
        if name in _SAME:
            return int(known[0])
        if name == "sum":
            return int(known[0]) * int(args[0].numel())
        operation = _COMPARED.get(name)
        if operation is None or len(known) < 2 or not isinstance(known[1], int):
            return None
        return int(operation(known[0], known[1]))

    def note(self, tensor: Tensor, known: "Indices") -> None:
        """Take it that a tensor holds such indices."""
        self.kept.append(tensor)
        self.indices[storage_of(tensor)] = known


@dataclass(frozen=True)
class Indices:
    """What is known of the integers that a tensor holds: they are in [0, below).

    Attributes:
        below: the bound.
        ignored: the number that may be among them besides, None if none may.
    """

    below: int
    ignored: int | None = None

    def fit(self, kind: torch.dtype) -> bool:
        """Whether a type holds all of them."""
        most = max(self.below - 1, abs(self.ignored or 0))
        if kind.is_floating_point:
            return most <= 2 / torch.finfo(kind).eps
        return kind is not torch.bool and most <= torch.iinfo(kind).max and (
            (self.ignored or 0) >= torch.iinfo(kind).min
        )  # fmt: skip

    @classmethod
    def of(cls, kernel: BoundKernel, case: Case, name: str) -> "Indices | None":
        """Return what the contract says of an argument's integers."""
        bound = case.bound(case.tensors[name])
        parameter = kernel.operator.inputs.get(name)
        if not bound or not isinstance(parameter, IndexParameter):
            return None
        # Offsets and ends of parts may be the whole.
        return cls(
            bound + int(parsed(parameter.domain).cuts),
            ignored_index(kernel.operator.inputs, parameter, case),
        )


def _fills(tensor: Tensor) -> bool:
    """Whether a tensor is all of its memory."""
    return tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()


def storage_of(tensor: Tensor) -> int:
    """Return what tells the memory of one tensor from that of others."""
    return int(tensor.untyped_storage()._cdata)


# Launches of a Triton kernel as its wrapper makes them: arguments and grid.
#
# All frozen: a launch is compared with others, and watched in later runs.

UNKNOWN: Final = -1
"""What is in front of a pointer where that is not known."""


@dataclass(frozen=True)
class TensorArgument:
    """A pointer that a kernel is given.

    Attributes:
        type: as in a signature, "*fp32".
        itemsize: bytes of an element.
        shape: of the tensor that the wrapper passes; () for a bare pointer.
        strides: in elements.
        storage: number of its storage in the call: equal ones overlap.
        before: elements from the first that may be touched to the pointer, or UNKNOWN.
        after: elements from the pointer that may be touched.
        name: of the operator's argument that the storage belongs to; "" for memory
            that the wrapper allocates.
        below: what the values stay below where they are indices, else None.
        ignored: which index there may be besides, None if none.
        filled: whether torch has put values there before the launch.
        output: whether the storage holds a result of the call.
        aligned: whether the pointer is a multiple of 16 bytes.
        block: of a descriptor made on the host its block's shape, else None.
    """

    type: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: int
    before: int
    after: int
    name: str = ""
    below: int | None = None
    ignored: int | None = None
    filled: bool = False
    output: bool = False
    aligned: bool = True
    block: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Elements from the first to the last addressed one."""
        return span_of(self.shape, self.strides)

    @property
    def distinct(self) -> bool:
        """Whether no two elements share memory, as far as nesting strides tell."""
        steps = zip(self.strides, self.shape, strict=True)
        reach = 0
        for stride, size in sorted((s, n) for s, n in steps if n > 1):
            if stride <= reach:
                return False
            reach += (size - 1) * stride
        return True

    @property
    def contiguous(self) -> bool:
        """Whether the elements, if there are any, lie in C order without gaps."""
        return is_dense(self.shape, self.strides)


@dataclass(frozen=True)
class IntArgument:
    """An integer that a kernel is given.

    Attributes:
        type: "i32", "i64", …, by its value where none is declared.
        value: the integer.
        declared: whether the parameter has a type of its own.
        constant: whether it is a constant of the kernel, taken as an argument.
    """

    type: str
    value: int
    declared: bool = False
    constant: bool = False


@dataclass(frozen=True)
class OtherArgument:
    """A float that a kernel is given: no address depends on it.

    Attributes:
        type: "fp32", ….
    """

    type: str


@dataclass(frozen=True)
class ConstArgument:
    """A constant of a launch.

    Attributes:
        value: the constant; None where an argument is left out.
        text: how it is told from others.
    """

    value: Any = field(compare=False)
    text: str

    @property
    def number(self) -> int | None:
        """The constant as an integer, None where it is none."""
        return int(self.value) if isinstance(self.value, int) else None


Argument = TensorArgument | IntArgument | OtherArgument | ConstArgument


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        kernel: name of the function.
        file: in which it is defined.
        line: of its definition.
        arguments: by parameter name, in order.
        grid: programs along x, y and z.
        options: of the compilation, such as num_warps.
        sizes: the operator's dimensions and integer scalars by name.
    """

    kernel: str
    file: str
    line: int
    arguments: Mapping[str, Argument]
    grid: tuple[int, int, int]
    options: Mapping[str, Any] = field(compare=False)
    sizes: Mapping[str, int]

    @property
    def vacuous(self) -> bool:
        """Whether no program runs, and no result has an element for one to store."""
        tensors = [a for a in self.arguments.values() if isinstance(a, TensorArgument)]
        return 0 in self.grid and all(0 in a.shape for a in tensors if a.output)

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """Names and texts of its constants."""
        made = self.arguments.items()
        return tuple((n, a.text) for n, a in made if isinstance(a, ConstArgument))

    @property
    def types(self) -> tuple[str, ...]:
        """Types of its other arguments, but for the width of undeclared integers."""
        return tuple(
            "" if isinstance(a, IntArgument) and not a.declared else a.type
            for a in self.arguments.values()
            if not isinstance(a, ConstArgument)
        )


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
        with simulated.gpu(), watch(config=config) as running, _instead(given.launch):
            try:
                results = kernel.taking(case.tensors)(*tensors, **keywords)
            except NotCapturedError:
                raise
            except Exception as error:
                text = str(error).strip().splitlines() or [""]
                why = f"{type(error).__name__}: {text[0]}".removesuffix(": ")
                # What a wrapper raises itself is a rejection.
                *_, (frame, _) = walk_tb(error.__traceback__)
                torchs = frame.f_globals.get("__name__", "").startswith("torch.")
                limit = torchs and isinstance(error, LIMITS)
                limit = limit or "FakeTensor" in str(error)
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
        own = signature.parameters
        parameters = {n: v for n, v in named.items() if n in own}
        options = {n: v for n, v in named.items() if n in _OPTIONS and n not in own}
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
        leaves = [y for y in tree_leaves(results) if isinstance(y, FakeTensor)]
        outputs = {storage_of(leaf) for leaf in leaves}
        outputs |= {key for key, (name, _) in self._names.items() if name in inplace}
        numbers = {n for key, n in self._storages.items() if key in outputs}
        bare = {storage_of(leaf) for leaf in leaves if leaf.numel()}
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
