"""`kfuzz.monitor(...)`: from a function to the same function, monitored."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch

from kfuzz.contracts.binding import MONITORED, BoundKernel, declared, fit
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError, UsageError, suggestion
from kfuzz.core.finding import Target
from kfuzz.monitor.compiled import known
from kfuzz.monitor.gate.host import HostGate, checked_rate
from kfuzz.monitor.monitored import Monitor
from kfuzz.monitor.process import SUBJECTS
from kfuzz.monitor.records import Options
from kfuzz.monitor.runtime import runtime
from kfuzz.monitor.storing import Store
from kfuzz.monitor.subjects.operators import OperatorSubject
from kfuzz.monitor.subjects.reference_subject import (
    ReferenceSubject,
    reference_declaration,
)
from kfuzz.monitor.subjects.subject import Arguments, Subject, home_of, owner_of
from kfuzz.monitor.violation import Keep
from kfuzz.monitor.wrapping import Forward, MonitoredKernel, guarded
from kfuzz.targets.importing import importing

Contract = str | Operator | BoundKernel | Callable[..., Any]

_BACKWARD: Final = ".backward"
_LATER: Final = (
    (inspect.iscoroutinefunction, "a coroutine function"),
    (inspect.isasyncgenfunction, "an asynchronous generator function"),
    (inspect.isgeneratorfunction, "a generator function"),
)


@dataclass(frozen=True)
class Choices:
    """What `kfuzz.monitor(...)` was given; see there."""

    contract: Contract | None
    rate: float
    signatures: bool
    arguments: Arguments | None
    outputs: tuple[str, ...]
    name: str | None
    seed: int | None
    claims: dict[str, Any]
    options: Options


def options_of(keep: str, corpus: str | Path | None, **others: Any) -> Options:
    """Return what a monitor is to do with what it finds.

    Args:
        keep: how much of the data is told.
        corpus: where findings go; None for nowhere.
        others: as of `Options`.

    Raises:
        UsageError: if a choice is none.
    """
    if keep not in tuple(Keep):
        raise UsageError(
            f"keep={keep!r}",
            where="kfuzz.monitor",
            fix=suggestion(str(keep), tuple(Keep)),
        )
    if corpus is not None and keep != Keep.FULL:
        raise UsageError(
            f"a finding holds the inputs, which keep={keep!r} does not keep",
            where="kfuzz.monitor: corpus",
            fix='leave corpus= out, or say keep="full"',
        )
    return Options(
        store=None if corpus is None else Store(corpus), keep=Keep(keep), **others
    )


def decorator(choices: Choices, frame: FrameType) -> Callable[[Any], Any]:
    """Return what monitors a function as chosen.

    Args:
        choices: what the author chose.
        frame: where they were made.

    Raises:
        UsageError: if a choice is impossible.
    """
    checked_rate(choices.rate)
    module = frame.f_globals.get("__name__", "__main__")
    packaged = bool(frame.f_globals.get("__package__")) and module != "__main__"
    home = _Home(
        module,
        frame.f_lineno,
        frame.f_code.co_name == "<module>",
        os.path.realpath(frame.f_code.co_filename),
        module if packaged else "",
    )

    def bind(given: Any) -> Any:
        if isinstance(given, staticmethod | classmethod):
            return type(given)(bind(given.__func__))
        if isinstance(given, torch.nn.Module):
            return _module(given, choices, home)
        _require_function(given)
        bound = given if isinstance(given, BoundKernel) else None
        function = given if bound is None else bound.function
        made = _monitor(function, bound, choices, home)
        wrapper = guarded(function, made)
        return wrapper if bound is None else MonitoredKernel(bound, wrapper)

    return bind


@dataclass(frozen=True)
class _Home:
    """Where a function is monitored.

    Attributes:
        module: the module's name.
        line: the line in it.
        top_level: whether importing the module does it again.
        file: path of its source.
        package_module: the module's name where it belongs to a package, else "".
    """

    module: str
    line: int
    top_level: bool
    file: str
    package_module: str

    @property
    def place(self) -> dict[str, Any]:
        """What a kernel that is bound there is told of it."""
        return {"module": self.module, "line": self.line, "top_level": self.top_level}


def _module(module: torch.nn.Module, choices: Choices, home: _Home) -> torch.nn.Module:
    if isinstance(vars(module).get("forward"), Forward):
        raise UsageError(f"{type(module).__name__} is monitored already")
    function = type(module).forward
    name = choices.name or type(module).__name__
    made = _monitor(function, None, choices, home, name=name)
    module.forward = Forward(module, made)
    return module


def _require_function(given: Any) -> None:
    """Check that something can be monitored.

    Raises:
        UsageError: if its calls are not where it works, or it is no function.
    """
    where = f"monitor of {getattr(given, '__qualname__', None) or repr(given)[:60]}"
    if hasattr(given, "monitor") and isinstance(given.monitor, Monitor):
        raise UsageError("it is monitored already", where=where)
    inner = inspect.unwrap(given) if callable(given) else given
    for is_so, what, fix in (
        *(
            (is_later(inner), f"{kind} works after its call has returned",
             "monitor the functions that it calls")
            for is_later, kind in _LATER
        ),
        (inspect.isclass(given), "a class is called to make an object",
         "monitor its methods: forward and backward of an autograd.Function"),
        (hasattr(given, "arg_names") and hasattr(given, "__getitem__"),
         "a Triton kernel takes pointers", "monitor the function that launches it"),
        (not callable(given), "it is not callable", ""),
    ):  # fmt: skip
        if is_so:
            raise UsageError(what, where=where, fix=fix)


def _monitor(
    function: Callable[..., Any],
    bound: BoundKernel | None,
    choices: Choices,
    home: _Home,
    *,
    name: str = "",
) -> Monitor:
    """Return what looks at the calls of a function.

    While kfuzz imports the file, to judge its kernels, it looks at none.
    """
    subject = _subject(function, bound, choices, home, name)
    kernel = subject.kernel
    subject.target = home_of(kernel) if kernel else Target("", subject.name)
    SUBJECTS[home.file, home.package_module, subject.name] = subject
    gate = HostGate(choices.rate, signatures=choices.signatures, seed=choices.seed)
    made = Monitor(subject.name, subject, gate, choices.options)
    if importing() is not None:
        gate.active = False
        return made
    gate.active = runtime.running
    runtime.monitors.add(made)
    known(made)
    return made


def _subject(
    function: Callable[..., Any],
    bound: BoundKernel | None,
    choices: Choices,
    home: _Home,
    name: str,
) -> Subject:
    """Return what a function is held to.

    Raises:
        BindingError: if its signature does not fit, or a claim is unknown.
    """
    contract = choices.contract
    if contract is None:
        if bound is None:
            raise UsageError(
                "there is nothing to hold the function to",
                where="kfuzz.monitor",
                fix='name an operator, kfuzz.monitor("softmax"), or give a reference; '
                "only a function bound by kfuzz.kernel has a contract already",
            )
        contract = bound
    label = name or choices.name or (bound.name if bound else _name_of(function))
    if isinstance(contract, str):
        contract = operator_named(contract)
    if isinstance(contract, BoundKernel):
        return _of_kernel(function, contract, choices, label)
    if isinstance(contract, Operator):
        return _of_operator(function, contract, choices, home, label)
    if not callable(contract):
        raise UsageError(
            f"{contract!r:.60} is neither an operator nor a reference",
            where="kfuzz.monitor",
        )
    claims = dict(choices.claims)
    declaration = reference_declaration(label, **claims)
    made = ReferenceSubject(
        function, contract, declaration,
        name=label, outputs=choices.outputs, explicit=frozenset(claims),
        arguments=choices.arguments,
    )  # fmt: skip
    made.bind(function, **home.place)
    _register(made.kernel, home)
    return made


def _of_kernel(
    function: Callable[..., Any], bound: BoundKernel, choices: Choices, name: str
) -> Subject:
    """Return a function held to what a bound kernel is held to, and replayed as it."""
    if choices.claims:
        raise UsageError(
            f"{next(iter(choices.claims))}= is for the kernel's own declaration",
            where=f"monitor of {name}",
            fix="declare it where the kernel is bound",
        )
    return OperatorSubject(
        function, bound.operator, bound.declaration,
        name=bound.name, kernel=bound, explicit=bound.explicit,
        arguments=choices.arguments,
    )  # fmt: skip


def _of_operator(
    function: Callable[..., Any],
    operator: Operator,
    choices: Choices,
    home: _Home,
    name: str,
) -> Subject:
    claims = dict(choices.claims)
    kernel = None
    if choices.arguments is None and not owner_of(function):
        kernel = fit(operator, function, claims, name=name, **home.place)
        _register(kernel, home)
    return OperatorSubject(
        function, operator, declared(operator, claims, f"monitor of {name}"),
        name=name, kernel=kernel, explicit=frozenset(claims),
        arguments=choices.arguments,
    )  # fmt: skip


def _register(kernel: BoundKernel | None, home: _Home) -> None:
    """Let findings name a kernel."""
    if kernel is None:
        return
    siblings = MONITORED.setdefault(home.module, [])
    siblings[:] = [b for b in siblings if b.name != kernel.name]
    siblings.append(kernel)


def operator_named(name: str, where: str = "kfuzz.monitor") -> Operator:
    """Return an operator of kfuzz's by its name, "softmax.backward" for gradients.

    Args:
        name: the name.
        where: what asks, for the message.

    Raises:
        UsageError: if there is none.
    """
    from kfuzz.contracts.gradients.operators import gradients_of
    from kfuzz.contracts.operators import OPERATORS

    stem = name.removesuffix(_BACKWARD)
    if stem not in OPERATORS:
        fix = suggestion(stem, OPERATORS)
        raise UsageError(f"no operator {name!r}", where=where, fix=fix)
    return OPERATORS[stem] if stem == name else gradients_of(OPERATORS[stem])[""]


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "") or getattr(function, "__name__", "")
    name = name.rpartition("<locals>.")[2]
    if not name or name == "<lambda>":
        raise BindingError(
            "the function has no name", fix='give one: kfuzz.monitor(…, name="…")'
        )
    return name
