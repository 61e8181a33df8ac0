"""The device gate of the monitor in Triton: a statistic, a decision, copies.

`decide` runs before a call: its programs reduce the arguments to a few numbers each,
and the one that ends last makes one statistic of them, compares it with those of the
calls before, and copies the arguments where it lies far out. `keep_results` runs after
the call: it copies the results of such a call, and tells the host what was decided.

No program waits for another. Which one ends last is told by tickets: a program takes
one when its own part is written, and whoever takes the last of a launch goes on.
Tickets are counted on from launch to launch, modulo `PARTS`: none is ever set back.
"""

from typing import Final

import triton
import triton.language as tl

MOST: Final = tl.constexpr(4)
"""Tensors that a call may have."""
PARTS: Final = 128
"""Programs of a launch; a power of two."""
BLOCK: Final = 2048
"""Elements that a program reduces or copies at a time."""
ROW: Final = 8192
"""Elements that the one program that copies arguments does at a time."""
OPTIONS: Final = {"num_warps": 8, "enable_fp_fusion": False}
"""How the kernels are compiled."""
ENTRIES: Final = tl.constexpr(64)
"""Calls of one stream that may be between their two kernels; even."""

# Numbers per tensor and program.
NUMBERS: Final = tl.constexpr(4)
# The running state: calls, logarithm of the threshold, then for each of three
# coordinates of each tensor its centre, and its mean square deviation.
CALLS: Final = tl.constexpr(0)
THRESHOLD: Final = tl.constexpr(1)
CENTRES: Final = tl.constexpr(2)
SQUARES: Final = tl.constexpr(14)
STATE: Final = tl.constexpr(32)
# The gate's float64 numbers: two halves of the state, the share of calls to be flagged
# and the decay, and what each program saw, [PARTS, MOST, NUMBERS].
CHOICE: Final = tl.constexpr(2 * STATE.value)
SUMS: Final = tl.constexpr(CHOICE.value + 2)
# The gate's int64 notes: calls flagged, those of them without room, tickets of the two
# kernels, whether the arguments of each call under way were copied, and for each slot
# the generation of what it was filled with.
FLAGGED: Final = tl.constexpr(0)
LOST: Final = tl.constexpr(1)
TICKETS: Final = tl.constexpr(2)
TICKETS_AFTER: Final = tl.constexpr(3)
KEPT: Final = tl.constexpr(4)
FILLED: Final = tl.constexpr(KEPT.value + ENTRIES.value)
# What is told to the host, int64: calls flagged and lost as above, the number of the
# last call that ended, and for each slot the number of the call that it holds.
DECIDED: Final = tl.constexpr(2)
HOLDS: Final = tl.constexpr(3)

# Calls before any is flagged for its distance, and how many only make the scale.
WARM: Final = tl.constexpr(100)
FIRST: Final = tl.constexpr(10)
# By how much a call beyond the threshold raises its logarithm.
STEP: Final = tl.constexpr(0.5)
# Magnitudes and distances below are taken for this, distances without scale for this.
LEAST: Final = tl.constexpr(1e-30)
MOST_DISTANT: Final = tl.constexpr(1e30)
_GREATEST: Final = tl.constexpr(3.4028234663852886e38)

_POINTERS: Final = ["x0", "x1", "x2", "x3", "room_ptr"]
_VARYING: Final = [
    "n0", "n1", "n2", "n3", "o0", "o1", "o2", "o3",
    "slot", "entry", "generation", "call",
]  # fmt: skip


@triton.jit
def _measured(x_ptr, n, out_ptr, PARTS, BLOCK):  # type: ignore[no-untyped-def]
    """Write what one program sees of a tensor: see `NUMBERS`.

    Elements that are not finite, the greatest magnitude, sum and sum of squares of
    the finite ones, in float32.
    """
    lost = tl.zeros((BLOCK,), tl.float32)
    top = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, PARTS * BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        finite = tl.abs(x) <= _GREATEST
        lost += tl.where(finite, 0.0, 1.0)
        x = tl.where(finite, x, 0.0)
        top = tl.maximum(top, tl.abs(x))
        total += x
        squares += x * x
    tl.store(out_ptr, tl.sum(lost, 0).to(tl.float64))
    tl.store(out_ptr + 1, tl.max(top, 0).to(tl.float64))
    tl.store(out_ptr + 2, tl.sum(total, 0).to(tl.float64))
    tl.store(out_ptr + 3, tl.sum(squares, 0).to(tl.float64))


