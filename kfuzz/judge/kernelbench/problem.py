"""Problems in KernelBench's form: a reference file, its model and its inputs.

The file has a `Model`, an `nn.Module` whose result is to be computed, `get_inputs()`,
the arguments of a call at the benchmarked shape, and `get_init_inputs()`, those of the
constructor. Here it is trusted and imported; what is judged against it never is.
"""

import copy
import importlib.util
import inspect
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch import Tensor, nn

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import UsageError, class_name, message_of
from kfuzz.core.finding import short_hash
from kfuzz.execution.values.constants import drawn_constants
from kfuzz.execution.values.randomness import seeded
from kfuzz.judge.sandbox.results import leaves
from kfuzz.targets.importing import imported

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
        self.init = tuple(moved(made, device))
        self.model = self.build(nn.Module)
        given = self.inputs(SEED)
        self.first = given
        self.nesting = ""
        self.samples = _samples(given, self._names(len(given)), path)
        places = {s.position for s in self.samples}
        self.fixed: Mapping[int, object] = {
            i: value for i, value in enumerate(given) if i not in places
        }

    def build(
        self, kind: type[nn.Module], *, constants_drawn: bool = False
    ) -> nn.Module:
        """Return a new model, built under the seed, on the device.

        Args:
            kind: what it has to be.
            constants_drawn: whether initialisers of constants draw numbers.

        Raises:
            UsageError: if it cannot be built.
        """
        with self._seeded(SEED), drawn_constants(drawn=constants_drawn):
            made = self._attempt("Model", self._module.Model, *self.init)
        if not isinstance(made, kind):
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
        return tuple(moved(made, self.device))

    def tensors(self, seed: int) -> dict[str, Tensor]:
        """Return the tensors among the arguments, by name, under a seed."""
        given = self.inputs(seed)
        return {s.name: given[s.position] for s in self.samples}

    def arguments(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Return the arguments of a call on tensors, the fixed ones in between."""
        given = dict(self.fixed)
        given.update(zip((s.position for s in self.samples), tensors, strict=True))
        return [given[i] for i in range(len(given))]

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


def moved(values: Sequence[Any], device: torch.device) -> list[Any]:
    """Return values with every tensor in them on a device, detached."""

    def each(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().to(device)
        if type(value) in (list, tuple):
            return type(value)(each(v) for v in value)
        if type(value) is dict:
            return {key: each(v) for key, v in value.items()}
        return value

    return [each(value) for value in values]


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


class _FromText(SourceFileLoader):
    """Loads a file that lies on no disk; neither does what it is compiled to."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str) -> bytes:
        """Return the text."""
        return self._text.encode(errors="backslashreplace")

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Say that there is no file whose age could be asked for."""
        raise FileNotFoundError(path)


@lru_cache(maxsize=8)
def _imported(path: Path, text: str | None) -> ModuleType:
    """Return the module of a file, imported once.

    Raises:
        UsageError: if it cannot be.
    """
    if text is None and not os.path.isfile(path):
        raise UsageError("no such file", where=str(path), fix="check the path")
    name = f"kfuzz_reference_{path.stem}_{short_hash(str(path))}"
    loader = None if text is None else _FromText(name, str(path), text)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise UsageError("not a Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a class in it may ask for its module
    try:
        with imported(str(path)):
            spec.loader.exec_module(module)
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
            if _holds_tensors(x):
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


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(isinstance(v, Tensor) or _holds_tensors(v) for v in value)
    return False
