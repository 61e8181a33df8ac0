"""GPUs that kernels are compiled for without running there, and what these allow."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kfuzz.core.errors import UsageError, suggestion

KIB: Final = 1024


THREADS: Final = 1024


SIMDS: Final = 4


@dataclass(frozen=True)
class GpuTarget:
    """One architecture.

    Attributes:
        name: "gfx942" or "sm_90".
        backend: Triton's name of it, "hip" or "cuda".
        wave: threads of a wave or warp.
        shared: bytes of shared memory (LDS) that one block may have.
        registers: vector registers of one SIMD, by lane; 0 where the assembler holds a
            kernel to what it may have.
        addressable: those of them that one wave can name.
    """

    name: str
    backend: str
    wave: int
    shared: int
    registers: int = 0
    addressable: int = 0

    @property
    def arch(self) -> str | int:
        """What Triton calls it."""
        number = self.name.removeprefix("sm_")
        return int(number) if self.backend == "cuda" else self.name

    def registers_of(self, waves: int) -> int:
        """Return how many registers a lane may have in a block of so many waves."""
        return min(self.registers // -(-waves // SIMDS), self.addressable)


def _cdna(name: str, shared: int) -> GpuTarget:
    return GpuTarget(name, "hip", 64, shared * KIB, 512, 512)


def _rdna(name: str) -> GpuTarget:
    return GpuTarget(name, "hip", 32, 64 * KIB, 1536, 256)


def _nvidia(name: str, shared: int) -> GpuTarget:
    return GpuTarget(name, "cuda", 32, shared * KIB)


# NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability",
# maximum shared memory per thread block. AMD: LDS and vector registers of the table
# "Accelerator and GPU hardware specifications" of ROCm's documentation; LDS of one
# workgroup of RDNA is 64 KiB of the 128 KiB of a WGP. A SIMD of CDNA has 512 vector
# registers by lane, accumulation registers among them; one of RDNA 3 and 4 has 1,536
# for waves of 32 lanes, and a wave names 256 of them.
GPU_TARGETS: Final = {
    target.name: target
    for target in (
        _nvidia("sm_80", 163), _nvidia("sm_86", 99), _nvidia("sm_89", 99),
        _nvidia("sm_90", 227), _nvidia("sm_100", 227), _nvidia("sm_120", 99),
        _cdna("gfx90a", 64), _cdna("gfx942", 64), _cdna("gfx950", 160),
        _rdna("gfx1100"), _rdna("gfx1201"),
    )
}  # fmt: skip


def gpu_targets(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Return names of targets in their order, each once.

    Raises:
        UsageError: on a name that is not known.
    """
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    for name in found:
        if name not in GPU_TARGETS:
            raise UsageError(
                f"unknown GPU target {name!r}",
                where=where,
                fix=suggestion(name, GPU_TARGETS),
            )
    return found
