"""Problems in KernelBench's form: a reference file, its model and its inputs.

The file has a `Model`, an `nn.Module` whose result is to be computed, `get_inputs()`,
the arguments of a call at the benchmarked shape, and `get_init_inputs()`, those of the
constructor. Here it is trusted and imported; what is judged against it never is.
"""

import copy
import inspect
import linecache
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import decode_source
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import UsageError, class_name, message_of
from kfuzz.core.finding import short_hash
from kfuzz.execution.values.fills import seeded
from kfuzz.features.judge.kernelbench.structures import (
    Structure,
    interval,
    structures_of,
)
from kfuzz.features.judge.sandbox.meeting import drawn_constants
from kfuzz.features.judge.sandbox.wire import leaves
from kfuzz.targets.load import imported

SEED: Final = 42
"""What generators are seeded with before the model, and before its inputs, are made."""

PARTS: Final = ("Model", "get_inputs", "get_init_inputs")
_WAY_OUT: Final = (
    "a reference has a class Model (an nn.Module), get_inputs() and get_init_inputs()"
)


@dataclass(frozen=True)
class Sample:
    """One tensor among the arguments that the file gives.

    Attributes:
        name: the parameter of `forward` that takes it.
        position: its place among the arguments.
        shape: the benchmarked sizes.
        dtype: a key of `kfuzz.core.dtypes.DTYPES`.
        strides: in elements; None where it is contiguous.
        least: the least of its elements, 0.0 unless it holds integers.
        greatest: the greatest of its elements, likewise.
    """

    name: str
    position: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None
    least: int = 0
    greatest: int = 0

    @property
    def kind(self) -> str:
        """What it holds: "float", "int", "uint" or "bool"."""
        return DTYPES[self.dtype].kind


