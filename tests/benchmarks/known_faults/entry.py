"""What an entry of the benchmark says."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
BINDINGS: Final = HERE / "bindings"


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
