"""A finding as one Python file: torch and the kernel's file; kfuzz if that imports it.

`script.py.jinja` beside this file is that file; here it is said what goes into it, and
which check of a failure it ends with.
"""

import ast
import math
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.gradients.operators import BACKWARD
from kfuzz.contracts.language import read_order, read_scaling, read_shift
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES, bits_to_number, unpack_bits
from kfuzz.core.errors import DecodeError, KfuzzError, UsageError
from kfuzz.core.finding import Finding, Target
from kfuzz.core.recipe import Scalar, TensorSpec, is_dtype
from kfuzz.core.verdict import VALUE_KINDS, Failure, Kind, path_of
from kfuzz.engine.confirm import takes_way
from kfuzz.execution.device.backends import named
from kfuzz.store.files import read_source
from kfuzz.targets.load import resolve_one

if TYPE_CHECKING:
    from jinja2 import Template


FAILS_OR_PASSES: Final = "Exit code 1: it still fails; 0: it passes."
UNKNOWN: Final = "Exit code 2: a plain script cannot decide whether it still fails."

# Elements around an argument that a script watches: a tile of 1024 and more.
GUARD: Final = 2048
# Elements that a script may lay out anew to watch them; a view may span terabytes.
MAX_WATCHED: Final = 1 << 24

_UNSEEN: Final = {k: text for c in ATTRIBUTION for k, text in c.unseen.items()}
# What a kernel should have returned in place of one tensor.
_COUNT: Final = re.compile(r"expected (\d+) tensors?$")
_ORDERS: Final = {
    "reversed": "every[::-1]",
    "with its halves swapped": "every[n // 2 :] + every[: n // 2]",
}
_METADATA: Final = {
    Kind.WRONG_SHAPE: "tuple(result.shape)",
    Kind.WRONG_DTYPE: "result.dtype",
    Kind.WRONG_DEVICE: "result.device",
}

# What the template is given for a check, with its name under "check".
_Check = dict[str, Any]


def script(finding: Finding, target: str = "") -> str:
    """Return a file that repeats a finding's minimal case.

    Run it from the project's folder; its one argument is the device. Findings come
    from strangers too: what one holds is a literal in it or part of a comment.

    Args:
        finding: the finding.
        target: the kernel to run in place of the stored one, as on the command line;
            "" for that one.

    Raises:
        UsageError: if the target names no one kernel.
        KfuzzError: if the finding holds no explicit values or no kernel home.
    """
    bound, case = _home(finding, target), finding.case
    text = _bindings(bound)
    found = imported(text, bound.name)
    home = Target("", found[1], found[0]) if found else bound
    out = bool(finding.declaration.out)
    if out and not case.destinations:
        raise KfuzzError(
            "the shapes of its results are not known",
            where=finding.id,
            fix=f"run it by kfuzz replay {finding.id}",
        )
    chosen = _check(finding)
    codes = UNKNOWN if chosen is None else FAILS_OR_PASSES
    settings = finding.declaration.config(case.config or 0)
    backend = named(finding.device)
    values: dict[str, Any] = {
        "id": finding.id,
        "message": finding.failure.message,
        "line": str(finding.line or ""),
        "binds": bool(text) and not found,
        "beside": os.path.dirname(bound.file),
        "codes": codes,
        "environment": backend.environment,
        "device": backend.torch_type,
        "home": home,
        "poison": _poison(finding),
        "asked": _asked(finding),
        "takes": _takes(finding),
        "tensors": tuple(case.tensors),
        "arguments": [_argument(n, spec) for n, spec in case.tensors.items()],
        "scalars": _scalars({**case.scalars, **settings}),
        "out": tuple(case.destinations) if out else (),
        "destinations": [
            f"destination({d.shape!r}, {d.strides!r}, {d.offset},"
            f" torch.{DTYPES[d.dtype].name}),  # {_in_comment(name)}"
            for name, d in case.destinations.items()
        ],
        "places": (),
        "moved": (),
        **(_untold(finding) if chosen is None else chosen),
    }
    return _template().render(values)


def _bindings(home: Target) -> str:
    """Return the text of a kernel's own file if that imports kfuzz, else ""."""
    try:
        text = read_source(Path(home.file)) if home.file else ""
    except (KfuzzError, OSError):  # the script may run elsewhere
        return ""
    return text if re.search(r"(?m)^\s*(import|from)\s+kfuzz\b", text) else ""


