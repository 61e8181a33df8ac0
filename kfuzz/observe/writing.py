"""A file of bindings for what an observed program launched."""

import keyword
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.dtypes import DTYPES
from kfuzz.observe.guessing import Guess
from kfuzz.observe.seen import Callee, Seen, Shape, Unknown

MOST_SIZES: Final = 24
_SHOWN: Final = 3


def bindings(found: Iterable[tuple[Callee, Guess | None]], *, command: str) -> str:
    """Return the file.

    Args:
        found: functions with the operator that each seems to compute.
        command: how it was made.
    """
    named, rest, modules = [], [], set()
    taken: set[str] = set()
    for callee, guess in found:
        name = _free(_plain(callee), taken)
        if is_bound(callee, guess):
            assert guess is not None
            named += ["", "", *_binding(callee, guess, name)]
            modules.add("torch" if callee.is_operator else callee.module)
        else:
            rest += ["", *_stub(callee, guess, name)]
    head = [
        '"""Kernels that a program launched, bound to the operators they agree with.',
        "",
        f"Written by `{command}`. An operator was chosen because the seen results lie",
        "within its bound: check each, and declare what the kernel claims.",
        '"""',
        "",
        *(f"import {m}" for m in sorted(modules | {"torch"})),
        "",
        "import kfuzz",
        "from kfuzz.contracts import operators as ops",
    ]
    return "\n".join([*head, *named, *(["", *rest] if rest else [])]) + "\n"


def _binding(callee: Callee, guess: Guess, name: str) -> Iterator[str]:
    call = next(c for c in callee.calls if c.results is not None)
    operator = OPERATORS[guess.operator]
    tensors = [p for p in operator.tensors if p in guess.given]
    scalars = [p for p in operator.scalars if p in guess.given]
    yield from _comments(callee)
    if guess.others:
        yield f"# Agrees as well with {', '.join(guess.others)}."
    if guess.calls < _ENOUGH:
        yield "# One call alone could be compared."
    sizes = sorted(seen_sizes(callee))[:MOST_SIZES]
    dtypes = tuple(sorted(seen_dtypes(callee, guess)))
    claims = {**guess.claims, "dtypes": dtypes, "sizes": tuple(sizes)}
    told = ", ".join(f"{key}={value!r}" for key, value in claims.items())
    yield "# Seen data types and sizes; without dtypes= the others are searched too."
    yield f"@kfuzz.kernel(ops.{guess.operator}, {told})"
    yield f"def {name}({', '.join([*tensors, *scalars])}):"
    back = {argument: parameter for parameter, argument in guess.given.items()}
    words = [
        back[argument] if argument in back else _constant(value)
        for argument, value in call.given.items()
    ]
    result = f"[{guess.result}]" if len(call.results or ()) > 1 else ""
    yield f"    return {_target(callee)}({', '.join(words)}){result}"


_ENOUGH: Final = 2


def is_bound(callee: Callee, guess: Guess | None) -> bool:
    """Whether a function can be bound: its operator is known, it can be imported."""
    return guess is not None and callee.module != "__main__"


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
    yield f"# {_target(callee)}: {callee.count} calls"
    for kernel, (count, options) in callee.launches.items():
        told = ", ".join(f"{k}={v}" for k, v in options.items())
        yield f"#     launches {kernel} {count} times{f' ({told})' if told else ''}"
    shown: dict[str, None] = {}
    for call in callee.calls:
        given = ", ".join(f"{n}: {_shown(v)}" for n, v in call.given.items())
        shown.setdefault(given)
    for given in list(shown)[:_SHOWN]:
        yield f"#     on {given}"[:160]


def seen_sizes(callee: Callee) -> set[int]:
    """Return the sizes of dimensions that calls had."""
    return {
        size
        for call in callee.calls
        for value in call.given.values()
        if isinstance(value, Shape)
        for size in value.sizes
        if size > 1
    }


def seen_dtypes(callee: Callee, guess: Guess) -> set[str]:
    """Return the floating data types that calls had."""
    return {
        value.dtype
        for call in callee.calls
        for name, value in call.given.items()
        if isinstance(value, Shape)
        and name in guess.given.values()
        and DTYPES[value.dtype].kind == "float"
    }


def _shown(value: Any) -> str:
    return value.text if isinstance(value, Unknown) else str(value)


def _constant(value: Any) -> str:
    if isinstance(value, torch.dtype | bool | int | str | type(None)):
        return str(value) if isinstance(value, torch.dtype) else repr(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else (
            f'float("{value}")'
        )  # fmt: skip
    raise ValueError(f"{value!r} is no constant")


def _target(callee: Callee) -> str:
    if callee.is_operator:
        return f"torch.ops.{callee.name.replace('::', '.')}"
    return f"{callee.module}.{callee.name}"


def _plain(callee: Callee) -> str:
    """Return a name for the binding, as Python likes it."""
    name = callee.name.removesuffix(".apply").rpartition("::")[2]
    name = name.removesuffix("Function")
    parts = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\W"
    return re.sub(parts, "_", name).strip("_").lower() or "seen"


def _free(name: str, taken: set[str]) -> str:
    made, number = name, 1
    while made in taken or keyword.iskeyword(made):
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made
