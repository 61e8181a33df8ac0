"""The shadow: a mode that carries an error bound beside every tensor of an oracle."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product, repeat
from typing import Any, Final

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten
from torch.utils.weak import WeakTensorKeyDictionary

from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Scalar
from kfuzz.numerics.acceptance import Acceptance, Problem, around
from kfuzz.numerics.accumulation import plainly_finite
from kfuzz.numerics.formats import FORMATS, WHOLE, Format, KeepFloat64, results_of
from kfuzz.numerics.models.functions import DIVISION_ERROR
from kfuzz.numerics.shadow import (  # noqa: F401  (they register their rules)
    composites,
    functions,
    moves,
    sums,
)
from kfuzz.numerics.shadow.functions import POW_ERROR
from kfuzz.numerics.shadow.shade import (
    COMPOSITES,
    RULES,
    Call,
    NoRule,
    Outcome,
    Shade,
    Steps,
    Widened,
    sound,
)

# What depends on no element: as exact as its arguments, which are constants.
FRESH: Final = frozenset(
    f"aten.{name}"
    for name in (
        "zeros", "ones", "full", "empty", "eye", "scalar_tensor", "zeros_like",
        "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full",
        "new_empty", "empty_strided", "new_empty_strided", "tril_indices",
        "triu_indices", "zero", "empty_permuted",
    )
)  # fmt: skip
# Sequences computed step by step; their error is that of a product and a sum.
RANGES: Final = frozenset({"aten.arange", "aten.linspace"})
# What turns elements into Python numbers or shapes, where no bound follows them.
ESCAPES: Final = frozenset({"aten._local_scalar_dense", "aten.nonzero", "aten.equal"})
# An operator on lists is one on tensors, item by item.
FOREACH: Final = "aten._foreach_"
# Shapes follow the truth values of a mask.
MASKED: Final = frozenset({"aten.masked_select"})


class Shadow(KeepFloat64):  # type: ignore[no-untyped-call]
    """Runs an oracle in float64 and bounds, step by step, what a kernel may differ.

    Attributes:
        steps: the arithmetic that a kernel declares.
        unknown: operators without an error rule, in the order in which they came;
            what they give has an infinite error.
        escaped: whether a number in error became a shape or a branch: then no
            result is decided.
    """

    def __init__(self, steps: Steps) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps = steps
        self.unknown: dict[str, None] = {}
        self.escaped = False
        self._shades: Any = WeakTensorKeyDictionary()
        self._arguments: Any = WeakTensorKeyDictionary()
        self._doubts: Any = WeakTensorKeyDictionary()
        self._device = torch.device("cpu")

    def take(self, x: Tensor) -> None:
        """Let a tensor be one of the kernel's own arguments."""
        self._arguments[x] = True
        self._device = x.device

    def known(self, number: float, error: float) -> Tensor:
        """Return a number as a tensor without dimensions, in error so much."""
        with _disable_current_modes():
            made = torch.tensor(number, dtype=torch.float64, device=self._device)
            bound = torch.full_like(made, error)
            self._kept(made, Shade(bound, torch.zeros_like(bound)))
        return made

    def shade(self, x: Tensor) -> Shade:
        """Return what is known of a tensor.

        One that no operator made is a constant or an argument: it is in error by
        what its rounding to the kernel's formats takes.
        """
        found = self._shades.get(x)
        if found is None:
            if x.is_floating_point():
                error = self.steps.given(x.to(torch.float64))
            else:
                error = torch.zeros_like(x, dtype=torch.float64)
            own = x in self._arguments
            found = self._kept(x, Shade(error, torch.zeros_like(error), given=own))
        assert isinstance(found, Shade)
        return found

    def _kept(self, x: Tensor, shade: Shade) -> Shade:
        """Keep a shade of memory of its own, laid out as the tensor is."""
        error, reach = shade.error, shade.reach
        if not shade.fresh or error.shape != x.shape or error.stride() != x.stride():
            error = torch.empty_like(x, dtype=torch.float64).copy_(error)
        limited = torch.empty_like(x, dtype=torch.float64).copy_(shade.limited)
        if reach is not None:
            reach = torch.empty_like(x, dtype=torch.float64).copy_(reach)
        made = replace(shade, error=error, limited=limited, reach=reach, fresh=False)
        self._shades[x] = made
        return made

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator in float64 and keep the shades of its results."""
        kwargs = dict(kwargs or {})
        name = str(func.overloadpacket)  # type: ignore[attr-defined]
        if name.startswith(FOREACH) and (each := _each(name, args, kwargs)):
            with self:
                made = [call() for call in each]
            return made if func._schema.returns else None  # type: ignore[attr-defined]
        mutated = _mutated(func)
        if mutated:
            return self._written(func, types, args, kwargs, mutated)

        def run() -> Any:
            return super(Shadow, self).__torch_dispatch__(func, types, args, kwargs)

        leaves = tree_flatten((args, kwargs))[0]
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        if name in FRESH:
            return run()
        if name in ESCAPES:
            doubts = [self._in_doubt(x) for x in tensors]
            if any(doubts):
                self.escaped = True
                self.unknown.setdefault(name)
            return run()
        if name in COMPOSITES:
            return self._composed(func, name, run, args, kwargs)
        call = Call(
            self.steps, name, _named(func, args, kwargs), run, self.shade,
            again=lambda named: func(*_ordered(func, named)[0],
                                     **_ordered(func, named)[1]),
            narrow=_narrow(kwargs.get("dtype")),
        )  # fmt: skip
        if self._is_integral(call, tensors):
            return run()
        try:
            if name in RANGES:
                return self._ranged(call)
            if name not in RULES:
                raise NoRule(name)
            if name in MASKED and self._in_doubt(call.named["mask"]):
                self.escaped = True
            if name == "aten.index" and any(
                x is not None and x.dtype is torch.bool and self._in_doubt(x)
                for x in call.named["indices"]
            ):
                self.escaped = True
            return self._recorded(RULES[name](call), views=_is_view(func))
        except NoRule as lacking:
            if name not in RULES:  # torch itself may define it by others
                with self:
                    made = func.decompose(*args, **kwargs)  # type: ignore[attr-defined]
                if made is not NotImplemented:
                    return made
            return self._lost(str(lacking), call.run())

    def _in_doubt(self, x: Tensor) -> bool:
        shade = self.shade(x)
        # Views count the same writes: a mask that a loop reads is looked at once.
        version = (shade.error._version, shade.limited._version)
        seen, then, doubt = self._doubts.get(x) or (None, None, False)
        if seen is not shade or then != version:
            doubt = bool(((shade.error > 0) | (shade.limited > 0)).any())
            self._doubts[x] = shade, version, doubt
        return bool(doubt)

    def _is_integral(self, call: Call, tensors: list[Tensor]) -> bool:
        """Whether only integers and truth values free of doubt are concerned."""
        if any(x.is_floating_point() or x.is_complex() for x in tensors):
            return False
        if not tensors:
            return False
        out = tree_flatten(call.out)[0]
        real = any(isinstance(x, Tensor) and x.is_floating_point() for x in out)
        return not real and not any(self._in_doubt(x) for x in tensors)

    def _composed(
        self,
        func: Any,
        name: str,
        run: Callable[[], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        chain: Any = COMPOSITES[name] or decomposition_table.get(func)
        try:
            with self:
                made = chain(*args, **kwargs)
        except Exception:  # what the operator itself raises, it raises there
            return self._lost(name, run())
        several = isinstance(made, tuple)
        results = [self._widened(x) for x in (made if several else (made,))]
        own = run()
        for x, y in zip(results, own if several else (own,), strict=True):
            self._leave_open(x, y)
        return tuple(results) if several else results[0]

    def _leave_open(self, x: Any, own: Any) -> None:
        """Leave open where torch's own operator gives another than a composite.

        NaN and infinities follow from how either is written, and so do places of NaN.
        """
        if not (isinstance(x, Tensor) and isinstance(own, Tensor)):
            return
        if x.shape != own.shape:  # statistics that a backend leaves out
            return
        shade = self.shade(x)
        if x.is_floating_point():
            if plainly_finite(x) and plainly_finite(own):
                return
            numbers = torch.isfinite(x) & torch.isfinite(own)
            same = numbers | (x == own) | (torch.isnan(x) & torch.isnan(own))
            # A device is not waited for.
            if x.device.type != "cpu" or not bool(same.all()):
                limited = torch.where(same, shade.limited, 1.0)
                self._kept(x, replace(shade, limited=limited))
        elif not torch.equal(x, own):
            error = torch.where(x == own, shade.error, float("inf"))
            self._kept(x, replace(shade, error=error))

    def _widened(self, x: Any) -> Any:
        """Add what other forms than a composite's may differ by to a shade."""
        if not isinstance(x, Widened):
            return x
        if not self.steps.own:
            shade = self.shade(x.value)
            more = self.steps.coarsest * x.units
            more = more + self.steps.lost(self.steps.held) * x.lost
            error = shade.error + torch.where(torch.isfinite(x.value), more, 0.0)
            # NaN is none of it: a kernel's NaN has come from one before.
            beyond = (x.reach > self.steps.limit).to(torch.float64)
            limited = torch.maximum(shade.limited, beyond)
            self._kept(x.value, replace(shade, error=sound(error), limited=limited))
        return x.value

    def _lost(self, name: str, out: Any) -> Any:
        """Keep the name of an operator of whose results nothing is known."""
        self.unknown.setdefault(name)
        for x in tree_flatten(out)[0]:
            if isinstance(x, Tensor):
                error = torch.full_like(x, float("inf"), dtype=torch.float64)
                self._kept(x, Shade(error, torch.zeros_like(error)))
        return out

    def _ranged(self, call: Call) -> Any:
        """Return start + i step: the roundings of both and of the two operations."""
        out = call.out
        if not out.is_floating_point():
            return out
        ends = [call.get(k) for k in ("start", "end")]
        size = max(abs(float(e)) for e in ends if e is not None)
        whole = all(float(e).is_integer() for e in (*ends, call.get("step", 1))
                    if e is not None)  # fmt: skip
        if whole and call.name == "aten.arange":
            return out
        error = 3 * self.steps.unit * (out.abs() + size)
        error = self.steps.kept(out, error)
        self._kept(out, Shade(error, torch.zeros_like(error)))
        return out

    def _recorded(self, outcome: Outcome, *, views: bool) -> Any:
        out, shades = outcome
        results = out if isinstance(out, tuple | list) else (out,)
        for x, shade in zip(results, shades, strict=False):
            if shade is None or not isinstance(x, Tensor):
                continue
            if views:
                self._shades[x] = shade
            else:
                self._kept(x, shade)
        return out

    def _written(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        mutated: tuple[str, ...],
    ) -> Any:
        """Run an operator that writes to its arguments as one that does not."""
        name = str(func.overloadpacket)
        named = _named(func, args, kwargs)
        targets = [named[m] for m in mutated]
        plain = functional(func)
        if plain is not None and torch.Tag.inplace_view in func.tags:
            # Another shape for the same elements.
            moved = self.__torch_dispatch__(plain, types, args, kwargs)
            shade = self.shade(moved)
            out = func(*args, **kwargs)
            self._shades[targets[0]] = shade
            return out
        if plain is None:
            out = super().__torch_dispatch__(func, types, args, kwargs)
            self._lost(name, targets)
            return out
        if self._placed(func, name, named, mutated):
            return targets[0]
        rest = {k: v for k, v in named.items() if k not in mutated or k == "self"}
        positional, keywords = _ordered(plain, rest)
        made = self.__torch_dispatch__(plain, types, positional, keywords)
        results = made if isinstance(made, tuple | list) else (made,)
        for target, result in zip(targets, results, strict=True):
            shade = self.shade(result)
            if target.shape != result.shape:
                target.resize_(result.shape)
                self._kept(target, shade)
            target.copy_(result)
            held = self.shade(target)
            # Through the memory that views of it share.
            held.error.copy_(shade.error)
            held.limited.copy_(shade.limited)
            self._shades[target] = replace(
                shade, error=held.error, limited=held.limited, given=False
            )
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _placed(
        self, func: Any, name: str, named: dict[str, Any], mutated: tuple[str, ...]
    ) -> bool:
        """Write elements and their shades to where indices say; whether that was done.

        The rest is not copied, so that a loop costs no more than what it writes.
        """
        data = moves.INDEXED.get(name.removeprefix("aten.").removesuffix("_"))
        combined = named.get("accumulate") or named.get("reduce") is not None
        if mutated != ("self",) or data is None or "self" not in data or combined:
            return False
        others = [v for k, v in named.items() if k not in data]
        leaves = [x for x in tree_flatten(others)[0] if isinstance(x, Tensor)]
        if not leaves or any(map(self._in_doubt, leaves)):
            return False
        call = Call(self.steps, name, named, lambda: None, self.shade, lambda _: None)
        parts = {k: named[k] for k in data if k != "self" and k in named}
        put = {k: call.operand_of(v).shade for k, v in parts.items()}
        held, rest = self.shade(named["self"]), dict(named)
        func(**rest)
        for part in ("error", "limited"):
            moved = {
                k: getattr(s, part).to(torch.float64)
                if isinstance(parts[k], Tensor)
                else getattr(s, part).item()
                for k, s in put.items()
            }
            func(**{**rest, "self": getattr(held, part), **moved})
        every = (held, *put.values())
        self._shades[named["self"]] = replace(
            held,
            nonnegative=all(s.nonnegative for s in every),
            given=False,
            reach=None,
            terms=max(s.terms for s in every),
            filled=any(s.filled for s in every),
        )
        return True


