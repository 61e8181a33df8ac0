"""Kernels that touch memory as they should, and as they should not."""

import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def load_all(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)  # load_all: stray
    tl.store(y + at, values, mask=at < n)


@triton.jit
def store_all(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(y + at, values)  # store_all: stray


@triton.jit
def add_all(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.atomic_add(y + at, values)  # add_all: stray


@triton.jit
def swap_past(flag, where):
    tl.atomic_cas(flag + where, 0, 1)  # swap_past: stray


@triton.jit
def load_at(x, y, where):
    value = tl.load(x + where)  # load_at: stray
    tl.store(y, value)


@triton.jit
def store_at(x, where):
    tl.store(x + where, 1.0)  # store_at: stray


@triton.jit
def inner_load(pointer):
    return tl.load(pointer)  # inner_load: stray


@triton.jit
def sum_inner(x, y, BLOCK: tl.constexpr):
    values = inner_load(x + tl.arange(0, BLOCK))
    tl.store(y, tl.sum(values, axis=0))


@triton.jit
def load_rows(x, y, stride, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, COLUMNS)
    values = tl.load(x + row * stride + lanes)  # load_rows: stray
    tl.store(y + row * COLUMNS + lanes, values)


@triton.jit
def store_program(y):
    tl.store(y, tl.program_id(0).to(tl.float32))  # store_program: race


@triton.jit
def store_one(y):
    tl.store(y, 1.0)


@triton.jit
def store_bytes(y):
    tl.store(y + tl.program_id(0), tl.program_id(0).to(tl.int8))


@triton.jit
def count(y):
    tl.atomic_add(y, 1.0)


@triton.jit
def locked(lock, y):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y, tl.load(y) * 2.0 + tl.program_id(0))
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_one_stores(counter, y, PROGRAMS: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(y, 7.0)
    arrived = tl.atomic_add(counter, 1)
    if arrived == PROGRAMS - 1:
        tl.store(y, 8.0)


@triton.jit
def store_after_unrelated_atomic(counters, y):
    program = tl.program_id(0)
    tl.atomic_add(counters + program, 1)
    tl.store(y, program.to(tl.float32))  # store_after_unrelated_atomic: race


@triton.jit
def through_table(table, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    source = tl.load(table).to(tl.pointer_type(tl.float32))
    target = tl.load(table + 1).to(tl.pointer_type(tl.float32))
    values = tl.load(source + at, mask=at < n)  # through_table: stray
    tl.store(target + at, values, mask=at < n)


@triton.jit
def through_descriptor(x, y, rows, columns, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [4, BLOCK])
    target = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [4, BLOCK])
    target.store([0, 0], source.load([0, 0]) + 1.0)


@triton.jit
def given_descriptors(source, target):
    target.store([0, 0], source.load([0, 0]) + 1.0)


@triton.jit
def through_blocks(x, y, n, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x, (n,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(y, (n,), (1,), (0,), (BLOCK,), (0,))
    values = tl.load(source, boundary_check=(0,))
    tl.store(target, values + 1.0, boundary_check=(0,))


@triton.jit
def unchecked_block(x, y, n, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x, (n,), (1,), (0,), (BLOCK,), (0,))
    tl.store(y, tl.sum(tl.load(source)))  # unchecked_block: stray


@triton.jit
def add_pairs(pair, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(pair[0] + at, mask=at < n)
    tl.store(pair[1] + at, values + 1.0, mask=at < n)


@triton.jit
def add_in_bf16(y, values, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(y + at, tl.load(values + at, mask=at < n), mask=at < n)


@triton.jit
def take_turns(turn, y, AFTER: tl.constexpr):
    """Each program waits for the one before it, or for the one after it."""
    program = tl.program_id(0)
    mine = program
    if AFTER:
        mine = tl.num_programs(0) - 1 - program
    while tl.atomic_add(turn, 0) != mine:
        pass
    tl.store(y, program)
    tl.atomic_add(turn, 1)


@triton.jit
def fill_with_first(x, y, n):
    for i in range(n):
        tl.store(y + i, tl.load(x))
