"""One monitored function: which calls are looked at, and what becomes of them."""

import functools
import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, MethodType
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import MONITORED, BoundKernel, declared, fit
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError, UsageError, suggestion
from kfuzz.core.finding import Target
from kfuzz.core.verdict import Verdict
from kfuzz.execution.memory.slots import handed_back
from kfuzz.features.examining import operator_named
from kfuzz.features.monitor.compiled import is_compiling, traced
from kfuzz.features.monitor.gate import HostGate, Reason, checked_rate
from kfuzz.features.monitor.references import (
    OperatorSubject,
    ReferenceSubject,
    reference_declaration,
)
from kfuzz.features.monitor.runtime import Counts, log, runtime
from kfuzz.features.monitor.seen import (
    Call,
    Comparison,
    Returned,
    Seen,
    Snapshot,
    can_copy,
    capturing,
    compared,
    is_under_modes,
    parts_of,
)
from kfuzz.features.monitor.subjects import (
    Arguments,
    Judged,
    Keep,
    Outside,
    Store,
    Subject,
    Violation,
    home_of,
    owner_of,
    violation_of,
)
from kfuzz.numerics.formats import Footprint
from kfuzz.store.life import utc_now
from kfuzz.targets.load import importing

Contract = str | Operator | BoundKernel | Callable[..., Any]


@dataclass(frozen=True)
class Options:
    """What the author of a monitor chose; see `kfuzz.monitor.monitor`.

    Attributes:
        store: where findings go; None for nowhere.
    """

    contract: Contract | None
    claims: Mapping[str, Any]
    rate: float
    signatures: bool
    arguments: Arguments | None
    outputs: tuple[str, ...]
    name: str | None
    seed: int | None
    on_violation: Callable[[Violation], None] | None
    store: Store | None
    keep: Keep
    detectors: tuple[Callable[[Sequence[Tensor]], bool], ...]
    results: Callable[[Any], Any] | None
    autocast: bool


@dataclass
class Pending:
    """A call that is being made and will be checked.

    Attributes:
        call: its arguments; None in compiled code, whose memory they may share with
            what comes after them, and once it has returned.
        before: copies of them.
        number: the call's.
        why: why it is looked at.
        when: when it was made.
        after: copies of its results, once it has returned.
        compared: what it changed in its arguments, likewise.
    """

    call: Call | None
    before: Snapshot
    number: int
    why: Reason
    when: str = field(default_factory=utc_now)
    after: Snapshot | None = None
    compared: Comparison | None = None

    @property
    def snapshots(self) -> list[Snapshot]:
        """All room that it has taken."""
        numbers = self.compared.numbers if self.compared else None
        return [s for s in (self.before, self.after, numbers) if s is not None]


# A call that is to be made: the function with its arguments.
Made = functools.partial[Any]


# Reasons that calls lie outside the contract, or cannot be looked at, logged once each.
_MOST_TOLD: Final = 32
_IDS: Final = itertools.count()


