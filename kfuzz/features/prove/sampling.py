"""Launches of a kernel for sizes of any order, and what they have in common."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from hypothesis.errors import HypothesisException

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import NOWHERE, Case, Fill, TensorSpec
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.execution.launches.capture import (
    Captured,
    ConstArgument,
    IntArgument,
    Launch,
    NotCapturedError,
    TensorArgument,
    capture,
)
from kfuzz.features.prove.fitting import ENOUGH, SMALL, Fit, Relations
from kfuzz.features.prove.ir.values import Atom, symbol
from kfuzz.strategies.layouts import build, layout_name, layout_options
from kfuzz.strategies.parameters import IndexParameter, ignored_index

# Cases whose launches are captured: those of a search, and larger ones.

DRAWN: Final = 96
EXTENDED: Final = 120

# Around the sizes at which wrappers choose another block, and between them.
_SIZES: Final = (
    1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 32, 33, 47, 63, 64, 65, 96, 100, 127,
    128, 129, 200, 255, 256, 257, 400, 511, 512, 513, 777, 1000, 1023, 1024, 1025, 1500,
    2047, 2048, 2049, 3000, 4095, 4096, 4097, 5000, 8191, 8192, 8193, 10000, 16384,
    20000, 32768, 50000, 65535, 65536, 65537, 100000, 131072, 300000, 1000000,
)  # fmt: skip
_MOST: Final = 1 << 36
_TRIES: Final = 12
_FAR: Final = 12
_BUDGET: Final = SizeBudget(elements=1 << 14, rows=1 << 10, span=1 << 36)


def drawn(kernel: BoundKernel, count: int = DRAWN) -> list[Case]:
    """Return cases as a search draws them, the smallest first."""
    found: list[Case] = []
    try:
        strategy = strategy_of(kernel, _BUDGET)
        if strategy is None:
            return []
        search_round(strategy, found.append, cases=count, seed_value=0)
    except (BindingError, HypothesisException):
        return found
    plain = [replace(c, edge=NOWHERE, config=None) for c in found]
    return sorted(plain, key=lambda case: case.elements)


def far(kernel: BoundKernel, templates: Sequence[Case]) -> Iterator[Case]:
    """Yield small cases with one argument whose elements lie 2^31 and more apart.

    A search draws such views seldom, and offsets of 32 bits overflow on them alone.

    Args:
        kernel: the kernel, whose declaration they keep.
        templates: cases, the smallest first.
    """
    claims, found = kernel.declaration, 0
    for number, case in enumerate(templates):
        for name, spec in case.tensors.items():
            shape = spec.shape
            if spec.below or "huge" not in layout_options(
                shape, claims, span=_BUDGET.span
            ):
                continue
            strides, offset = build(
                "huge", shape, number, spec.dtype, claims, span=_BUDGET.span
            )
            wide = replace(spec, strides=strides, offset=offset)
            made = case.with_tensor(name, wide)
            if claims.reaches(wide.span) and kernel.operator.accepts(made, claims):
                yield made
                found += 1
        if found >= _FAR:
            return


def extended(
    kernel: BoundKernel, templates: Sequence[Case], count: int = EXTENDED
) -> Iterator[Case]:
    """Yield cases like others, with sizes of any order; no memory could hold some.

    Args:
        kernel: the kernel, whose domain they stay in.
        templates: the others.
        count: how many at most.
    """
    chance = random.Random(0)
    sized = [case for case in templates if case.dims]
    for number in range(count if sized else 0):
        template = sized[number * 7919 % len(sized)]
        for _ in range(_TRIES):
            made = resized(kernel, template, _sizes(template, chance))
            if made is not None:
                yield made
                break


def _sizes(template: Case, chance: random.Random) -> dict[str, int]:
    """Return new sizes, some as they were."""
    dims = template.dims
    chosen = {axis: n for axis, n in dims.items() if chance.random() < 0.25}
    for axis in dims:
        if axis not in chosen:
            ceiling = chance.choice((40, 300, 5000, 2000000))
            multiple = dims[axis] * chance.choice((1, 2, 3, 4, 5, 8, 16, 33, 100))
            size = chance.choice([n for n in _SIZES if n <= ceiling])
            chosen[axis] = multiple if chance.random() < 0.3 else size
    return chosen


def resized(kernel: BoundKernel, case: Case, sizes: dict[str, int]) -> Case | None:
    """Return a case with dimensions of other sizes; None if its domain has none."""
    tensors: dict[str, TensorSpec] = {}
    for name, spec in case.tensors.items():
        shape = tuple(
            sizes.get(axis, n) for axis, n in zip(spec.axes, spec.shape, strict=True)
        )
        kind = layout_name(spec)
        strides, offset = None, 0
        if kind in layout_options(shape, kernel.declaration):
            strides, offset = build(kind, shape, 1, spec.dtype, kernel.declaration)
        fill = spec.fill or Fill("randn")
        tensors[name] = replace(
            spec, shape=shape, strides=strides, offset=offset, values=None, fill=fill,
            plants=(),
        )  # fmt: skip
        if not 0 < tensors[name].span <= _MOST:
            return None
    made = replace(case, tensors=tensors)
    return made if kernel.operator.accepts(made, kernel.declaration) else None


# Launches that are proved together: of one Triton kernel, alike but for numbers.

Key = tuple[Any, ...]
Constants = tuple[tuple[str, str], ...]


class Made(NamedTuple):
    """A launch, with constants as symbols and as given, and the call that made it."""

    launch: Launch
    given: Launch
    function: Any
    case: Case
    call: int


Groups = dict[Key, list[Made]]
"""Launches of one Triton kernel each, whose tensors have equal ranks."""


def variants_of(group: Sequence[Made]) -> dict[Constants, list[Made]]:
    """Return launches by constants and types, those of small cases first."""
    found: dict[Constants, list[Made]] = {}
    for each in sorted(group, key=lambda m: m.case.elements):
        found.setdefault(constants_of(each.launch), []).append(each)
    return found


@dataclass(frozen=True)
class Grouping:
    """Puts launches into groups.

    Attributes:
        dense: (kernel, argument) whose tensor is contiguous in every launch: its rank
            says nothing.
        symbols: (kernel, line, constant) that is taken as an integer argument.
    """

    dense: frozenset[tuple[str, str]]
    symbols: frozenset[tuple[str, int, str]] = frozenset()

    @classmethod
    def of(
        cls, launches: Iterable[Launch], symbols: Iterable[tuple[str, int, str]] = ()
    ) -> "Grouping":
        """Return the grouping of some launches."""
        every: dict[tuple[str, str], bool] = {}
        for launch in launches:
            for name, argument in launch.arguments.items():
                if isinstance(argument, TensorArgument):
                    place = launch.kernel, name
                    every[place] = every.get(place, True) and argument.contiguous
        dense = frozenset(place for place, dense in every.items() if dense)
        return cls(dense, frozenset(symbols))

    def general(self, launch: Launch) -> Launch:
        """Return a launch with integer arguments for constants that are symbols.

        As in the kernel that takes them as arguments: this one is that, partially
        evaluated.
        """
        arguments = {
            name: IntArgument("i32", argument.value, declared=True, constant=True)
            if (launch.kernel, launch.line, name) in self.symbols
            and isinstance(argument, ConstArgument)
            and is_size(argument)
            else argument
            for name, argument in launch.arguments.items()
        }
        return replace(launch, arguments=arguments)

    def key(self, launch: Launch) -> Key:
        """Return what launches of one group have in common; they are general ones."""
        parts: list[Any] = [launch.kernel, launch.line]
        for name, argument in launch.arguments.items():
            match argument:
                case ConstArgument() if argument.number is None:
                    parts.append((name, argument.text))
                case TensorArgument():
                    dense = (launch.kernel, name) in self.dense
                    rank = -1 if dense else len(argument.shape)
                    parts.append((name, rank, argument.contiguous or not dense))
                case _:
                    parts.append((name, type(argument).__name__))
        return tuple(parts)


def is_size(constant: ConstArgument) -> bool:
    """Whether a constant is an integer that an argument of 32 bits may be."""
    value = constant.value
    return type(value) is int and 0 <= value <= SMALL


def grouped(calls: Sequence[Captured], grouping: Grouping) -> Groups:
    """Return the groups of the launches of some calls, as general ones."""
    found: Groups = {}
    for number, call in enumerate(calls):
        for given, function in zip(call.launches, call.functions, strict=True):
            launch = grouping.general(given)
            group = found.setdefault(grouping.key(launch), [])
            group.append(Made(launch, given, function, call.case, number))
    return found


def constants_of(launch: Launch) -> Constants:
    """Return the constants of a launch, and the types of its arguments."""
    return (*launch.constants, ("types", " ".join(filter(None, launch.types))))


def numbers(launch: Launch) -> dict[Atom, int]:
    """Return the values of a launch's integer constants."""
    made = launch.arguments.items()
    return {
        symbol(name): argument.number
        for name, argument in made
        if isinstance(argument, ConstArgument) and argument.number is not None
    }


