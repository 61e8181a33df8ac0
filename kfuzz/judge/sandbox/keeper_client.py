"""A keeper and its child as the campaign talks to them: requests and answers."""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.core.untrusted import End, Ended, Entry, Measures, OutputSpec
from kfuzz.execution.device.backends import named
from kfuzz.execution.processes import Child, ChildDied, ChildTimeout, Zygote
from kfuzz.execution.processes.faults import ChildRaised, ZygoteError
from kfuzz.judge.sandbox.contain import Facts
from kfuzz.judge.sandbox.limits import Limits, killed_for_memory
from kfuzz.judge.sandbox.results import Given, Returned, returned
from kfuzz.judge.sandbox.wire import (
    ArgumentRooms,
    Broken,
    Carrier,
    Geometry,
    page_up,
    plain_to_wire,
    raw,
    read_exception,
)
from kfuzz.numerics.run import Raised

GRACE_SECONDS: Final = 40.0
"""How much later than its child the keeper answers at most: it has to end it first."""


@dataclass(frozen=True)
class Asked:
    """A request to a child.

    Attributes:
        request: what is asked.
        seconds: how long the child may take.
        given: descriptors to hand to it.
    """

    request: Mapping[str, Any]
    seconds: float
    given: Sequence[int] = ()

    @property
    def message(self) -> dict[str, Any]:
        """It as its keeper takes it."""
        count = {"descriptors": len(self.given)}
        return {"ask": {**self.request, **count}, "seconds": self.seconds, **count}


class Kept:
    """A child behind its keeper.

    Attributes:
        ended: how it came to its end, None while it lives.
        facts: what contains it, once it is ready.
        asked: whether something was asked ahead, and its answer not yet taken.
    """

    def __init__(
        self,
        zygote: Zygote,
        scratch: Path,
        cache: Path,
        *,
        device: str,
        limits: Limits,
        measures: Measures,
        hidden: Sequence[Path] = (),
        first: Asked | None = None,
    ) -> None:
        """Start it without waiting.

        Args:
            zygote: what it is forked from.
            scratch: a folder of its own, made here.
            cache: the folder of what it builds.
            device: where its calls run.
            limits: what it may take.
            measures: how it is contained.
            hidden: files and folders that it must not read.
            first: what it is asked as soon as it is ready; `answer` returns the answer.

        Raises:
            ZygoteError: no process can be had.
        """
        self.ended: Ended | None = None
        self.facts: Facts | None = None
        given = () if first is None else first.given
        self.asked = first is not None
        self._start_seconds = limits.open_seconds + (first.seconds if first else 0.0)
        self._answered: dict[str, Any] | None = None
        self._scratch = scratch
        self._wrong: str | None = None
        self._killed = killed_for_memory()
        scratch.mkdir(parents=True)
        cache.mkdir(parents=True, exist_ok=True)
        self._child: Child = zygote.fork()
        self._child.send(
            {
                "do": "start",
                "limits": asdict(limits),
                "measures": asdict(measures),
                "scratch": str(scratch),
                "cache": str(cache),
                "gpu": not named(device).has.on_host,
                "inside": device,
                "hidden": [str(path) for path in hidden],
                "first": None if first is None else first.message,
                "descriptors": len(given),
            }
        )
        if given:
            self._child.send_descriptors(given)

    def ready(self) -> str:
        """Wait until it is contained; return why its device does not work, or ""."""
        if self._wrong is None:
            self._wrong = self._started()
        return self._wrong

    def _started(self) -> str:
        answer = self._received(self._start_seconds)
        if isinstance(answer, Ended):
            return f"the child {answer.text} ({answer.output.strip()[-500:]})"
        if answer.get("ailment"):
            return str(answer["ailment"])
        if "facts" not in answer:
            raise HarnessError(f"the child does not start: {answer}")
        self._answered = answer.pop("first", None)
        facts = dict(answer["facts"])
        self.facts = Facts(**{**facts, "limits": tuple(facts["limits"])})
        return ""

    def ask(self, asked: Asked) -> dict[str, Any] | Ended:
        """Return the child's answer, or the end that came instead.

        Raises:
            HarnessError: the keeper itself failed.
        """
        self.ask_ahead(asked)
        return self.answer(asked.seconds)

    def ask_ahead(self, asked: Asked) -> None:
        """Ask a child that is ready without waiting for its answer."""
        if self.ended is not None:
            return
        self.asked = True
        try:
            self._child.send({"do": "ask", **asked.message})
            if asked.given:
                self._child.send_descriptors(asked.given)
        except (ChildDied, ChildTimeout, ZygoteError) as fault:
            self._lost(fault)

    def answer(self, seconds: float) -> dict[str, Any] | Ended:
        """Return the answer to what was asked ahead, as `ask` does."""
        self.asked = False
        if self.ended is not None:
            return self.ended
        if self._answered is None:
            return self._received(seconds)
        reply, self._answered = self._answered, None
        return self._read(reply)

    def close(self) -> None:
        """End it and remove its scratch folder."""
        with contextlib.suppress(HarnessError):
            self._child.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _received(self, seconds: float) -> dict[str, Any] | Ended:
        try:
            reply = self._child.wait(seconds + GRACE_SECONDS)
        except (ChildDied, ChildTimeout, ZygoteError) as fault:
            return self._lost(fault)
        except ChildRaised as raised:
            raise HarnessError(f"the supervisor failed: {raised.what}") from None
        return self._read(reply)

    def _read(self, reply: dict[str, Any]) -> dict[str, Any] | Ended:
        if "ended" in reply:
            told = reply["ended"]
            self.ended = Ended(
                End(told["end"]), told["detail"], told["text"], told["output"]
            )
            return self.ended
        answer: dict[str, Any] = reply["answer"]
        return answer

    def _lost(self, fault: Exception) -> Ended:
        """Return what is to be said of a child whose keeper is gone.

        A keeper does not end by itself: its child found and ended it, unless the system
        ran out of memory meanwhile.
        """
        tail = getattr(fault, "output_tail", "")
        if killed_for_memory() > self._killed:
            text = "ends as the system kills processes for want of memory"
            self.ended = Ended(End.MEMORY, "machine", text, tail)
            return self.ended
        text = f"ends its supervisor process ({fault})"
        self.ended = Ended(End.CRASH, "supervisor ended", text, tail)
        return self.ended


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

    raised: Raised | None = None
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
            return Opened(raised=read_exception(answer["raised"]), seconds=seconds)
        listed, loaded = answer.get("state"), answer.get("loaded")
        if not isinstance(listed, dict) or not isinstance(loaded, list):
            raise Broken("it does not say what it built")
        state = {str(k)[:500]: _spec(v) for k, v in listed.items()}
        names = tuple(str(name) for name in loaded if str(name) in state)
        return Opened(state=state, loaded=names, seconds=seconds)
    except (Broken, TypeError, ValueError) as error:
        text = f"does not report what it built: {error}"
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