@triton.jit
def _copied(x_ptr, n, room_ptr, first, step, BLOCK):  # type: ignore[no-untyped-def]
    """Copy a tensor to bytes of the room: blocks from `first` on, `step` apart."""
    out_ptr = room_ptr.to(tl.pointer_type(x_ptr.dtype.element_ty))
    for start in range(first, n, step):
        at = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def _all_copied(  # type: ignore[no-untyped-def]
    x0, x1, x2, x3, n0, n1, n2, n3, o0, o1, o2, o3, room_ptr, first, step,
    COUNT, BLOCK,
):  # fmt: skip
    """Copy `COUNT` tensors to their places in the room."""
    if COUNT > 0:
        _copied(x0, n0, room_ptr + o0, first, step, BLOCK)
    if COUNT > 1:
        _copied(x1, n1, room_ptr + o1, first, step, BLOCK)
    if COUNT > 2:
        _copied(x2, n2, room_ptr + o2, first, step, BLOCK)
    if COUNT > 3:
        _copied(x3, n3, room_ptr + o3, first, step, BLOCK)


@triton.jit
def _moved(x, index, old_ptr, new_ptr, weight):  # type: ignore[no-untyped-def]
    """Return the squared distance of one coordinate, and move its centre."""
    centre = tl.load(old_ptr + CENTRES + index)
    square = tl.load(old_ptr + SQUARES + index)
    away = x - centre
    far = away * away
    distance = tl.where(square > 0.0, far / tl.where(square > 0.0, square, 1.0), 1e30)
    distance = tl.where(far == 0.0, 0.0, distance)
    tl.store(new_ptr + CENTRES + index, centre + weight * away)
    tl.store(new_ptr + SQUARES + index, (1.0 - weight) * (square + weight * far))
    return distance


@triton.jit
def _weighed(  # type: ignore[no-untyped-def]
    n, index, sums_ptr, old_ptr, new_ptr, weight, PARTS
):
    """Return a tensor's squared distance and how many elements are not finite."""
    at = sums_ptr + (tl.arange(0, PARTS) * MOST + index) * NUMBERS
    # Other programs have just written these: what this processor's own cache holds of
    # them may be older.
    lost = tl.sum(tl.load(at, cache_modifier=".cg"), 0)
    top = tl.max(tl.load(at + 1, cache_modifier=".cg"), 0)
    total = tl.sum(tl.load(at + 2, cache_modifier=".cg"), 0)
    squares = tl.sum(tl.load(at + 3, cache_modifier=".cg"), 0)
    count = n - lost
    count = tl.where(count < 1.0, 1.0, count)
    mean = total / count
    # Squares of great numbers overflow in float32: then the greatest stands for all.
    rms = tl.sqrt(squares / count)
    rms = tl.where(rms <= top, rms, top)
    far = _moved(mean, index * 3, old_ptr, new_ptr, weight)
    scale = tl.log(tl.maximum(rms, LEAST))
    far += _moved(scale, index * 3 + 1, old_ptr, new_ptr, weight)
    peak = tl.log(tl.maximum(top, LEAST))
    far += _moved(peak, index * 3 + 2, old_ptr, new_ptr, weight)
    return far, lost


@triton.jit
def _decided(  # type: ignore[no-untyped-def]
    n0, n1, n2, n3, numbers_ptr, notes_ptr, slot, entry, generation,
    MEASURED, SPECIAL, PARTS,
):  # fmt: skip
    """Return whether the call's arguments are to be copied, and note it.

    What a call is compared with is read from one half of the state and written to the
    other: threads of a program read on their own.
    """
    old = numbers_ptr + (entry & 1) * STATE
    new = numbers_ptr + (1 - (entry & 1)) * STATE
    sums = numbers_ptr + SUMS
    share = tl.load(numbers_ptr + CHOICE)
    decay = tl.load(numbers_ptr + CHOICE + 1)
    calls = tl.load(old + CALLS)
    # The plain mean at first: one early call does not weigh as much as many.
    weight = tl.maximum(1.0 - decay, 1.0 / (calls + 1.0))
    distance = calls * 0.0
    lost = calls * 0.0
    if MEASURED & 1:
        far, some = _weighed(n0, 0, sums, old, new, weight, PARTS)
        distance += far
        lost += some
    if MEASURED & 2:
        far, some = _weighed(n1, 1, sums, old, new, weight, PARTS)
        distance += far
        lost += some
    if MEASURED & 4:
        far, some = _weighed(n2, 2, sums, old, new, weight, PARTS)
        distance += far
        lost += some
    if MEASURED & 8:
        far, some = _weighed(n3, 3, sums, old, new, weight, PARTS)
        distance += far
        lost += some
    distance = tl.log(tl.minimum(tl.maximum(distance, LEAST), MOST_DISTANT))
    threshold = tl.load(old + THRESHOLD)
    is_warm = calls >= WARM
    beyond = is_warm & (distance > threshold)
    flagged = beyond
    if SPECIAL:
        flagged = flagged | (lost > 0.0)
    of_now = generation.to(tl.int64)
    filled = tl.load(notes_ptr + FILLED + slot, mask=slot >= 0, other=of_now)
    has_room = filled != of_now
    keep = flagged & has_room
    # Every thread has read the slot's generation before one of them changes it.
    tl.debug_barrier()
    raised = tl.where(beyond, STEP * (1.0 - share), -STEP * share)
    told = tl.where((calls >= FIRST) & (distance > threshold), distance, threshold)
    tl.store(new + THRESHOLD, tl.where(is_warm, threshold + raised, told))
    tl.store(new + CALLS, calls + 1.0)
    tl.store(notes_ptr + KEPT + entry, keep.to(tl.int64))
    tl.store(notes_ptr + FILLED + slot, of_now, mask=keep)
    at = notes_ptr + FLAGGED
    tl.store(at, tl.load(at) + flagged.to(tl.int64))
    missed = flagged & (has_room == 0)
    at = notes_ptr + LOST
    tl.store(at, tl.load(at) + missed.to(tl.int64))
    return keep


