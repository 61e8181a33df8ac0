"""Replaying a finding under compute-sanitizer, in a process of its own."""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kfuzz.core.codec import encode
from kfuzz.core.errors import HarnessError, KfuzzError, UsageError
from kfuzz.core.home import with_home
from kfuzz.engine.config import ReplayConfig, Sanitized
from kfuzz.engine.replay.replayer import locate, require_target
from kfuzz.evaluation.sanitized import PROGRAM
from kfuzz.execution.device import sanitizer
from kfuzz.execution.device.backends import BACKENDS, resolve
from kfuzz.execution.processes.own import in_group
from kfuzz.store.corpus import Problem, Stored
from kfuzz.store.entry import attach
from kfuzz.targets.load import LoadedKernel, request_for

LIMIT_SECONDS: Final = 600.0
"""Instrumented kernels take a hundred times as long, and torch's start a minute."""

_LOOK_SECONDS: Final = 0.1


def sanitize(
    entries: Sequence[Stored | Problem],
    tool: str,
    config: ReplayConfig,
    *,
    stop: threading.Event,
) -> Iterator[Sanitized]:
    """Run each finding's minimal case under a tool and store the report with it.

    Args:
        entries: the findings.
        tool: one of `sanitizer.TOOLS`.
        config: project, device and target; `times` is of no concern.
        stop: set from outside to end at once.

    Yields:
        One result per entry, in order, until `stop` is set.

    Raises:
        UsageError: before the first, if a finding is none of a CUDA device, or the
            target of `config` names no one kernel.
        BackendError: likewise, if there is no such device or no compute-sanitizer.
    """
    require_target(entries, config)
    devices = [_device_of(entry, config) for entry in entries]
    executable = sanitizer.find()
    for entry, device in zip(entries, devices, strict=True):
        if stop.is_set():
            return
        if isinstance(entry, Problem):
            yield Sanitized(entry.path, problem=entry.what)
            continue
        try:
            loaded = locate(entry.finding, config)
            made = _run(entry, loaded, tool, executable, device, config, stop)
        except KfuzzError as error:
            made = Sanitized(entry.path, entry.finding, problem=str(error))
        if made is None:
            return
        yield made


def _device_of(entry: Stored | Problem, config: ReplayConfig) -> str:
    """Return torch's name of the device to run an entry on."""
    if isinstance(entry, Problem):
        return ""
    wanted = config.device or entry.finding.device
    backend = BACKENDS.get(wanted.partition(":")[0])
    if backend is None or not backend.has.sanitizer:
        raise UsageError(
            f"{entry.finding.id} was found on {wanted!r}, where compute-sanitizer sees "
            "nothing",
            where="--sanitizer",
            fix="give --device cuda to run it on a GPU",
        )
    if entry.finding.target.reference:
        raise UsageError(
            f"{entry.finding.id} is a candidate's, which runs in its sandbox only",
            where="--sanitizer",
        )
    if entry.finding.case.large:
        raise UsageError(
            f"{entry.finding.id} has billions of elements: under compute-sanitizer it "
            "would take hours",
            where="--sanitizer",
        )
    return resolve(wanted)[1][0]


def _run(
    entry: Stored,
    loaded: LoadedKernel,
    tool: str,
    executable: str,
    device: str,
    config: ReplayConfig,
    stop: threading.Event,
) -> Sanitized | None:
    """Return what the tool says of a finding; None if it was stopped."""
    finding = entry.finding
    request = {
        **request_for(loaded.source, config.root, loaded.kernel.name),
        "device": device,
        "case": encode(finding.case),
    }
    with tempfile.TemporaryDirectory(prefix="kfuzz-sanitizer-") as folder:
        asked, result = Path(folder, "request.json"), Path(folder, "result.json")
        log = Path(folder, "report.txt")
        asked.write_text(json.dumps(request))
        program = [sys.executable, "-m", PROGRAM, str(asked), str(result)]
        command = sanitizer.command(executable, tool, log, program)
        output = _wait_for(command, Path(folder, "output.txt"), stop)
        if output is None:
            return None
        said = _said(result, finding.id)
        text = log.read_text(errors="replace") if log.exists() else output
    if "problem" in said:
        raise HarnessError(said["problem"], where=finding.id)
    try:
        report = sanitizer.parse(tool, text)
    except HarnessError as error:
        tail = " ".join(output.strip().splitlines()[-3:])
        raise HarnessError(
            error.what, where=finding.id, fix=tail or error.fix
        ) from None
    file = attach(entry.path, f"sanitizer-{tool}.txt", text.encode())
    return Sanitized(entry.path, finding, report, file, said.get("raised", ""))


def _said(result: Path, where: str) -> dict[str, str]:
    """Return what the program wrote of itself, {} where it wrote nothing.

    Raises:
        HarnessError: if it was ended while it wrote.
    """
    if not result.exists():
        return {}
    try:
        said: dict[str, str] = json.loads(result.read_text())
    except ValueError:
        raise HarnessError(
            "the program that ran the kernel left half of what it saw",
            where=where,
            fix="run it again",
        ) from None
    return said


def _wait_for(command: list[str], log: Path, stop: threading.Event) -> str | None:
    """Run a command in a group of its own and return its output; None if stopped.

    Raises:
        HarnessError: if it does not end in time, or cannot be started.
    """
    env = sanitizer.environment(with_home(os.environ))
    with log.open("w") as file, ExitStack() as stack:
        try:
            started = in_group(command, env=env, stdout=file, stderr=file)
            process = stack.enter_context(started)
        except OSError as error:
            raise HarnessError(
                f"cannot be started: {error}", where=command[0]
            ) from None
        deadline = time.monotonic() + LIMIT_SECONDS
        while process.poll() is None:
            if stop.wait(_LOOK_SECONDS):
                return None
            if time.monotonic() >= deadline:
                raise HarnessError(
                    f"did not end within {LIMIT_SECONDS:.0f} s", where=command[0]
                )
    return log.read_text(errors="replace")
