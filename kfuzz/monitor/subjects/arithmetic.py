"""What a plain reference's arithmetic depends on besides its arguments.

TF32 that the process allows where it calls, and random numbers: a reference runs in
another thread, and takes none from the caller's generators.
"""

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kfuzz.monitor.subjects.subject import Outside

PRODUCTS: Final = {"matmul": "matmul", "convolution": "conv", "recurrence": "rnn"}
"""Kinds of products, and what torch calls them."""

# Read by torch when it is loaded.
_OVERRIDE: Final = os.environ.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1"
_SEED: Final = 0
_GENERATOR: Final = "generator"
_RECURRENT: Final = frozenset(
    {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell"}
)


def tf32_allowed() -> frozenset[str]:
    """Return the kinds of float32 products for which torch may use TF32 on GPUs now."""
    # What `torch.backends.cuda.matmul.fp32_precision` asks, at less cost.
    of: Any = torch._C._get_fp32_precision_getter
    return _allowed_at(of("cuda", "matmul"), of("cuda", "conv"), of("cuda", "rnn"))


@cache
def _allowed_at(*precisions: str) -> frozenset[str]:
    """Return the kinds whose precision, in the order of `PRODUCTS`, is TF32."""
    found = zip(PRODUCTS, precisions, strict=True)
    allowed = {kind for kind, precision in found if precision == "tf32"}
    return frozenset(allowed | {"matmul"} if _OVERRIDE else allowed)


class OwnDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Random numbers come from generators of its own, the same in each run.

    To save the state of torch's own generators and put it back would turn back what
    other threads draw meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operator, with a generator of its own if it draws."""
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        made = _with_generator(func)
        if made is None:
            if not _draws(func, args, kwargs):
                return func(*args, **kwargs)
            raise Outside(f"the reference draws random numbers by {func}")
        drawn, place = made
        if len(args) > place and args[place] is not None:
            return func(*args, **kwargs)
        if kwargs.get(_GENERATOR) is not None:
            return func(*args, **kwargs)
        own = self._generator(args, kwargs)
        if len(args) > place:
            args = (*args[:place], own, *args[place + 1 :])
        else:
            kwargs[_GENERATOR] = own
        return drawn(*args, **kwargs)

    def _generator(self, args: tuple[Any, ...], kwargs: Any) -> torch.Generator:
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        device = kwargs.get("device") or (first.device if first is not None else "cpu")
        device = torch.device(device)
        if device not in self._generators:
            made = torch.Generator(device)
            self._generators[device] = made.manual_seed(_SEED)
        return self._generators[device]


class Recurrences(TorchFunctionMode):
    """Notes whether a recurrent layer is called: torch decomposes it further below.

    Attributes:
        found: whether one was.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch's."""
        if getattr(func, "__name__", "") in _RECURRENT:
            self.found = True
        return func(*args, **(kwargs or {}))


def _draws(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator without generator draws in a call: dropout may be off."""
    names = [a.name for a in func._schema.arguments]
    given = {a.name: a.default_value for a in func._schema.arguments}
    given |= dict(zip(names, args, strict=False)) | kwargs
    if "dropout_p" in given:
        return bool(given["dropout_p"])
    return given.get("train", given.get("training", True)) is not False


@cache
def _with_generator(func: Any) -> tuple[Callable[..., Any], int] | None:
    """Return the overload of an operator that takes a generator, and at which place.

    None where there is none.
    """
    packet = func.overloadpacket
    wanted = [a.name for a in func._schema.arguments]
    for overload in (func, *(getattr(packet, o) for o in packet.overloads())):
        names = [a.name for a in overload._schema.arguments]
        if _GENERATOR not in names:
            continue
        if [n for n in names if n != _GENERATOR] == [
            n for n in wanted if n != _GENERATOR
        ]:
            positional = [
                a.name for a in overload._schema.arguments if not a.kwarg_only
            ]
            place = len(names)
            if _GENERATOR in positional:
                place = positional.index(_GENERATOR)
            return overload, place
    return None
