"""The functions of a package that launch Triton kernels, called as operators are.

Each function is called with the small cases of an operator that its arguments fit: of
those that its name contains first, then of all others. It computes the one within whose
bound all results lie, as for a program that is observed.
"""

import faulthandler
import importlib
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final

import torch
import typer

from kfuzz.contracts.binding import kernel, ordinary_cases
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.errors import UsageError
from kfuzz.core.features import with_home
from kfuzz.core.recipe import Case
from kfuzz.engine.search.schedule import small_cases
from kfuzz.engine.workers.zygotes import budget_for
from kfuzz.evaluation.bindings import in_dtype
from kfuzz.evaluation.edits import referred
from kfuzz.execution.interpreter.watch import interpreting, watch
from kfuzz.execution.values.fills import logical_values
from kfuzz.features.examining import named_in, plain_name
from kfuzz.features.observe.faults import Shape, Unknown, leave, left
from kfuzz.features.observe.watching import KEPT, Callee, Seen, kept, note
from kfuzz.features.observe.writing import Guess, agrees, best_of, is_called

# Of one function, all in all; a call that hangs in compiled code ends the process.
_SECONDS: Final = 40
_DTYPES: Final = ("float32", "float16", "bfloat16")
_KIND: Final = "tried"
_BEGUN: Final = "begun"
_NONE: Final = (-1, -1)
_OTHERS: Final = re.compile(r"(^|_)(bwd|backward|grad|ref(_|$))", re.IGNORECASE)
"""Names of gradients and references."""
_RUN: Final = re.compile(
    r"test_|(tests?|examples|scripts|benchmarks|conftest|setup|__main__)$"
)
"""Names of what is run, and not imported."""


@dataclass(frozen=True)
class Launcher:
    """A function that launches kernels.

    Attributes:
        module: where it is found by that name.
        name: in the module.
        call: what is called.
        signature: of what it takes.
        kernels: names of the Triton functions that it comes to launch.
        depth: how many functions it comes to call on the way.
    """

    module: str
    name: str
    call: Callable[..., Any]
    signature: inspect.Signature
    kernels: frozenset[str]
    depth: int


Found = list[tuple[Callee, Guess | None]]
"""Functions, each with the operator that it agrees with."""


def tried(package: str, folder: Path, device: str) -> tuple[Found, int, dict[str, str]]:
    """Return what the functions of a package compute, tried in a process of its own.

    Args:
        package: its name.
        folder: an empty one.
        device: "cuda", or "cpu" for Triton's interpreter.

    Returns:
        The functions, how many Triton functions they come to launch, and modules that
        cannot be imported, with the reason.

    Raises:
        UsageError: if the import of the package ends the process.
    """
    environment = with_home(os.environ) | {KEPT: str(len(_DTYPES) + 1)}
    if device == "cpu":
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = ["-W", "ignore", "-m", __name__, package, str(folder), device]
    at = before = None
    # It is begun again at a function that ended it, behind one that did so at once. The
    # exit code does not tell: a function may end it with any.
    while at is None or at not in (before, _NONE):
        before = at
        code = subprocess.run([sys.executable, *words], env=environment).returncode
        at = _begun(folder / _BEGUN)
    parts = [*left(folder, _KIND)]
    if not parts and at == _NONE:
        what = f"its import ends with exit code {code}"
        raise UsageError(what, where=package, fix="install what it needs, see above")
    _, kernels, failed, _ = parts[-1] if parts else ([], 0, {}, ())
    return [each for part, *_ in parts for each in part], kernels, failed


def _begun(file: Path) -> tuple[int, int]:
    """Return the first and the last function that an unfinished process began."""
    if not file.is_file():
        return _NONE
    first, last = map(int, file.read_text().split())
    return first, last


# The process.


def _main(package: str, folder: Path, device: str) -> None:
    torch.set_num_threads(1)
    import triton.runtime.interpreter  # noqa: F401 - what is not loaded is not corrected

    modules, failed = _imported(package)
    launchers = _launchers(modules)
    with watch() if interpreting() else nullcontext():
        _try_all(launchers, failed, folder, device)