@dataclass(frozen=True)
class Watch:
    """The premises of a kernel's proof, to hold launches against."""

    grouping: Grouping
    relations: Mapping[Key, Relations]
    constants: Mapping[Key, frozenset[Constants]]

    def place(self, launch: Launch) -> tuple[Key, Constants]:
        """Return the group of a launch, and its constants."""
        launch = self.grouping.general(launch)
        return self.grouping.key(launch), constants_of(launch)

    def broken_by(self, launches: Iterable[Launch], *, partly: bool = False) -> str:
        """Return what the first launch breaks that breaks a premise, or "".

        Args:
            launches: the launches.
            partly: as of `Relations.broken_by`.
        """
        for launch in launches:
            if launch.vacuous:
                continue
            key, constants = self.place(launch)
            relations = self.relations.get(key)
            if relations is None:
                return f"{launch.kernel} is also launched with arguments of other kinds"
            if constants not in self.constants[key]:
                shown = ", ".join(f"{name}={text}" for name, text in constants)
                return f"{launch.kernel} is also launched with {shown}: not proved"
            premise = relations.broken_by(launch, partly=partly)
            if premise is not None:
                text = premise.text or str(premise.holds)
                return f"a launch of {launch.kernel} breaks its premise: {text}"
        return ""


FITTED: Final = 0.75
"""Of the launches so many are fitted; the others are held against that."""

