"""Ways of adding, emulated: what probes are tried on.

An adder takes exact terms and returns their sum as a machine would hold it. Parameters
of matrix units are the published ones (MMA-Sim; Khattak and Mikaitis, 2025).
"""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.core.dtypes import number_to_bits, pack_bits, unpack_numbers
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Observed
from kfuzz.features.lab.probe.sums import Subject, rounded
from kfuzz.numerics.formats import FORMATS
from tests.helpers.scaled_product import scaled_matmul

Adder = Callable[[Sequence[float]], float]
_numbers = itertools.count()


def serial(terms: Sequence[float], dtype: str = "float32") -> float:
    total = 0.0
    for term in terms:
        total = rounded(total + rounded(term, dtype), dtype)
    return total


def pairwise(terms: Sequence[float], dtype: str = "float32") -> float:
    level = [rounded(t, dtype) for t in terms]
    while len(level) > 1:
        level = [rounded(sum(level[i : i + 2]), dtype) for i in range(0, len(level), 2)]
    return level[0]


def strided(terms: Sequence[float], lanes: int = 8) -> float:
    """Each lane adds every lanes-th term, then a tree adds the lanes."""
    return pairwise([serial(terms[lane::lanes]) for lane in range(lanes)])


def split(terms: Sequence[float], parts: int = 4, stored: str = "float32") -> float:
    """So many parts of equal length, stored and added in turn."""
    size = -(-len(terms) // parts)
    made = [serial(terms[i : i + size]) for i in range(0, len(terms), size)]
    return serial([rounded(part, stored) for part in made], stored)


def tiled(terms: Sequence[float], tile: int = 16, between: str = "float16") -> float:
    """Wide in each tile, narrow between them."""
    total = 0.0
    for start in range(0, len(terms), tile):
        total = rounded(total + serial(terms[start : start + tile]), between)
    return total


def compensated(terms: Sequence[float]) -> float:
    return rounded(math.fsum(terms), "float32")


def truncated(value: float, bits: int) -> float:
    """Return a number with so many bits, the others cut off."""
    if value == 0 or not math.isfinite(value):
        return value
    place = math.frexp(value)[1] - bits
    return math.ldexp(math.trunc(math.ldexp(value, -place)), place)


def unit(terms: Sequence[float], block: int, fraction: int, kept: int = 24) -> float:
    """A matrix unit: blocks and the sum before them, aligned, cut, added at once."""
    total = 0.0
    for start in range(0, len(terms), block):
        every = [total, *terms[start : start + block]]
        if not all(map(math.isfinite, every)):
            total = sum(every)
            continue
        top = max((math.frexp(t)[1] - 1 for t in every if t), default=0)
        aligned = [math.trunc(math.ldexp(t, fraction - top)) for t in every]
        total = truncated(math.ldexp(sum(aligned), top - fraction), kept)
    return total


UNITS = {
    "V100": partial(unit, block=4, fraction=23),
    "A100": partial(unit, block=8, fraction=24),
    "H100": partial(unit, block=16, fraction=25),
}
H100_FP8 = partial(unit, block=32, fraction=13, kept=14)


@dataclass
class Machine:
    """A sum or a matrix product with an emulated adder.

    Attributes:
        add: the adder.
        product: "sum", "matmul" or "scaled_matmul".
        dtype: format of the data.
        output: format of the results, where it is another one.
        operand: what becomes of an operand before it is multiplied.
        store: what becomes of a sum on its way to the output's format.
        flush: whether subnormal operands and results are 0.
        fused: whether products are exact; else they are rounded to float32.
        reorder: whether each call adds in an order of its own.
        by_rows: an adder by the number of rows of the call, in place of `add`.
    """

    add: Adder
    product: str = "sum"
    dtype: str = "float32"
    output: str = ""
    operand: Callable[[float], float] = field(default=lambda x: x)
    store: Callable[[float], float] | None = None
    flush: bool = False
    fused: bool = True
    reorder: bool = False
    by_rows: Callable[[int], Adder] | None = None

    @property
    def stored(self) -> str:
        return self.output or self.dtype

    def ask(self, case: Case, times: int) -> Observed:
        generator = random.Random(7)
        made = [self._call(case, generator) for _ in range(times)]
        unlike = [m for m in made if m != made[0]]
        return Observed(made[0], times, len(unlike))

    def _call(self, case: Case, generator: random.Random) -> dict[str, TensorSpec]:
        lines = self._terms(case)
        add = self.add if self.by_rows is None else self.by_rows(len(lines))
        sums, known = [], {}  # type: list[float], dict[tuple[float, ...], float]
        for line in lines:
            for terms in line:
                if self.reorder:
                    generator.shuffle(terms)
                key = tuple(terms)
                if self.store or key not in known:  # columns are mostly alike
                    known[key] = self._stored(add(terms))
                sums.append(known[key])
        shape = (len(lines),) if self.product == "sum" else (len(lines), len(lines[0]))
        bits = [number_to_bits(s, self.stored) for s in sums]
        axes = tuple(f"o{i}" for i in range(len(shape)))
        data = pack_bits(bits, self.stored)
        return {"y": TensorSpec(shape, axes, self.stored, values=data)}

    def _terms(self, case: Case) -> list[list[list[float]]]:
        """Return the terms of each result, by row and column."""
        if self.product == "sum":
            [x] = case.tensors.values()
            rows, n = x.shape
            values = self._values(x)
            return [[values[r * n : (r + 1) * n]] for r in range(rows)]
        a, b = case.tensors.values()
        (rows, n), columns = a.shape, b.shape[1]
        left, right = self._values(a), self._values(b)
        return [
            [
                [
                    self._product(left[r * n + k], right[k * columns + c])
                    for k in range(n)
                ]
                for c in range(columns)
            ]
            for r in range(rows)
        ]

    def _values(self, spec: TensorSpec) -> list[float]:
        assert spec.values is not None
        values = unpack_numbers(spec.values, spec.dtype)
        return [self.operand(self._kept(v, spec.dtype)) for v in values]

    def _product(self, a: float, b: float) -> float:
        return a * b if self.fused else rounded(a * b, "float32")

    def _stored(self, value: float) -> float:
        rounds = self.store or partial(rounded, dtype=self.stored)
        return self._kept(rounds(value), self.stored)

    def _kept(self, value: float, dtype: str) -> float:
        return 0.0 if self.flush and abs(value) < FORMATS[dtype].min_normal else value


def tf32(value: float, *, cut: bool = False) -> float:
    """Return a number with 11 bits, rounded to nearest or cut."""
    if cut or value == 0:
        return truncated(value, 11)
    place = math.frexp(value)[1] - 11
    return math.ldexp(round(math.ldexp(value, -place)), place)


def drawn(dtype: str, seed: int = 3) -> Callable[[float], float]:
    """Return a stochastic store."""
    generator = random.Random(seed)

    def store(value: float) -> float:
        below = truncated(value, FORMATS[dtype].precision)
        if below == value:
            return value
        step = math.copysign(
            math.ldexp(1.0, math.frexp(value)[1] - FORMATS[dtype].precision), value
        )
        return below + step * (generator.random() < (value - below) / step)

    return store


def subject_of(machine: Machine, *, terms: int = 64, **claims: object) -> Subject:
    """Return a machine as probes see a kernel with these declarations."""

    def function(*tensors: object, **scalars: object) -> None:
        raise AssertionError("the machine is called in its place")

    known = {"sum": ops.sum, "matmul": ops.matmul, "scaled_matmul": scaled_matmul}
    operator, claims = known[machine.product], {"dtypes": machine.stored, **claims}
    bound: BoundKernel = kernel(operator, name=f"machine{next(_numbers)}", **claims)(
        function
    )
    budget = SizeBudget(elements=1 << 16, rows=64)
    return Subject(
        bound,
        machine.dtype,
        machine.ask,
        budget,
        terms,
        output=machine.stored,
        rows_per_call=8,
    )
