"""Hooks that see what a program launches; its results stay what they are.

A launch leads to the function around it that takes and gives tensors: the `forward` of
a torch.autograd.Function, else the outermost function of a library's module. From the
next call on that function is seen from outside. Of the first call the arguments are
those that its frame holds when it launches, and its result is awaited.
"""

import functools
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device import simulated
from kfuzz.execution.interpreter.memory import tensors_in
from kfuzz.execution.interpreter.watch import interpreting, watch
from kfuzz.features.observe.faults import (
    FOLDER,
    Shape,
    Unknown,
    at_end,
    leave,
    left,
    test_of_now,
)

# What an observed program did, as one process hands it to another.

_KIND: Final = "callees"


@dataclass(frozen=True)
class Seen:
    """One call.

    Attributes:
        given: arguments by name, in order: `Shape` for tensors; others as they were, or
            as `Unknown`.
        results: the results; None where it raised or had none.
        whole: whether it was seen from its beginning: arguments are as they were then.
        faulty: whether a launch in it showed a fault.
        test: pytest's id of the test that made it; "" outside one.
    """

    given: Mapping[str, Any]
    results: tuple[Any, ...] | None
    whole: bool = True
    faulty: bool = False
    test: str = ""


@dataclass
class Callee:
    """A function that launches kernels, or a custom operator.

    Attributes:
        module: in which it lies.
        name: in the module: "softmax", "SoftmaxFunction.apply"; of an operator its
            qualified name, "ns::softmax".
        launches: names of Triton functions, each with how often it was launched and the
            options of the last launch.
        calls: calls seen, the first few, and the first few of those with a fault.
        count: how many there were.
        place: where it is defined, file and line.
        faults: what its launches did that they should not, in words, each with how
            often.
    """

    module: str
    name: str
    launches: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    calls: list[Seen] = field(default_factory=list)
    count: int = 0
    place: tuple[str, int] = ("", 0)
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator of torch.library."""
        return "::" in self.name


def write(callees: Mapping[object, Callee], folder: Path) -> None:
    """Keep what was seen, whole or not at all."""
    sys.setprofile(None)
    if callees:
        leave(folder, _KIND, list(callees.values()))


def read(folder: Path) -> list[Callee]:
    """Return what was seen; nothing where the program was not begun."""
    found: dict[tuple[str, str], Callee] = {}
    for seen in left(folder, _KIND):
        for callee in seen:
            held = found.setdefault((callee.module, callee.name), callee)
            if held is not callee:
                held.count += callee.count
                held.launches |= callee.launches
                held.calls += callee.calls
                held.faults += callee.faults
    return [c for c in found.values() if c.calls or c.launches]


FOUND: Final[list[str]] = []
"""What the last launch did that it should not, where launches are checked."""

MOST_CALLS: Final = 6
"""Calls of one function that are kept; few of them with values."""
VALUED: Final = 3
MOST_ELEMENTS: Final = 1 << 18
"""Elements of a tensor whose values are kept."""
KEPT: Final = "KFUZZ_KEPT_CALLS"
"""Environment variable: of so many calls the values are kept instead."""
FEW_ELEMENTS: Final = 64
"""Of integers, which may be places in memory: a file of bindings can hold them."""
# Modules between a kernel and the function that a person would name.
_BETWEEN: Final = (
    "torch", "triton", "kfuzz", "contextlib", "functools", "runpy", "_pytest", "pluggy",
)  # fmt: skip
_OWN: Final = ("aten", "prims", "prim", "profiler", "c10d", "_c10d_functional")
_PLAIN: Final = (bool, int, float, str, type(None), torch.dtype)


class Watching:
    """Sees what a program launches.

    Attributes:
        callees: what was seen, by module and name.
    """

    def __init__(self) -> None:
        self.callees: dict[object, Callee] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        """See what is launched while the block runs."""
        patches = Patches()
        for name, kind in (
            ("triton.runtime.jit", "JITFunction"),
            ("triton.runtime.interpreter", "InterpretedFunction"),
        ):
            module: Any = sys.modules.get(name)
            if module is not None:
                owner = getattr(module, kind)
                patches.set(owner, "run", self._launching(owner.run))
        try:
            with _Operators(self):
                yield
        finally:
            patches.undo()

    def _launching(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def launch(function: Any, *args: Any, **kwargs: Any) -> Any:
            callee = self._around(sys._getframe(1))
            if callee is not None:
                name = getattr(function, "__name__", "")
                name = name or getattr(function.fn, "__name__", "?")
                count, _ = callee.launches.get(name, (0, {}))
                options = {k: v for k, v in kwargs.items() if k.startswith("num_")}
                callee.launches[name] = count + 1, options
            FOUND.clear()
            try:
                return run(function, *args, **kwargs)
            finally:
                if callee is not None:
                    callee.faults.update(FOUND)

        return launch

    def _around(self, frame: FrameType | None) -> Callee | None:
        """Return the function around a launch, seen from now on."""
        chosen: tuple[FrameType, Any, str] | None = None
        while frame is not None and not _is_module(frame):
            owner, name = _named(frame)
            if name.endswith(".backward"):
                return None  # the gradient of what its forward call leads to
            inner = chosen is not None and (
                chosen[2].endswith(".apply") or _module(frame) == "__main__"
            )
            if name and not inner and tensors_in(_of_frame(frame)):
                chosen = frame, owner, name
            frame = frame.f_back
        if chosen is None:
            return None
        frame, owner, name = chosen
        key = _module(frame), name
        if key not in self.callees:
            code = frame.f_code
            place = code.co_filename, code.co_firstlineno
            self.callees[key] = Callee(*key, place=place)
            self._follow(frame, owner, self.callees[key])
        return self.callees[key]

    def _follow(self, frame: FrameType, owner: Any, callee: Callee) -> None:
        """See further calls of a function, and how the one under way ends."""
        is_class = callee.name.endswith(".apply")
        function = owner.__dict__["forward"] if is_class else owner
        function = getattr(function, "__func__", function)
        given, faulty = kept(_of_frame(frame), callee), callee.faults.total()
        wrapped = _seen_from_outside(function, callee)
        if is_class:
            owner.forward = staticmethod(wrapped)
        else:
            for module in list(sys.modules.values()):
                names = getattr(module, "__dict__", {})
                for name in [n for n, v in names.items() if v is function]:
                    names[name] = wrapped
        if sys.getprofile() is not None:
            return

        def returns(at: FrameType, event: str, value: Any) -> None:
            if event == "return" and at is frame:
                sys.setprofile(None)
                note(callee, given, value, callee.faults.total() > faulty, False)

        sys.setprofile(returns)


def _seen_from_outside(
    function: Callable[..., Any], callee: Callee
) -> Callable[..., Any]:
    """Return a function that keeps its calls, the first few."""
    signature = inspect.signature(function)
    skipped = 1 if callee.name.endswith(".apply") else 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given, faulty = None, callee.faults.total()
        # Before the call, which may write to them.
        with suppress(TypeError):  # the function says so itself
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = kept(dict(list(bound.arguments.items())[skipped:]), callee)
        result = function(*args, **kwargs)
        if given is not None:
            note(callee, given, result, callee.faults.total() > faulty)
        return result

    return call


def kept(given: Mapping[str, Any], callee: Callee) -> dict[str, Any]:
    """Return arguments of a call as they are kept."""
    return {name: _kept(value, callee) for name, value in given.items()}


def note(
    callee: Callee, given: Mapping[str, Any], result: Any, faulty: bool = False,
    whole: bool = True,
) -> None:  # fmt: skip
    """Count a call, and keep it if it is one of the first."""
    callee.count += 1
    if sum(c.faulty is faulty for c in callee.calls) < _most(MOST_CALLS):
        results = result if isinstance(result, tuple | list) else (result,)
        made = tuple(_kept(v, callee) for v in results)
        callee.calls.append(Seen(given, made, whole, faulty, test_of_now()))


def _most(usual: int) -> int:
    return int(os.environ.get(KEPT, usual))


def _kept(value: Any, callee: Callee) -> Any:
    if isinstance(value, Tensor):
        few = value.numel() <= FEW_ELEMENTS and not value.is_floating_point()
        return shape_of(value, with_values=few or len(callee.calls) < _most(VALUED))
    return value if isinstance(value, _PLAIN) else Unknown(type(value).__name__)


def shape_of(x: Tensor, *, with_values: bool) -> Shape:
    """Return a tensor as a call got it."""
    values = None
    if with_values and x.numel() <= MOST_ELEMENTS:
        values = x.detach().to("cpu", copy=True)
    return Shape(
        tuple(x.shape), tuple(x.stride()), str(x.dtype).removeprefix("torch."),
        str(x.device), values,
    )  # fmt: skip


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees calls of operators that are not torch's own."""

    def __init__(self, watching: Watching) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watching = watching

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _OWN:
            return func(*args, **kwargs)
        name = func._schema.name
        callee = self._watching.callees.setdefault(name, Callee("torch.ops", name))
        names = [a.name for a in func._schema.arguments]
        given = kept(dict(zip(names, args, strict=False)) | kwargs, callee)
        result = func(*args, **kwargs)
        note(callee, given, result)
        return result