def _try_all(
    launchers: list[Launcher], failed: dict[str, str], folder: Path, device: str
) -> None:
    kernels = len({k for each in launchers for k in each.kernels})
    found: Found = []
    first, last = _begun(folder / _BEGUN)
    begin = last + (first == last)  # memory may be corrupted by one before
    if 0 <= last < begin:
        ended = launchers[last]
        found.append((_unseen(ended), None))
        typer.echo(f"{ended.module}.{ended.name}: ended the process")
    bound = {each for *_, before in left(folder, _KIND) for each in before}
    for number, launcher in enumerate(launchers):
        # What launches the same as one that is bound lies within it, or around it.
        alike = {name for kernels, name in bound if kernels == launcher.kernels}
        named = [o.name for o in named_in(launcher.name)][:1]
        if number < begin or (alike and alike.issuperset(named)):
            continue
        leave(folder, _KIND, (found, kernels, failed, bound))
        (folder / _BEGUN).write_text(f"{begin} {number}")
        callee, guess = _tried(launcher, device)
        found.append((callee, guess))
        if guess is not None:
            bound.add((launcher.kernels, guess.operator))
        said = "no operator agrees" if guess is None else f"ops.{guess.operator}"
        typer.echo(f"{launcher.module}.{launcher.name}: {said}")
    leave(folder, _KIND, (found, kernels, failed, bound))
    (folder / _BEGUN).unlink(missing_ok=True)


