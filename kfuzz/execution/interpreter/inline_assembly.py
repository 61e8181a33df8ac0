"""Inline PTX in Triton's interpreter: straight lines of common instructions.

What `tl.inline_asm_elementwise` is mostly used for: one instruction that Triton's
language has no name for, or a few that follow each other, some under a predicate. They
are computed for all lanes at once, approximations exactly (on a GPU `tanh.approx.f32`
errs by 2^-11, the others by some ulp; PTX ISA, "Floating Point Instructions").
Branches, memory, special registers and packed types have no form here: they are named,
and their kernel is not judged.
"""

import re
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.language import NoForm
from kfuzz.execution.interpreter.programs import array

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INSTRUCTION: Final = re.compile(r"(?:@(!?)([\w$%]+) )?([\w.:]+)(?: (.*))?")
_SPACES: Final = re.compile(r"\s+")
# Of launches that follow each other: here each ends before the next begins.
_NOTHING: Final = ("griddepcontrol.wait", "griddepcontrol.launch_dependents")
_WAITS: Final = (
    "create_grid_dependency_wait", "create_grid_dependency_launch_dependents",
)  # fmt: skip
# Modifiers of rounding and of subnormals, which change no more than the last bit.
_MODIFIERS: Final = frozenset({"rn", "approx", "ftz", "full", "rna", "lo"})
_TYPES: Final = {
    "f32": np.float32, "f64": np.float64, "b32": np.uint32, "b64": np.uint64,
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64,
}  # fmt: skip


