"""What opening an entry came to, as its child tells it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kfuzz.core.untrusted import End, Ended, Entry, OutputSpec, Told
from kfuzz.judge.sandbox.carried import (
    Carrier,
    Geometry,
    page_up,
    plain_to_wire,
    raw,
)
from kfuzz.judge.sandbox.results import Broken, told_exception


@dataclass(frozen=True)
class Opened:
    """What importing the file and building what it defines came to.

    Attributes:
        raised: the exception that it ended with, None if there was none.
        ended: how the child came to its end instead of answering, else None.
        state: parameters and buffers of a module by name.
        loaded: names of those that the entry's weights were loaded into.
        seconds: how long it took.
    """

    raised: Told | None = None
    ended: Ended | None = None
    state: Mapping[str, OutputSpec] | None = None
    loaded: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def works(self) -> bool:
        """Whether calls can be made."""
        return self.raised is None and self.ended is None


def open_request(entry: Entry) -> tuple[dict[str, Any], Carrier | None]:
    """Return what to ask to have an entry opened, and its tensors, to be closed.

    Raises:
        TypeError: an argument of the constructor is no plain data.
        OSError: there is no memory for the tensors.
    """
    given: list[torch.Tensor] = []
    args = plain_to_wire(tuple(entry.args), given)
    kwargs = plain_to_wire(dict(entry.kwargs), given)
    tensors = [*entry.weights.values(), *given]
    listed: list[tuple[dict[str, Any], int]] = []
    at = 0
    for tensor in tensors:
        geometry = Geometry.of(tensor)
        listed.append((geometry.told(), at))
        at += page_up(geometry.nbytes)
    request = {
        "do": "open",
        "path": str(entry.path.resolve()),
        "build": entry.build,
        "args": args,
        "kwargs": kwargs,
        "seed": entry.seed,
        "mode": str(entry.mode),
        "constants_drawn": entry.constants_drawn,
        "names": list(entry.weights),
        "tensors": listed,
        "fixed": [[k, plain_to_wire(v)] for k, v in sorted(entry.fixed.items())],
    }
    if not listed:
        return request, None
    memory = Carrier("tensors", at)
    for (_, offset), tensor in zip(listed, tensors, strict=True):
        memory.write(offset, raw(tensor))
    return request, memory


def read_opened(answer: dict[str, Any] | Ended, seconds: float) -> Opened:
    """Return what an answer says; one that is none counts as an end."""
    if isinstance(answer, Ended):
        return Opened(ended=answer, seconds=seconds)
    try:
        if "raised" in answer:
            return Opened(raised=told_exception(answer["raised"])[0], seconds=seconds)
        listed, loaded = answer.get("state"), answer.get("loaded")
        if not isinstance(listed, dict) or not isinstance(loaded, list):
            raise Broken("it does not say what it built")
        state = {str(k)[:500]: _spec(v) for k, v in listed.items()}
        names = tuple(str(name) for name in loaded if str(name) in state)
        return Opened(state=state, loaded=names, seconds=seconds)
    except (Broken, TypeError, ValueError) as error:
        text = f"does not tell what it built: {error}"
        ended = Ended(End.PROTOCOL, "protocol", text)
        return Opened(ended=ended, seconds=seconds)


def _spec(told: Any) -> OutputSpec:
    shape, dtype = told
    sizes = tuple(shape)
    known = isinstance(dtype, str) and isinstance(
        getattr(torch, dtype, None), torch.dtype
    )
    if not known or not all(type(n) is int and 0 <= n < 1 << 40 for n in sizes):
        raise Broken("a parameter has no size or type")
    return OutputSpec(sizes, dtype)
