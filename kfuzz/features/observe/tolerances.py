"""Tolerances in tests, beside the bounds that follow from what is compared.

The tests run once with the comparing functions replaced, which note their arguments and
go on. What an operator is given is read from the source: the call that made one of the
two sides, there or where its name was assigned last.
"""

import ast
import functools
import itertools
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
import typer
from torch import Tensor
from torch.testing._comparison import default_tolerances

from kfuzz.cli.streams import ExitCode
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.features.examining import named_in, write_or_raise
from kfuzz.features.observe import faults
from kfuzz.features.observe.watching import Callee, Seen, shape_of
from kfuzz.features.observe.writing import Guess, agrees
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.formats import FORMATS
from kfuzz.report.text import counted, table
from kfuzz.store.files import read_source

_KIND: Final = "compared"
_NAMES: Final = ("assert_close", "allclose", "assert_allclose")
# Of one call in a file the first so many are kept.
_MOST: Final = 3
# What changes no more than the format of an input.
_CONVERSIONS: Final = (
    "to", "float", "double", "half", "bfloat16", "cpu", "cuda", "detach", "clone",
    "contiguous",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One side of a comparison as an operator's result.

    Attributes:
        function: the name of what was called.
        given: what the operator is given, by a name; each as the source has it.
        values: the same, as it was.
    """

    function: str
    given: Mapping[str, str]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Met:
    """A comparison that was made.

    Attributes:
        rtol: relative tolerance.
        atol: absolute tolerance.
        actual: the result.
        expected: what it was compared with.
        sides: as which results of operators either can be read.
    """

    rtol: float
    atol: float
    actual: faults.Shape
    expected: faults.Shape
    sides: tuple[Side, ...]


# In a process of the tests.


def begin() -> None:
    """Note what this process compares from now on, and leave it where it ends."""
    import numpy.testing

    found: dict[str, dict[int, list[Met]]] = {}
    for owner, name in (
        (torch.testing, "assert_close"),
        (torch, "allclose"),
        (numpy.testing, "assert_allclose"),
    ):
        setattr(owner, name, _noting(getattr(owner, name), found))
    faults.at_end(lambda: faults.leave(Path(os.environ[faults.FOLDER]), _KIND, found))


def _noting(compare: Any, found: dict[str, dict[int, list[Met]]]) -> Any:
    @functools.wraps(compare)
    def call(*args: Any, **kwargs: Any) -> Any:
        with suppress(Exception):  # the test is to see none of it
            frame = sys._getframe(1)
            held = found.setdefault(os.path.realpath(frame.f_code.co_filename), {})
            if len(held.get(frame.f_lineno, ())) < _MOST:
                made = _met(compare, frame, args, kwargs)
                held.setdefault(frame.f_lineno, []).append(made)
        return compare(*args, **kwargs)

    return call


def _met(compare: Any, frame: FrameType, args: Any, kwargs: Any) -> Met:
    actual = _argument(args, kwargs, 0, "actual", "input")
    expected = _argument(args, kwargs, 1, "expected", "other", "desired")
    usual = {"allclose": (1e-5, 1e-8), "assert_allclose": (1e-7, 0.0)}
    default = usual.get(compare.__name__) or default_tolerances(actual, expected)
    rtol = _argument(args, kwargs, 2, "rtol", default=default[0])
    atol = _argument(args, kwargs, 3, "atol", default=default[1])
    source = _source(frame.f_code.co_filename)
    call = source.call_at(frame.f_lineno)
    sides: list[Side] = []
    inner = None
    if call is not None and len(call.args) > 1:
        inner = _value(_stripped(call.args[0]), frame)
        made = (source.side(each, call, frame) for each in (call.args[1], call.args[0]))
        sides = [side for side in made if side is not None]
    # Its own format, where the test converts it for the comparison.
    if not isinstance(inner, Tensor) or inner.shape != torch.as_tensor(actual).shape:
        inner = torch.as_tensor(actual)
    return Met(
        float(rtol), float(atol), _shape(inner), _shape(torch.as_tensor(expected)),
        tuple(sides),
    )  # fmt: skip


def _argument(args: Any, kwargs: Any, at: int, *names: str, default: Any = None) -> Any:
    if len(args) > at:
        return args[at]
    found = next((kwargs[n] for n in names if n in kwargs), None)
    return default if found is None else found


def _shape(x: Tensor) -> faults.Shape:
    return shape_of(x, with_values=True)


class _Source:
    """A file of tests, as a program sees it.

    Attributes:
        text: of the file.
        tree: of it.
    """

    def __init__(self, file: str | Path) -> None:
        self.text = read_source(Path(file))
        self.tree = ast.parse(self.text)

    def calls(self) -> list[ast.Call]:
        """Return the comparisons."""
        calls = [n for n in ast.walk(self.tree) if isinstance(n, ast.Call)]
        found = [n for n in calls if _name(n.func) in _NAMES and len(n.args) > 1]
        return sorted(found, key=lambda n: n.lineno)

    def statements(self) -> dict[ast.expr, ast.stmt]:
        """Return the comparisons that are a statement, which loses nothing else."""
        return {
            value: node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr)
            or (isinstance(node, ast.Assert) and node.msg is None)
            for value in [node.test if isinstance(node, ast.Assert) else node.value]
            if "#" not in (ast.get_source_segment(self.text, node) or "")
        }

    def call_at(self, line: int) -> ast.Call | None:
        """Return the comparison that a line is part of."""
        around = (c for c in self.calls() if c.lineno <= line <= (c.end_lineno or 0))
        return next(around, None)

    def side(self, side: ast.expr, call: ast.Call, frame: FrameType) -> Side | None:
        """Return a side of a comparison as an operator's result; None if it is none."""
        assigned = self._assigned(call)
        while True:
            side = _stripped(side)
            if not (isinstance(side, ast.Name) and side.id in assigned):
                break
            side = assigned.pop(side.id)
        if isinstance(side, ast.BinOp) and isinstance(side.op, ast.MatMult):
            function, args, named = "matmul", [side.left, side.right], []
        elif isinstance(side, ast.Call):
            function, args, named = _name(side.func), side.args, side.keywords
            owner = getattr(side.func, "value", None)
            if owner is not None and isinstance(_value(owner, frame), Tensor):
                args = [owner, *args]
        else:
            return None
        each = {str(n): x for n, x in enumerate(args)}
        each |= {k.arg: k.value for k in named if k.arg}
        given, values = {}, {}
        for name, node in each.items():
            node = _stripped(node)
            value = _value(node, frame)
            if isinstance(value, tuple | list | torch.Size):
                continue  # a shape, which tensors have
            if value is _UNKNOWN:
                return None
            given[name] = ast.get_source_segment(self.text, node) or ""
            values[name] = _shape(value) if isinstance(value, Tensor) else value
        return Side(function, given, values)

    def _assigned(self, call: ast.Call) -> dict[str, ast.expr]:
        """Return what names were assigned last before a call in its function."""
        whole: ast.AST = self.tree
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node.lineno < call.lineno:
                whole = node if call.lineno <= (node.end_lineno or 0) else whole
        made = [n for n in ast.walk(whole) if isinstance(n, ast.Assign)]
        made.sort(key=lambda n: n.lineno)
        return {
            n.targets[0].id: n.value
            for n in made
            if n.lineno < call.lineno and isinstance(n.targets[0], ast.Name)
        }


_source: Final = functools.cache(_Source)
"""Of a file of tests, however many comparisons it makes."""


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _stripped(node: ast.expr) -> ast.expr:
    """Return an expression without conversions around it."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CONVERSIONS
    ):
        node = node.func.value
    return node


_UNKNOWN: Final = object()


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return what a name or a constant is in a frame; `_UNKNOWN` for all else."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id, _UNKNOWN))
    if isinstance(node, ast.Tuple | ast.List):
        return ()
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _UNKNOWN


# In the command.


Derived = tuple[Guess, Mapping[str, str], float]
"""An operator that all seen comparisons of a call conform to, what it is given as the
source has it, and how far from its exact value the greatest element may be stored, 0
where that is not known."""


def listed(paths: list[Path], *, write: bool) -> ExitCode:
    """List the tolerances of tests, and replace those that can be.

    Raises:
        UsageError: if there is no such file.
    """
    files = []
    for path in paths:
        if not path.exists():
            raise UsageError("there is no such file or folder", where=str(path))
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    met: dict[str, dict[int, list[Met]]] = {}
    with faults.scratch("tolerances") as folder:
        words = ["-m", "pytest", "-q", *map(str, paths)]
        interpreted = not torch.cuda.is_available()
        code = faults.run_program(words, folder, [__name__], interpreted=interpreted)
        if code:
            typer.echo(f"kfuzz: pytest {faults.ending(code)}", err=True)
        for part in faults.left(folder, _KIND):
            for name, lines in part.items():
                for line, each in lines.items():
                    met.setdefault(name, {}).setdefault(line, []).extend(each)
    rows, replaced = [], 0
    for file in files:
        try:
            source, found = _Source(file), []
        except (DecodeError, SyntaxError, ValueError):
            rows.append((str(file), "", "", "cannot be read"))
            continue
        statements = source.statements()
        lines = met.get(os.path.realpath(file), {})
        for call in source.calls():
            within = range(call.lineno, (call.end_lineno or 0) + 1)
            seen = [m for n in within for m in lines.get(n, ())]
            derived = _derived(seen)
            rows.append((f"{file}:{call.lineno}", *_row(seen, derived)))
            if derived is not None and call in statements:
                found.append((statements[call], call, derived))
        if write and found:
            write_or_raise(file, _rewritten(source, found))
            replaced += len(found)
    if not rows:
        typer.echo("kfuzz: no comparison with a tolerance was found", err=True)
        return ExitCode.NOTHING_TO_RUN
    for text in table([("place", "tolerance", "derived", "remark"), *rows]):
        typer.echo(text)
    able = sum(row[2] != "" for row in rows)
    typer.echo(f"{counted(len(rows), 'comparison')}, {able} with a derived bound")
    if write:
        typer.echo(f"{replaced} replaced by kfuzz.assert_conforms")
    elif able:
        typer.echo("next: the same with --write, which replaces these")
    return ExitCode.OK


def _row(seen: list[Met], derived: Derived | None) -> tuple[str, str, str]:
    """Return the tolerance, the bound and what is to be said of a comparison."""
    if not seen:
        return "", "", "was not run"
    first = seen[0]
    expected, tolerance = _tolerance(first)
    if not expected.numel():
        return "", "", "compares nothing"
    at = int(expected.argmax())
    text = f"{tolerance[at]:.2g} at {expected[at]:.3g}"
    remark = ["no operator recognised"]
    if derived is not None:
        remark = [" with ".join([derived[0].operator, *_claims(derived[0])])]
    share, dtype = max((_below(each), each.actual.dtype) for each in seen)
    if share:
        what = f"below half a spacing of {dtype}"
        remark.append(f"{what} at {share:.0%} of the elements")
    if derived is None:
        return text, "", "; ".join(remark)
    if derived[2]:
        remark.append(f"{tolerance[at] / derived[2]:.2g} x the bound")
    return text, f"{derived[2]:.2g}", "; ".join(remark)


def _tolerance(met: Met) -> tuple[Tensor, Tensor]:
    """Return the finite expected magnitudes, and what is allowed at each."""
    if met.expected.values is None:
        return torch.empty(0), torch.empty(0)
    values = met.expected.values.double().abs().flatten()
    values = values[values.isfinite()]
    return values, met.atol + met.rtol * values


def _below(met: Met) -> float:
    """Return at what share of the elements no rounded result need pass."""
    expected, tolerance = _tolerance(met)
    if DTYPES[met.actual.dtype].kind != "float" or not expected.numel():
        return 0.0
    if not (met.rtol or met.atol):
        return 0.0  # equality is meant
    form = FORMATS[met.actual.dtype]
    scale = torch.floor(torch.log2(expected.clamp(min=form.min_normal)))
    below = tolerance < torch.exp2(scale - form.precision)
    return float((below & (expected > 0)).double().mean())


def _derived(seen: list[Met]) -> Derived | None:
    """Return the operator to which all comparisons of one call conform."""
    if not seen or any(m.actual.values is None for m in seen):
        return None
    for side in seen[0].sides:
        source = side.function, side.given
        # Both sides of a comparison may be the same expression.
        each = [[s for s in m.sides if (s.function, s.given) == source] for m in seen]
        if not all(each):
            continue
        sides = [first for first, *_ in each]
        for operator in named_in(side.function):
            names = _named(operator, side)
            calls = [
                Seen({names[n]: v for n, v in s.values.items()}, (m.actual,))
                for s, m in zip(sides, seen, strict=True)
            ]
            callee = Callee("", "", calls=calls)
            for declared in (False, True):
                guess = agrees(operator, callee, declared=declared)
                if guess is not None:
                    given = {names[n]: text for n, text in side.given.items()}
                    return guess, given, _width(operator, guess, calls[0])
    return None


def _named(operator: Operator, side: Side) -> dict[str, str]:
    """Return names for what a function was given: scalars in the operator's order."""
    scalars = iter(n for n in operator.scalars if n not in side.values)
    return {
        n: n if not n.isdigit() else f"x{n}" if isinstance(v, faults.Shape)
        else next(scalars, f"x{n}")
        for n, v in side.values.items()
    }  # fmt: skip


def _width(operator: Operator, guess: Guess, call: Seen) -> float:
    """Return how far off the greatest element may be stored, 0 where unknown."""
    given = {p: call.given[n] for p, n in guess.given.items()}
    shapes = {p: v for p, v in given.items() if isinstance(v, faults.Shape)}
    scalars = {n: given.get(n, operator.default_of(n)) for n in operator.scalars}
    main = next(v.dtype for v in shapes.values() if DTYPES[v.dtype].kind == "float")
    name = operator.dim
    if name is not None and scalars[name] >= 0:
        scalars[name] -= len(next(iter(shapes.values())).sizes)
    tensors = {
        p: (v.values.double() if DTYPES[v.dtype].kind == "float" else v.values)[None]
        for p, v in shapes.items()
    }
    declaration = operator.defaults.declare("kfuzz init", **guess.claims)
    result = (call.results or ())[0].dtype
    problem = Problem(tensors, scalars, FORMATS[main], FORMATS[result], declaration)
    try:
        accepted = next(iter(accept(operator, problem).values()))
        low, high = accepted.stored
    except Exception:  # of another form than the operator's own
        return 0.0
    exact = accepted.reference
    width = torch.maximum(high - exact, exact - low).flatten()
    return float(width[exact.abs().nan_to_num().argmax()])


def _rewritten(source: _Source, found: list[tuple[ast.stmt, ast.Call, Derived]]) -> str:
    """Return a file whose comparisons are assertions of conformity."""
    text = source.text.encode()
    starts = _starts(text)
    for node, call, derived in reversed(found):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        actual = ast.get_source_segment(source.text, _stripped(call.args[0]))
        made = f"kfuzz.assert_conforms({actual}, {_inputs(derived)})"
        text = text[:first] + made.encode() + text[last:]
    # What was replaced may have other lengths: the head is looked for in the new text.
    body, after = ast.parse(text).body, 0
    imports = [n for n in body if isinstance(n, ast.Import)]
    if any(a.name == "kfuzz" and not a.asname for n in imports for a in n.names):
        return text.decode()
    for number, node in enumerate(body):
        is_docstring = not number and isinstance(node, ast.Expr)
        if not is_docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        after = node.end_lineno or 0
    lines = [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
    at = _starts(text)[after or min(lines) - 1]
    end = b"\r\n" if b"\r\n" in text else b"\n"
    return (text[:at] + b"import kfuzz" + end + text[at:]).decode()


def _starts(text: bytes) -> list[int]:
    """Return where each line begins."""
    lines = text.splitlines(keepends=True)
    return list(itertools.accumulate(map(len, lines), initial=0))


def _inputs(derived: Derived) -> str:
    guess, given, _ = derived
    operator = OPERATORS[guess.operator]
    words = [f'"{guess.operator}"']
    named = False
    for name in operator.inputs:
        if name not in guess.given:
            named = True
            continue
        plain = not named and name in operator.tensors
        text = given[guess.given[name]]
        words.append(text if plain else f"{name}={text}")
    return ", ".join([*words, *_claims(guess)])


def _claims(guess: Guess) -> list[str]:
    return [f'{name}="{value}"' for name, value in guess.claims.items()]