def imported(text: str, name: str) -> tuple[str, str] | None:
    """Return module and name of a function that a file binds and does not define.

    Read off the text, as findings come from strangers, for bindings by a call:
    `kfuzz.kernel("softmax", name="mine")(module.function)`. None for other ones.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    paths: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.Import():
                for alias in node.names:
                    path = alias.name if alias.asname else alias.name.split(".")[0]
                    paths[alias.asname or path] = path
            case ast.ImportFrom(module=str(module), level=0):
                own = {a.asname or a.name: f"{module}.{a.name}" for a in node.names}
                paths |= own
    for call in ast.walk(tree):
        match call:
            case ast.Call(ast.Call(ast.Attribute(attr="kernel"), _, words), [called]):
                head, _, rest = ast.unparse(called).partition(".")
                path = ".".join(filter(None, [paths.get(head, ""), rest]))
                module, _, function = path.rpartition(".")
                named = [k.value for k in words if k.arg == "name"]
                names = [v.value for v in named if isinstance(v, ast.Constant)]
                parts = [*path.split("."), name]
                known = head in paths and all(map(str.isidentifier, parts))
                if known and module and name == (names or [function])[0]:
                    return module, function
    return None


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"repr": repr, "docstring": _in_docstring}
    return environment.get_template("script.py.jinja")


def _home(finding: Finding, target: str) -> Target:
    """Return where the kernel lives that the script is to call.

    Raises:
        UsageError: if the target names no one kernel.
        KfuzzError: if the finding holds no explicit values or no kernel home.
    """
    what, fix = "", f"kfuzz replay {finding.id}"
    home = finding.target
    if not finding.case.pinned:
        what = "the finding's values are not explicit"
        fix = f"shrink it first: kfuzz shrink {finding.id}"
    elif home.reference:
        what = "a candidate that nobody vouches for runs in its sandbox only"
    elif target:
        source = resolve_one(target, home.name)
        file = "" if source.file is None else os.path.relpath(source.file)
        return Target(file, source.only[0], source.module)
    elif not home.file and not home.module:
        what = "the finding's kernel has no importable home, or one outside the project"
        fix = "name it: --target path.py::name"
    if what:
        raise KfuzzError(what, where=finding.id, fix=fix)
    return home


def _poison(finding: Finding) -> str:
    if finding.case.poison != "finite":
        return 'float("nan")'
    narrow = {"float16": 2.0**15, "float8_e5m2": 2.0**15, "float8_e4m3fn": 2.0**8}
    dtype = finding.case.data.dtype
    return repr(narrow.get(dtype, 2.0**100))


def _asked(finding: Finding) -> str:
    """Return what asks for gradients in the way that shows the failure, if one does."""
    failure = finding.failure
    if not takes_way(failure):
        return ""
    return f".function.asked({failure.detail!r}, {failure.output[1:]!r})"


def _takes(finding: Finding) -> str:
    """Return which tensors the kernel may take, as an expression; "" for the case's."""
    names = tuple(finding.case.tensors)
    known = OPERATORS.get(finding.operator.removesuffix(".backward"))
    if known is None:  # a user's operator is known where its kernel is
        return f'getattr(getattr(kernel, "arguments", None), "tensors", {names!r})'
    every = tuple(known.tensors)
    # A call for gradients has every tensor, and others.
    return repr(every) if set(names) < set(every) else ""


def _scalars(scalars: Mapping[str, Scalar]) -> str:
    items = (f"{name!r}: {_scalar(value)}" for name, value in scalars.items())
    return f"{{{', '.join(items)}}}"


def _scalar(value: Scalar) -> str:
    if is_dtype(value):
        return f"torch.{value}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _argument(name: str, spec: TensorSpec) -> str:
    assert spec.values is not None
    patterns = unpack_bits(spec.values, spec.dtype)
    shown = ", ".join(f"{bits_to_number(p, spec.dtype):.9g}" for p in patterns[:8])
    more = ", …" if len(patterns) > 8 else ""
    return (
        f"tensor({spec.shape!r}, {spec.element_strides!r}, {spec.offset}, "
        f"torch.{spec.dtype}, {spec.values.hex()!r}),"
        f"  # {_in_comment(name)}: {spec.dtype}{list(spec.shape)} [{shown}{more}]"
    )


