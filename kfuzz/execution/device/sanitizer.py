"""NVIDIA's compute-sanitizer: how it is called, and what its report says.

The report is text, each line behind "=========". Errors are blocks that begin with what
is wrong; lines below are indented and say where. Summary lines end it.
"""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kfuzz.core.errors import BackendError, HarnessError

TOOLS: Final = ("memcheck", "racecheck", "initcheck", "synccheck")
EXECUTABLE: Final = "compute-sanitizer"

PRINT_LIMIT: Final = 200
"""Errors that are printed; the summary counts all."""

PADDING_BYTES: Final = 512
"""What lies between allocations, so that a small step past one is not in the next."""

# Where the CUDA toolkit is where it is not on PATH.
_USUAL: Final = "/usr/local/cuda/bin"

_PREFIX: Final = re.compile(r"^=========( ?)(.*)$")
_ERRORS: Final = re.compile(r"ERROR SUMMARY: (\d+) errors?")
_HAZARDS: Final = re.compile(
    r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)"
)
# What begins a block that is no error of the kernel.
_CHATTER: Final = (
    "COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY",
    "Saved host backtrace", "Target application", "No CUDA", "Error: No attachable",
    "Error: Target", "Internal Sanitizer Error", "Warning: ", "Program hit ",
)  # fmt: skip
_FAULT: Final = (
    "Internal Sanitizer Error", "Error: No attachable", "Error: Target",
    "Target application terminated", "No CUDA",
)  # fmt: skip
# Offsets in the code and parameter lists differ between builds and say little.
_OFFSET: Final = re.compile(r"\+0x[0-9a-f]+")


@dataclass(frozen=True)
class SanitizerError:
    """One kind of error at one place.

    Attributes:
        what: the tool's first line, e.g. "Invalid __global__ read of size 4 bytes".
        where: the function and, if known, the source line; "" if the tool gives none.
        details: what else it says of the first such error, a line each.
        times: how often it was printed.
    """

    what: str
    where: str
    details: tuple[str, ...]
    times: int


@dataclass(frozen=True)
class SanitizerReport:
    """What one run of a tool found.

    Attributes:
        tool: one of `TOOLS`.
        errors: the errors that were printed, grouped, the first first.
        count: how many there were in all, of racecheck without warnings.
        warnings: racecheck's warnings.
        text: the report as the tool wrote it.
    """

    tool: str
    errors: tuple[SanitizerError, ...]
    count: int
    warnings: int
    text: str

    @property
    def lines(self) -> list[str]:
        """A short summary for people, one line per kind of error."""
        noun = "error" if self.count == 1 else "errors"
        extra = f", {self.warnings} warnings" if self.warnings else ""
        made = [f"{self.tool}: {self.count} {noun}{extra}"]
        for error in self.errors:
            place = f" {error.where}" if error.where else ""
            times = f" ({error.times} times)" if error.times > 1 else ""
            made.append(f"{error.what}{place}{times}")
            made += [f"  {detail}" for detail in error.details]
        return made


def find() -> str:
    """Return the path of compute-sanitizer.

    Raises:
        BackendError: if it is not there.
    """
    found = shutil.which(EXECUTABLE)
    if found is None:
        home = os.environ.get("CUDA_HOME", "")
        places = [f"{home}/bin"] if home else []
        found = shutil.which(EXECUTABLE, path=os.pathsep.join([*places, _USUAL]))
    if found is None:
        raise BackendError(
            f"no {EXECUTABLE} on PATH, in $CUDA_HOME/bin or in {_USUAL}",
            where="--sanitizer",
            fix="it comes with the CUDA toolkit: put its bin folder on PATH",
        )
    return found


def command(
    executable: str, tool: str, report: Path, program: Sequence[str]
) -> list[str]:
    """Return the command line that runs a program under a tool.

    Args:
        executable: see `find`.
        tool: one of `TOOLS`.
        report: the file that the report is written to.
        program: what to run.
    """
    options = [
        "--tool", tool, "--log-file", str(report), "--print-limit", str(PRINT_LIMIT),
        # Compilers that a kernel starts need no watching.
        "--target-processes", "application-only",
        # Importing torch takes longer than the tool waits by itself.
        "--launch-timeout", "0", "--show-backtrace", "no",
    ]  # fmt: skip
    if tool == "memcheck":
        # Of calls that torch makes to ask what the driver can do some fail.
        options += ["--report-api-errors", "no", "--padding", str(PADDING_BYTES)]
    return [executable, *options, *program]


def environment(before: dict[str, str]) -> dict[str, str]:
    """Return the environment in which the tools see each allocation for itself."""
    made = dict(before)
    made.pop("TRITON_INTERPRET", None)
    made["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    # Either name: it changed; what they set would be a cache again.
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        made.pop(name, None)
    return made


def parse(tool: str, text: str) -> SanitizerReport:
    """Return what a report says.

    Raises:
        HarnessError: if it ends without a summary: the tool did not get that far.
    """
    blocks = _blocks(text)
    summary = _ERRORS.search(text)
    hazards = _HAZARDS.search(text)
    if summary is None and hazards is None:
        firsts = [b[0] for b in blocks if b[0] != "COMPUTE-SANITIZER"]
        firsts.sort(key=lambda line: not line.startswith(_FAULT))
        said = next(iter(firsts), "it printed nothing")
        raise HarnessError(
            f"{tool} ended without a summary: {said}",
            where=EXECUTABLE,
            fix="run `compute-sanitizer --version`; it has to fit the driver",
        )
    count = int(hazards[2]) if hazards else 0
    count += int(summary[1]) if summary else 0
    errors: dict[tuple[str, str], SanitizerError] = {}
    for first, *rest in blocks:
        if first.startswith(_CHATTER):
            continue
        error = _error(first, rest)
        known = errors.get((error.what, error.where), replace(error, times=0))
        errors[error.what, error.where] = replace(known, times=known.times + 1)
    return SanitizerReport(
        tool=tool,
        errors=tuple(errors.values()),
        count=count,
        warnings=int(hazards[3]) if hazards else 0,
        text=text,
    )


def _blocks(text: str) -> list[list[str]]:
    """Return the lines of each block, the first without its indent."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        found = _PREFIX.match(line)
        body = found[2].rstrip() if found else ""
        if not body.strip():
            continue  # what the program itself printed, or a blank line
        # "and " begins the second half of a sentence of the line before.
        if body.startswith((" ", "and ")) and blocks:
            blocks[-1].append(body.strip())
        else:
            blocks.append([body.strip()])
    return blocks


def _error(first: str, rest: Sequence[str]) -> SanitizerError:
    where, details = "", []
    for line in rest:
        if line.startswith("Saved host backtrace"):
            break
        if line.startswith("at ") and not where:
            where = _OFFSET.sub("", line)
        else:
            details.append(line)
    return SanitizerError(_OFFSET.sub("", first), where, tuple(details), 1)
