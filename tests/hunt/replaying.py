"""Runs the ledger's scripts: which faults show, in which release, and until when."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Final

from packaging.version import Version

from tests.hunt import wheels
from tests.hunt.entry import MENDED, NOT_HERE, SHOWS, Entry

# Of one script; compiling is most of it.
SECONDS: Final = 150.0
WORDS: Final = {SHOWS: "shows", MENDED: "does not show", NOT_HERE: "not to be run here"}


@dataclass(frozen=True)
class Ran:
    """What one script said of one release.

    Attributes:
        entry: the entry.
        version: the release.
        outcome: `SHOWS`, `MENDED` or `NOT_HERE`.
        printed: its output's last lines, or why there is none.
    """

    entry: Entry
    version: str
    outcome: int
    printed: str


def ran(entry: Entry, version: str, device: str, folder: Path) -> Ran:
    """Run an entry's script with one release.

    Args:
        entry: the entry.
        version: the release.
        device: "cuda", or "cpu" for Triton's interpreter.
        folder: where wheels are kept.
    """
    if entry.said["device"] == ("cuda" if device == "cpu" else "interpret"):
        return Ran(entry, version, NOT_HERE, f"shows on {entry.said['device']} alone")
    path = []
    try:
        if entry.package == "torch":  # is here, in one release
            version = installed("torch")
        else:
            path.append(wheels.install(folder, entry.package, version))
        path += [wheels.needed(folder, need, need) for need in entry.needs]
    except wheels.WheelError as error:
        return Ran(entry, version, NOT_HERE, str(error))
    beside = filter(None, [os.environ.get("PYTHONPATH")])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, path), *beside]),
        "TRITON_INTERPRET": "1" if device == "cpu" else "0",
    }
    try:
        done = subprocess.run(
            [sys.executable, str(entry.path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(entry, version, NOT_HERE, f"still there after {SECONDS:g} s")
    # An error that it does not expect leaves 1, too, but a traceback besides.
    code = done.returncode if done.returncode in WORDS else NOT_HERE
    said = done.stdout.strip().splitlines()
    if code == NOT_HERE or "Traceback (most recent call last)" in done.stderr:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        code = NOT_HERE
    return Ran(entry, version, code, "; ".join(said[-4:]))


def since(entry: Entry, device: str, folder: Path) -> Iterator[Ran]:
    """Yield runs with ever older releases, until one in which it does not show."""
    for version in reversed(wheels.releases(entry.package)):
        if Version(version) > Version(entry.said["last"]):
            continue
        yield (one := ran(entry, version, device, folder))
        if one.outcome != SHOWS:
            return


def mended(entry: Entry, device: str, folder: Path) -> Iterator[Ran]:
    """Yield a run with the newest release; where the fault is gone, those before it.

    The last one without the fault is the release that mended it.
    """
    later = [
        version
        for version in wheels.releases(entry.package)
        if Version(version) > Version(entry.said["last"])
    ]
    if not later:
        return
    yield (newest := ran(entry, later[-1], device, folder))
    if newest.outcome == MENDED:
        for version in reversed(later[:-1]):
            yield (one := ran(entry, version, device, folder))
            if one.outcome != MENDED:
                return