def _untold(finding: Finding) -> _Check:
    """Return the end of a script that calls the kernel and cannot say more."""
    failure = finding.failure
    what = _UNSEEN.get(failure.kind, "this failure")
    if _is_tuned(finding) and failure.kind is not Kind.TUNING_DEPENDENT:
        what = "which configuration runs"
    relation = failure.index is not None and failure.expected is None
    if relation and failure.kind not in _UNSEEN:
        what = "whether the results fit together"
    overwrites = failure.kind is Kind.WRITE_OUTSIDE
    return {"check": "untold", "what": what, "overwrites": overwrites}


def _check(finding: Finding) -> _Check | None:
    """Return the check of a failure, None where a script has none."""
    failure, inplace = finding.failure, finding.declaration.inplace
    comparable = failure.index is not None and failure.expected is not None
    if _is_tuned(finding):
        return None
    match failure.kind:
        case Kind.UNWRITTEN:
            # torch's own switch fills fresh memory with NaN.
            fills = comparable and finding.case.poison == "nan"
            return _value(finding) | {"fills": True} if fills else None
        case Kind.INPUT_MODIFIED:
            return {"check": "modified"}
        case Kind.WRITE_OUTSIDE:
            return _guarded(finding)
        case Kind.RAISES:
            return {"check": "raises"}
        case Kind.INDEX_ACCEPTED if not comparable:
            return {"check": "must_raise", "why": "an index is out of bounds"}
        case Kind.NONFINITE_ACCEPTED:
            why = "its data hold a NaN or an infinity"
            return {"check": "must_raise", "why": why}
        case Kind.FOREIGN_OPERATOR:
            copies = failure.detail.endswith(("copy", "copy_", "clone"))
            return {"check": "foreign", "name": failure.detail, "copies": copies}
        case Kind.WRONG_TYPE if finding.declaration.out and not failure.output:
            return {"check": "handed_back"}
        case Kind.ALIASES_INPUT:
            own = [i for i, n in enumerate(finding.case.tensors) if n not in inplace]
            return {"check": "aliases", "own": own}
        case Kind.ALIASES_OUTPUT:
            return {"check": "aliases", "own": None}
        case Kind.SEED_DEPENDENT:
            return {"check": "seeds"}
        case Kind.SCALE_DEPENDENT | Kind.ORDER_DEPENDENT:
            change = _change(finding) if comparable else None
            return None if change is None else _value(finding) | change
        case Kind.HANG | Kind.CRASH | Kind.DEVICE_FAULT:
            shown = f"this call should show: {failure.kind} {failure.detail}"
            return {"check": "ended", "shown": shown}
        case Kind.WRONG_TYPE | Kind.WRONG_SHAPE | Kind.WRONG_DTYPE | Kind.WRONG_DEVICE:
            wrong = _wrong_metadata(finding)
            return {"check": "metadata", "pick": _picked(finding), "wrong": wrong}
        case _:
            return _value(finding) if comparable else None


def _is_tuned(finding: Finding) -> bool:
    """Whether an autotuner's choice decides, which kfuzz alone makes for it."""
    return finding.failure.contract == "C-CMP-02" and not finding.declaration.configs


def _guarded(finding: Finding) -> _Check | None:
    """Return the check of a store outside an argument.

    None where the memory concerned is not an argument's, or the store lies
    farther away than a script can watch.
    """
    failure, case = finding.failure, finding.case
    if failure.output not in (*case.tensors, *case.destinations):
        return None
    reach = [a.distance + a.count for a in failure.accesses if a.access != "load"]
    guard = max([GUARD, *reach])
    given = [d.spec() for d in case.destinations.values()]
    every = (*case.tensors.values(), *given)
    watched = sum(s.offset + s.span + 2 * guard for s in every)
    return {"check": "guarded", "guard": guard} if watched <= MAX_WATCHED else None


def _wrong_metadata(finding: Finding) -> str:
    """Return the expression that says that a result is not what was asked for."""
    kind, message = finding.failure.kind, finding.failure.message
    if kind is not Kind.WRONG_TYPE:
        # The message ends with what the operator asks for, as torch prints it.
        return f"str({_METADATA[kind]}) != {message.rpartition('expected ')[2]!r}"
    if count := _COUNT.search(message):
        several = "not isinstance(result, (tuple, list))"
        return f"{several} or len(result) != {int(count[1])}"
    return "not isinstance(result, torch.Tensor) or result.layout is not torch.strided"


