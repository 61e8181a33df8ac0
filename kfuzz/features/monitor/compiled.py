"""Monitored functions in code that torch.compile traces: no graph break.

Two operators of kfuzz's own stand in the graph, one before the function's and one
after. They run as they are, outside what is compiled, and ask the gate then. Both
declare that they write to one tensor, which keeps the compiler from leaving them out
and keeps their order. Arguments that are neither tensors nor plain scalars, such as the
module of a method, break the graph: the function then runs as it does without the
compiler.
"""

import ast
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from kfuzz.features.monitor.runtime import runtime

if TYPE_CHECKING:
    from kfuzz.features.monitor.monitored import Monitor, Pending

is_compiling: Final = torch.compiler.is_dynamo_compiling
"""Whether torch.compile is tracing the code that asks."""

# What both operators are declared to write to.
_TOKEN: Final = torch.zeros(1, device="cpu")
# What stands for an argument in the text of a call; other words are literals.
_TENSOR, _INT, _FLOAT, _DTYPE = "tensor", "int", "float", "dtype:"
_SEPARATOR: Final = "\x1f"


class _Local(threading.local):
    """Calls between their two operators, by the monitor's number, of one thread."""

    def __init__(self) -> None:
        self.calls: dict[int, Pending] = {}


_local: Final = _Local()


def traced(
    monitor: "Monitor",
    function: Callable[..., Any],
    wrapper: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function in code that is being traced; the compiler reads this.

    Args:
        monitor: looks at its calls.
        function: the function.
        wrapper: the function with the monitor's gate before it.
        args: positional arguments.
        kwargs: the others.
    """
    tensors: list[Tensor] = []
    ints: list[int] = []
    floats: list[float] = []
    words = ""
    for name, a in (*[("", a) for a in args], *kwargs.items()):
        word = ""
        if isinstance(a, Tensor):
            tensors.append(a)
            word = _TENSOR
        elif isinstance(a, bool | str) or a is None:
            word = repr(a)
        elif isinstance(a, torch.dtype):
            word = _DTYPE + str(a)
        elif isinstance(a, int):
            ints.append(a)
            word = _INT
        elif isinstance(a, float):
            floats.append(a)
            word = _FLOAT
        if word == "":
            # Read by the compiler alone: what it disables takes a second to import.
            outside: Any = torch.compiler.disable(wrapper)  # type: ignore[no-untyped-call]
            return outside(*args, **kwargs)
        words = words + name + "=" + word + _SEPARATOR
    before = torch.ops.kfuzz_monitor.before
    before(_TOKEN, [x.detach() for x in tensors], ints, floats, words, monitor.id)
    returned = function(*args, **kwargs)
    results, kinds = _parts(returned)
    after = torch.ops.kfuzz_monitor.after
    after(
        _TOKEN, [x.detach() for x in tensors], [x.detach() for x in results],
        ints, floats, words, kinds, monitor.id,
    )  # fmt: skip
    return returned


def _parts(returned: Any) -> tuple[list[Tensor], str]:
    """Return the tensors of a result, and what else it is made of, as text."""
    if isinstance(returned, Tensor):
        return [returned], _TENSOR
    if not isinstance(returned, tuple | list):
        return [], "None" if returned is None else ""
    found, kinds = [], "("
    for x in returned:
        if isinstance(x, Tensor):
            found.append(x)
            kinds = kinds + _TENSOR + ","
        elif x is None:
            kinds = kinds + "None,"
        else:
            return [], ""
    return found, kinds


def _before(token: Tensor, tensors: Sequence[Tensor], *given: Any) -> None:
    """Ask the gate about a call, and copy its arguments if it is looked at."""
    ints, floats, words, monitor = given
    made = runtime.monitors.get(monitor)
    left = _local.calls.pop(monitor, None)
    if made is None:
        return
    if left is not None:  # its call raised
        made.count("raised")
        made.give_up(left)
    if not made.active:
        return
    args, kwargs = _given(tensors, ints, floats, words)
    number, why = made.look(args, kwargs)
    if why is None:
        return
    pending = made.begin(args, kwargs, number, why)
    if pending is not None:
        pending.call = None
        _local.calls[monitor] = pending


def _after(
    token: Tensor, tensors: Sequence[Tensor], results: Sequence[Tensor], *given: Any
) -> None:
    """Copy the results of a call that is looked at.

    The arguments are those that the compiled code has by now, not those before.
    """
    ints, floats, words, kinds, monitor = given
    pending = _local.calls.pop(monitor, None)
    made = runtime.monitors.get(monitor)
    if pending is None or made is None:
        return
    if not kinds:
        made.note("skipped", "not looked at", "a nested result of compiled code")
        made.give_up(pending)
        return
    left = iter(results)
    parts = kinds.removeprefix("(").rstrip(",").split(",")
    items = tuple(next(left) if p == _TENSOR else None for p in parts if kinds != "(")
    args, kwargs = _given(tensors, ints, floats, words)
    returned = items if kinds.startswith("(") else items[0]
    made.finish_compiled(pending, made.call_of(args, kwargs, later=True), returned)


def _given(
    tensors: Sequence[Tensor], ints: Sequence[int], floats: Sequence[float], words: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call from their parts."""
    rest = {_TENSOR: iter(tensors), _INT: iter(ints), _FLOAT: iter(floats)}
    args, kwargs = [], {}
    for text in words.split(_SEPARATOR)[:-1]:
        name, _, word = text.partition("=")
        value: Any
        if word in rest:
            value = next(rest[word])
        elif word.startswith(_DTYPE):
            value = getattr(torch, word.removeprefix(_DTYPE).removeprefix("torch."))
        else:
            value = ast.literal_eval(word)
        if name:
            kwargs[name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


def _define() -> None:
    """Define the two operators; what calls them needs no gradients and no devices."""
    library: Any = torch.library.Library(  # type: ignore[no-untyped-call]
        "kfuzz_monitor", "DEF"
    )
    _LIBRARIES.append(library)
    unsafe = getattr(torch.Tag, "cudagraph_unsafe", None)  # a capture would run it once
    tags = [] if unsafe is None else [unsafe]
    for name, function, results, kinds in (
        ("before", _before, "", ""),
        ("after", _after, "Tensor[] results, ", "str kinds, "),
    ):
        schema = (
            f"{name}(Tensor(a!) token, Tensor[] tensors, {results}SymInt[] ints, "
            f"float[] floats, str words, {kinds}int monitor) -> ()"
        )
        library.define(schema, tags=tags)
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"kfuzz_monitor::{name}", _nothing, lib=library)


def _nothing(*_: Any) -> None:
    """What the operators do where there are no values."""


_LIBRARIES: Final[list[Any]] = []
_define()
