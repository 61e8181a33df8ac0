"""What a call on a GPU is made to meet: stale memory, other work, an earlier error."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.cuda.code import Kernel, compiled, largest_shared
from kfuzz.cuda.driver import Runtime, forget_errors, take_unchecked, torch_runtime
from kfuzz.execution.device.backends import backend_of, is_lost
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.run import UncheckedLaunch

# What a call may find in memory of a GPU that nobody owns: poison.
#
# Dispatch modes see what Python allocates. What an operator allocates below them comes
# from the blocks that torch's allocator holds free, and shared memory from nowhere.

POISON_BYTES: Final = {Poison.NAN: 0xFF, Poison.FINITE: 0x71}
"""What every byte holds. 0xFF throughout is NaN in every float format and -1 in every
integer one; 0x71 is a large finite number in each: about 1.2e30 in float32 and
bfloat16, 11,144 in float16, 144 in float8_e4m3fn."""

FREE_BYTES: Final = 64 << 20
"""Free memory that is poisoned before one call at most."""

FREE_RANGES: Final = 512
"""Ranges that are poisoned before one call at most: each is a launch."""

# More than the multiprocessors: each takes one block at a time, and one that is done
# early takes another.
_ROUNDS: Final = 4
_THREADS: Final = 1024

# Each block holds its multiprocessor for a while, so that every one gets a block.
# `volatile`, or the compiler drops stores that nothing reads.
FILL_SHARED: Final = """
extern "C" __global__ void fill_shared(int word, int words, int cycles) {
  extern __shared__ volatile unsigned memory[];
  long long start = clock64();
  for (int i = threadIdx.x; i < words; i += blockDim.x) memory[i] = word;
  __syncthreads();
  while (clock64() - start < cycles) {}
}
"""
_HOLD_CYCLES: Final = 20_000


def poison_free(device: torch.device, poison: Poison, runtime: Runtime) -> int:
    """Poison what torch's allocator holds free, the smallest blocks first.

    An allocation takes the smallest block that it fits, from its start. Waits for the
    device before and after: a block may be free here and in use there.

    Args:
        device: a GPU.
        poison: which poison.
        runtime: torch's.

    Returns:
        How many bytes were poisoned.
    """
    torch.cuda.synchronize(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    stream, byte = torch.cuda.current_stream(device), POISON_BYTES[poison]
    total = 0
    for address, nbytes in free_ranges(snapshot, index):
        runtime.fill(address, byte, nbytes, stream.cuda_stream)
        total += nbytes
    torch.cuda.synchronize(device)
    return total


def free_ranges(
    snapshot: Iterable[Mapping[str, Any]], index: int, limit: int = FREE_BYTES
) -> list[tuple[int, int]]:
    """Return the address and size in bytes of free memory, the smallest blocks first.

    Args:
        snapshot: what `torch.cuda.memory_snapshot` returns.
        index: number of the device.
        limit: bytes in all; the block that exceeds it counts up to there.
    """
    blocks = [
        (block["size"], block["address"])
        for segment in snapshot
        # A private pool is a CUDA graph's: its replays find memory as it was.
        if segment["device"] == index and tuple(segment["segment_pool_id"]) == (0, 0)
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
    ranges = []
    for size, address in sorted(blocks)[:FREE_RANGES]:
        nbytes = min(size, limit)
        if nbytes <= 0:
            break
        ranges.append((address, nbytes))
        limit -= nbytes
    return ranges


def poison_shared(device: torch.device, poison: Poison) -> None:
    """Fill the shared memory of every multiprocessor, on torch's current stream.

    Raises:
        HarnessError: where CUDA C++ cannot be compiled or launched.
    """
    fill_shared(device, poison, each=_ROUNDS, cycles=_HOLD_CYCLES)


def fill_shared(
    device: torch.device,
    poison: Poison,
    *,
    each: float,
    cycles: int,
    stream: torch.cuda.Stream | None = None,
) -> None:
    """Launch blocks that take a multiprocessor's shared memory each and fill it.

    Args:
        device: a GPU.
        poison: which poison.
        each: blocks for each multiprocessor; below 1, some get none.
        cycles: clock cycles that each stays.
        stream: torch's current one by default.

    Raises:
        HarnessError: where CUDA C++ cannot be compiled or launched.
    """
    fill, shared = compile_fill(device)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    args = (word_of(poison), shared // 4, cycles)
    fill(max(int(each * processors), 1), _THREADS, args, shared, stream)


def compile_fill(device: torch.device) -> tuple[Kernel, int]:
    """Return the kernel that fills shared memory, and how many bytes of it.

    Raises:
        HarnessError: where CUDA C++ cannot be compiled.
    """
    return compiled(FILL_SHARED, "fill_shared", device), largest_shared(device)


def word_of(poison: Poison) -> int:
    """Return four bytes of poison as a C int."""
    pattern = bytes([POISON_BYTES[poison]]) * 4
    return int.from_bytes(pattern, "little", signed=True)


HOLD_CYCLES: Final = 2_000_000
"""Clock cycles, some 1 ms, of which multiprocessors are held for 1 to 8: mostly longer
than a small kernel takes from its launch to its end."""

COPIES: Final = 8  # and up to 8 times so many
COPY_BYTES: Final = 32 << 20
"""Each copy moves more than half of a second-level cache: 32 take some 2 ms."""


class Company(StrEnum):
    """What runs beside a call.

    Attributes:
        NONE: nothing.
        HELD: a kernel that holds a part of the multiprocessors.
        STIRRED: copies that keep memory busy.
    """

    NONE = "none"
    HELD = "held"
    STIRRED = "stirred"


class Surroundings:
    """What lies and runs beside a kernel on one GPU.

    Attributes:
        lacking: what cannot be done here and why, one line each.
    """

    def __init__(self, device: torch.device, runtime: Runtime | None) -> None:
        self.lacking: dict[str, None] = {}
        self._device = device
        self._runtime = runtime
        self._compiles = self._sees_free = True
        if runtime is None:
            text = "failed launches and stale memory below Python go unseen: torch's"
            self.lacking[f"{text} GPU runtime was not found"] = None

    def forget_errors(self) -> None:
        """Clear what an earlier call left in the runtime."""
        forget_errors(self._runtime)

    def take_unchecked(self) -> UncheckedLaunch | None:
        """Return the failed launch that the call just made left, and clear it."""
        return take_unchecked(self._runtime)

    def prepare(self) -> None:
        """Compile what the other methods launch, which takes a while."""
        if self._compiles:
            try:
                compile_fill(self._device)
            except HarnessError as error:
                self._without_kernels(error)

    def poison(self, poison: Poison) -> None:
        """Poison free memory, then shared memory, as far as that can be done."""
        if self._runtime is not None and self._sees_free:
            try:
                poison_free(self._device, poison, self._runtime)
            except (HarnessError, RuntimeError) as error:
                if is_lost(self._device):
                    raise
                # An allocator other than torch's own tells nothing of its blocks.
                self._sees_free = False
                self.lacking[f"free memory is not poisoned: {error}"] = None
        if self._compiles:
            try:
                poison_shared(self._device, poison)
            except HarnessError as error:
                self._without_kernels(error)

    def begin(self, company: Company, poison: Poison, delay: int = 0) -> bool:
        """Start what is to run beside the next call.

        Args:
            company: what runs.
            poison: what it leaves in shared memory.
            delay: decides how much runs, and for how long.

        Returns:
            Whether it could be started.
        """
        try:
            if company is Company.STIRRED:
                stir_memory(self._device, delay)
            elif company is Company.HELD and self._compiles:
                hold_multiprocessors(self._device, poison, delay)
        except torch.OutOfMemoryError:
            return False
        except HarnessError as error:
            self._without_kernels(error)
        return company is not Company.HELD or self._compiles

    def _without_kernels(self, error: HarnessError) -> None:
        self._compiles = False
        text = "shared memory is not poisoned and no multiprocessor held"
        self.lacking[f"{text}: {error}"] = None


def surroundings_of(device: torch.device) -> Surroundings | None:
    """Return a device's surroundings; None for the host."""
    return backend_of(device).surroundings(device)


