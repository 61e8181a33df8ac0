"""A file of bindings for what an observed program launched."""

import itertools
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.features import needed
from kfuzz.core.finding import relative
from kfuzz.core.verdict import Access
from kfuzz.features.examining import named_in, plain_name
from kfuzz.features.observe.faults import Fault, Kernel, Shape, Unknown
from kfuzz.features.observe.watching import Callee, Seen

# Which operator a function computes: one with whose bound its seen results agree.

# Names that arguments have elsewhere, by the operators' own.
_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "x": ("input", "inputs", "hidden", "hidden_states", "_input", "src", "a"),
    "weight": ("w", "gamma", "scale", "affine_scaling_weight"),
    "bias": ("b", "beta", "affine_shifting_bias"),
    "eps": ("epsilon", "variance_epsilon", "rms_norm_eps"),
    "dim": ("axis",),
    "target": ("targets", "labels", "label", "y_true", "y"),
    "logits": ("input", "_input", "x"),
    "residual": ("r", "res"),
    "num_groups": ("groups",),
}
# Trials of one operator's arguments on one function.
_TRIALS: Final = 12


@dataclass(frozen=True)
class Guess:
    """An operator with which all calls agree that could be compared.

    Attributes:
        operator: its name.
        given: the function's argument for each of the operator's parameters.
        result: which of the results it is; -1 for all.
        claims: what has to be declared for that.
        calls: how many calls agreed.
        others: operators with which they agree as well.
    """

    operator: str
    given: Mapping[str, str]
    result: int
    claims: Mapping[str, str]
    calls: int
    others: tuple[str, ...] = field(default=())


def guess(callee: Callee) -> Guess | None:
    """Return the operator that a function seems to compute, None if none agrees."""
    # What needs no declaration first.
    for declared in (False, True):
        agreeing = (agrees(o, callee, declared=declared) for o in OPERATORS.values())
        if found := [made for made in agreeing if made]:
            return best_of(found)
    return None


def best_of(found: list[Guess]) -> Guess:
    """Return one of the operators with which a function agrees, naming the others."""
    # What has a part of its own for more of the arguments says more.
    found.sort(key=lambda g: (-len(g.given), len(OPERATORS[g.operator].inputs)))
    best, *rest = found
    alike = tuple(g.operator for g in rest if len(g.given) == len(best.given))
    return replace(best, others=alike)


def agrees(operator: Operator, callee: Callee, *, declared: bool) -> Guess | None:
    """Return how an operator agrees with all calls, None if it does not."""
    calls = [c for c in callee.calls if _is_whole(c)]
    for trial in _trials(operator, calls[0], declared=declared) if calls else ():
        if all(_missed(operator, *trial, call) == "" for call in calls):
            return Guess(operator.name, *trial, len(calls))
    return None


Trial = tuple[dict[str, str], int, dict[str, str]]
_ALL: Final = -1
"""Of results: all of them, of an operator that has as many."""


def _trials(operator: Operator, call: Seen, *, declared: bool) -> Iterator[Trial]:
    """Yield how an operator may be meant: its arguments, its result, its claims."""
    claims: list[dict[str, str]] = [{}]
    if declared:
        claims = [{"algorithm": name} for name in operator.algorithms]
        claims.append({"intermediates": "output"})
    for given in itertools.islice(_matches(operator, call), _TRIALS):
        for claim in claims:
            results = call.results or ()
            if len(operator.outputs) == 1:
                yield from ((given, n, claim) for n in range(len(results)))
            elif len(operator.outputs) == len(results):
                yield given, _ALL, claim


_LEAST_AGREEING: Final = 2


def judged(callee: Callee) -> tuple[Guess, list[Fault]] | None:
    """Return the operator that a function computes, and which calls miss its bound.

    It computes that one which its name contains, and with which several calls agree:
    calls of other options and data types are not held to it. None where there is none.
    """
    calls = [c for c in callee.calls if c.whole and _is_whole(c)]
    words = f"_{plain_name(callee.name)}_"
    named = [o for o in named_in(callee.name) if calls and f"_{o.name}_" in words]
    for operator, declared in itertools.product(named, (False, True)):
        for trial in _trials(operator, calls[0], declared=declared):
            missed = [_missed(operator, *trial, call) for call in calls]
            options = [_options(call, trial[0]) for call in calls]
            agree = [o for o, text in zip(options, missed, strict=True) if text == ""]
            if len(agree) < _LEAST_AGREEING:
                continue
            wrong = [
                _wrong(callee, operator.name, call, text)
                for call, text, option in zip(calls, missed, options, strict=True)
                if text and option in agree
            ]
            return Guess(operator.name, *trial, len(agree)), wrong
    return None


