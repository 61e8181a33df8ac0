"""Libraries that override torch's operators: the overloads that a module implements.

Found, in this order, the first kind that there is:

* registrations while the module is imported: `torch.library.Library("aten", …).impl`,
  `torch.library.impl`, `torch.library.register_kernel`;
* tables of the module's: a mapping of names of overloads to functions, or a sequence of
  tuples that begin with a name and a function;
* functions of the module's own that are named like overloads, "__" standing for the
  dot: `add__Tensor`.

A registration is recorded and does not take effect: kfuzz computes with torch's own
operators, what it compares with among the rest.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import torch

from kfuzz.contracts.aten.making import bound, known, lookup, plain
from kfuzz.contracts.binding import REGISTRY
from kfuzz.core.errors import BindingError
from kfuzz.core.finding import ATEN
from kfuzz.execution.calls.patches import Patches

# Keys of registrations that compute no values.
_VALUELESS: Final = ("Meta", "FakeTensor", "Functionalize")
# What generated kernels' names end in.
_SUFFIX: Final = "_kernel_impl"
# Overloads that a module implements and no row of the table describes, by module.
UNJUDGED: Final[dict[str, tuple[str, ...]]] = {}


@dataclass(frozen=True)
class Override:
    """An implementation of an overload.

    Attributes:
        name: of the overload, plain.
        function: the implementation.
        key: the dispatch key that it is registered for; "" where it is in a table.
    """

    name: str
    function: Callable[..., Any]
    key: str = ""


def bind_overrides(module: str, import_module: Callable[[str], ModuleType]) -> str:
    """Import a module and bind every overload that it implements, once.

    Returns:
        The name under which its kernels are registered.

    Raises:
        BindingError: if it implements none that can be judged.
    """
    name = f"{ATEN}{module}"
    if name in REGISTRY:
        return name
    with recorded() as registered:
        found = import_module(module)
    overrides = registered or list(listed(found)) or list(named(found))
    if not overrides:
        raise BindingError(
            "it implements no overload of torch's while it is imported",
            where=module,
            fix="if a function of its own registers them, call that at the top of a "
            "module of yours, and give that one",
        )
    judged = [o for o in overrides if known(o.name)]
    UNJUDGED[name] = tuple(
        sorted({o.name for o in overrides} - {o.name for o in judged})
    )
    if not judged:
        raise BindingError(
            f"the table has a row for none of {', '.join(UNJUDGED[name])}",
            where=module,
            fix="contracts/aten/README.md describes how an overload is added",
        )
    REGISTRY[name] = [
        bound(o.name, o.function, name=label, module=module)
        for label, o in _labelled(judged)
    ]
    return name


def _labelled(overrides: list[Override]) -> Iterator[tuple[str, Override]]:
    """Yield a name for each implementation: its overload's, if it is the only one.

    Of several for one dispatch key the last counts, as for torch.
    """
    last = {(o.name, o.key): o for o in overrides}
    functions: dict[str, list[Override]] = {}
    for override in last.values():
        same = functions.setdefault(override.name, [])
        if all(o.function is not override.function for o in same):
            same.append(override)
    for name, several in functions.items():
        for o in several:
            yield (name if len(several) == 1 else f"{name}-{o.key.lower()}"), o


@contextmanager
def recorded() -> Iterator[list[Override]]:
    """Record what a block registers for torch's operators, in place of doing so."""
    found: list[Override] = []
    original: Callable[..., Any] = torch.library.Library.impl

    def record(
        self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any
    ) -> Any:
        if self.ns != "aten":
            return original(self, op_name, fn, dispatch_key, **options)
        key = dispatch_key or self.dispatch_key
        computes = callable(fn) and fn is not torch.library.fallthrough_kernel
        if computes and key not in _VALUELESS and not options.get("with_keyset"):
            found.append(Override(_plain(op_name), fn, key))
        return None

    with Patches() as patches:
        patches.set(torch.library.Library, "impl", record)
        yield found


def _plain(op_name: Any) -> str:
    schema = getattr(op_name, "_schema", None)
    if schema is None:
        return plain(str(op_name))
    return plain(f"{schema.name}.{schema.overload_name or 'default'}")


def listed(module: ModuleType) -> Iterator[Override]:
    """Yield what the tables of a module list."""
    for attribute, value in list(vars(module).items()):
        if attribute.startswith("__"):
            continue
        if isinstance(value, Mapping):
            entries = list(value.items())
        elif isinstance(value, list | tuple):
            entries = [tuple(e[:2]) for e in value if isinstance(e, list | tuple)]
        else:
            continue
        for entry in entries:
            if len(entry) != 2 or not callable(entry[1]):
                continue
            name = _plain(entry[0])
            if lookup(name) is not None:
                yield Override(name, entry[1])


def named(module: ModuleType) -> Iterator[Override]:
    """Yield the functions of a module's own that are named like overloads."""
    package = module.__name__.partition(".")[0]
    for name, value in list(vars(module).items()):
        own = str(getattr(value, "__module__", "")).partition(".")[0] == package
        if not own or not callable(value) or isinstance(value, type):
            continue
        overload = plain(name.removesuffix(_SUFFIX).replace("__", ".", 1))
        if lookup(overload) is not None:
            yield Override(overload, value)