def _value(finding: Finding) -> _Check:
    """Return the check of one element against what is allowed."""
    failure = finding.failure
    index = failure.index or ()
    return {
        "check": "value",
        "fills": False,
        "pick": _taken(finding),
        "index": repr(tuple(index)),
        "label": f"{failure.output}[{', '.join(map(str, index))}] =",
        "expected": _literal(failure.expected),
        "low": _literal(failure.low),
        "high": _literal(failure.high),
        # Where a zero fails against a zero, its sign is wrong.
        "signed": failure.got == 0 == failure.expected,
    }


def _change(finding: Finding) -> _Check | None:
    """Return how the data are changed for the failure to show, None if unknown."""
    message, tensors = finding.failure.message, finding.case.tensors
    names, scaling, order = list(tensors), read_scaling(message), read_order(message)
    made: _Check
    if scaling is not None:
        arguments, exponent = scaling
        made = {"places": [names.index(n) for n in arguments], "exponent": exponent}
    elif order is not None:
        axes = [
            (names.index(n), tensors[n].axes.index(order.axis)) for n in order.arguments
        ]
        made = {"moved": axes, "order": _ORDERS[order.order]}
    else:
        return None
    shift = read_shift(message)
    return made if shift is None else made | {"check": "bits", "shift": shift}


def _taken(finding: Finding) -> str:
    """Return code that takes the result concerned, wherever the kernel left it."""
    inplace, names = finding.declaration.inplace, list(finding.case.tensors)
    if finding.failure.output in inplace:
        return f"result = arguments[{names.index(finding.failure.output)}]"
    if inplace and finding.failure.place is None:
        place = names.index(inplace[0])
        return f"result = arguments[{place}] if result is None else result"
    if inplace:
        taken = f"result[{finding.failure.place}]"
        return f"result = {taken} if isinstance(result, tuple) else result"
    return _picked(finding) or "result = arguments[0] if result is None else result"


def _picked(finding: Finding) -> str:
    """Return code that takes the result concerned out of several, or ""."""
    place, within = finding.failure.place, path_of(finding.failure.output)
    places = within if place is None else [place, *within]
    taken = "".join(f"[{i}]" for i in places)
    return taken and f"result = result{taken}"


def _literal(value: float | None) -> str:
    return "nan" if value is None else repr(float(value))


def _in_comment(text: str) -> str:
    """Return a text on one line: what is not printable, as ends of lines, escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def _in_docstring(text: str) -> str:
    """Return a text on one line that a string between three double quotes may hold."""
    return _in_comment(text).replace("\\", "\\\\").replace('"', '\\"')


# A finding as a script for the kernel's maintainers: its source and few lines.
#
# It needs neither kfuzz nor the file that binds the kernel. That is possible where the
# source of the kernel uses nothing of kfuzz but decorators, and one element of a
# result, a second call, or compute-sanitizer on a GPU shows the failure; `script` has
# the rest.

MAX_LINES: Final = 30
"""Lines beside the kernel's own source."""

# Elements that are written out, and those of the memory that a view lies in.
_MAX_VALUES: Final = 4096
_MAX_SPAN: Final = 1 << 24

# Tools of compute-sanitizer that show what a call does outside of its results.
_TOOLS: Final = {
    Kind.READ_OUTSIDE: "memcheck",
    Kind.WRITE_OUTSIDE: "memcheck",
    Kind.DEVICE_FAULT: "memcheck",
    Kind.UNWRITTEN: "initcheck",
}
# Failures that calls of one input show by differing, at times.
_UNSTEADY: Final = (Kind.RACE, Kind.NONDETERMINISTIC)

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def upstream(finding: Finding, root: Path) -> str:
    """Return a script that shows a finding with torch and the kernel's source alone.

    Args:
        finding: with explicit values.
        root: the project's folder, in which the kernel's file is.

    Raises:
        UsageError: if such a script cannot show it.
    """
    try:
        return _script(finding, root)
    except _Unfit as unfit:
        fix = f"kfuzz replay {finding.id} --script OUT.py"
        raise UsageError(str(unfit), where=finding.id, fix=fix) from None


class _Unfit(Exception):
    """Why a finding has no script of this kind."""


