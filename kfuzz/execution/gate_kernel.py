"""The device gate of the monitor in Triton: a statistic, a decision, copies.

`measure` reduces the arguments of a call to a few numbers per program. `decide` makes
one statistic of them, compares it with those of the calls before, and copies the
arguments where it lies far out. `keep_results` does so with the results after the call.
Programs never wait for one another: each kernel reads only what an earlier one wrote.
"""

from typing import Final

import triton
import triton.language as tl

MOST: Final = tl.constexpr(4)
"""Tensors that a call may have."""
PARTS: Final = 128
"""Programs of a launch; a power of two."""
BLOCK: Final = 1024

# Numbers per tensor and program.
NUMBERS: Final = tl.constexpr(4)
# The running state, float64: calls, logarithm of the threshold, then for each of
# three coordinates of each tensor its centre, and its mean square deviation.
CALLS: Final = tl.constexpr(0)
THRESHOLD: Final = tl.constexpr(1)
CENTRES: Final = tl.constexpr(2)
SQUARES: Final = tl.constexpr(14)
STATE: Final = tl.constexpr(32)
# What is told to the host, int64, behind one number per slot: calls flagged, those of
# them without room, and the number of the last call that ended.
FLAGGED: Final = tl.constexpr(0)
LOST: Final = tl.constexpr(1)
DECIDED: Final = tl.constexpr(2)
REPORT: Final = tl.constexpr(3)

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
_SIZES: Final = ["n0", "n1", "n2", "n3"]
_PLACES: Final = ["o0", "o1", "o2", "o3"]
_NUMBERS: Final = ["slot", "entry", "generation", "parity", "call", "slots"]


