"""What an untrusted child may take of the machine."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Limits on one child that runs foreign code; going past one ends it.

    Attributes:
        memory: bytes of memory beyond what it starts with, over all its processes, and
            as much again of what these share; 0 for half of what the machine has left.
        device_share: greatest part of a GPU's memory that torch gives it.
        cpu_seconds: processor time of one request, over all its processes.
        wall_seconds: seconds that one call may take before it counts as a hang.
        first_seconds: the same for the first call of a child, which may build or
            compile.
        open_seconds: the same for importing the file and building what it defines.
        processes: processes at once, its own included.
        files: open files of one process.
        file_bytes: size of one file.
        scratch_bytes: bytes in its folders, which it alone may write to.
        output_bytes: bytes that it may print, over its life.
        result_bytes: bytes of results that one call may bring where nothing is
            declared, and of one argument's memory.
    """

    memory: int = 0
    device_share: float = 0.5
    cpu_seconds: float = 900.0
    wall_seconds: float = 20.0
    first_seconds: float = 120.0
    open_seconds: float = 300.0
    processes: int = 128
    files: int = 1024
    file_bytes: int = 1024 * MIB
    scratch_bytes: int = 1024 * MIB
    output_bytes: int = 16 * MIB
    result_bytes: int = 8192 * MIB
