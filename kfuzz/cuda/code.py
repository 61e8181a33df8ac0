"""Machine code on a device: loaded, and its functions launched."""

import ctypes
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.errors import BuildError
from kfuzz.cuda.compilers import Nvrtc, Unit, bindings
from kfuzz.cuda.driver import Driver, load_driver

# What a kernel in CUDA C++ takes, read from its own declaration.
#
# A reader of declarations, not of C++: what it cannot read it says nothing of, and then
# arguments have to say their types themselves.

# C's names of types -> kfuzz's. `long` has 64 bits on Linux.
_TYPES: Final = {
    "float": "float32", "double": "float64",
    "half": "float16", "__half": "float16", "_Float16": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16", "hip_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn", "__nv_fp8_e5m2": "float8_e5m2",
    "bool": "bool",
    "char": "int8", "signed char": "int8", "int8_t": "int8",
    "unsigned char": "uint8", "uint8_t": "uint8",
    "short": "int16", "int16_t": "int16",
    "unsigned short": "uint16", "uint16_t": "uint16",
    "int": "int32", "int32_t": "int32",
    "unsigned": "uint32", "uint32_t": "uint32",
    "long": "int64", "int64_t": "int64", "ptrdiff_t": "int64", "ssize_t": "int64",
    "unsigned long": "uint64", "uint64_t": "uint64", "size_t": "uint64",
    "void": "void",
}  # fmt: skip
# What a declaration may say of a parameter besides its type and name.
_QUALIFIERS: Final = frozenset(
    {"const", "volatile", "__restrict__", "__restrict", "restrict", "struct",
     "__grid_constant__", "register"}
)  # fmt: skip
# In the order in which they are written out in the table above.
_WORDS: Final = (
    "signed", "unsigned", "char", "short", "int", "long", "float", "double",
)  # fmt: skip
_DEPTH: Final = 8  # of names for names
# What a name may stand for; longer ones are none of the basic types.
_NAMED: Final = r"[\w:\s]{1,200}+"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        text: as it is declared.
        pointer: whether it takes an address.
        type: kfuzz's name of the type, for a pointer of what it points to; "" if it
            is none of the basic ones.
    """

    text: str
    pointer: bool
    type: str


@dataclass(frozen=True)
class Prototype:
    """A `__global__` function.

    Attributes:
        name: its name.
        parameters: in order; None where they depend on a template's arguments, or on
            which of several functions of the name is meant.
        plain: whether the compiled code has it under that name: `extern "C"`.
    """

    name: str
    parameters: tuple[Parameter, ...] | None
    plain: bool


def prototype(source: str, name: str) -> Prototype | None:
    """Return the declaration of a kernel; None if the source has none.

    Args:
        source: CUDA C++.
        name: of the function, with a template's arguments where it has some.
    """
    base = name.partition("<")[0].strip().rpartition("::")[2]
    found = [made for made in _declared(source) if made.name == base]
    if not found:
        return None
    takes = {tuple(p.text for p in made.parameters or ()) for made in found}
    one = found[0]
    plain = any(made.plain for made in found)
    if len(takes) > 1 or any(made.parameters is None for made in found):
        return Prototype(base, None, plain)
    return Prototype(base, one.parameters, plain)


def kernels(source: str) -> tuple[str, ...]:
    """Return the names of the `__global__` functions of a source, in order."""
    return tuple(dict.fromkeys(made.name for made in _declared(source)))


@lru_cache(maxsize=32)
def _declared(source: str) -> tuple[Prototype, ...]:
    """Return the `__global__` functions of a source, in order."""
    return tuple(_globals(_without_comments(source)))


def _without_comments(source: str) -> str:
    """Return a source without comments, continued lines and preprocessor lines."""
    text = re.sub(r"\\\r?\n", " ", source)
    text = re.sub(
        r'//[^\n]*|/\*.*?(?:\*/|\Z)|("(?:\\.|[^"\\\n])*+")',
        lambda met: met.group(1) or " ",
        text,
        flags=re.DOTALL,
    )
    return re.sub(r"^[ \t]*#[^\n]*", "", text, flags=re.MULTILINE)


# `__launch_bounds__(256, max(1, 2))` and the like, which stand before a name.
_ATTRIBUTE: Final = re.compile(r"\b(?:__\w+__|alignas)\s*\((?:[^()]|\([^()]*\))*+\)")
_STATEMENT: Final = re.compile(r"([^;{}]*+)([;{}]|\Z)")
_PLAIN: Final = re.compile(r'extern\s*"C"')


def _globals(text: str) -> Iterator[Prototype]:
    """Yield what is declared between one end of a statement or block and the next."""
    names, plain_blocks = _other_names(text), list[bool]()
    for met in _STATEMENT.finditer(_ATTRIBUTE.sub(" ", text)):
        before, there, after = met[1].partition("__global__")
        head, opened, inner = after.partition("(")
        inner, closed, _ = inner.rpartition(")")
        words = re.findall(r"\w+", head)
        if there and opened and closed and words and not words[-1].startswith("__"):
            plain = any(plain_blocks) or bool(_PLAIN.search(before + head))
            inner = "" if inner.strip() == "void" else inner.strip()
            parts = [_parameter(p, names) for p in _parts(inner) if p]
            if re.search(r"\btemplate\s*<", before):
                yield Prototype(words[-1], None, plain=False)
            else:
                yield Prototype(words[-1], tuple(parts), plain)
        if met[2] == "{":
            plain_blocks.append(met[1].rstrip().endswith('"C"'))
        elif met[2] == "}" and plain_blocks:
            plain_blocks.pop()


def _parts(inner: str) -> Iterator[str]:
    """Yield what commas separate, but for those in brackets."""
    depth, start = 0, 0
    for at, c in enumerate(inner):
        depth += (c in "<([{") - (c in ">)]}")
        if c == "," and not depth:
            yield inner[start:at].strip()
            start = at + 1
    yield inner[start:].strip()


def _parameter(text: str, names: dict[str, str]) -> Parameter:
    shown = re.sub(r"\s+", " ", text)
    # By reference nothing is passed to a kernel but a __grid_constant__.
    pointer = bool(re.search(r"[*\[]", text))
    before = re.split(r"[*&\[=]", text)[0]
    words = [w for w in _words(before) if w not in _QUALIFIERS]
    if not pointer and len(words) > 1 and words[-1] not in _WORDS:
        words = words[:-1]  # its name
    elif "[" in text and "*" not in text and len(words) > 1:
        words = words[:-1]
    return Parameter(shown, pointer, _type_of(" ".join(words), names))


def _words(text: str) -> list[str]:
    """Return the words of a type; arguments of a template are one."""
    first, last = text.find("<"), text.rfind(">") + 1
    if not 0 <= first < last:
        return re.findall(r"[\w:]+", text)
    before, after = text[:first], text[last:]
    return [*_words(before), text[first:last], *_words(after)]


def _type_of(text: str, names: dict[str, str]) -> str:
    """Return kfuzz's name of a type; "" if it is none of the basic ones."""
    for _ in range(_DEPTH):
        text = re.sub(r"\b(?:std|cuda::std|c10|at)::", "", text).strip()
        text = _spelled(text)
        if text in _TYPES:
            return _TYPES[text]
        if text not in names:
            return ""
        text = names[text]
    return ""


