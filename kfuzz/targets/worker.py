"""The child's side: loads one kernel and answers requests about cases."""

import mmap
import os
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.contracts.bench import Bench, Depth, setting_of
from kfuzz.contracts.suite import select_classes
from kfuzz.core.budget import SizeBudget
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case
from kfuzz.execution.devices import device_name
from kfuzz.execution.processes.limits import limit_memory
from kfuzz.targets.load import Source, load

SERVE: Final = "kfuzz.targets.worker:serve"
# Bytes of the pulse file; its first byte counts kernel calls modulo 256.
PULSE_BYTES: Final = 8

Reply = dict[str, Any]


class Worker:
    """Answers "open", "judge" and "pin" requests for one kernel."""

    def __init__(self) -> None:
        self._bench: Bench | None = None
        self._pulse: mmap.mmap | None = None

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
            if not message["device"].startswith("cuda"):
                limit_memory()  # a context maps far more than it takes
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
            if message["pulse"]:
                self._beat_into(message["pulse"])
        return {"device": device_name(message["device"])}

    def _beat_into(self, path: str) -> None:
        with open(path, "r+b") as file:
            pulse = mmap.mmap(file.fileno(), PULSE_BYTES)

        def beat() -> None:
            pulse[0] = (pulse[0] + 1) % 256

        self._pulse = pulse
        self._need().on_run = beat

    def _need(self) -> Bench:
        if self._bench is None:
            raise ValueError("no kernel is open")
        return self._bench


def serve() -> Worker:
    """Return the handler of a fresh child."""
    # Small tensors gain nothing from threads, and children that run side by side
    # would spin against each other (measured: 60 ms a case for 8).
    torch.set_num_threads(1)
    return Worker()
