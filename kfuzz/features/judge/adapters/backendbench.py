"""BackendBench: a test suite of drawn inputs, and generated kernels as targets.

Facts: github.com/meta-pytorch/BackendBench, suite/base.py and backends/directory.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from kfuzz.contracts.aten import making
from kfuzz.contracts.aten.making import bound, find, known
from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.errors import UsageError
from kfuzz.core.recipe import Case
from kfuzz.engine.search.case_drawing import round_seed, search_round, strategy_of
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.values.fills import logical_values

_SUFFIX: Final = "_kernel_impl"
_TARGETS: Final = '''"""Generated kernels, bound to overloads of torch's operators."""

import importlib.util
import sys

import kfuzz


def _loaded(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

'''


@dataclass(frozen=True)
class Test:
    """One call of an operator; arguments are made anew each time they are asked for.

    Attributes:
        kernel: what is called, bound to the overload.
        case: the call, as a recipe.
        device: where its tensors lie.
    """

    kernel: BoundKernel
    case: Case
    device: torch.device

    @property
    def args(self) -> list[Any]:
        """The positional arguments, as torch's dispatcher passes them."""
        return self._call()[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The others, by name."""
        return self._call()[1]

    def _call(self) -> tuple[list[Any], dict[str, Any]]:
        case = self.case
        tensors = [logical_values(case, name, self.device) for name in case.tensors]
        takes = self.kernel.arguments.scalars
        scalars = {n: v for n, v in case.scalars.items() if n in takes}
        try:
            self.kernel.taking(case.tensors)(*tensors, **scalars)
        except _Called as call:
            return list(call.positional), call.named
        raise UsageError("the operator was not called", where=self.kernel.name)


class OpTest(NamedTuple):
    """The tests of one operator: calls of an overload; kfuzz measures no times."""

    op: Any
    correctness_tests: Sequence[Test]
    performance_tests: Sequence[Test] = ()


class TestSuite:
    """A suite of BackendBench's: a name, and an `OpTest` for each operator.

    Args:
        overloads: names such as "relu", "add.Tensor".
        cases: calls of each.
        seed: everything drawn depends on it.
        device: torch's, where tensors lie.

    Raises:
        BindingError: if torch has no such overload, or kfuzz's table no row for it.
    """

    def __init__(
        self,
        overloads: Sequence[str],
        *,
        cases: int = 20,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.name = "kfuzz"
        place = torch.device(device)
        self.optests = [_tests_of(name, cases, seed, place) for name in overloads]

    def __iter__(self) -> Iterator[OpTest]:
        return iter(self.optests)


class _Called(Exception):
    def __init__(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.positional, self.named = positional, named
        super().__init__()


def _call(*args: Any, **kwargs: Any) -> Any:
    raise _Called(args, kwargs)


def _tests_of(name: str, cases: int, seed: int, device: torch.device) -> OpTest:
    kernel = bound(name, _call, name=name)
    strategy = strategy_of(kernel, backend_of(device).limits.sizes)
    assert strategy is not None
    found: list[Case] = []
    search_round(
        strategy, found.append, cases=cases,
        seed_value=round_seed(seed, name, 0),
    )  # fmt: skip
    tests = [Test(kernel, case, device) for case in found[:cases]]
    return OpTest(making.overload(making.plain(name)), tests)


def write_targets(folder: Path, file: Path) -> list[str]:
    """Write a file that binds generated kernels, for `kfuzz run FILE`.

    Args:
        folder: has a folder for each operator, "relu" or "add__Tensor", with
            `NAME_implementation….py`, which defines `NAME_kernel_impl`.
        file: is written.

    Returns:
        What is left out, with the reason: operators that kfuzz's table lacks.

    Raises:
        UsageError: if there is no kernel that can be bound.
    """
    lines, left = [], []
    for place in sorted(p for p in folder.iterdir() if p.is_dir()):
        name = place.name
        sources = sorted(place.glob(f"{name}_implementation*.py"))
        overload = making.plain(name.replace("__", ".", 1))
        every = (overload, *making.overloads(overload))
        names = [n for n in every if known(n) and not find(n).claims]
        if not sources or not names:
            left.append(f"{name}: {'no row in the table' if sources else 'no source'}")
            continue
        module, path = f"generated_{name}", str(sources[0].resolve())
        lines.append(f"_{name} = _loaded({module!r}, {path!r}).{name}{_SUFFIX}")
        for each in dict.fromkeys(names):
            label = each.replace(".", "_")
            lines.append(
                f"{label} = kfuzz.kernel({'aten::' + each!r}, name={label!r})(_{name})"
            )
    if not lines:
        told = f": {'; '.join(left)}" if left else ""
        raise UsageError(f"no kernel that can be bound{told}", where=str(folder))
    file.write_text(_TARGETS + "\n".join(["", *lines, ""]), "utf-8")
    return left