# What functions take by name in the place of a tensor.
_OPERANDS: Final = frozenset({"other", "min", "max", "weight", "exponent"})


class Rounded(float):
    """A Python scalar that float32 does not hold, and what is computed of such alone.

    A kernel may get it in float32, and take the steps in float32 too: each is bounded
    as a step of the oracle is. To a tensor it is one of no dimensions.
    """

    shadow: "Shadow"
    error: float

    @classmethod
    def of(cls, value: float, error: float, shadow: Shadow) -> "Rounded":
        """Return a scalar with the bound on its error."""
        made = cls(value)
        made.shadow, made.error = shadow, error
        return made

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function with tensors in the place of such scalars."""

        def held(x: Any) -> Any:
            return x.shadow.known(float(x), x.error) if isinstance(x, cls) else x

        named = {k: held(v) if k in _OPERANDS else v for k, v in (kwargs or {}).items()}
        try:
            return func(*map(held, args), **named)
        except TypeError:  # it takes numbers alone there
            plain = [float(x) if isinstance(x, cls) else x for x in args]
            return func(*plain, **(kwargs or {}))

    def _step(self, f: Callable[..., Any], halves: float, *operands: Any) -> Any:
        """Return f of scalars, this one among them, in error as at their ends."""
        if not all(isinstance(x, float | int) for x in operands):
            return NotImplemented  # a tensor takes it from here
        pairs = [(float(x), getattr(x, "error", 0.0)) for x in operands]
        made = f(*(x for x, _ in pairs))
        try:
            ends = [
                f(*(x + s * e for (x, e), s in zip(pairs, signs, strict=True)))
                for signs in product((-1, 1), repeat=len(pairs))
            ]
            moved = max(abs(end - made) for end in ends)
        except (ArithmeticError, TypeError):
            moved = math.inf
        rounding = halves * self.shadow.steps.unit * (abs(made) + moved)
        return self.of(made, moved + rounding, self.shadow)


def _binary(name: str, halves: float) -> None:
    """Give scalars an operator of Python, and its reflected one."""
    f = getattr(operator, name)

    def plain(self: Rounded, other: float) -> Any:
        return self._step(f, halves, self, other)

    def reflected(self: Rounded, other: float) -> Any:
        return self._step(f, halves, other, self)

    setattr(Rounded, f"__{name}__", plain)
    setattr(Rounded, f"__r{name}__", reflected)


for _name, _halves in (
    ("add", 1.0), ("sub", 1.0), ("mul", 1.0), ("truediv", DIVISION_ERROR),
    ("pow", POW_ERROR),
):  # fmt: skip
    _binary(_name, _halves)


def _narrow(dtype: Any) -> Format | None:
    """Return the format of a dtype that float64 stands for, None for others."""
    if not isinstance(dtype, torch.dtype):
        return None
    return FORMATS.get(str(dtype).removeprefix("torch."))


@cache
def _mutated(func: Any) -> tuple[str, ...]:
    """Return the names of the arguments that an operator writes to."""
    arguments = func._schema.arguments
    return tuple(
        a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write
    )


@cache
def _is_view(func: Any) -> bool:
    """Whether the results share the memory of an argument."""
    return any(r.alias_info is not None for r in func._schema.returns)


@cache
def functional(func: Any) -> Any:
    """Return the operator that gives what another one writes; None if there is none.

    `add_` and `add.out` are `add`.
    """
    schema = func._schema
    out = [a.name for a in schema.arguments if a.is_out]
    wanted = [(a.name, str(a.type)) for a in schema.arguments if a.name not in out]
    base = func.overloadpacket.__name__
    name = base if out else base.rstrip("_")
    if base.startswith("__i"):  # `__ilshift__` is `__lshift__`
        name = "__" + base.removeprefix("__i")
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    for overload in packet.overloads():
        other = getattr(packet, overload)
        given = [(a.name, str(a.type)) for a in other._schema.arguments]
        if given == wanted and not _mutated(other):
            return other
    return None


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, defaults included."""
    named: dict[str, Any] = {}
    for i, argument in enumerate(func._schema.arguments):
        if i < len(args):
            named[argument.name] = args[i]
        elif argument.name in kwargs:
            named[argument.name] = kwargs[argument.name]
        elif argument.has_default_value():
            named[argument.name] = argument.default_value
    return named