def _script(finding: Finding, root: Path) -> str:
    failure, case, target = finding.failure, finding.case, finding.target
    claims, default = finding.declaration, Declaration()
    expected, output = failure.expected, failure.output
    of_element = failure.kind in VALUE_KINDS and failure.index is not None
    tool, repeated = _TOOLS.get(failure.kind, ""), failure.kind in _UNSTEADY
    if not tool and not repeated and (not of_element or expected is None):
        raise _Unfit("no single element of a result shows the failure")
    # Findings come from strangers too: what one holds is a literal here, or a name.
    named_well = all(map(str.isidentifier, (*case.tensors, *case.scalars)))
    given = claims.out or claims.configs != default.configs
    is_gradient = target.name.endswith(BACKWARD)
    otherwise = is_gradient and finding.signature.contract == "K-GRD-01"
    for unfit, why in (
        (otherwise, "the gradient is asked in an unusual way"),
        (failure.got == 0 == expected, "only the sign of a zero is wrong"),
        (given, "the kernel is not called with its inputs alone"),
        (not case.pinned, "its values are not explicit"),
        (not target.file or target.reference, "its kernel has no file"),
        (not named_well, "an argument has no name of Python's"),
    ):
        if unfit:
            raise _Unfit(why)
    backend = named("cuda" if tool else finding.device)
    name = target.name.removesuffix(BACKWARD)
    text = _read(root, target.file)
    if found := imported(text, name):
        source = [f"from {found[0]} import {found[1]} as {name}"]
    else:
        source = kernel_source(text, name)
    lines = [f"# Line {_in_comment(str(finding.line))}"] if finding.line else []
    if tool:
        lines += [
            f"# {_in_comment(failure.message)}",
            f"# PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool {tool} "
            "python FILE",
        ]
    lines += ["import os", "from math import inf, nan", ""]
    lines += [f"os.environ[{k!r}] = {v!r}" for k, v in backend.environment.items()]
    lines += [] if "import torch" in source else ["import torch"]
    lines += ["", *source, "", ""]
    for argument, spec in case.tensors.items():
        lines += _tensor(argument, spec, backend.torch_type)
    scalars = [
        f"{name}={f'torch.{value}' if is_dtype(value) else repr(value)}"
        for name, value in case.scalars.items()
    ]
    pulled = [n for n in case.tensors if is_gradient and n.startswith("grad_")]
    taken = [n for n in case.tensors if n not in pulled]
    known = OPERATORS.get(finding.operator)
    if known is not None and set(taken) < set(known.tensors):
        every = [n if n in taken else "None" for n in known.tensors]
        least = _needed(text, name, case.scalars)
        while len(every) > least and every[-1] == "None":
            every.pop()
        taken = every
    result = f"{name}({', '.join([*taken, *scalars])})"
    if is_gradient:
        # The gradient of x is dx.
        leaves = [output[1:]] if output[1:] in taken else taken
        lines += [f"{leaf}.requires_grad_()" for leaf in leaves]
        result = f"torch.autograd.grad({result}, [{', '.join(leaves)}], "
        result += f"[{', '.join(pulled)}])" + "[0]" * of_element
    elif output in claims.inplace:
        lines.append(result)
        result = output
    elif failure.place is not None:
        result += f"[{failure.place}]"
    if tool:
        lines += [result, "torch.cuda.synchronize()"]
    elif repeated:
        lines += [
            f"several = [{result} for _ in range(100)]",
            "alike = [y.allclose(several[0], 0, 0, equal_nan=True) for y in several]",
            "assert all(alike), 'calls differ'",
        ]
    else:
        lines += _asserted(failure, result)
    if len(lines) - len(source) > MAX_LINES:
        raise _Unfit(f"it takes more than {MAX_LINES} lines")
    return "\n".join(lines) + "\n"


