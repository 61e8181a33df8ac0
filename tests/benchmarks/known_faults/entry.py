"""What an entry of the benchmark says, and when it is complete."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
BINDINGS: Final = HERE / "bindings"
_VERSION: Final = re.compile(r"\d+(\.\d+){1,2}")
_THREAD: Final = re.compile(
    r"https://github\.com/[\w-]+/[\w-]+/(issues|pull)/\d+"
    r"|https://github\.com/[\w-]+/[\w-]+/commit/[0-9a-f]{8,40}"
)


class Fault(StrEnum):
    """What kind of fault an entry has."""

    STRIDE = "stride"
    TAIL = "tail"
    UNMASKED = "unmasked"
    INT32 = "int32"
    UNWRITTEN = "unwritten"
    GRADIENT = "gradient"
    NONFINITE = "non-finite"
    PRECISION = "precision"
    IGNORED = "ignored argument"
    INDEX = "out-of-bounds index"
    RAISES = "raises"
    WRONG = "wrong value"
    LAUNCH = "launch limit"


@dataclass(frozen=True)
class Further:
    """A finding on a fixed version, examined by hand.

    Attributes:
        contract: the contract class, such as "K-MEM-01".
        kind: the kind of its signature.
        output: the name in its signature.
        fault: whether it is a true further fault; a false alarm of kfuzz otherwise.
        argument: why.
    """

    contract: str
    kind: str
    output: str
    fault: bool
    argument: str


@dataclass(frozen=True)
class Entry:
    """A fault that a released wheel has and a later one does not.

    Attributes:
        name: the entry's name, unique in the table.
        package: the distribution, as PyPI spells it.
        faulty: a release with the fault.
        fixed: the first release without it, as far as its files show.
        function: the function that people call, with its module.
        binding: file of `bindings/`, two colons, name of the kernel.
        threads: public issues, pull requests or commits about it.
        fault: what kind it is.
        shows: what goes wrong, and on which input.
        needs_gpu: why Triton's interpreter cannot show it; "" if it can.
        further: what was found on the fixed version, examined.
        fixed_in: the distribution of the fixed release; "" if it is the same.
    """

    name: str
    package: str
    faulty: str
    fixed: str
    function: str
    binding: str
    threads: tuple[str, ...]
    fault: Fault
    shows: str
    needs_gpu: str = ""
    further: tuple[Further, ...] = ()
    fixed_in: str = ""

    def package_of(self, version: str) -> str:
        """Return the distribution in which one of the two releases is."""
        moved = self.fixed_in and version == self.fixed
        return self.fixed_in if moved else self.package


def problems(entry: Entry) -> list[str]:
    """Return what an entry lacks, in words; nothing if it is complete."""
    found = []
    for version in (entry.faulty, entry.fixed):
        if not _VERSION.fullmatch(version):
            found.append(f"{version!r} is no version of a release")
    if not found and _order(entry.faulty) >= _order(entry.fixed):
        found.append(f"the fix {entry.fixed} is no later than {entry.faulty}")
    if not entry.threads:
        found.append("no public thread")
    found += [f"{t} is no thread" for t in entry.threads if not _THREAD.fullmatch(t)]
    if not entry.shows.endswith("."):
        found.append("`shows` is no sentence")
    file, _, kernel = entry.binding.partition("::")
    path = BINDINGS / file
    if not path.is_file():
        found.append(f"no file {file} in bindings/")
    elif not re.search(rf"\b{kernel.partition('.')[0]}\b", path.read_text()):
        found.append(f"{file} binds no {kernel}")
    found += [f"{f.contract} has no argument" for f in entry.further if not f.argument]
    return found


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
