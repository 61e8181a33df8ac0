"""A finding as a script for the kernel's maintainers: its source and few lines.

It needs neither kfuzz nor the file that binds the kernel. That is possible where the
source of the kernel uses nothing of kfuzz but decorators, and one element of a result
shows the failure; `script` has the rest.
"""

import ast
import builtins
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES, bits_to_number, unpack_bits
from kfuzz.core.errors import DecodeError, KfuzzError
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import TensorSpec, is_dtype
from kfuzz.core.verdict import VALUE_KINDS
from kfuzz.execution.device.backends import named
from kfuzz.store.plain_file import read_source

MAX_LINES: Final = 30
"""Lines beside the kernel's own source."""

# Elements that are written out, and those of the memory that a view lies in.
_MAX_VALUES: Final = 4096
_MAX_SPAN: Final = 1 << 24

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def upstream(finding: Finding, root: Path) -> str:
    """Return a script that shows a finding with torch and the kernel's source alone.

    Args:
        finding: with explicit values.
        root: the project's folder, in which the kernel's file is.

    Raises:
        KfuzzError: if such a script cannot show it.
    """
    try:
        return _script(finding, root)
    except _Unfit as unfit:
        fix = f"kfuzz replay {finding.id} --script OUT.py"
        raise KfuzzError(str(unfit), where=finding.id, fix=fix) from None


class _Unfit(Exception):
    """Why a finding has no script of this kind."""


def _script(finding: Finding, root: Path) -> str:
    failure, case, target = finding.failure, finding.case, finding.target
    claims, default = finding.declaration, Declaration()
    if (
        failure.kind not in VALUE_KINDS
        or failure.index is None
        or failure.expected is None
    ):
        raise _Unfit("no single element of a result shows the failure")
    if target.name.endswith(".backward"):
        raise _Unfit("it is of a gradient")
    if failure.got == 0 == failure.expected:
        raise _Unfit("only the sign of a zero is wrong")
    if claims.inplace or claims.out or claims.configs != default.configs:
        raise _Unfit("the kernel is not called with its inputs alone")
    if not case.pinned or not target.file or target.reference:
        raise _Unfit("its values are not explicit, or its kernel has no file")
    # Findings come from strangers too: what one holds is a literal here, or a name.
    if not all(map(str.isidentifier, (*case.tensors, *case.scalars))):
        raise _Unfit("an argument has no name of Python's")
    backend, index = named(finding.device), tuple(failure.index)
    source = kernel_source(_read(root, target.file), target.name)
    lines = ["import os", "from math import inf, nan", ""]
    lines += [f"os.environ[{k!r}] = {v!r}" for k, v in backend.environment.items()]
    lines += [] if "import torch" in source else ["import torch"]
    lines += ["", *source, "", ""]
    for name, spec in case.tensors.items():
        lines += _tensor(name, spec, backend.torch_type)
    scalars = [
        f"{name}={f'torch.{value}' if is_dtype(value) else repr(value)}"
        for name, value in case.scalars.items()
    ]
    call = f"{target.name}({', '.join([*case.tensors, *scalars])})"
    result = call if failure.place is None else f"{call}[{failure.place}]"
    expected, low, high = failure.expected, failure.low, failure.high
    allowed = f"allowed [{low!r}, {high!r}]"
    right = f"{low!r} <= got <= {high!r}"
    if math.isnan(expected):
        allowed, right = "", "got != got"
    elif low is None or high is None or not math.isfinite(expected):
        allowed, right = "", f"got == {expected!r}"
    element = f"{failure.output}{[*index]}"
    said = f"expected {expected!r}" + (f", {allowed}" if allowed else "")
    lines += [
        f"got = {result}[{index!r}].item()",
        f"print({f'{element} ='!r}, got, {said!r})",
        f"assert {right}, {f'{element} is wrong'!r}",
    ]
    if len(lines) - len(source) > MAX_LINES:
        raise _Unfit(f"it takes more than {MAX_LINES} lines")
    return "\n".join(lines) + "\n"


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
    """Return the lines of a file that define a function and all that it uses.

    Decorators of kfuzz's are left out. It raises `_Unfit` if the function is not
    defined at the top of the file, or uses more of kfuzz.
    """
    try:
        tree, lines = ast.parse(text), text.splitlines()
    except (SyntaxError, ValueError):
        raise _Unfit("the kernel's file is no Python") from None
    bound: dict[str, list[ast.stmt]] = {}  # `import a` and `import a.b` bind one name
    ours: set[str] = set()
    for node in (each for stmt in tree.body for each in _single(stmt)):
        for each in _bound(node):
            bound.setdefault(each, []).append(node)
            if _is_ours(node):
                ours.add(each)
    if not all(isinstance(node, _FUNCTION) for node in bound.get(name, [None])):
        raise _Unfit(f"{name} is no function at the top of its file")
    needed: dict[ast.stmt, bool] = {}
    todo = [name]
    while todo:
        each = todo.pop()
        if each in ours:
            raise _Unfit(f"its source uses {each} of kfuzz")
        if each not in bound:
            raise _Unfit(f"its source uses {each}, which is not defined at the top")
        for node in bound[each]:
            if node in needed:
                continue
            if isinstance(node, ast.ImportFrom) and node.level:
                raise _Unfit(f"its source imports {each} from beside its file")
            needed[node] = True
            todo += _used(node, ours)
    found: list[str] = []
    for node in sorted(needed, key=lambda node: node.lineno):
        if isinstance(node, _Definition):
            kept = [d for d in node.decorator_list if not _names(d) & ours]
            found += ["", ""] + [f"@{ast.unparse(d)}" for d in kept]
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(ast.unparse(node))
        else:
            found += lines[node.lineno - 1 : node.end_lineno]
    return found


def _single(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield a statement; an import of several names as one for each."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield ast.copy_location(ast.Import([alias]), node)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            one = ast.ImportFrom(node.module, [alias], node.level)
            yield ast.copy_location(one, node)
    else:
        yield node


def _is_ours(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] == "kfuzz" for alias in node.names)
    module = node.module if isinstance(node, ast.ImportFrom) else None
    return (module or "").split(".")[0] == "kfuzz"


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a file defines."""
    if isinstance(node, _Definition):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((a.asname or a.name).split(".")[0] for a in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                yield each.id


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _used(node: ast.stmt, ours: set[str]) -> list[str]:
    """Return the names that a statement takes from its file."""
    own: set[str] = set()
    loaded: set[str] = set()
    left_out = []
    if isinstance(node, _Definition):
        left_out = [d for d in node.decorator_list if _names(d) & ours]
    hidden = {id(each) for d in left_out for each in ast.walk(d)}
    for each in ast.walk(node):
        if id(each) in hidden:
            continue
        if isinstance(each, ast.Name):
            (loaded if isinstance(each.ctx, ast.Load) else own).add(each.id)
        elif isinstance(each, ast.arg):
            own.add(each.arg)
        elif isinstance(each, ast.ExceptHandler) and each.name:
            own.add(each.name)
        elif isinstance(each, ast.Import | ast.ImportFrom | _Definition):
            own |= {*_bound(each)} if each is not node else set()
    return sorted(loaded - own - {*dir(builtins)})