@triton.jit
def _measured(x_ptr, n, out_ptr, PARTS, BLOCK):  # type: ignore[no-untyped-def]
    """Write what one program sees of a tensor: see `NUMBERS`.

    Elements that are not finite, the greatest magnitude, sum and sum of squares of
    the finite ones, float32.
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
    tl.store(out_ptr, tl.sum(lost, 0))
    tl.store(out_ptr + 1, tl.max(top, 0))
    tl.store(out_ptr + 2, tl.sum(total, 0))
    tl.store(out_ptr + 3, tl.sum(squares, 0))


@triton.jit
def _copied(x_ptr, n, room_ptr, PARTS, BLOCK):  # type: ignore[no-untyped-def]
    """Copy this program's part of a tensor to bytes of the room."""
    out_ptr = room_ptr.to(tl.pointer_type(x_ptr.dtype.element_ty))
    for start in range(tl.program_id(0) * BLOCK, n, PARTS * BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit(
    do_not_specialize=_SIZES + _NUMBERS, do_not_specialize_on_alignment=_POINTERS
)  # type: ignore[untyped-decorator]
def measure(  # type: ignore[no-untyped-def]
    x0, x1, x2, x3, n0, n1, n2, n3, parts_ptr, filled_ptr, open_ptr,
    slot, entry, generation,
    COUNT: tl.constexpr, MEASURED: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Reduce the arguments of a call, and note whether there is room for them.

    x0 to x3 are the tensors, of which `COUNT` are read, and n0 to n3 their elements;
    `MEASURED` has the bits of those that hold floating numbers. parts: float32
    [PARTS, MOST, NUMBERS]. filled: int64 [slots], the generation of what each slot was
    filled with; `generation` is that of the slot now, `slot` -1 for none. open: int32
    [entries]; `entry` is the call's place among those under way.
    """
    program = tl.program_id(0)
    out = parts_ptr + program * MOST * NUMBERS
    if MEASURED & 1:
        _measured(x0, n0, out, PARTS, BLOCK)
    if MEASURED & 2:
        _measured(x1, n1, out + NUMBERS, PARTS, BLOCK)
    if MEASURED & 4:
        _measured(x2, n2, out + 2 * NUMBERS, PARTS, BLOCK)
    if MEASURED & 8:
        _measured(x3, n3, out + 3 * NUMBERS, PARTS, BLOCK)
    if program == 0:
        is_open = 0
        if slot >= 0:
            is_open = (tl.load(filled_ptr + slot) != generation).to(tl.int32)
        tl.store(open_ptr + entry, is_open)


@triton.jit
def _moved(x, index, old_ptr, new_ptr, weight):  # type: ignore[no-untyped-def]
    """Return the squared distance of one coordinate, and move its centre."""
    centre = tl.load(old_ptr + CENTRES + index)
    square = tl.load(old_ptr + SQUARES + index)
    away = x - centre
    far = away * away
    distance = tl.where(square > 0.0, far / tl.where(square > 0.0, square, 1.0), 1e30)
    distance = tl.where(far == 0.0, 0.0, distance)
    if tl.program_id(0) == 0:
        tl.store(new_ptr + CENTRES + index, centre + weight * away)
        kept = (1.0 - weight) * (square + weight * far)
        tl.store(new_ptr + SQUARES + index, kept)
    return distance


@triton.jit
def _weighed(  # type: ignore[no-untyped-def]
    n, index, parts_ptr, old_ptr, new_ptr, weight, PARTS
):
    """Return a tensor's squared distance and how many elements are not finite."""
    at = parts_ptr + (tl.arange(0, PARTS) * MOST + index) * NUMBERS
    lost = tl.sum(tl.load(at).to(tl.float64), 0)
    top = tl.max(tl.load(at + 1), 0).to(tl.float64)
    total = tl.sum(tl.load(at + 2).to(tl.float64), 0)
    squares = tl.sum(tl.load(at + 3).to(tl.float64), 0)
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


@triton.jit(
    do_not_specialize=_SIZES + _PLACES + _NUMBERS,
    do_not_specialize_on_alignment=_POINTERS,
)  # type: ignore[untyped-decorator]
def decide(  # type: ignore[no-untyped-def]
    x0, x1, x2, x3, n0, n1, n2, n3, o0, o1, o2, o3,
    room_ptr, parts_ptr, state_ptr, filled_ptr, open_ptr, kept_ptr, report_ptr,
    choice_ptr, slot, entry, generation, parity, slots,
    COUNT: tl.constexpr, MEASURED: tl.constexpr, SPECIAL: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Decide about a call, and copy its arguments if it is flagged and has room.

    Every program decides by itself, and alike. What a call is compared with is read
    from one half of the state and written to the other.

    As in `measure`; o0 to o3 are byte offsets of the copies in the slot, whose bytes
    room points to. state: float64 [2, STATE], the old half at `parity`. kept: int32
    [entries], whether the arguments were copied. report: int64 [slots + REPORT].
    choice: float64 [2], the share of calls to be flagged and the decay. `SPECIAL`:
    whether a call with elements that are not finite is flagged.
    """
    old = state_ptr + parity * STATE
    new = state_ptr + (1 - parity) * STATE
    share = tl.load(choice_ptr)
    decay = tl.load(choice_ptr + 1)
    calls = tl.load(old + CALLS)
    # The plain mean at first: one early call does not weigh as much as many.
    weight = tl.maximum(1.0 - decay, 1.0 / (calls + 1.0))
    distance = calls * 0.0
    lost = calls * 0.0
    if MEASURED & 1:
        far, some = _weighed(n0, 0, parts_ptr, old, new, weight, PARTS)
        distance += far
        lost += some
    if MEASURED & 2:
        far, some = _weighed(n1, 1, parts_ptr, old, new, weight, PARTS)
        distance += far
        lost += some
    if MEASURED & 4:
        far, some = _weighed(n2, 2, parts_ptr, old, new, weight, PARTS)
        distance += far
        lost += some
    if MEASURED & 8:
        far, some = _weighed(n3, 3, parts_ptr, old, new, weight, PARTS)
        distance += far
        lost += some
    distance = tl.log(tl.minimum(tl.maximum(distance, LEAST), MOST_DISTANT))
    threshold = tl.load(old + THRESHOLD)
    is_warm = calls >= WARM
    beyond = is_warm & (distance > threshold)
    flagged = beyond
    if SPECIAL:
        flagged = flagged | (lost > 0.0)
    has_room = tl.load(open_ptr + entry) != 0
    keep = flagged & has_room
    if tl.program_id(0) == 0:
        raised = tl.where(beyond, STEP * (1.0 - share), -STEP * share)
        told = tl.where((calls >= FIRST) & (distance > threshold), distance, threshold)
        tl.store(new + THRESHOLD, tl.where(is_warm, threshold + raised, told))
        tl.store(new + CALLS, calls + 1.0)
        tl.store(kept_ptr + entry, keep.to(tl.int32))
        at = report_ptr + slots
        tl.store(at + FLAGGED, tl.load(at + FLAGGED) + flagged.to(tl.int64))
        missed = flagged & (has_room == 0)
        tl.store(at + LOST, tl.load(at + LOST) + missed.to(tl.int64))
        if keep:
            tl.store(filled_ptr + slot, generation)
    if keep:
        if COUNT > 0:
            _copied(x0, n0, room_ptr + o0, PARTS, BLOCK)
        if COUNT > 1:
            _copied(x1, n1, room_ptr + o1, PARTS, BLOCK)
        if COUNT > 2:
            _copied(x2, n2, room_ptr + o2, PARTS, BLOCK)
        if COUNT > 3:
            _copied(x3, n3, room_ptr + o3, PARTS, BLOCK)


@triton.jit(
    do_not_specialize=_SIZES + _PLACES + _NUMBERS,
    do_not_specialize_on_alignment=_POINTERS,
)  # type: ignore[untyped-decorator]
def keep_results(  # type: ignore[no-untyped-def]
    x0, x1, x2, x3, n0, n1, n2, n3, o0, o1, o2, o3,
    room_ptr, kept_ptr, report_ptr, slot, entry, call, slots,
    COUNT: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy what a call left if its arguments were copied, and report the call.

    As in `decide`, with the results for tensors; `call` is the call's number
    in the order in which calls ended.
    """
    keep = tl.load(kept_ptr + entry) != 0
    if keep:
        if COUNT > 0:
            _copied(x0, n0, room_ptr + o0, PARTS, BLOCK)
        if COUNT > 1:
            _copied(x1, n1, room_ptr + o1, PARTS, BLOCK)
        if COUNT > 2:
            _copied(x2, n2, room_ptr + o2, PARTS, BLOCK)
        if COUNT > 3:
            _copied(x3, n3, room_ptr + o3, PARTS, BLOCK)
    if tl.program_id(0) == 0:
        if keep:
            tl.store(report_ptr + slot, call)
        tl.store(report_ptr + slots + DECIDED, call)