def _wrong(callee: Callee, operator: str, call: Seen, missed: str) -> Fault:
    file, line = callee.place
    place = f"{relative(file, Path())}:{line}"
    access = Access("result", operator, "", "value", line=place)
    given = {
        n: v if isinstance(v, Shape) else Unknown(f"{v!r:.60}")
        for n, v in call.given.items()
    }
    text, kernel = missed.partition("\n")[0], Kernel(file, line, callee.name)
    return Fault(kernel, access, given, place, call.test, wrong=text)


def _options(call: Seen, given: Mapping[str, str]) -> object:
    """Return what of a call says how it computes: all but the operator's arguments."""
    used = given.values()
    return [
        (n, v.dtype, len(v.sizes)) if isinstance(v, Shape) else (n, n in used or v)
        for n, v in call.given.items()
    ]


def _is_whole(call: Seen) -> bool:
    """Whether all elements of a call are known, and no argument was left out."""
    if call.results is None or any(isinstance(v, Unknown) for v in call.given.values()):
        return False
    shapes = [v for v in (*call.given.values(), *call.results) if isinstance(v, Shape)]
    return bool(shapes) and all(s.values is not None for s in shapes)


def _matches(operator: Operator, call: Seen) -> Iterator[dict[str, str]]:
    """Yield ways to give a function's arguments to an operator's parameters.

    All tensors are given; numbers where their names say so.
    """
    tensors = [n for n, v in call.given.items() if isinstance(v, Shape)]
    scalars = {}
    for name in operator.scalars:
        own = next((n for n in call.given if is_called(n, name)), None)
        if own is not None and not isinstance(call.given[own], Shape):
            scalars[name] = own
    names = list(operator.tensors)
    if len(tensors) > len(names):
        return
    needed = {n for n in names if not operator.tensors[n].optional}
    chosen = [c for c in itertools.combinations(names, len(tensors)) if needed <= {*c}]
    ordered = []
    for places in chosen:
        for order in itertools.permutations(tensors):
            pairs = dict(zip(places, order, strict=True))
            fit = all(
                operator.tensors[p].variadic
                or len(operator.tensors[p].names) == len(call.given[n].sizes)
                for p, n in pairs.items()
            )
            if fit:
                named = sum(is_called(n, p) for p, n in pairs.items())
                in_order = [*order] == tensors
                ordered.append((-named, not in_order, pairs))
    ordered.sort(key=lambda o: o[:2])
    for _, _, pairs in ordered:
        yield {**pairs, **scalars}


def is_called(name: str, parameter: str) -> bool:
    """Whether an argument of that name is a parameter's, as names go."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    known = (parameter, *_ALSO.get(parameter, ()))
    return plain in {re.sub(r"[^a-z]", "", k) for k in known}


def _missed(
    operator: Operator,
    given: Mapping[str, str],
    number: int,
    claims: Mapping[str, str],
    call: Seen,
) -> str | None:
    """Return how a call's result misses an operator's bound: "" if it does not.

    None where that cannot be told.
    """
    values = {
        p: v.values if isinstance(v := call.given.get(n), Shape) else v
        for p, n in given.items()
    }
    results = call.results or ()
    chosen = results if number == _ALL else results[number : number + 1]
    shapes = [r for r in chosen if isinstance(r, Shape)]
    # Of zeros alone agreement means nothing.
    if not shapes or len(shapes) < len(chosen) or not any(map(_is_telling, shapes)):
        return None
    values_of = tuple(r.values for r in shapes)
    actual = values_of if number == _ALL else values_of[0]
    tensors = [values.get(n) for n in operator.tensors]
    while tensors and tensors[-1] is None:
        tensors.pop()
    scalars = {n: values[n] for n in operator.scalars if n in values}
    conforms = needed("assert_conforms", "kfuzz observe")
    try:
        conforms(actual, operator, *tensors, **scalars, **claims)
    except AssertionError as error:
        return str(error)
    except Exception:  # whatever it is: it says nothing of such a call
        return None
    return ""


def _is_telling(result: Shape) -> bool:
    return bool((result.values != 0).any())


MOST_SIZES: Final = 24
_SHOWN: Final = 3


def bindings(
    found: Sequence[tuple[Callee, Guess | None]], *, command: str, sized: bool = True
) -> str:
    """Return the file.

    Args:
        found: functions with the operator that each seems to compute.
        command: how it was made.
        sized: whether the sizes of the calls are those of a program.
    """
    named, rest, modules = [], [], set()
    for (callee, guess), name in zip(found, names(found), strict=True):
        if guess is not None and callee.module != "__main__":
            made = list(_binding(callee, guess, name, sized=sized))
        else:
            made = list(_unjudged(callee, name))
        if made:
            named += ["", "", *_comments(callee), *made]
            modules.add("torch" if callee.is_operator else callee.module)
        else:
            rest += ["", *_stub(callee, guess, name)]
    head = [
        '"""Kernels, bound to the operators that their results agree with.',
        "",
        f"Written by `{command}`. An operator was chosen because the seen results lie",
        "within its bound: check each, and declare what the kernel claims.",
        '"""',
        "",
        *(f"import {m}" for m in sorted(modules | {"torch"})),
        "",
        "import kfuzz",
        "from kfuzz import strategies as ks",
        "from kfuzz.contracts import operators as ops",
        "from kfuzz.contracts.oracle import unjudged",
    ]
    return "\n".join([*head, *named, *(["", *rest] if rest else [])]) + "\n"