def _imported(package: str) -> tuple[list[ModuleType], dict[str, str]]:
    """Return the modules of a package, and why others cannot be imported."""
    root = importlib.import_module(package)
    found: list[ModuleType] = []
    failed: dict[str, str] = {}
    for name in sorted({package, *_files(root)}):
        if any(name.startswith(f"{above}.") for above in failed):
            continue
        try:
            found.append(importlib.import_module(name))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # it needs what is not here, or is skipped
            failed[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    return found, failed


def _files(root: ModuleType) -> Iterator[str]:
    """Yield the modules of a package: pkgutil enters no folder without `__init__`."""
    for folder in map(Path, getattr(root, "__path__", ())):
        for file in folder.rglob("*.py"):
            below = file.relative_to(folder).with_suffix("").parts
            if all(map(str.isidentifier, below)) and not any(map(_RUN.match, below)):
                yield ".".join((root.__name__, *below)).removesuffix(".__init__")


def _launchers(modules: list[ModuleType]) -> list[Launcher]:
    """Return public functions that come to launch kernels, the outermost first."""
    own = {m.__name__ for m in modules}
    found = []
    for module in modules:
        for name, value in [*vars(module).items()]:
            code = _code_of(value)
            if code is None or value.__module__ != module.__name__:
                continue
            if name.startswith("_") or _OTHERS.search(plain_name(name)):
                continue
            if code.__code__.co_varnames[:1] == ("self",):
                continue  # a method, which asks more of its object
            reached: dict[int, str] = {}
            seen: set[int] = set()
            _reach(value, own, reached, seen)
            if not reached or not _is_found(module.__name__, name, value):
                continue
            call, skipped, last = value, 0, ""
            if isinstance(value, type):
                call, skipped, last = value.apply, 1, ".apply"  # type: ignore[attr-defined]
            taken = [*inspect.signature(code).parameters.values()][skipped:]
            if all(p.default is not p.empty for p in taken):
                continue  # it takes no tensor
            signature = inspect.Signature(taken)
            kernels = frozenset(reached.values())
            found.append(
                Launcher(
                    module.__name__, name + last, call, signature, kernels, len(seen)
                )
            )
    # The outermost first, and what users are to call.
    return sorted(found, key=lambda f: (-len(f.kernels), "._" in f.module, -f.depth))


def _code_of(value: Any) -> FunctionType | None:
    """Return the function that a value is, or that an autograd function calls."""
    if isinstance(value, type) and issubclass(value, torch.autograd.Function):
        value = inspect.unwrap(value.forward)
    if not isinstance(value, FunctionType):
        return None
    made = inspect.unwrap(value)
    return made if isinstance(made, FunctionType) else None


def _reach(value: Any, own: set[str], reached: dict[int, str], seen: set[int]) -> None:
    """Find the kernels that a function names, and those that what it names does."""
    from triton.runtime.jit import KernelInterface

    if isinstance(value, KernelInterface):
        while not isinstance(getattr(value, "fn", None), FunctionType):
            value = value.fn
        reached[id(value.fn)] = f"{value.fn.__module__}.{value.fn.__name__}"
        return
    function = _code_of(value)
    if function is None or id(function) in seen or function.__module__ not in own:
        return
    seen.add(id(function))
    for held in referred(function):
        _reach(held, own, reached, seen)


def _is_found(module: str, name: str, value: Any) -> bool:
    """Whether `import module` makes `module.name` that value."""
    first, *rest = f"{module}.{name}".split(".")
    held: Any = sys.modules[first]
    for part in rest:
        held = getattr(held, part, None)
    return held is value


def _unseen(launcher: Launcher) -> Callee:
    takes = dict.fromkeys(launcher.signature.parameters, Unknown("?"))
    return Callee(launcher.module, launcher.name, calls=[Seen(takes, None)])


def _tried(launcher: Launcher, device: str) -> tuple[Callee, Guess | None]:
    """Return a function as calls showed it, and the operator that it agrees with."""
    end = time.monotonic() + _SECONDS
    named = named_in(launcher.name)
    found: list[tuple[Guess, Callee]] = []
    signal.signal(signal.SIGALRM, _expired)
    for operator in (*named, *(o for o in OPERATORS.values() if o not in named)):
        left = int(end - time.monotonic())
        if left <= 0 or (found and operator not in named):
            break
        signal.alarm(left)
        faulthandler.dump_traceback_later(left + 20, exit=True)
        try:
            callee = _called(launcher, operator, device)
            plain = replace(callee, calls=[c for c in callee.calls if _is_plain(c)])
            # In the narrow formats as well, or without these.
            for claims in (False, True):
                for each in (callee, plain) if callee.calls else ():
                    guess = agrees(operator, each, declared=claims)
                    found += [(guess, each)] if guess else []
        except TimeoutError:
            break
        finally:
            signal.alarm(0)
            faulthandler.cancel_dump_traceback_later()
    if not found:
        return _unseen(launcher), None
    # Those with which more calls agree, then with fewer claims.
    most = min((-g.calls, len(g.claims)) for g, _ in found)
    found = [f for f in found if (-f[0].calls, len(f[0].claims)) == most]
    best = best_of([guess for guess, _ in found])
    return next(c for g, c in found if g.operator == best.operator), best


def _is_plain(call: Seen) -> bool:
    """Whether a call has no data type but the first."""
    shapes = [v for v in call.given.values() if isinstance(v, Shape)]
    return not any(v.dtype in _DTYPES[1:] for v in shapes)


def _expired(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _called(launcher: Launcher, operator: Operator, device: str) -> Callee:
    """Return a function with its calls on small cases of an operator's."""
    callee = Callee(launcher.module, launcher.name)
    given = _given(launcher.signature, operator)
    if given is None:
        return callee

    def stand_in(*args: Any) -> None: ...

    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    taken = (n for n in operator.inputs if n in given.values())
    takes = [inspect.Parameter(n, keyword) for n in taken]
    stand_in.__signature__ = inspect.Signature(takes)  # type: ignore[attr-defined]
    bound = kernel(operator, name="stand_in")(stand_in)
    budget = budget_for(bound, "interpret" if device == "cpu" else device)
    cases = sorted(small_cases(bound, budget), key=_poor)[:2]
    for number, case in enumerate([*cases, *cases[:1] * (len(_DTYPES) - 1)]):
        dtype = _DTYPES[max(0, number - len(cases) + 1)]
        if dtype not in operator.dtypes:
            continue
        case = in_dtype(operator, next(ordinary_cases(operator, case)), dtype)
        values: dict[str, Any] = {**case.scalars}
        for name in case.tensors:
            values[name] = logical_values(case, name, torch.device(device))
        parameters = launcher.signature.parameters.items()
        args = {n: values.get(given.get(n, ""), p.default) for n, p in parameters}
        while args and [*args][-1] not in given:
            args.popitem()
        before = kept(args, callee)
        try:
            result = launcher.call(*args.values())
        except TimeoutError:
            raise
        except (Exception, SystemExit):  # it takes no such arguments
            if not callee.calls:
                return callee
            continue
        note(callee, before, result)
    return callee


def _poor(case: Case) -> tuple[int, int]:
    """Return how little a case shows: short dimensions, few elements."""
    short = sum(n < 3 for spec in case.tensors.values() for n in spec.shape)
    return short, -case.elements


def _given(signature: inspect.Signature, operator: Operator) -> dict[str, str] | None:
    """Return which parameters are which of an operator's inputs; None if they cannot.

    By their names, then in order.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = {n: p for n, p in signature.parameters.items() if p.kind in kinds}
    needed = [n for n, p in own.items() if p.default is p.empty]
    given: dict[str, str] = {}
    for name in (*operator.scalars, *operator.tensors):
        called = (n for n in own if n not in given and is_called(n, name))
        if (parameter := next(called, None)) is not None:
            given[parameter] = name
    for name in [n for n in operator.tensors if n not in given.values()]:
        free = [n for n in needed if n not in given]
        if free:
            given[free[0]] = name
        elif not operator.tensors[name].optional:
            return None
    return None if {*needed} - {*given} else given


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