def _spelled(text: str) -> str:
    """Return a type of several words as the table has it: `long long int` is `long`."""
    words = text.split()
    if len(words) < 2 or any(w not in _WORDS for w in words):
        return "int" if text == "signed" else text
    kinds = [w for w in words if w in ("char", "short", "long", "float", "double")]
    if "double" in kinds:
        return "double" if words == ["double"] else text
    kind = kinds[0] if kinds else "int"
    if "unsigned" in words:
        return "unsigned" if kind == "int" else f"unsigned {kind}"
    return f"signed {kind}" if kind == "char" and "signed" in words else kind


def _other_names(text: str) -> dict[str, str]:
    """Return the names that `typedef` and `using` give to types."""
    made: dict[str, str] = {}
    for words in map(str.split, re.findall(rf"\btypedef\b({_NAMED});", text)):
        if len(words) > 1:
            made[words[-1]] = " ".join(words[:-1])
    for name, kind in re.findall(rf"\busing\s+(\w+)\s*=({_NAMED});", text):
        made[name] = kind.strip()
    return made


# Arguments of a launch in the form that a kernel's own declaration gives them.

_INTEGERS: Final = frozenset(
    {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
# What tensors of another dtype may stand for: bytes are bytes.
_BYTES: Final = frozenset(
    {"int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"}
)  # fmt: skip
_EXPLICIT: Final = "pass a numpy scalar of its type, for example np.int32(n)"


def packed(prototype: Prototype | None, values: Sequence[Any], name: str) -> list[Any]:
    """Return arguments as what a launch points to: ctypes values, None as no address.

    Args:
        prototype: of the kernel; None where the source does not declare it.
        values: tensors, Python's numbers, numpy's, None.
        name: of the kernel, for error messages.

    Raises:
        TypeError: if one is not what the kernel takes, or its type is not known.
        OverflowError: if a number is too large for its type.
    """
    declared = None if prototype is None else prototype.parameters
    if declared is not None and len(declared) != len(values):
        listed = ", ".join(p.text for p in declared)
        raise TypeError(
            f"{name}({listed}) takes {len(declared)} arguments, {len(values)} are given"
        )
    made = []
    for number, value in enumerate(values):
        parameter = None if declared is None else declared[number]
        where = f"argument {number} of {name}"
        if parameter is not None:
            where += f" ({parameter.text})"
        made.append(_packed(parameter, value, where))
    return made


def _packed(parameter: Parameter | None, value: Any, where: str) -> Any:
    if isinstance(value, Tensor):
        return _address(parameter, value, where)
    if isinstance(value, ctypes._SimpleCData | ctypes.Structure | ctypes.Array):
        return value
    if isinstance(value, np.generic):
        return _of_numpy(parameter, value, where)
    if value is None:
        if parameter is not None and not parameter.pointer:
            raise TypeError(f"{where} takes no None")
        return ctypes.c_void_p(None)
    if not isinstance(value, bool | int | float):
        raise TypeError(f"{where} takes no {type(value).__name__}")
    if parameter is None:
        raise TypeError(
            f"{where}: the kernel's parameters cannot be read from its declaration "
            f"(a template, several of one name, or none in this source); {_EXPLICIT}"
        )
    if parameter.pointer:
        raise TypeError(f"{where} takes a tensor, {value!r} is given")
    if not parameter.type or parameter.type == "void":
        raise TypeError(f"{where}: its type is no basic one; {_EXPLICIT}")
    return _number(parameter.type, value, where)


def _address(parameter: Parameter | None, value: Tensor, where: str) -> ctypes.c_void_p:
    if parameter is not None and not parameter.pointer:
        raise TypeError(f"{where} takes a number, a tensor is given")
    given = str(value.dtype).removeprefix("torch.")
    wanted = "" if parameter is None else parameter.type
    same = wanted in ("", "void", given) or {wanted, given} <= _BYTES
    # Kernels that know no sign take the bits.
    same = same or (
        {wanted, given} <= _INTEGERS and wanted.strip("u") == given.strip("u")
    )
    if not same:
        raise TypeError(f"{where} takes {wanted}, the tensor is {given}")
    return ctypes.c_void_p(value.data_ptr())


def _of_numpy(parameter: Parameter | None, value: np.generic, where: str) -> Any:
    if parameter is not None:
        size = 8 if parameter.pointer else _size(parameter.type)
        if parameter.pointer or (size and size != value.itemsize):
            what = "an address" if parameter.pointer else f"{size} bytes"
            raise TypeError(f"{where} takes {what}, {value.dtype} is given")
    data = value.tobytes()
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def _size(kind: str) -> int:
    """Return the bytes of a basic type, 0 for another."""
    dtype = getattr(torch, kind, None) if kind else None
    return dtype.itemsize if isinstance(dtype, torch.dtype) else 0


def _number(kind: str, value: Any, where: str) -> Any:
    """Return a number of Python's in a type of C's."""
    if kind in _INTEGERS or kind == "bool":
        if isinstance(value, float):
            raise TypeError(f"{where} takes {kind}, the float {value!r} is given")
        if kind == "bool":
            return ctypes.c_bool(bool(value))
        made = getattr(ctypes, f"c_{kind}")(int(value))
        if made.value != int(value):
            raise OverflowError(f"{where} takes {kind}, {value} does not fit")
        return made
    number = float(value)
    if kind == "float64":
        return ctypes.c_double(number)
    if kind == "float32":
        return ctypes.c_float(number)
    if kind == "float16":
        with np.errstate(over="ignore"):
            return ctypes.c_uint16(int(np.float16(number).view(np.uint16)))
    if kind == "bfloat16":
        return ctypes.c_uint16(_bfloat16(number))
    raise TypeError(f"{where} takes {kind}; {_EXPLICIT}")


def _bfloat16(number: float) -> int:
    """Return the bits of the nearest bfloat16 to the nearest float32, ties to even."""
    if math.isnan(number):
        return 0x7FC0
    with np.errstate(over="ignore"):
        bits = int(np.float32(number).view(np.uint32))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


Sizes = int | Sequence[int]
Kernel = Callable[..., None]

DEFAULT_SHARED_BYTES: Final = 48 * 1024
"""Dynamic shared memory that a launch may have without asking for more."""

# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of cuda.h.
_MOST_SHARED_BYTES: Final = 8


class Function:
    """A kernel on one device."""

    def __init__(self, driver: Driver, device: torch.device, handle: int) -> None:
        self._driver, self._device, self._handle = driver, device, handle
        self._granted = DEFAULT_SHARED_BYTES

    def __call__(
        self,
        grid: Sizes,
        block: Sizes,
        args: Sequence[Any],
        shared: int = 0,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """Launch it; what it does on the device shows at the next synchronisation.

        Args:
            grid: blocks, in one to three dimensions.
            block: threads of a block, likewise.
            args: ctypes values.
            shared: bytes of dynamic shared memory.
            stream: torch's current stream by default.

        Raises:
            DriverError: with the driver's word where it refuses.
        """
        addresses = (ctypes.c_void_p * max(len(args), 1))(*map(ctypes.addressof, args))
        with torch.cuda.device(self._device):
            if shared > self._granted:
                wanted = (self._handle, _MOST_SHARED_BYTES, shared)
                self._driver.call("cuFuncSetAttribute", *wanted)
                self._granted = shared
            on = torch.cuda.current_stream(self._device) if stream is None else stream
            sizes = (*three(grid), *three(block), shared)
            launch = (self._handle, *sizes, on.cuda_stream, addresses, None)
            self._driver.call("cuLaunchKernel", *launch)


class Device:
    """A GPU that loads code; what is loaded stays as long as the process.

    Args:
        device: as torch counts, with its index.
        driver: the one under torch's build by default.

    Raises:
        HarnessError: if the driver cannot be loaded.
    """

    def __init__(self, device: torch.device, driver: Driver | None = None) -> None:
        self._device = device
        self._driver = load_driver() if driver is None else driver

    def architecture(self) -> str:
        """Return what compilers call its processor: "sm_90".

        Raises:
            BuildError: if it is AMD's.
        """
        if self._driver.hip:
            raise BuildError(
                "CUDA C++ is compiled for NVIDIA GPUs alone, this torch is for AMD"
            )
        major, minor = torch.cuda.get_device_capability(self._device)
        return f"sm_{major}{minor}"

    def load(self, code: bytes) -> int:
        """Return code on the device; raises `DriverError`."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()  # makes the device's context current, torch's own
            return self._driver.made("cuModuleLoadData", code)

    def function(self, module: int, name: str) -> Function:
        """Return one of its functions; raises `DriverError` if there is none."""
        with torch.cuda.device(self._device):
            handle = self._driver.made("cuModuleGetFunction", module, name.encode())
        return Function(self._driver, self._device, handle)


def compiled(source: str, name: str, device: torch.device) -> Kernel:
    """Return a function of CUDA C++ source, compiled once for a process and device.

    It is launched as `Function` is, with tensors and Python's numbers of the types that
    it declares.

    It is kept in memory alone: the cache on disk holds what users' sources compile to.

    Args:
        source: the text.
        name: the function, declared `extern "C" __global__`.
        device: where it is to run.

    Raises:
        BuildError: with the compiler's words.
        HarnessError: where there is no NVIDIA GPU, or NVRTC is missing.
    """
    bindings()
    index = torch.cuda.current_device() if device.index is None else device.index
    return _kernel(os.getpid(), index, source, name)


# Kept, since looking one up waits for the device.
@cache
def _kernel(process: int, index: int, source: str, name: str) -> Kernel:
    place = Device(torch.device("cuda", index))
    made = Nvrtc().build(Unit(source, "kernel.cu"), place.architecture())
    function = place.function(place.load(made.code), name)
    declared = prototype(source, name)

    def launch(grid: Sizes, block: Sizes, values: Sequence[Any], *others: Any) -> None:
        function(grid, block, packed(declared, values, name), *others)

    return launch


def largest_shared(device: torch.device) -> int:
    """Return the most bytes of shared memory that a block of a GPU can ask for."""
    properties: Any = torch.cuda.get_device_properties(device)
    return int(
        getattr(properties, "shared_memory_per_block_optin", DEFAULT_SHARED_BYTES)
    )


def three(sizes: Sizes) -> tuple[int, int, int]:
    """Return sizes in three dimensions."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