def _needed(text: str, name: str, scalars: Mapping[str, Scalar]) -> int:
    """Return how many tensors a function needs, 0 where it is not in the text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            every = node.args.posonlyargs + node.args.args
            needed = every[: len(every) - len(node.args.defaults)]
            return sum(each.arg not in scalars for each in needed)
    return 0


def _asserted(failure: Failure, result: str) -> list[str]:
    """Return the lines that hold one element to what is allowed there."""
    expected, low, high = failure.expected, failure.low, failure.high
    index = tuple(failure.index or ())
    allowed = f"allowed [{low!r}, {high!r}]"
    right = f"{low!r} <= got <= {high!r}"
    if expected is None or math.isnan(expected):
        allowed, right = "", "got != got"
    elif low is None or high is None or not math.isfinite(expected):
        allowed, right = "", f"got == {expected!r}"
    element = f"{failure.output}{[*index]}"
    said = f"expected {expected!r}" + (f", {allowed}" if allowed else "")
    return [
        f"got = {result}[{index!r}].item()",
        f"print({f'{element} ='!r}, got, {said!r})",
        f"assert {right}, {f'{element} is wrong'!r}",
    ]


def _read(root: Path, file: str) -> str:
    path = Path(file)
    if path.is_absolute() or ".." in path.parts:
        raise _Unfit("the kernel's file is outside the project")
    try:
        return read_source(root / path)
    except DecodeError:
        raise _Unfit(f"{file} cannot be read") from None


def _tensor(name: str, spec: TensorSpec, device: str) -> Iterator[str]:
    """Yield the lines that make an argument, between elements NaN or 90."""
    shape, strides, kind = spec.shape, spec.element_strides, DTYPES[spec.dtype].kind
    if spec.values is None or spec.numel > _MAX_VALUES or spec.span > _MAX_SPAN:
        raise _Unfit("its tensors are too large to be written out")
    if any(n > 1 and s == 0 for n, s in zip(shape, strides, strict=True)):
        raise _Unfit("elements of a tensor share memory")
    patterns = unpack_bits(spec.values, spec.dtype)
    numbers = [bits_to_number(p, spec.dtype) for p in patterns]
    place = f"dtype=torch.{spec.dtype}, device={device!r}"
    yield f"{name} = torch.tensor({numbers!r}, {place}).reshape({shape!r})"
    if spec.is_contiguous and not spec.offset:
        return
    fill = "nan" if kind == "float" else "True" if kind == "bool" else "90"
    memory = f"torch.full(({spec.offset + spec.span},), {fill}, {place})"
    view = f"{memory}.as_strided({shape!r}, {strides!r}, {spec.offset})"
    yield f"{name} = {view}.copy_({name})"


def kernel_source(text: str, name: str) -> list[str]:
    """Return the lines of a file's definitions that do without kfuzz.

    Decorators of kfuzz's are left out. It raises `_Unfit` if the function is not
    defined at the top of the file, or uses more of kfuzz.
    """
    try:
        tree, lines = ast.parse(text), text.splitlines()
    except (SyntaxError, ValueError):
        raise _Unfit("the kernel's file is no Python") from None
    left = [each for stmt in tree.body for each in _single(stmt)]
    gone: set[str] = set()
    while lost := [node for node in left if _is_lost(node, gone)]:
        left = [node for node in left if node not in lost]
        gone |= {each for node in lost for each in _bound(node)}
    if not any(isinstance(node, _FUNCTION) and node.name == name for node in left):
        what = f"{name} is no function at the top of its file that does without kfuzz"
        raise _Unfit(what)
    found: list[str] = []
    for node in left:
        if isinstance(node, _Definition):
            found += ["", ""] + [f"@{ast.unparse(d)}" for d in node.decorator_list]
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(ast.unparse(node))
        else:
            found += lines[node.lineno - 1 : node.end_lineno]
    return found


def _single(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield a statement; an import of several names as one for each."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        yield node
        return
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield ast.Import([alias])
        else:
            yield ast.ImportFrom(node.module, [alias], node.level)


def _is_lost(node: ast.stmt, gone: set[str]) -> bool:
    """Whether a statement is of no use without names; such decorators are dropped."""
    match node:
        case ast.Import(names=[alias]):
            return alias.name.split(".")[0] == "kfuzz"
        case ast.ImportFrom():
            return bool(node.level) or (node.module or "").split(".")[0] == "kfuzz"
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            node.decorator_list = [
                d for d in node.decorator_list if not _names(d) & gone
            ]
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            pass
        case _:
            return True
    return bool(_names(node) & gone)


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a file defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {(a.asname or a.name).split(".")[0] for a in node.names}
    return _names(node, ast.Store)


def _names(
    node: ast.AST, context: type[ast.expr_context] = ast.expr_context
) -> set[str]:
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in names if isinstance(each.ctx, context)}