@dataclass(frozen=True)
class Called:
    """What one call came to: an answer, an exception or an end.

    Attributes:
        returned: what it returned, in the campaign's memory; None if it did not.
        raised: the exception that left it.
        ended: how the child came to its end; the next call has a fresh one.
        seconds: from the request to the answer, by the campaign's clock.
    """

    returned: Returned | None = None
    raised: Raised | None = None
    ended: Ended | None = None
    seconds: float = 0.0

    @property
    def spoilt(self) -> bool:
        """Whether its child is of no further use: it may keep what it took."""
        raised = self.raised
        lost = raised is not None and (raised.memory or bool(raised.fault))
        return lost or self.ended is not None


def read_called(
    answer: dict[str, Any],
    rooms: ArgumentRooms,
    carried: Carrier,
    results: Carrier,
    tensors: Sequence[Tensor],
    device: torch.device,
    given: Given,
) -> Called:
    """Return what an answer says; one that is none counts as an end.

    Args:
        answer: the child's.
        rooms: the arguments' memory, into which is copied what the kernel left.
        carried: that memory as the child has it.
        results: the elements of results.
        tensors: the arguments.
        device: where results are to lie.
        given: earlier results.

    Raises:
        torch.OutOfMemoryError: the campaign has no memory for the results.
    """
    try:
        if "raised" in answer:
            return Called(raised=read_exception(answer["raised"]))
        rooms.read(carried)
        return Called(returned=returned(answer, results, tensors, device, given))
    except torch.OutOfMemoryError:
        raise
    # A dtype without a size, or strides that overlap: whatever torch says of those.
    except (Broken, ArithmeticError, OSError, RuntimeError, TypeError, ValueError) as e:
        text = f"does not report what it returned: {e}"
        return Called(ended=Ended(End.PROTOCOL, "protocol", text))