def names(found: Iterable[tuple[Callee, Guess | None]]) -> list[str]:
    """Return the names of the bindings."""
    taken: set[str] = set()
    return [_free(plain_name(callee.name), taken) for callee, _ in found]


def _binding(callee: Callee, guess: Guess, name: str, *, sized: bool) -> Iterator[str]:
    call = next(c for c in callee.calls if c.results is not None)
    operator = OPERATORS[guess.operator]
    tensors = [p for p in operator.tensors if p in guess.given]
    scalars = [p for p in operator.scalars if p in guess.given]
    if guess.others:
        yield f"# Agrees as well with {', '.join(guess.others)}."
    if guess.calls == 1:
        yield "# One call alone could be compared."
    claims = _seen(callee, guess)
    claims["sizes"] = claims["sizes"][:MOST_SIZES]
    if not sized:
        del claims["sizes"]
    shown = ", ".join(f"{key}={value!r}" for key, value in claims.items())
    what = "data types and sizes" if sized else "data types"
    yield f"# Seen {what}; without dtypes= the others are searched too."
    yield f"@kfuzz.kernel(ops.{guess.operator}, {shown})"
    yield f"def {name}({', '.join([*tensors, *scalars])}):"
    back = {argument: parameter for parameter, argument in guess.given.items()}
    words = [
        back[argument] if argument in back else _constant(value)
        for argument, value in call.given.items()
    ]
    several = guess.result != _ALL and len(call.results or ()) > 1
    result = f"[{guess.result}]" if several else ""
    yield f"    return {_target(callee)}({', '.join(words)}){result}"


def _unjudged(callee: Callee, name: str) -> Iterator[str]:
    """Yield a binding by which a fault is searched around, whatever is computed.

    Nothing where there is no fault, or the arguments cannot be written down.
    """
    call = next((c for c in callee.calls if c.faulty), None)
    if call is None or callee.module == "__main__":
        return
    shapes = {n: v for n, v in call.given.items() if isinstance(v, Shape)}
    floats = [n for n, v in shapes.items() if DTYPES[v.dtype].kind == "float"]
    written = (n in floats or v.values is not None for n, v in shapes.items())
    plain = not any(isinstance(v, Unknown) for v in call.given.values())
    results = [v for v in call.results or () if isinstance(v, Shape)]
    if not (floats and plain and all(written) and results == [*(call.results or ())]):
        return
    axes = _Axes([c for c in callee.calls if _form(c) == _form(call)])
    lead, inputs, given, kinds = shapes[floats[0]].dtype, [], [], {}
    for n in floats:
        kind = f", dtype={shapes[n].dtype!r}" if shapes[n].dtype != lead else ""
        dims = axes.named(n, lambda c, n=n: c.given[n])  # type: ignore[misc]
        inputs.append(f"{n!r}: ks.tensors({dims!r}{kind})")
    # Integers may be places in memory: where they stay, so do sizes.
    pinned = len(floats) < len(shapes)
    for n, v in call.given.items():
        column = tuple(c.given[n] for c in axes.calls)
        if n in floats:
            given.append(n)
        elif isinstance(v, Shape):
            given.append(f"torch.tensor({v.values.tolist()}, dtype=torch.{v.dtype})")
        elif type(v) is int and v >= _LEAST_SIZE and column in axes.places:
            given.append(axes.places[column])
        else:
            given.append(_constant(v))
            pinned |= len(set(column)) > 1
    own = dict(axes.dims)
    made = {
        f"y{n}": axes.named("", lambda c, n=n: (c.results or ())[n])  # type: ignore[misc]
        for n in range(len(results))
    }
    for sizes, dim in axes.dims.items():
        if sizes not in own:  # no argument has it
            pinned |= len(set(sizes)) > 1 or len(sizes) == 1
            fixed = str(sizes[axes.calls.index(call)])
            made = {n: re.sub(rf"\b{dim}\b", fixed, text) for n, text in made.items()}
    classes = list(axes.equal)
    if pinned:
        at = axes.calls.index(call)
        classes += [f"{dim} == {sizes[at]}" for sizes, dim in own.items()]
    seen = sorted({n for each in own for n in each if n > 1})[:MOST_SIZES]
    kinds = {f"y{n}": v.dtype for n, v in enumerate(results) if v.dtype != lead}
    yield "# No operator agrees: memory and races are judged, values are not."
    yield "@kfuzz.kernel("
    yield f"    unjudged({{{', '.join(inputs)}}}, {made!r}, results={kinds!r}),"
    yield f"    dtypes={lead!r}, layouts='contiguous', sizes={tuple(seen)},"
    if classes:
        yield f"    shape_class={' and '.join(classes)!r},"
    yield ")"
    yield f"def {name}({', '.join(floats)}):"
    yield f"    return {_target(callee)}({', '.join(given)})"