class Monitor(HostGate):
    """Looks at calls of one function; the gate says at which.

    Attributes:
        id: its number in this process.
        name: the function's.
        subject: what its calls are held to.
        options: what its author chose.
    """

    def __init__(self, name: str, subject: Subject, options: Options) -> None:
        super().__init__(options.rate, signatures=options.signatures, seed=options.seed)
        self.id = next(_IDS)
        self.name = name
        self.subject = subject
        self.options = options

    def clear(self) -> None:
        """Forget all calls; no call may be in the gate."""
        super().clear()
        self._numbers: Counter[str] = Counter()
        self._told: set[tuple[str, str]] = set()

    @property
    def kernel(self) -> Any:
        """The function as a bound kernel, None where kfuzz cannot call it by itself."""
        return self.subject.kernel

    def statistics(self) -> Counts:
        """Return what became of the calls so far."""
        with self._lock:
            numbers = dict(self._numbers)
        return Counts(self.name, seen=self.calls, **numbers)

    def count(self, name: str, more: int = 1) -> None:
        """Add to a count."""
        with self._lock:
            self._numbers[name] += more

    def note(self, count: str, what: str, why: str, error: Any = None) -> None:
        """Count something that went wrong, and log it once for each kind."""
        self.count(count)
        key = (what, type(error).__name__ if error else why)
        with self._lock:
            if key in self._told or len(self._told) >= _MOST_TOLD:
                return
            self._told.add(key)
        log.warning(
            "%s: %s: %s (reported once)", self.name, what, why,
            exc_info=error, extra={"kfuzz_function": self.name},
        )  # fmt: skip

    @contextmanager
    def guarding(self, what: str) -> Iterator[None]:
        """Count and log what raises in the block, which the caller never sees."""
        try:
            yield
        except Outside as error:
            self.note("outside", "outside the contract", str(error))
        except Exception as error:
            self.note("errors", what, str(error), error)

    def outlying(self, values: Iterable[Any]) -> Reason | None:
        """Return OUTLIER if a detector flags a call's tensors on the CPU.

        Never raises.
        """
        with self.guarding("a detector raised"):
            tensors = (x for x in values if isinstance(x, Tensor) and can_copy(x))
            given = [x.detach() for x in tensors if x.is_cpu]
            # Each sees every call.
            if any([each(given) for each in self.options.detectors]):
                self.count("outliers")
                return Reason.OUTLIER
        return None

    def sampled(self, make: Made, number: int, why: Reason) -> Any:
        """Make a call that is looked at; what it does and raises is its own."""
        pending = self.begin(make.args, make.keywords, number, why)
        if pending is None:
            return make()
        try:
            returned = make()
        except BaseException:
            self.count("raised")
            self.give_up(pending)
            raise
        self.finish(pending, returned)
        return returned

    def begin(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], number: int, why: Reason
    ) -> Pending | None:
        """Copy the arguments of a call; None where it is not looked at after all."""
        self.count("sampled")
        if why is Reason.SIGNATURE:
            self.count("new_signatures")
        call = self.call_of(args, kwargs)
        if call is None:
            return None
        with self.guarding("a call could not be looked at"):
            before = runtime.memory.take(list(call.tensors.values()))
            if before is not None:
                return Pending(call, before, number, why)
            self.count("dropped")
        return None

    def call_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, later: bool = False
    ) -> Call | None:
        """Return the arguments of a call; None where it cannot be looked at.

        Args:
            args: passed by position.
            kwargs: passed by name.
            later: whether the call was made by now, and these are other tensors.
        """
        with self.guarding("a call could not be looked at"):
            if is_under_modes() and not later:
                self.note("skipped", "not looked at", "a mode of torch is active")
                return None
            call = self.subject.call(args, kwargs)
            if later:
                return call
            self._require_plain(call)
            if not capturing([*call.tensors.values(), *call.written.values()]):
                return call
            self.note("skipped", "not looked at", "a CUDA graph is being captured")
        return None

    def _require_plain(self, call: Call) -> None:
        """Raise Outside for a call whose arguments say nothing certain.

        Autocast changes what an operator of torch computes; memory that is written
        and another argument's too has no defined result.
        """
        kinds = {x.device.type for x in call.tensors.values()}
        if not self.options.autocast and any(map(torch.is_autocast_enabled, kinds)):
            raise Outside("under torch.autocast: see autocast=")
        written = [x for x in call.written.values() if x.numel()]
        for name, x in call.tensors.items():
            for place in written:
                same = x is place or x.data_ptr() == place.data_ptr()
                a, b = Footprint.of(x), Footprint.of(place)
                apart = a.address >= b.stop or b.address >= a.stop
                if not apart and not (name in call.free and same):
                    raise Outside(f"{name} is in memory that the call writes to")

    def finish_compiled(self, pending: Pending, call: Call | None, parts: Any) -> None:
        """Finish a call of compiled code, whose arguments lie elsewhere by now.

        Where results lie says nothing there.
        """
        pending.call = call
        if call is None:
            self.give_up(pending)
            return
        if places := tuple(call.written.values()):
            parts = places if len(places) > 1 else places[0]
        self.finish(pending, parts, is_compiled=True)

    def finish(
        self, pending: Pending, returned: Any, *, is_compiled: bool = False
    ) -> None:
        """Copy the results of a call and have it checked; never raises."""
        is_kept = None
        with self.guarding("a result could not be copied"):
            is_kept = self._keep(pending, returned, is_compiled)
        if is_kept is False:
            self.count("dropped")
        if not is_kept:
            self.give_up(pending)

    def _keep(self, pending: Pending, returned: Any, is_compiled: bool) -> bool:
        """Copy what a call left and queue its check; whether there was room."""
        call, memory = pending.call, runtime.memory
        assert call is not None
        handed, results, outline = self.results_of(call, returned)
        originals = dict(zip(call.tensors, pending.before.originals, strict=True))
        originals = {n: x for n, x in originals.items() if n not in call.free}
        pending.compared = compared(originals, call.tensors, memory)
        if pending.compared is None:
            return False
        pending.after = memory.take(results)
        if pending.after is None:
            return False
        seen = Seen(
            dict(zip(call.tensors, pending.before.copies, strict=True)), call.scalars,
            outline.filled(pending.after.copies), {}, handed, call.rest, is_compiled,
            call.tf32,
        )  # fmt: skip
        pending.call = None  # nothing of the caller's is held any more
        for snapshot in pending.snapshots:
            snapshot.originals.clear()
        return runtime.offer(functools.partial(self._check, pending, seen))

    def results_of(
        self, call: Call, returned: Any
    ) -> tuple[str, list[Tensor], Returned]:
        """Return what is wrong with a returned object itself, and what is judged."""
        if not call.written:
            if self.options.results is not None:
                returned = self.options.results(returned)
            return "", *parts_of(self.subject.results(returned))
        handed, places = "", list(call.written.values())
        if not handed_back(returned, places):
            handed = (
                f"returns {type(returned).__name__} other than the memory that it "
                f"was to write {', '.join(call.written)} to"
            )
        return handed, *parts_of(places[0] if len(places) == 1 else tuple(places))

    def give_up(self, pending: Pending) -> None:
        """Give the room of a call back that is not checked; never waits."""
        for snapshot in pending.snapshots:
            runtime.memory.give_up(snapshot)

    def _check(self, pending: Pending, seen: Seen) -> None:
        assert pending.compared is not None
        try:
            for snapshot in pending.snapshots:
                snapshot.wait()
            seen = replace(seen, changed=pending.compared.changes())
            self.check(seen, pending.number, pending.why, pending.when)
        finally:
            for snapshot in pending.snapshots:
                snapshot.end()

    def check(self, seen: Seen, number: int, why: Reason, when: str) -> None:
        """Judge a call; runs in the worker."""
        with self.guarding("a call could not be checked"):
            judged = self.subject.judge(seen)
            self.count("checked")
            if judged.report.failure is not None:
                self.count("violations")
                self._report(seen, judged, call=number, why=why, when=when)
            elif Verdict.UNDER_SPECIFIED in judged.report.verdicts.values():
                self.count("undecided")

    def _report(self, seen: Seen, judged: Judged, **known: Any) -> None:
        """Store and log a violation, and pass it on."""
        failure, options = judged.report.failure, self.options
        assert failure is not None
        finding = path = ""
        if options.store is not None:
            with self.guarding("a finding was not stored"):
                finding, path = options.store.save(self.subject, judged, seen)
        violation = violation_of(
            failure, seen,
            keep=options.keep, function=self.name,
            operator=self.subject.operator_name, scalars=judged.case.scalars,
            finding=finding, path=path, **known,
        )  # fmt: skip
        log.error(
            "%s breaks %s: %s", self.name, violation.contract, violation.message,
            extra=violation.fields(),
        )  # fmt: skip
        if options.on_violation is not None:
            with self.guarding("on_violation raised"):
                options.on_violation(violation)


