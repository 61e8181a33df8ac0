"""One keeper and its child, as the campaign talks to them."""

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import HarnessError
from kfuzz.core.untrusted import End, Ended, Measures
from kfuzz.execution.processes import Child, ChildDied, ChildTimeout, Zygote
from kfuzz.execution.processes.faults import ChildRaised, ZygoteError
from kfuzz.judge.sandbox.contain import Facts
from kfuzz.judge.sandbox.limits import Limits

GRACE_SECONDS: Final = 40.0
"""How much later than its child the keeper answers at most: it has to end it first."""


class Kept:
    """A child behind its keeper.

    Attributes:
        ended: how it came to its end, None while it lives.
        facts: what contains it, once it is ready.
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
    ) -> None:
        """Start it without waiting.

        Raises:
            ZygoteError: no process can be had.
        """
        self.ended: Ended | None = None
        self.facts: Facts | None = None
        self._scratch = scratch
        self._limits = limits
        self._ready = False
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
                "gpu": device.startswith("cuda"),
                "inside": device,
            }
        )

    def ready(self) -> str:
        """Wait until it is contained; return why its device does not work, or ""."""
        if self._ready:
            return ""
        answer = self._answer(self._limits.open_seconds)
        if isinstance(answer, Ended):
            return f"the child {answer.text} ({answer.output.strip()[-500:]})"
        if answer.get("ailment"):
            return str(answer["ailment"])
        if "facts" not in answer:
            raise HarnessError(f"the child does not start: {answer}")
        facts = dict(answer["facts"])
        self.facts = Facts(**{**facts, "limits": tuple(facts["limits"])})
        self._ready = True
        return ""

    def ask(
        self, request: dict[str, Any], seconds: float, given: Sequence[int] = ()
    ) -> dict[str, Any] | Ended:
        """Return the child's answer, or the end that came instead.

        Args:
            request: what to ask.
            seconds: how long the child may take.
            given: descriptors to hand to it.

        Raises:
            HarnessError: the keeper itself failed.
        """
        if self.ended is not None:
            return self.ended
        count = len(given)
        asked = {**request, "descriptors": count}
        message = {"ask": asked, "do": "ask", "seconds": seconds, "descriptors": count}
        try:
            self._child.send(message)
            if given:
                self._child.send_descriptors(given)
        except (ChildDied, ChildTimeout, ZygoteError) as fault:
            return self._lost(fault)
        return self._answer(seconds)

    def close(self) -> None:
        """End it and remove its scratch folder."""
        with contextlib.suppress(HarnessError):
            self._child.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _answer(self, seconds: float) -> dict[str, Any] | Ended:
        try:
            reply = self._child.wait(seconds + GRACE_SECONDS)
        except (ChildDied, ChildTimeout, ZygoteError) as fault:
            return self._lost(fault)
        except ChildRaised as raised:
            raise HarnessError(f"the keeper failed: {raised.what}") from None
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

        A keeper does not end by itself: its child found and ended it.
        """
        tail = getattr(fault, "output_tail", "")
        text = f"ends the process that keeps it ({fault})"
        self.ended = Ended(End.CRASH, "keeper ended", text, tail)
        return self.ended