def _ordered(
    func: Any, named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return named arguments as a call takes them, data types left out."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument in func._schema.arguments:
        if argument.name not in named:
            continue
        if argument.kwarg_only:
            keywords[argument.name] = named[argument.name]
        else:
            positional.append(named[argument.name])
    return tuple(positional), keywords


def _each(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Callable[[], Any]]:
    """Return the calls on tensors that an operator on lists consists of.

    None of them if torch has no such operator on tensors.
    """
    one = getattr(torch.ops.aten, name.removeprefix(FOREACH), None)
    if one is None or not any(isinstance(a, list | tuple) for a in args):
        return []
    taken = getattr(one, one.overloads()[0])._schema.arguments
    positional = sum(not a.kwarg_only for a in taken)
    keywords = [a.name for a in taken if a.kwarg_only]
    columns = [a if isinstance(a, list | tuple) else repeat(a) for a in args]
    return [
        partial(
            one,
            *row[:positional],
            **dict(zip(keywords, row[positional:], strict=False)),
            **kwargs,
        )
        for row in zip(*columns, strict=False)
    ]


# From an oracle and a problem to what is admitted, by the shadow.

SAFETY: Final = 4.0
"""How many times the bound a result must miss by to violate.

The bound holds for kernels that take the reference's steps; other forms of the same
function round elsewhere.
"""

OF_FORMS: Final = 1.25
"""The same where the forms of a function are declared: room for how one is compiled."""


@dataclass(frozen=True)
class _Shaded:
    """One result of an oracle with its bound, all of the result's shape."""

    value: Tensor
    error: Tensor
    limited: Tensor


@dataclass(frozen=True)
class _Pass:
    """What one run of an oracle under the shadow gave."""

    results: tuple[_Shaded, ...]
    unknown: tuple[str, ...]


def shadowed(
    oracle: Callable[..., Any],
    problem: Problem,
    *,
    name: str,
    tf32: frozenset[str] = frozenset(),
    kinks: bool = False,
    narrowed: Callable[..., Any] | None = None,
    proven: bool = False,
    form: bool = False,
) -> tuple[Acceptance, ...]:
    """Return the acceptance of each of an oracle's results.

    Args:
        oracle: plain torch, of the tensors (positional) and scalars (by keyword).
        problem: inputs and declaration.
        name: the operator's name, for error messages.
        tf32: kinds of products that may take TF32 operands; see `Steps`.
        kinks: whether any value between the one-sided ones is right; see `Steps`.
        narrowed: the same of scalars in float32, as a kernel may get them, where these
            differ and are none of the problem's: its results are right, too.
        proven: whether it is known to give each of many members what it gives of that
            one alone, so that none is run alone besides.
        form: whether it is one of the declared forms of a function, so that the bound
            holds for kernels of this form alone.

    Raises:
        BindingError: if a result is no tensor, or a floating one not float64.
        Exception: whatever the oracle raises outside its domain.
    """
    steps = Steps.declared(problem, tf32=tf32, kinks=kinks, form=form)
    found = _found(oracle, problem, steps, name, proven=proven)
    factor = 1.0 if steps.own else OF_FORMS if form else SAFETY
    if narrowed is not None:
        with suppress(Exception):  # outside its domain
            other = _found(narrowed, problem, steps, name, proven=proven)
            found = _covering(found, other, factor)
    return tuple(_accepted(problem, r, factor, found.unknown) for r in found.results)


def _found(
    oracle: Callable[..., Any],
    problem: Problem,
    steps: Steps,
    name: str,
    *,
    proven: bool,
) -> _Pass:
    members = next(iter(problem.tensors.values())).shape[0]
    found = None
    if members > 1:
        found = _batched(oracle, problem, steps, name, proven=proven)
    if found is None:
        rows = [
            _run(oracle, _member(problem, i), problem.scalars, steps, name)
            for i in range(members)
        ]
        found = _stacked(rows)
    return found


def in_float32(scalar: Any, declared: Declaration) -> Any:
    """Return a scalar as a kernel gets it that computes in float32."""
    if declared.accumulator == "float64" or not isinstance(scalar, float):
        return scalar
    narrow = torch.tensor(scalar, dtype=torch.float32).item()
    return narrow if math.isfinite(narrow) else scalar


def _rounded(scalar: Any, shadow: Shadow) -> Any:
    """Return a scalar as the shadow sees it, and what is computed of it."""
    if not isinstance(scalar, float) or not math.isfinite(scalar):
        return scalar
    error = float(shadow.steps.given(torch.tensor(scalar, dtype=torch.float64)))
    return Rounded.of(scalar, error, shadow) if error else scalar


def _covering(found: _Pass, other: _Pass, factor: float) -> _Pass:
    """Return results whose bounds, taken so many times, cover those of another run."""
    results = []
    for one, also in zip(found.results, other.results, strict=True):
        if one.value.is_floating_point():
            apart = torch.where(
                one.value == also.value, 0.0, (one.value - also.value).abs()
            )
            wider = torch.maximum(one.error, apart / factor + also.error)
            one = replace(one, error=torch.where(wider.isfinite(), wider, one.error))
        results.append(one)
    return replace(found, results=tuple(results))


def _accepted(
    problem: Problem, made: _Shaded, factor: float, unknown: tuple[str, ...]
) -> Acceptance:
    reference = made.value.to(torch.float64)
    undecided, limited = ~torch.isfinite(made.error), made.limited > 0
    width = torch.where(undecided, 0.0, factor * made.error)
    if problem.attribution:
        # What a narrower arithmetic leaves open is not explained by it.
        undecided, limited = torch.zeros_like(undecided), torch.zeros_like(limited)
    output, exact = None, None
    if not made.value.is_floating_point():
        output = WHOLE[str(made.value.dtype).removeprefix("torch.")]
        exact = made.value.to(torch.int64)
    accepted = around(
        problem, reference, width, ambiguous=limited & ~undecided, undecided=undecided,
        output=output,
    )  # fmt: skip
    named = unknown if unknown and bool(undecided.any()) else ()
    return replace(accepted, safety=factor, unknown=named, exact=exact)


def _member(problem: Problem, i: int) -> list[Tensor]:
    return [t[i] for t in problem.tensors.values()]


def _run(
    oracle: Callable[..., Any],
    tensors: Sequence[Tensor],
    scalars: Mapping[str, Scalar],
    steps: Steps,
    name: str,
) -> _Pass:
    """Run an oracle once, on copies: it may write to its arguments."""
    shadow = Shadow(steps)
    tensors = [x.clone() for x in tensors]
    for x in tensors:
        shadow.take(x)
    given = {n: _rounded(v, shadow) for n, v in scalars.items()}
    with torch.no_grad(), shadow:
        returned = oracle(*tensors, **given)
    shades = []
    for x in results_of(returned, name=name):
        shade = shadow.shade(x)
        error = torch.where(torch.isnan(shade.error), float("inf"), shade.error)
        if shadow.escaped:
            error = torch.full_like(error, float("inf"))
        shades.append(_Shaded(x, error, shade.limited))
    return _Pass(tuple(shades), tuple(shadow.unknown))


def _stacked(rows: Sequence[_Pass]) -> _Pass:
    results = tuple(
        _Shaded(
            torch.stack([r.value for r in column]),
            torch.stack([r.error for r in column]),
            torch.stack([r.limited for r in column]),
        )
        for column in zip(*(row.results for row in rows), strict=True)
    )
    unknown = dict.fromkeys(name for row in rows for name in row.unknown)
    return _Pass(results, tuple(unknown))


def _batched(
    oracle: Callable[..., Any],
    problem: Problem,
    steps: Steps,
    name: str,
    *,
    proven: bool,
) -> _Pass | None:
    """Run an oracle once for all members; None where it does not let itself.

    Unless it is proven the first member is run alone besides: what the two disagree
    about, a constant drawn once or an operator that vmap replaces, is no bound for the
    others.
    """

    def every(*tensors: Tensor, **scalars: Any) -> Any:
        return torch.vmap(lambda *row: oracle(*row, **scalars))(*tensors)

    try:
        given = list(problem.tensors.values())
        made = _run(every, given, problem.scalars, steps, name)
        if proven and not made.unknown:
            return made
        alone = _run(oracle, _member(problem, 0), problem.scalars, steps, name)
    except Exception:
        return None
    if made.unknown or len(made.results) != len(alone.results):
        return None
    for all_of, one in zip(made.results, alone.results, strict=True):
        if all_of.value.shape[1:] != one.value.shape:
            return None
        for part in ("value", "error", "limited"):
            first = getattr(all_of, part)[0].to(torch.float64)
            wanted = getattr(one, part).to(torch.float64)
            if not torch.allclose(first, wanted, 1e-9, 0.0, equal_nan=True):
                return None
    return made
