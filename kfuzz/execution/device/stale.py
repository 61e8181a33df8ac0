"""What a call may find in memory of a GPU that nobody owns: poison.

Dispatch modes see what Python allocates. What an operator allocates below them comes
from the blocks that torch's allocator holds free, and shared memory from nowhere.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from kfuzz.cuda.code import Kernel, compiled, largest_shared
from kfuzz.cuda.runtime import Runtime
from kfuzz.execution.memory.poison import Poison

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
