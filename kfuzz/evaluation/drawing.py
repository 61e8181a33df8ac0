"""One round of search: Hypothesis draws recipes, which are judged elsewhere.

A kernel's child draws its own: a process that drew for all would be waited for by each.

The test function records, and raises nothing but what ends its round: an exception
ends the search after some 33 of 1,000 calls (measured). Its phase is generate;
reduction is kfuzz's own. Every setting is explicit, because Hypothesis loads a
derandomised profile where `CI` is set.
"""

import contextlib
import inspect
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from types import FunctionType
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.strategies import SearchStrategy

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import MEMBERS, Burst, Scale, SizeBudget
from kfuzz.core.random_streams import Purpose, hashed, stream
from kfuzz.core.recipe import Case
from kfuzz.evaluation.edits import all_codes, is_foreign, referred
from kfuzz.evaluation.large import row_axis
from kfuzz.execution.device.backends import Batches
from kfuzz.strategies.cases import Domain, bursts, cases
from kfuzz.strategies.shapes import large_cases

Drawn = TypeVar("Drawn", Case, Burst)

BOUNDS: Final = (1 << 8, 1 << 12, 1 << 16, 1 << 22)
"""The most elements that a tensor of each class has; the last one has the budget's."""


class _NoConstants(contextlib.ContextDecorator):
    """Has Hypothesis draw no constants of local source while any thread is inside.

    It parses every loaded module that lies in nobody's site-packages, in each process
    anew, and draws one of their numbers now and then: the cases of a seed would follow
    what the process happens to have imported. It keeps them in the user's working
    folder. The user's own tests have theirs as before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._cache = type(providers.CONSTANTS_CACHE)(1024)
        self._theirs: tuple[Any, Any] = (None, None)

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._theirs = providers._get_local_constants, providers.CONSTANTS_CACHE
                self._use(Constants, self._cache)
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._use(*self._theirs)

    @staticmethod
    def _use(constants: Callable[[], Any], cache: Any) -> None:
        providers._get_local_constants = constants
        providers.CONSTANTS_CACHE = cache


_no_constants: Final = _NoConstants()


class _DrawnEnough(BaseException):
    """Ends a round before it has drawn all its cases; Hypothesis passes it on."""


_SETTINGS: Final = settings(
    database=None,
    deadline=None,
    derandomize=False,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
    print_blob=False,
    report_multiple_bugs=False,
)


def strategy_of(
    kernel: BoundKernel,
    budget: SizeBudget,
    *,
    without: Collection[str] = (),
    scale: Scale = Scale.USUAL,
) -> SearchStrategy[Case] | None:
    """Return the strategy of a kernel's cases; None if no dtype is left.

    Args:
        kernel: the bound kernel.
        budget: limits on sizes; those of large cases are their own.
        without: declared dtypes that are not to be drawn.
        scale: which sizes are searched.

    Raises:
        BindingError: if the declaration leaves no shape within the budget.
    """
    operator, passed = kernel.operator, kernel.arguments
    named = {*passed.tensors, *passed.scalars}
    dtypes = tuple(d for d in kernel.declaration.dtypes if d not in without)
    if not dtypes:
        return None

    def within(budget: SizeBudget) -> SearchStrategy[Case]:
        return cases(
            operator.inputs,
            declaration=replace(kernel.declaration, dtypes=dtypes),
            budget=budget,
            ranks=operator.ranks,
            usual_rank=operator.usual_rank,
            reduced=operator.reduced,
            empty_reduction=operator.empty_reduction,
            shape_class=operator.shape_class,
            workspaces=operator.workspaces,
            subtracts_mean=operator.subtracts_mean,
            omitted=frozenset(n for n in operator.inputs if n not in named),
            nullable=passed.nullable,
            lists=operator.lists,
            named_sizes=tuple(dict.fromkeys((*kernel.sizes, *sizes_in_code(kernel)))),
        )

    if scale is Scale.USUAL:
        return within(budget)
    return large_cases(
        within,
        kernel.declaration,
        accepts=lambda case: operator.accepts(case, kernel.declaration),
        sliceable=lambda case: row_axis(operator, case) is not None,
    )


# Sizes taken from one kernel's code, and pieces of code that are read for them: what
# has more is a file of tables.
MOST_SIZES: Final = 48
_MOST_PIECES: Final = 1000
# What holds code or numbers: bindings, Triton's kernels, their tuners, constexprs.
_HOLDING: Final = ("function", "fn", "configs", "kwargs", "value")


@lru_cache(64)  # asked of in each round
def sizes_in_code(kernel: BoundKernel) -> tuple[int, ...]:
    """Return the whole numbers that a kernel's own code names, and their neighbours.

    Constants, defaults of parameters, globals and the configurations of tuners, of the
    implementation and of what it refers to by name, bodies of Triton kernels included:
    where a wrapper takes another branch at 1023 columns, the number is in it. None is a
    power of two: around these, sizes are drawn anyway.

    Returns:
        At most `MOST_SIZES`, those nearest to the implementation first.
    """
    found, seen = dict[int, None](), set[int]()
    pieces: list[object] = [kernel.function]
    for piece in pieces:
        for part in _parts(piece):
            if type(part) is int:
                if 9 < part <= BOUNDS[-1] and part & (part - 1):
                    found.update(dict.fromkeys((part, part - 1, part + 1)))
            elif id(part) not in seen and len(pieces) < _MOST_PIECES:
                seen.add(id(part))
                pieces.append(part)
    return tuple(found)[:MOST_SIZES]


def _parts(piece: object) -> Iterable[object]:
    """Return what a piece of code consists of and refers to by name."""
    if isinstance(piece, tuple | list):
        return piece
    if isinstance(piece, dict):
        return piece.values()
    if isinstance(piece, type):
        own = filter(callable, vars(piece).values())
        return [getattr(function, "__wrapped__", function) for function in own]
    if not isinstance(piece, FunctionType):
        return [inspect.getattr_static(piece, name, None) for name in _HOLDING]
    if is_foreign(piece):
        return ()
    held = [code.co_consts for code in all_codes(piece.__code__)]
    return [piece.__defaults__, piece.__kwdefaults__, *held, *referred(piece)]


def groups_of(kernel: BoundKernel) -> Domain:
    """Return what chooses the value families of the items of a kernel's batches."""
    inputs, mean = kernel.operator.inputs, kernel.operator.subtracts_mean
    return Domain(inputs, kernel.declaration, SizeBudget(0, 0), subtracts_mean=mean)


