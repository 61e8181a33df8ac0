"""The child's side: loads one kernel and answers requests about cases."""

import faulthandler
import io
import mmap
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.contracts.bench import Bench, Depth, setting_of
from kfuzz.contracts.suite import select_classes
from kfuzz.core.budget import SizeBudget
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case
from kfuzz.execution import rooms
from kfuzz.execution.collectives import Collected
from kfuzz.execution.compiling import beat_while_compiling
from kfuzz.execution.device.health import ailment
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.devices import device_name
from kfuzz.execution.occupied import tell
from kfuzz.execution.processes.limits import limit_memory
from kfuzz.targets.load import Source, load

SERVE: Final = "kfuzz.targets.worker:serve"
# Bytes of the pulse; its first byte counts kernel calls modulo 256, its second is 1
# while the kernel has the process. What follows in its file are stacks, written when
# the signal comes.
PULSE_BYTES: Final = 8
STACK_SIGNAL: Final = signal.SIGUSR2

Reply = dict[str, Any]


class Worker:
    """Answers "open", "judge" and "pin" requests for one kernel."""

    def __init__(self) -> None:
        self._bench: Bench | None = None
        self._pulse: mmap.mmap | None = None
        self._stacks: io.FileIO | None = None
        self._unfenced = ""

    def __call__(self, message: dict[str, Any]) -> Reply:
        """Answer one request."""
        match message["do"]:
            case "open":
                return self._open(message)
            case "judge":
                case = decode(Case, message["case"], "case")
                bench = self._need()
                report = bench.judge(case, Depth(message["depth"]))
                return {"report": encode(report), "spent": bench.spent}
            case "pin":
                case = decode(Case, message["case"], "case")
                return {"case": encode(self._need().pin(case))}
            case other:
                raise ValueError(f"unknown request {other!r}")

    def adopt(self, bench: Bench) -> None:
        """Serve a kernel that is already loaded (no importable home)."""
        self._bench = bench

    def _open(self, message: dict[str, Any]) -> Reply:
        os.chdir(message["cwd"])
        source = Source(
            file=Path(message["file"]) if message["file"] else None,
            module=message["module"],
            only=(message["name"],),
        )
        if self._bench is None:
            device = torch.device(message["device"])
            if device.type != "cuda":
                limit_memory()  # a context maps far more than it takes
            # Before the user's file: on a broken device its import would be blamed.
            elif (why := ailment(device)) is not None:
                return {"ailment": why}
            try:
                loaded = load(source, root=Path(message["root"]))
            except KfuzzError as error:
                return {"problem": str(error)}
            setting = setting_of(
                message["device"],
                SizeBudget(**message["budget"]),
                select_classes(message["classes"], ()),
                fences=message["fences"],
            )
            self._bench = Bench(loaded[0].kernel, setting)
            self._bench.beside_collective = partial(_beside_collective, message)
            if message["fences"] and not setting.fences:
                self._unfenced = rooms.unavailable(setting.device)
            if (around := surroundings_of(device)) is not None:
                around.prepare()
            if message["pulse"]:
                self._beat_into(message["pulse"])
        return {
            "device": device_name(message["device"]),
            "unfenced": self._unfenced if message["fences"] else "",
        }

    def _beat_into(self, path: str) -> None:
        file = open(path, "r+b", buffering=0)  # noqa: SIM115 - signals write to it
        pulse = mmap.mmap(file.fileno(), PULSE_BYTES)
        file.seek(PULSE_BYTES)
        faulthandler.register(STACK_SIGNAL, file=file, all_threads=True)

        def beat() -> None:
            pulse[0] = (pulse[0] + 1) % 256

        def occupied(by_kernel: bool) -> None:
            pulse[1] = by_kernel

        self._pulse, self._stacks = pulse, file
        self._need().on_run = beat
        beat_while_compiling(beat)
        tell(occupied)

    def _need(self) -> Bench:
        if self._bench is None:
            raise ValueError("no kernel is open")
        return self._bench


def _beside_collective(
    opened: dict[str, Any], case: Case, step: Callable[[], None]
) -> Collected:
    from kfuzz.targets.collective import probe  # seldom needed

    return probe(opened, case, step)


def serve() -> Worker:
    """Return the handler of a fresh child."""
    # Small tensors gain nothing from threads, and children that run side by side
    # would spin against each other (measured: 60 ms a case for 8).
    torch.set_num_threads(1)
    return Worker()