class Form:
    """A reference as its file gives it.

    Attributes:
        path: the file.
        device: where its model lies.
        init: the constructor's arguments.
        model: as the file builds it, in the mode in which it does.
        samples: the tensors among the arguments of a call, in order.
        fixed: the other arguments by their place: they are the same in every call.
        first: all of them as first given; whoever is done with them lets go of them.
        nesting: how its results are nested, once it has been called, as
            `results.nesting` says it.
    """

    def __init__(
        self, path: Path, device: torch.device, text: str | None = None
    ) -> None:
        """Import the file and build its model.

        Args:
            path: the reference file.
            device: where the model is to lie.
            text: what it holds where it lies on no disk.

        Raises:
            UsageError: if the file cannot be imported, lacks a part, or gives what
                is not of the form.
        """
        self.path = path
        self.device = device
        self._module = _imported(path, text)
        missing = [p for p in PARTS if not callable(getattr(self._module, p, None))]
        if missing:
            raise UsageError(
                f"it has no {' and no '.join(missing)}",
                where=str(path), fix=_WAY_OUT,
            )  # fmt: skip
        with self._seeded(SEED):
            made = self._called("get_init_inputs")
        self.init = self._placed(made)
        self.model = self.build()
        given = self.inputs(SEED)
        self.first = given
        self.nesting = ""
        self.samples = _samples(given, self._names(len(given)), path)
        places = {s.position for s in self.samples}
        self.fixed: Mapping[int, object] = {
            i: value for i, value in enumerate(given) if i not in places
        }

    def build(self, *, constants_drawn: bool = False) -> nn.Module:
        """Return a new model, built under the seed, on the device.

        Args:
            constants_drawn: whether initialisers of constants draw numbers.

        Raises:
            UsageError: if it cannot be built.
        """
        with self._seeded(SEED), drawn_constants(drawn=constants_drawn):
            made = self._attempt("Model", self._module.Model, *self.init)
        if not isinstance(made, nn.Module):
            raise UsageError(
                f"Model makes a {type(made).__name__}, no nn.Module",
                where=str(self.path), fix=_WAY_OUT,
            )  # fmt: skip
        return made.to(self.device)

    def inputs(self, seed: int) -> tuple[Any, ...]:
        """Return the arguments of a call as the file makes them under a seed.

        Raises:
            UsageError: if they cannot be made, or are no list.
        """
        with self._seeded(seed):
            made = self._called("get_inputs")
        return self._placed(made)

    def tensors(self, seed: int) -> dict[str, Tensor]:
        """Return the tensors among the arguments, by name, under a seed."""
        given = self.inputs(seed)
        return {s.name: given[s.position] for s in self.samples}

    def arguments(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Return the arguments of a call on tensors, the fixed ones in between."""
        given = dict(self.fixed)
        given.update(zip((s.position for s in self.samples), tensors, strict=True))
        return [given[i] for i in range(len(given))]

    def call(self, model: nn.Module, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return what a copy of the model gives on tensors; its buffers stay."""
        with torch.no_grad(), unchanged(model):
            return results(model(*self.arguments(tensors)))

    def double(self) -> nn.Module:
        """Return a copy of the model whose every number is float64, exactly."""
        return converted(copy.deepcopy(self.model), lambda x: x.to(torch.float64))

    def state(self) -> dict[str, Tensor]:
        """Return the model's parameters and buffers by name."""
        named = (*self.model.named_parameters(), *self.model.named_buffers())
        return {name: x.detach() for name, x in named}

    def neutral(self) -> list[str]:
        """Return the names of the parameters whose elements are all 0, or all 1."""
        return [
            name
            for name, p in self.model.named_parameters()
            if p.numel() and bool((p == 0).all() | (p == 1).all())
        ]

    def _names(self, count: int) -> tuple[str, ...]:
        """Return a name for each argument: those of `forward`, or x0, x1 and so on."""
        try:
            parameters = inspect.signature(self.model.forward).parameters.values()
        except (TypeError, ValueError):
            return tuple(f"x{i}" for i in range(count))
        plain = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        named = [p.name for p in parameters if p.kind in plain][:count]
        return (*named, *(f"x{i}" for i in range(len(named), count)))

    def _placed(self, values: list[Any]) -> tuple[Any, ...]:
        """Return values with every tensor in them on the device, detached."""
        placed = pytree.tree_map_only(
            Tensor, lambda x: x.detach().to(self.device), values
        )
        return tuple(placed)

    def _called(self, part: str) -> list[Any]:
        made = self._attempt(part, getattr(self._module, part))
        if not isinstance(made, list | tuple):
            raise UsageError(
                f"{part}() returns {type(made).__name__}, no list of arguments",
                where=str(self.path),
            )
        return list(made)

    def _attempt(self, part: str, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return function(*given)
        except Exception as error:
            line = str(error).strip().partition("\n")[0]
            raise UsageError(
                f"{part}() raises {type(error).__name__}: {line}",
                where=str(self.path),
                fix="the reference has to run by itself before anything is held "
                "against it",
            ) from error

    @contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        state = random.getstate()
        random.seed(seed)
        try:
            with seeded(self.device, seed):
                yield
        finally:
            random.setstate(state)


def converted(model: nn.Module, convert: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return the model, every floating tensor that it holds converted in place.

    Those that are neither parameter nor buffer, too.
    """

    def each(x: Tensor) -> Tensor:
        return convert(x) if x.is_floating_point() else x

    model = model._apply(each)  # type: ignore[no-untyped-call]
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, Tensor):
                setattr(part, name, each(value))
    return model


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put back what calls within the block leave in a model's buffers.

    What torch warns of at odd shapes is not told: nobody chose them.
    """
    kept = {name: x.clone() for name, x in model.named_buffers()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        with torch.no_grad():
            for name, x in model.named_buffers():
                if name in kept and kept[name].shape == x.shape:
                    x.copy_(kept[name])


def results(returned: Any) -> tuple[Any, ...]:
    """Return what a call returned as a tuple, nested ones in one, keys sorted."""
    return tuple(leaves(returned))


@lru_cache(maxsize=8)
def _imported(path: Path, text: str | None) -> ModuleType:
    """Return the module of a file, imported once.

    Raises:
        UsageError: if it cannot be.
    """
    if text is None and not os.path.isfile(path):
        raise UsageError("no such file", where=str(path), fix="check the path")
    name = f"kfuzz_reference_{path.stem}_{short_hash(str(path))}"
    module = sys.modules[name] = ModuleType(name)  # a class in it may ask for it
    module.__file__ = str(path)
    try:
        with imported(str(path)):
            source = decode_source(path.read_bytes()) if text is None else text
            # For `inspect`, as there may be no file.
            lines = source.splitlines(keepends=True)
            linecache.cache[str(path)] = len(source), None, lines, str(path)
            exec(compile(source, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise UsageError(
            f"importing it raises {class_name(error)}: {message_of(error)}",
            where=str(path),
        ) from error
    return module


def _samples(
    given: Sequence[Any], names: Sequence[str], path: Path
) -> tuple[Sample, ...]:
    """Return the tensors among the arguments, as they are.

    Raises:
        UsageError: if there is none, or one that kfuzz cannot make.
    """
    found = []
    for i, (name, x) in enumerate(zip(names, given, strict=True)):
        if not isinstance(x, Tensor):
            if any(isinstance(each, Tensor) for each in pytree.tree_leaves(x)):
                raise UsageError(
                    f"get_inputs() gives a {type(x).__name__} of tensors for {name}",
                    where=str(path), fix="give each tensor as an argument of its own",
                )  # fmt: skip
            continue
        dtype = str(x.dtype).removeprefix("torch.")
        if dtype not in DTYPES or x.layout is not torch.strided:
            raise UsageError(
                f"{name} is a tensor of {x.dtype}, {x.layout}: kfuzz makes none",
                where=str(path), fix=f"dtypes: {', '.join(DTYPES)}, dense",
            )  # fmt: skip
        least = greatest = 0
        if not x.is_floating_point() and x.numel():
            least, greatest = int(x.min()), int(x.max())
        strides = None if x.is_contiguous() else tuple(x.stride())
        shape = tuple(x.shape)
        found.append(Sample(name, i, shape, dtype, strides, least, greatest))
    if not found:
        raise UsageError("get_inputs() gives no tensor", where=str(path))
    return tuple(found)


# What the arguments that a file gives have in common, and how values keep to it.
#
# A candidate may rely on what holds in every draw of `get_inputs`: values that are
# generated for it are put inside, and its dimensions stay tied.

Slot = tuple[int, int]
"""A tensor, counted among the tensors, and one of its axes."""

Runs = Callable[[Mapping[str, Tensor]], Sequence[Tensor] | None]
"""Runs the reference on the CPU; None where it raises."""

# How far beyond the file's own numbers is asked, in parts of their spread.
_BEYOND: Final = (0.5, 3.0)
# Nearer to 0 than the least positive number that was seen, where that is taken.
_NEARER: Final = 2.0**-10
# One element in so many is put beyond.
_SHARE: Final = 4

DRAWS: Final = 5
"""How often `get_inputs` is asked; less where its arguments are large."""

# Seconds and elements that further draws may take.
_SECONDS: Final = 3.0
_ELEMENTS: Final = 1 << 26
_KNOWN: Final = (
    torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """What the arguments of a reference have in common.

    Attributes:
        structures: of each argument, in the order in which values are made.
        copies: arguments that equal another, by its name, or its transpose.
        ties: dimensions that are equal in every call.
        fixed: dimensions that have one size.
        draws: from how many draws this is known; 1 where the file seeds itself.
    """

    structures: Mapping[str, tuple[Structure, ...]] = field(default_factory=dict)
    copies: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    ties: tuple[frozenset[Slot], ...] = ()
    fixed: frozenset[Slot] = frozenset()
    draws: int = 1

    def of(self, name: str) -> tuple[Structure, ...]:
        """Return the structures of one argument."""
        return self.structures.get(name, ())

    def is_discrete(self, name: str) -> bool:
        """Whether an argument has no values but the file's own."""
        return any(s.discrete for s in self.of(name))

    def is_fixed(self, name: str) -> bool:
        """Whether no values can be made for an argument but by the file."""
        return any(s.fixed for s in self.of(name))

    @property
    def has_zeros(self) -> bool:
        """Whether products with known zeros may be left out."""
        return any(s.zeros for kinds in self.structures.values() for s in kinds)

    @property
    def texts(self) -> tuple[str, ...]:
        """What was found, a line for each argument."""
        seen = f"in all {self.draws} draws" if self.draws > 1 else "in the one draw"
        told = []
        for name, kinds in self.structures.items():
            own = [s.text for s in kinds if not s.needed]
            kept = [s.text for s in kinds if s.needed]
            if own:
                told.append(f"{name} is {' and '.join(own)}, {seen}")
            told += [f"{name} is {text}" for text in kept]
        for name, (other, turned) in self.copies.items():
            what = f"the transpose of {other}" if turned else f"equal to {other}"
            told.append(f"{name} is {what}, {seen}")
        return tuple(told)

    def fitted(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values that have what the file's own have in common."""
        made = {name: self._fitted(name, x) for name, x in values.items()}
        for name, (other, turned) in self.copies.items():
            source = made[other].mT if turned else made[other]
            if source.shape == made[name].shape:
                made[name] = source.clone(memory_format=torch.contiguous_format)
        return made

    def _fitted(self, name: str, x: Tensor) -> Tensor:
        if not self._lacks(name, x):
            return x
        if self._is_finite(name):
            x = torch.where(torch.isfinite(x), x, torch.zeros_like(x))
        for structure in self.of(name):
            if not structure.holds(x):
                x = structure.made(x)
        return x.contiguous()

    def _is_finite(self, name: str) -> bool:
        """Whether an argument holds neither NaN nor infinities.

        Few values are what they are, and where the reference takes NaN it is asked.
        """
        return not self.is_discrete(name) and not all(s.nan for s in self.of(name))

    def _lacks(self, name: str, x: Tensor) -> str:
        """Return what an argument is not, "" if it is all that it has to be."""
        if not x.numel():
            return ""
        if self._is_finite(name) and not bool(torch.isfinite(x).all()):
            return "finite"
        return next((s.text for s in self.of(name) if not s.holds(x)), "")

    def outside(self, values: Mapping[str, Tensor]) -> str:
        """Return what values lack, "" where they lack nothing."""
        for name, x in values.items():
            if lacking := self._lacks(name, x):
                return f"{name} is not {lacking}"
        for name, (other, turned) in self.copies.items():
            source = values[other].mT if turned else values[other]
            if not torch.equal(values[name], source):
                return f"{name} is not what {other} is"
        return ""


def inputs_of(form: Form) -> Inputs:
    """Return what the arguments of several draws have in common.

    Raises:
        UsageError: if they cannot be made.
    """
    draws = _drawn(form)
    names = [s.name for s in form.samples if getattr(torch, s.dtype) in _KNOWN]
    own_seed = len(draws) > 1 and all(
        torch.equal(draws[0][name], x[name]) for x in draws[1:] for name in draws[0]
    )
    if own_seed:
        draws = draws[:1]
    structures = {}
    for name in names:
        columns = [x[name] for x in draws]
        found = structures_of(columns, varying=not own_seed)
        if found:
            structures[name] = found
    copies = _copies(draws, [n for n in names if n not in structures])
    ties, fixed = _dimensions(form.samples, structures, copies)
    return Inputs(structures, copies, ties, fixed, len(draws))


def _drawn(form: Form) -> list[dict[str, Tensor]]:
    """Return the tensors of several draws, the file's first among them."""
    made = [{s.name: form.first[s.position] for s in form.samples}]
    elements = sum(x.numel() for x in made[0].values())
    began = time.monotonic()
    for seed in range(SEED + 1, SEED + DRAWS):
        short = time.monotonic() - began > _SECONDS
        large = elements * (len(made) + 1) > _ELEMENTS
        if len(made) > 1 and (short or large):
            break
        drawn = form.tensors(seed)
        if any(drawn[s.name].shape != s.shape for s in form.samples):
            continue  # its sizes vary by themselves
        made.append(drawn)
    return made


def _copies(
    draws: Sequence[Mapping[str, Tensor]], names: Sequence[str]
) -> dict[str, tuple[str, bool]]:
    """Return which arguments equal an earlier one, or its transpose, in every draw."""
    found: dict[str, tuple[str, bool]] = {}
    for i, name in enumerate(names):
        first = draws[0][name]
        for other, turned in product(names[:i], (False, True)):
            flat = turned and not first.dim() == draws[0][other].dim() >= 2
            if name in found or other in found or first.numel() < 4 or flat:
                continue
            pairs = [(x[name], x[other].mT if turned else x[other]) for x in draws]
            if all(a.dtype is b.dtype and torch.equal(a, b) for a, b in pairs):
                found[name] = other, turned
    return found


def _dimensions(
    samples: Sequence[Sample],
    structures: Mapping[str, tuple[Structure, ...]],
    copies: Mapping[str, tuple[str, bool]],
) -> tuple[tuple[frozenset[Slot], ...], frozenset[Slot]]:
    """Return which dimensions are tied, and which keep their size."""
    ties: list[frozenset[Slot]] = []
    fixed: set[Slot] = set()
    place = {s.name: i for i, s in enumerate(samples)}
    for name, kinds in structures.items():
        i, shape = place[name], samples[place[name]].shape
        if any(s.fixed for s in kinds):
            fixed |= {(i, axis) for axis in range(len(shape))}
        if any(s.square for s in kinds) and shape[-1] == shape[-2]:
            ties.append(frozenset({(i, len(shape) - 2), (i, len(shape) - 1)}))
    for name, (other, turned) in copies.items():
        axes = list(range(len(samples[place[name]].shape)))
        others = [*axes[:-2], axes[-1], axes[-2]] if turned else axes
        ties += [
            frozenset({(place[name], a), (place[other], b)})
            for a, b in zip(axes, others, strict=True)
        ]
    return tuple(ties), frozenset(fixed)


def interval_of(
    name: str, values: Mapping[str, Tensor], seen: tuple[float, float], runs: Runs,
    structures: Sequence[Structure] = (),
) -> Structure | None:  # fmt: skip
    """Return the interval that one argument has to keep to; None if it has none.

    A logarithm makes NaN of negative numbers, a cross entropy refuses what is no
    probability, on a GPU by ending the context. An interval that the file's own values
    have is kept where the reference needs it, and nowhere else: a candidate that takes
    numbers for positive because `torch.rand` gives such is wrong.

    Args:
        name: the argument.
        values: arguments of one call, on the CPU, of the file's own numbers.
        seen: the least and the greatest number of the argument in any draw.
        runs: the reference.
        structures: what the argument is known to have: it is asked within that.
    """
    plain = runs(values)
    if plain is None or any(_has_nan(y) for y in plain):
        return None
    least, greatest = seen
    spread = max(greatest - least, abs(greatest), 1e-3)

    def given(number: float) -> Sequence[Tensor] | None:
        made = values[name].clone()
        made.view(-1)[::_SHARE] = number
        for structure in structures:
            made = made if structure.holds(made) else structure.made(made)
        return runs({**values, name: made})

    def takes(number: float) -> bool:
        made = given(number)
        return made is not None and not any(_has_nan(y) for y in made)

    low = high = None
    if not all(takes(least - far * spread) for far in _BEYOND):
        low = least * _NEARER if least > 0 and takes(least * _NEARER) else least
    if not all(takes(greatest + far * spread) for far in _BEYOND):
        high = greatest
    nan = given(float("nan")) is not None
    if low is None and high is None and nan:
        return None
    return interval(low, high, nan=nan)


def _has_nan(y: Tensor) -> bool:
    return y.is_floating_point() and bool(y.isnan().any())