@cache
def surroundings_on(device: torch.device) -> Surroundings:
    """Return a GPU's surroundings, one object for a process."""
    return Surroundings(device, torch_runtime())


def amount(delay: int) -> tuple[float, int]:
    """Return which part of the multiprocessors a delay holds, and for how many times.

    0 stands for half of them, four times as long as the least.
    """
    return (delay + 3) % 7 / 8 + 1 / 8, 1 + (delay // 7 + 3) % 8


def hold_multiprocessors(device: torch.device, poison: Poison, delay: int = 0) -> None:
    """Start a kernel that takes a part of the multiprocessors for a bounded time.

    It takes all their shared memory, so that no block that needs any runs beside it.

    Args:
        device: a GPU.
        poison: what its shared memory is left with.
        delay: see `amount`.

    Raises:
        HarnessError: where CUDA C++ cannot be compiled or launched.
    """
    part, times = amount(delay)
    cycles, stream = times * HOLD_CYCLES, _stream(device)
    fill_shared(device, poison, each=part, cycles=cycles, stream=stream)


def stir_memory(device: torch.device, delay: int = 0) -> None:
    """Start copies that keep a GPU's memory busy for a bounded time."""
    source, target = _buffers(device)
    with torch.cuda.stream(_stream(device)):
        for _ in range(amount(delay)[1] * COPIES):
            target.copy_(source, non_blocking=True)


# Streams of torch's do not wait for the default one, nor it for them. A high priority
# keeps it apart from those that a kernel takes from torch's pool.
@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


@cache
def _buffers(device: torch.device) -> tuple[Tensor, Tensor]:
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    return source, torch.zeros_like(source)