# What stands in the place of a monitored function: the gate, then the function.


def guarded(function: Callable[..., Any], monitor: Monitor) -> Callable[..., Any]:
    """Return a function with the monitor's gate before it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return traced(monitor, function, wrapper, args, kwargs)
        if not monitor.active:
            return function(*args, **kwargs)
        number, why = monitor.look(args, kwargs)
        if why is None and monitor.options.detectors:
            why = monitor.outlying((*args, *kwargs.values()))
        if why is None:
            return function(*args, **kwargs)
        return monitor.sampled(
            functools.partial(function, *args, **kwargs), number, why
        )

    wrapper.monitor = monitor  # type: ignore[attr-defined]
    return wrapper


class MonitoredKernel(BoundKernel):
    """A bound kernel whose calls are monitored; searches call what it binds.

    Attributes:
        monitor: looks at its calls.
    """

    def __init__(self, bound: BoundKernel, wrapper: Callable[..., Any]) -> None:
        vars(self).update(vars(bound))
        self._call = wrapper
        self.monitor: Monitor = wrapper.monitor  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the implementation, and look at the call."""
        return self._call(*args, **kwargs)


# `kfuzz.monitor(...)`: from a function to the same function, monitored.


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
        made = Monitor(subject.name, subject, options)
        made.active = runtime.running and importing() is None
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