@triton.jit(do_not_specialize=_VARYING, do_not_specialize_on_alignment=_POINTERS)  # type: ignore[untyped-decorator]
def decide(  # type: ignore[no-untyped-def]
    x0, x1, x2, x3, room_ptr, slot, entry, generation,
    n0, n1, n2, n3, o0, o1, o2, o3, numbers_ptr, notes_ptr,
    COUNT: tl.constexpr, MEASURED: tl.constexpr, SPECIAL: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, ROW: tl.constexpr,
):  # fmt: skip
    """Reduce the arguments of a call, decide about it, copy them if it is flagged.

    They are copied only if there is room: by one program, the others being done.

    x0 to x3 are the tensors, of which `COUNT` are copied and those in the bits of
    `MEASURED` reduced, n0 to n3 their elements, o0 to o3 byte offsets of the copies in
    the slot, whose bytes room points to. numbers: float64, see `CHOICE`; notes: int64,
    see `FLAGGED`. `slot`, -1 for none, is where the call is kept, and `generation` that
    of its content now; `entry` is the call's number modulo `ENTRIES`. `SPECIAL`:
    whether a call with elements that are not finite is flagged.
    """
    out = numbers_ptr + SUMS + tl.program_id(0) * MOST * NUMBERS
    if MEASURED & 1:
        _measured(x0, n0, out, PARTS, BLOCK)
    if MEASURED & 2:
        _measured(x1, n1, out + NUMBERS, PARTS, BLOCK)
    if MEASURED & 4:
        _measured(x2, n2, out + 2 * NUMBERS, PARTS, BLOCK)
    if MEASURED & 8:
        _measured(x3, n3, out + 3 * NUMBERS, PARTS, BLOCK)
    # The barrier orders what this program's threads wrote before the ticket, which
    # releases it to whoever takes a later one.
    tl.debug_barrier()
    ticket = tl.atomic_add(notes_ptr + TICKETS, 1, sem="acq_rel", scope="gpu")
    if (ticket & (PARTS - 1)) == PARTS - 1:
        keep = _decided(
            n0, n1, n2, n3, numbers_ptr, notes_ptr, slot, entry, generation,
            MEASURED, SPECIAL, PARTS,
        )  # fmt: skip
        if keep:
            _all_copied(
                x0, x1, x2, x3, n0, n1, n2, n3, o0, o1, o2, o3, room_ptr, 0, ROW,
                COUNT, ROW,
            )  # fmt: skip


@triton.jit(do_not_specialize=_VARYING, do_not_specialize_on_alignment=_POINTERS)  # type: ignore[untyped-decorator]
def keep_results(  # type: ignore[no-untyped-def]
    x0, x1, x2, x3, room_ptr, slot, entry, call,
    n0, n1, n2, n3, o0, o1, o2, o3, notes_ptr, report_ptr,
    COUNT: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy what a call left if its arguments were copied, and report the call.

    As in `decide`, with the results for tensors. report: int64, memory of the host's,
    see `DECIDED`; `call` is the call's number in the order in which calls ended.

    The host reads `DECIDED` first, and what it finds there tells that all else is
    there. What `decide` wrote came before this launch. Of the copies made here each
    program's come before its ticket, which it takes when all its threads are past the
    barrier, and all tickets before the last, whose program alone goes on to write the
    report. All this comes before its last write, which releases it to the host too.
    """
    program = tl.program_id(0)
    keep = tl.load(notes_ptr + KEPT + entry) != 0
    is_last = program == 0
    if keep:
        _all_copied(
            x0, x1, x2, x3, n0, n1, n2, n3, o0, o1, o2, o3, room_ptr,
            program * BLOCK, PARTS * BLOCK, COUNT, BLOCK,
        )  # fmt: skip
        tl.debug_barrier()
        ticket = tl.atomic_add(notes_ptr + TICKETS_AFTER, 1, sem="acq_rel", scope="sys")
        is_last = (ticket & (PARTS - 1)) == PARTS - 1
    if is_last:
        tl.store(report_ptr + HOLDS + slot, call.to(tl.int64), mask=keep)
        tl.store(report_ptr + FLAGGED, tl.load(notes_ptr + FLAGGED))
        tl.store(report_ptr + LOST, tl.load(notes_ptr + LOST))
        tl.debug_barrier()
        tl.atomic_xchg(
            report_ptr + DECIDED, call.to(tl.int64), sem="release", scope="sys"
        )