# Launches of one kind, of fewer more are sought, from so many each.
_FEW: Final = 24
_TEMPLATES: Final = 2
# Other configurations of an autotuner are captured for one case in so many: all of them
# for the first, of each kind of tensors if it can be.
_APART: Final = 8
_CONFIGS: Final = 256
# Calls in which indices are out of bounds, and those whose wrapper reads other numbers,
# so many each.
_STRAYS: Final = 4
_ASKED: Final = 16
_ANSWERS: Final = 3


class Sampling:
    """Captures the launches of a kernel, and fits them.

    Args:
        kernel: the kernel.
        until: `time.process_time()` after which no more are captured.
        pause: called every now and then.
    """

    def __init__(
        self, kernel: BoundKernel, *, until: float,
        pause: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._kernel, self._until, self._pause = kernel, until, pause
        self.calls: list[Captured] = []
        self._uncaptured: dict[str, int] = {}
        self._limit = ""
        self._free: frozenset[str] = frozenset()

    def capture(self) -> None:
        """Capture the launches of cases of many sizes."""
        plain = drawn(self._kernel)
        self._free = self._unchecked(plain)
        configs = 1
        every = (*plain, *far(self._kernel, plain), *extended(self._kernel, plain))
        for number, case in enumerate(every):
            if time.process_time() > self._until and self.calls:
                break
            # Configurations differ in their constants: a few sizes of each tell.
            most = _CONFIGS if number <= 12 * _APART else 4
            for config in range(1 if number % _APART else min(configs, most)):
                call = self._captured(case, config=config)
                if call is None:
                    break
                configs = max(configs, call.configs)
        self._enrich()
        declared = len(self._kernel.declaration.configs)
        for case in plain[: 8 if declared > 1 else 0]:
            for config in range(1, declared):
                if self._captured(case, config=config) is None:
                    break
        self._answer()

    def _captured(self, case: Case, *, config: int = 0) -> Captured | None:
        """Capture a call; None where that fails."""
        self._pause()
        try:
            call = capture(self._kernel, case, config=config, free=self._free)
        except NotCapturedError as error:
            why = str(error)
            self._uncaptured[why] = self._uncaptured.get(why, 0) + 1
            if error.limit and not self._limit:
                self._limit = why
            return None
        self.calls.append(call)
        return call

    def _unchecked(self, cases: Sequence[Case]) -> frozenset[str]:
        """Return the arguments whose indices may be out of bounds in a launch.

        Where something is declared for such indices a search draws them: then only a
        wrapper that rejects them keeps them from its kernels.
        """
        kernel, found = self._kernel, set()
        if kernel.declaration.out_of_bounds == "undefined":
            return frozenset()
        for name, parameter in kernel.operator.inputs.items():
            if not (isinstance(parameter, IndexParameter) and parameter.strays):
                continue
            given = [c for c in cases if name in c.tensors and c.tensors[name].numel]
            for case in given[-_STRAYS:]:
                bound = case.bound(case.tensors[name])
                ignored = ignored_index(kernel.operator.inputs, parameter, case)
                for index in {bound, -1, -2} - {ignored}:
                    with suppress(NotCapturedError):
                        if capture(kernel, case, stray=(name, index)).launches:
                            found.add(name)
        return frozenset(found)

    def _answer(self) -> None:
        """Capture what is launched where the wrapper reads other numbers.

        Which launches follow from the values of tensors, and how, is not known: what
        differs between these answers is free.
        """
        asking = [call for call in self.calls if call.reads]
        for call in asking[:: max(len(asking) // _ASKED, 1)]:
            for answers in range(1, 1 + _ANSWERS):
                with suppress(NotCapturedError):
                    made = capture(
                        self._kernel, call.case, answers=answers, free=self._free
                    )
                    self.calls.append(made)

    def _enrich(self) -> None:
        """Capture more launches of the kinds of which there are few."""
        for _ in range(2):
            grouping = Grouping.of(
                launch for call in self.calls for launch in call.launches
            )
            for group in grouped(self.calls, grouping).values():
                if len(group) >= _FEW:
                    continue
                alike = [made.case for made in group[:_TEMPLATES]]
                for case in extended(self._kernel, alike, _FEW):
                    self._captured(case)

    def nothing(self) -> str:
        """Return why nothing can be proved, "" where something may be."""
        if self._limit:  # what those calls launch could be anything
            return f"its launches are not known: {self._limit}"
        if any(call.launches for call in self.calls):
            return ""
        if self._uncaptured:
            why = max(self._uncaptured, key=lambda text: self._uncaptured[text])
            return f"its launches are not known: {why}"
        if not self.calls:
            return "no case is in its domain"
        return "it launches no Triton kernel"

    def constants(self) -> dict[tuple[str, int, str], tuple[Any, Launch]]:
        """Return integer constants of several sizes, each with a launch that has it.

        By kernel, line and name, the launch with its function: one without a size of 0,
        by which a kernel may divide.
        """
        sizes: dict[tuple[str, int, str], set[int]] = {}
        found: dict[tuple[str, int, str], tuple[Any, Launch]] = {}
        for call in self.calls:
            for launch, function in zip(call.launches, call.functions, strict=True):
                own = {
                    (launch.kernel, launch.line, name): argument.value
                    for name, argument in launch.arguments.items()
                    if isinstance(argument, ConstArgument) and is_size(argument)
                }
                for place, value in own.items():
                    sizes.setdefault(place, set()).add(value)
                    if place not in found or 0 not in launch.sizes.values():
                        found[place] = function, launch
        return {p: each for p, each in found.items() if len(sizes[p]) >= ENOUGH}

    def fit(self, group: Sequence[Made]) -> Relations:
        """Fit a group's launches, until those held out agree."""
        launches = [made.launch for made in group]
        count = max(int(len(launches) * FITTED), 1)
        # Every so many one, so that small and large ones are on both sides.
        step = max(len(launches) // max(len(launches) - count, 1), 2)
        held = launches[::step]
        fitted = [n for i, n in enumerate(launches) if i % step] or launches
        varied = self._varied(group)
        for _ in range(8):
            relations = Fit(fitted, varied=varied).fitted()
            broken = [n for n in held if relations.broken_by(n) is not None]
            if not broken:
                return relations
            fitted = [*fitted, *broken]
        return Fit(launches, varied=varied).fitted()

    def _varied(self, group: Sequence[Made]) -> bool:
        """Whether a group's launches are many, of all that its cases may differ in.

        What they have in common then is the wrapper's, or the domain's, and no chance.
        """
        every, own = (
            _values(cases)
            for cases in ((c.case for c in self.calls), (m.case for m in group))
        )
        return len(group) >= _FEW and all(
            len(seen) >= min(len(every[name]), ENOUGH) for name, seen in own.items()
        )


def _values(cases: Iterable[Case]) -> dict[str, set[object]]:
    """Return the values of each dimension and scalar of some cases."""
    found: dict[str, set[object]] = {}
    for case in cases:
        for name, value in (*case.dims.items(), *case.scalars.items()):
            found.setdefault(name, set()).add(str(value))
    return found