_LEAST_SIZE: Final = 8
"""Of a number that is a dimension's size in all calls, and no other's by chance."""


class _Axes:
    """Names of dimensions: those of one size in all calls are one.

    Attributes:
        calls: which differ in sizes alone.
        dims: by size in each call, the name.
        places: by size in each call, how a function's own code has it.
        equal: which names are of one size, within a tensor.
    """

    def __init__(self, calls: list[Seen]) -> None:
        self.calls = calls
        self.dims: dict[tuple[int, ...], str] = {}
        self.places: dict[tuple[int, ...], str] = {}
        self.equal: list[str] = []

    def named(self, name: str, of: Callable[[Seen], Any]) -> str:
        """Return the names of a tensor's dimensions."""
        own: list[str] = []
        columns = zip(*(of(c).sizes for c in self.calls), strict=True)
        for axis, sizes in enumerate(columns):
            dim = self.dims.setdefault(sizes, f"N{len(self.dims)}")
            if dim in own and name:
                self.equal.append(f"{dim}_{axis} == {dim}")
                dim = f"{dim}_{axis}"
            self.places.setdefault(sizes, f"{name}.shape[{axis}]")
            own.append(dim)
        return " ".join(own)


def _form(call: Seen) -> object:
    """Return what calls have in common that differ in sizes alone."""
    values = *call.given.items(), *enumerate(call.results or ())
    return [
        (n, v.dtype, len(v.sizes)) if isinstance(v, Shape)
        else (n, type(v) if type(v) is int else v)
        for n, v in values
    ]  # fmt: skip


def _stub(callee: Callee, guess: Guess | None, name: str) -> Iterator[str]:
    yield from _comments(callee)
    if callee.module == "__main__":
        what = "" if guess is None else f", and bind it to ops.{guess.operator}"
        yield f"# TODO: it is the program's own: move it to a module{what}."
    else:
        yield "# TODO: name the operator."
    call = callee.calls[0] if callee.calls else Seen({}, None)
    yield "# @kfuzz.kernel(ops.…)"
    yield f"# def {name}({', '.join(call.given)}):"
    yield f"#     return {_target(callee)}({', '.join(call.given)})"


def _comments(callee: Callee) -> Iterator[str]:
    calls = f": {callee.count} calls" if callee.count else ""
    yield f"# {_target(callee)}{calls}"
    for name, (count, options) in callee.launches.items():
        text = ", ".join(f"{k}={v}" for k, v in options.items())
        yield f"#     launches {name} {count} times{f' ({text})' if text else ''}"
    for fault, count in callee.faults.items():
        yield f"# Fault, {count} times: {fault}"
    shown = (", ".join(f"{n}: {v}" for n, v in c.given.items()) for c in callee.calls)
    for given in list(dict.fromkeys(shown))[:_SHOWN]:
        yield f"#     on {given}"[:160]


def _seen(callee: Callee, guess: Guess) -> dict[str, Any]:
    """Return what is to be declared: a guess, and seen data types and sizes."""
    shapes = [
        (name in guess.given.values(), value)
        for call in callee.calls
        for name, value in call.given.items()
        if isinstance(value, Shape)
    ]
    dtypes = {v.dtype for own, v in shapes if own and DTYPES[v.dtype].kind == "float"}
    sizes = {size for _, value in shapes for size in value.sizes if size > 1}
    seen = {"dtypes": tuple(sorted(dtypes)), "sizes": tuple(sorted(sizes))}
    return {**guess.claims, **seen}


def _constant(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return str(value) if isinstance(value, torch.dtype) else repr(value)


def _target(callee: Callee) -> str:
    if callee.is_operator:
        return f"torch.ops.{callee.name.replace('::', '.')}"
    return f"{callee.module}.{callee.name}"


def _free(name: str, taken: set[str]) -> str:
    made, number = name, 1
    while made in taken or keyword.iskeyword(made):
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made
