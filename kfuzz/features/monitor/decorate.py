"""`kfuzz.monitor(...)`: from a function to the same function, monitored."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import FrameType, MethodType
from typing import Any

import torch

from kfuzz.contracts.binding import MONITORED, BoundKernel, declared, fit
from kfuzz.contracts.gradients.operators import operator_named
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError, UsageError, suggestion
from kfuzz.core.finding import Target
from kfuzz.features.monitor.gate import HostGate, checked_rate
from kfuzz.features.monitor.monitored import Monitor, MonitoredKernel, Options, guarded
from kfuzz.features.monitor.process import SUBJECTS
from kfuzz.features.monitor.references import (
    OperatorSubject,
    ReferenceSubject,
    reference_declaration,
)
from kfuzz.features.monitor.runtime import runtime
from kfuzz.features.monitor.subjects import Subject, home_of, owner_of
from kfuzz.features.monitor.violation import Keep, Store
from kfuzz.targets.load import importing


def store_of(keep: str, corpus: str | Path | None) -> Store | None:
    """Return where the findings of a monitor go.

    Args:
        keep: how much of the data is kept.
        corpus: a folder; None for nowhere.

    Raises:
        UsageError: if a choice is none.
    """
    if keep not in tuple(Keep):
        fix = suggestion(str(keep), tuple(Keep))
        raise UsageError(f"keep={keep!r}", where="kfuzz.monitor", fix=fix)
    if corpus is not None and keep != Keep.FULL:
        raise UsageError(
            f"a finding holds the inputs, which keep={keep!r} does not keep",
            where="kfuzz.monitor: corpus",
            fix='leave corpus= out, or say keep="full"',
        )
    return None if corpus is None else Store(corpus)


def decorator(options: Options, frame: FrameType) -> Callable[[Any], Any]:
    """Return what monitors a function as chosen.

    Args:
        options: what the author chose.
        frame: where.

    Raises:
        UsageError: if a choice is impossible.
    """
    checked_rate(options.rate)
    module = frame.f_globals.get("__name__", "__main__")
    packaged = bool(frame.f_globals.get("__package__")) and module != "__main__"
    file = os.path.realpath(frame.f_code.co_filename)
    # What a kernel that is bound there knows of the place.
    place = {
        "module": module,
        "line": frame.f_lineno,
        "top_level": frame.f_code.co_name == "<module>",
    }

    def monitored(function: Any, bound: BoundKernel | None, name: str) -> Monitor:
        """While kfuzz imports the file, to judge its kernels, it looks at no call."""
        subject = _subject(function, bound, options, place, name)
        kernel = subject.kernel
        subject.target = home_of(kernel) if kernel else Target("", subject.name)
        SUBJECTS[file, module if packaged else "", subject.name] = subject
        gate = HostGate(options.rate, signatures=options.signatures, seed=options.seed)
        made = Monitor(subject.name, subject, gate, options)
        gate.active = runtime.running and importing() is None
        if importing() is None:
            runtime.monitors[made.id] = made
        return made

    def bind(given: Any) -> Any:
        if isinstance(given, staticmethod | classmethod):
            return type(given)(bind(given.__func__))
        if isinstance(given, torch.nn.Module):
            kind = type(given)
            if hasattr(vars(given).get("forward"), "monitor"):
                raise UsageError(f"{kind.__name__} is monitored already")
            made = monitored(kind.forward, None, options.name or kind.__name__)
            # A copy has its own; what is pickled has that of the class.
            given.forward = MethodType(guarded(kind.forward, made), given)
            return given
        _require_function(given)
        if not isinstance(given, BoundKernel):
            return guarded(given, monitored(given, None, ""))
        function = given.function
        return MonitoredKernel(given, guarded(function, monitored(function, given, "")))

    return bind


def _require_function(given: Any) -> None:
    """Check that something can be monitored.

    Raises:
        UsageError: if its calls are not where it works, or it is no function.
    """
    where = f"monitor of {getattr(given, '__qualname__', None) or repr(given)[:60]}"
    inner = inspect.unwrap(given) if callable(given) else given
    why = ""
    if isinstance(getattr(given, "monitor", None), Monitor):
        why = "it is monitored already"
    elif (
        inspect.iscoroutinefunction(inner)
        or inspect.isasyncgenfunction(inner)
        or inspect.isgeneratorfunction(inner)
    ):
        why = "it works after its call has returned: monitor what it calls"
    elif inspect.isclass(given):
        why = "a class is called to make an object: monitor its methods"
    elif hasattr(given, "arg_names") and hasattr(given, "__getitem__"):
        why = "a Triton kernel takes pointers: monitor the function that launches it"
    elif not callable(given):
        why = "it is not callable"
    if why:
        raise UsageError(why, where=where)


def _subject(
    function: Callable[..., Any],
    bound: BoundKernel | None,
    options: Options,
    place: dict[str, Any],
    name: str,
) -> Subject:
    """Return what a function is held to.

    Raises:
        BindingError: if its signature does not fit, or a claim is unknown.
    """
    contract = bound if options.contract is None else options.contract
    if contract is None:
        raise UsageError(
            "there is nothing to hold the function to",
            where="kfuzz.monitor",
            fix='name an operator, kfuzz.monitor("softmax"), or give a reference; '
            "only a function bound by kfuzz.kernel has a contract already",
        )
    name = name or options.name or (bound.name if bound else _name_of(function))
    claims, arguments = dict(options.claims), options.arguments
    known = {"explicit": frozenset(claims), "arguments": arguments}
    if isinstance(contract, str):
        contract = operator_named(contract, "kfuzz.monitor")
    if isinstance(contract, BoundKernel):
        if claims:
            raise UsageError(
                f"{next(iter(claims))}= is for the kernel's own declaration",
                where=f"monitor of {name}",
                fix="declare it where the kernel is bound",
            )
        return OperatorSubject(
            function, contract.operator, contract.declaration, name=contract.name,
            kernel=contract, explicit=contract.explicit, arguments=arguments,
        )  # fmt: skip
    if isinstance(contract, Operator):
        kernel = None
        if arguments is None and not owner_of(function):
            kernel = fit(contract, function, claims, name=name, **place)
            _register(kernel)
        declaration = declared(contract, claims, f"monitor of {name}")
        return OperatorSubject(
            function, contract, declaration, name=name, kernel=kernel, **known
        )
    if not callable(contract):
        raise UsageError(
            f"{contract!r:.60} is neither an operator nor a reference",
            where="kfuzz.monitor",
        )
    declaration = reference_declaration(name, **claims)
    made = ReferenceSubject(
        function, contract, declaration, name=name, outputs=options.outputs, **known
    )
    made.bind(function, **place)
    if made.kernel is not None:
        _register(made.kernel)
    return made


def _register(kernel: BoundKernel) -> None:
    """Let findings name a kernel."""
    siblings = MONITORED.setdefault(kernel.module, [])
    siblings[:] = [b for b in siblings if b.name != kernel.name]
    siblings.append(kernel)


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "") or getattr(function, "__name__", "")
    name = name.rpartition("<locals>.")[2]
    if not name or name == "<lambda>":
        raise BindingError(
            "the function has no name", fix='give one: kfuzz.monitor(…, name="…")'
        )
    return name