def _is_module(frame: FrameType) -> bool:
    return frame.f_code.co_name == "<module>"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _named(frame: FrameType) -> tuple[Any, str]:
    """Return the function of a frame, or its class, and how a module names it."""
    parts = frame.f_code.co_qualname.split(".")
    if _module(frame).partition(".")[0] in _BETWEEN or parts[0].startswith("test"):
        return None, ""
    if len(parts) == 1:
        function = frame.f_globals.get(parts[0])
        return (function, parts[0]) if callable(function) else (None, "")
    if len(parts) == 2 and parts[1] in ("forward", "backward"):
        owner = frame.f_globals.get(parts[0])
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            last = "apply" if parts[1] == "forward" else "backward"
            return owner, f"{parts[0]}.{last}"
    return None, ""


def _of_frame(frame: FrameType) -> dict[str, Any]:
    """Return the arguments of a call under way, as its frame holds them now."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    skipped = ("ctx", "self") if code.co_qualname.endswith(".forward") else ()
    held = frame.f_locals
    return {n: held[n] for n in names if n in held and n not in skipped}


# A process of a program that is observed.

_around = ExitStack()  # never left, and kept lest it be collected


def begin() -> None:
    """See what this process launches from now on, and leave it where it ends."""
    with suppress(ImportError):
        import triton.runtime.interpreter  # noqa: F401 - what is not loaded is not hooked
    watching = Watching()
    if interpreting():
        _around.enter_context(simulated.gpu())
        _around.enter_context(watch())
    _around.enter_context(watching.on())
    folder, pid = Path(os.environ[FOLDER]), os.getpid()
    # A fork knows what the process before it saw.
    at_end(lambda: write(watching.callees if pid == os.getpid() else {}, folder))