def _shifted(shift: Callable[..., Any], x: Any, places: Any) -> Any:
    """Shift as PTX does: by more places than there are like one by one."""
    unsigned = places.view(np.dtype(f"u{places.itemsize}"))
    bits = 8 * x.itemsize
    most = shift(x, np.minimum(unsigned, bits - 1).astype(x.dtype))
    return np.where(unsigned < bits, most, shift(most, np.ones((), x.dtype)))


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "mov": lambda x: x, "neg": np.negative, "abs": np.abs,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": np.fmin, "max": np.fmax,
    "fma": lambda x, y, z: x * y + z, "mad": lambda x, y, z: x * y + z,
    "rcp": lambda x: 1 / x, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": lambda x, n: _shifted(np.left_shift, x, n),
    "shr": lambda x, n: _shifted(np.right_shift, x, n),
}  # fmt: skip
_COMPARISONS: Final[dict[str, Callable[..., Any]]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _unknown(what: str) -> NoForm:
    return NoForm(
        f"inline assembly has no form in Triton's interpreter, run on a GPU: {what}"
    )


def install(module: Any, patches: Patches) -> None:
    """Have the interpreter run inline assembly until the patches are undone."""
    handle = module.TensorHandle

    def create_inline_asm(
        builder: Any, text: str, constraints: str, operands: list[Any],
        types: list[Any], is_pure: bool, pack: int,
    ) -> Any:  # fmt: skip
        shape = operands[0].data.shape if operands else (1,)
        given = [operand.data for operand in operands]
        wanted = [module._get_np_dtype(t.scalar) for t in types]
        if pack > 1:
            raise _unknown(f"{pack} elements at a time")
        data = run(text, given, wanted)
        results = [np.broadcast_to(each, shape).copy() for each in data]
        made = [handle(d, t.scalar) for d, t in zip(results, types, strict=True)]
        # As the builder of compiled Triton gives them.
        return SimpleNamespace(get_result=made.__getitem__)

    patches.set(module.InterpreterBuilder, "create_inline_asm", create_inline_asm)
    for name in _WAITS:
        patches.set(module.InterpreterBuilder, name, lambda builder: None)


def run(text: str, operands: list[Any], types: list[Any]) -> list[Any]:
    """Run PTX on all lanes.

    Args:
        text: its instructions, which name results and operands "$0", "$1", …
        operands: arrays of one shape, of 32 or 64 bits an element.
        types: NumPy's types of the results, of 32 or 64 bits an element.

    Raises:
        NoForm: an instruction has no form here.
    """
    sizes = {np.dtype(t).itemsize for t in [*types, *(o.dtype for o in operands)]}
    if sizes - {4, 8}:
        raise _unknown("operands of fewer than 32 bits, several in a register")
    machine = _Machine(dict(enumerate(operands, len(types))))
    machine.run(text)
    return [machine.value(f"${i}", np.dtype(t)) for i, t in enumerate(types)]


class _Machine:
    """Registers, each an array of all lanes."""

    def __init__(self, given: dict[int, Any]) -> None:
        self.given = given
        self.registers: dict[str, Any] = {}

    def run(self, text: str) -> None:
        """Run all instructions, in order."""
        body = _COMMENT.sub("", text).replace("{", ";").replace("}", ";")
        for line in body.split(";"):
            line = _SPACES.sub(" ", line).strip()
            if line and not line.startswith(".reg "):
                self._step(line)

    def value(self, name: str, dtype: Any) -> Any:
        """Return an operand in a type: a register's bits, or a constant."""
        if name in self.registers:
            found = self.registers[name]
        elif name.startswith("$") and name[1:].isdigit():
            found = self.given.get(int(name[1:]))
            if found is None:  # a result that nothing wrote: a dummy
                return np.zeros((1,), dtype)
        else:
            return np.asarray(_constant(name, dtype))
        if found.dtype.itemsize != dtype.itemsize:
            raise _unknown(f"{name} in {8 * dtype.itemsize} bits")
        return found.view(dtype)

    def _step(self, line: str) -> None:
        parsed = _INSTRUCTION.fullmatch(line)
        if parsed is None:
            raise _unknown(line)
        negated, predicate, instruction, rest = parsed.groups()
        if instruction in _NOTHING:
            return
        operands = [name.strip() for name in (rest or "").split(",")]
        where = None
        if predicate is not None:
            where = self._predicate(predicate) != bool(negated)
        operation, *suffixes = instruction.split(".")
        kinds = [s for s in suffixes if s not in _MODIFIERS]
        if not kinds or kinds[-1] not in _TYPES:
            raise _unknown(line)
        dtype = np.dtype(_TYPES[kinds.pop()])
        target, *sources = operands
        if operation == "setp" and len(kinds) == 1 and kinds[0] in _COMPARISONS:
            left, right = (self.value(name, dtype) for name in sources)
            made = _COMPARISONS[kinds[0]](left, right)
        elif operation == "selp" and not kinds and len(sources) == 3:
            first, second = (self.value(name, dtype) for name in sources[:2])
            made = np.where(self._predicate(sources[2]), first, second)
        elif operation in _FUNCTIONS and not kinds:
            made = self._computed(line, operation, dtype, sources)
        else:
            raise _unknown(line)
        if where is not None:
            old = self.registers.get(target)
            before = np.zeros_like(made) if old is None else old.view(made.dtype)
            made = np.where(where, made, before)
        self.registers[target] = made

    def _computed(
        self, line: str, operation: str, dtype: Any, sources: list[str]
    ) -> Any:
        function = _FUNCTIONS[operation]
        operands = [self.value(name, dtype) for name in sources]
        if dtype.kind != "f":
            if operation in ("div", "rcp"):
                raise _unknown(line)
            return array(function(*operands)).astype(dtype)
        fused_in_64 = operation == "fma" and dtype.itemsize > 4  # rounds once
        if fused_in_64 or operation in ("and", "or", "xor", "not", "shl", "shr"):
            raise _unknown(line)
        if operation in ("mov", "neg", "abs", "min", "max"):
            return function(*operands)
        wide = (operand.astype(np.float64) for operand in operands)
        return array(function(*wide)).astype(dtype)

    def _predicate(self, name: str) -> Any:
        found = self.registers.get(name)
        if found is None or found.dtype != np.bool_:
            raise _unknown(f"the predicate {name}")
        return found


def _constant(text: str, dtype: Any) -> Any:
    """Return a literal of PTX in a type."""
    try:
        if text[:2].lower() == "0f":
            value: Any = struct.unpack(">f", bytes.fromhex(text[2:]))[0]
        elif text[:2].lower() == "0d":
            value = struct.unpack(">d", bytes.fromhex(text[2:]))[0]
        elif dtype.kind == "f":
            value = float(text)
        else:
            value = int(text.rstrip("U"), 0) % (1 << 8 * dtype.itemsize)
            unsigned = np.dtype(f"u{dtype.itemsize}").type(value)
            return unsigned.view(dtype)
        if dtype.kind == "f":
            return dtype.type(value)
        return np.float32(value).view(dtype)
    except (ValueError, struct.error):
        raise _unknown(text) from None