def fuzz_target(
    strategy: SearchStrategy[Case], take: Callable[[Case], None]
) -> Callable[[bytes], bytes | None]:
    """Return a function that draws one case from bytes and passes it on.

    It returns the bytes that were read, None if they give no case.
    """

    def once(case: Case) -> None:
        take(case)

    wrapped = _SETTINGS(given(strategy)(once))
    target_of_bytes: Callable[[bytes], bytes | None] = wrapped.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    return _no_constants(target_of_bytes)


def round_seed(
    run_seed: int, kernel: str, number: int, purpose: Purpose = Purpose.CASES
) -> int:
    """Return the seed of one round: it depends on these four alone."""
    return stream(hashed(f"{run_seed} {kernel} {number}"), purpose)


def search_round(
    strategy: SearchStrategy[Drawn],
    judge: Callable[[Drawn], object],
    *,
    cases: int,
    seed_value: int,
    ends: Callable[[], bool] = lambda: False,
    simplest: bool = True,
) -> None:
    """Draw and judge a number of cases, or submit a number of batches.

    Args:
        strategy: of the kernel's cases or batches.
        judge: takes what is drawn, and records what it teaches.
        cases: how many to draw.
        seed_value: everything drawn depends on it.
        ends: whether no more are to be drawn.
        simplest: whether the first case is judged, which is the same in every round.
    """
    left_out = not simplest

    def once(case: Drawn) -> None:
        nonlocal left_out
        if ends():
            raise _DrawnEnough
        if left_out:
            left_out = False
            return
        judge(case)

    configured = settings(_SETTINGS, max_examples=cases)
    with _no_constants, contextlib.suppress(_DrawnEnough):
        seed(seed_value)(configured(given(strategy)(once)))()


def drawn(
    strategy: SearchStrategy[Drawn], *, seconds: float = math.inf, **how: Any
) -> list[Drawn]:
    """Return the cases or batches of one round, at least one if there is any.

    Args:
        strategy: of the kernel's cases or batches.
        seconds: after which no more are drawn.
        how: as of `search_round`.
    """
    made: list[Drawn] = []
    end = time.monotonic() + seconds
    search_round(
        strategy, made.append, ends=lambda: bool(made) and time.monotonic() >= end,
        **how,
    )  # fmt: skip
    return made


def batches_of(
    kernel: BoundKernel, strategy: SearchStrategy[Case], batches: Batches, most: int
) -> SearchStrategy[Burst]:
    """Return what a kernel's batches are drawn from.

    Args:
        kernel: the kernel.
        strategy: of its cases.
        batches: how the backend batches them.
        most: items of a batch at most, by the user.
    """
    items = partial(items_of, batches=batches, most=most)
    return bursts(strategy, groups_of(kernel), members=items)


def items_of(case: Case, batches: Batches, most: int) -> int:
    """Return how many items a batch of a structure has; it depends on nothing else.

    Args:
        case: the structure.
        batches: how the backend batches cases.
        most: limit set by the user.
    """
    room = batches.elements // max(case.elements, 1)
    return max(min(most, MEMBERS, room), 1)
