"""Single changes of a kernel's source, each of one expression at one line.

They are inverse to how kernels go wrong: a comparison has another sign, a guard gets
the condition that its sibling has, an identity is that of its reduction, a cast goes
away, a stride takes the place of a 1. Changed functions are compiled and put in the
place of the user's in this process; no file is touched.
"""

import ast
import importlib.util
import inspect
import json
import linecache
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

# Packages whose functions are nobody's kernel.
_FOREIGN = sys.stdlib_module_names | {
    "_distutils_hack", "hypothesis", "kfuzz", "numpy", "packaging", "setuptools",
    "torch", "triton", "typing_extensions",
}  # fmt: skip
# What holds functions: Triton's kernels, their tuners, classes of autograd.
_HOLDING: Final = ("fn", "__wrapped__", "__func__", "func", "function")
_MOST_FUNCTIONS: Final = 64
# Of two operands the first of these is the kind of the result.
_KINDS: Final = (
    "PTR", "ptr", "FLOAT", "float", "MASK", "mask", "INT", "int", "flag",
)  # fmt: skip
# What is left out costs so much for each node, and a call of the user's own more.
_EACH_NODE: Final = 0.04
_OWN_CALL: Final = 0.6
# And where data is not used any more, which hides a fault more often than it is one.
_LOST: Final = 0.5
_DATA: Final = ("FLOAT", "MASK", "PTR", "TENSOR")
_DEEPEST: Final = 3
# What data may be just above by chance, and what most data is below.
_LEAST_BOUND: Final = 16
_LARGE: Final = 4096
_NARROW: Final = 2  # bytes
# What an access depends on, and what it does not.
_OF_MEMORY: Final = {"MASK": -0.5, "FLOAT": 0.6}
# Letters of an expression that are printed.
_WORDS: Final = 70
# Numbers that kernels spell out; a short form of one is near it.
_KNOWN: Final = (
    math.log2(math.e), math.log(2), math.log(10), 1 / math.log(10), math.log10(2),
    math.sqrt(2), math.sqrt(0.5), math.sqrt(2 / math.pi), math.sqrt(math.pi),
    2 / math.sqrt(math.pi), math.pi, 2 * math.pi, math.e, 0.044715, 1.702,
)  # fmt: skip
_NEUTRAL: Final = ("0.0", 'float("-inf")', 'float("inf")', "1.0")
_IDENTITY: Final = {"tl.max": _NEUTRAL[1], "tl.exp": _NEUTRAL[1], "tl.min": _NEUTRAL[2]}
_COMPARED: Final[dict[type[ast.cmpop], tuple[str, ...]]] = {
    ast.Lt: ("<=", ">", ">="), ast.LtE: ("<", ">=", ">"),
    ast.Gt: (">=", "<", "<="), ast.GtE: (">", "<=", "<"),
    ast.Eq: ("!=",), ast.NotEq: ("==",),
}  # fmt: skip
_CALCULATED: Final[dict[type[ast.operator], tuple[str, ...]]] = {
    ast.Add: ("-", "*"), ast.Sub: ("+",), ast.Mult: ("/", "+", "//"),
    ast.Div: ("*",), ast.FloorDiv: ("%",), ast.Mod: ("//",),
    ast.BitAnd: ("|",), ast.BitOr: ("&",),
}  # fmt: skip
_SIBLINGS: Final = (
    ("max", "min", "sum"), ("amax", "amin", "sum", "mean"), ("maximum", "minimum"),
    ("exp", "exp2", "expm1"), ("log", "log2", "log1p"), ("sqrt", "rsqrt"),
    ("argmax", "argmin"), ("sin", "cos"), ("cumsum", "cumprod"), ("floor", "ceil"),
    ("sigmoid", "exp"), ("zeros", "ones"), ("softmax", "log_softmax"),
)  # fmt: skip
_WIDER: Final = {
    "tl.float16": "tl.float32", "tl.bfloat16": "tl.float32", "tl.int32": "tl.int64",
    "tl.float32": "tl.float64", "torch.float16": "torch.float32",
    "torch.bfloat16": "torch.float32",
}  # fmt: skip
_FIXED: Final = frozenset({"ctx", "op", "ops", "annotation", "returns", "targets"})
# What a wrapper's own call may be changed in: nothing but a kernel or a tensor follows
# from it.
_OF_HOST: Final = frozenset(
    {
        "stride", "size", "numel", "dim", "cdiv", "next_power_of_2", "contiguous",
        "reshape", "view", "transpose", "permute", "to", "float", "half", "max", "min",
        "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "new_empty",
        "new_zeros", "range", "len", "t", "setdefault", "globals", "Size", "apply",
        "ValueError", "RuntimeError", "IndexError", "TypeError",
    }
)  # fmt: skip
# And what a tensor has that is no computation.
_OF_GRAPH: Final = frozenset({"backward", "register_hook", "retain_grad"})
# Of what computes with tensors many lines may be what is missing.
_COMPUTING: Final = 2.0


# How much less a change costs that makes a statement like another one of the kernel, or
# uses an argument that nothing does.
_LIKELY: Final = 0.7
_HERE: Final = "HERE__"


# What takes an expression's place, its cost, and the part of it that differs.
_Change = tuple[str, float] | tuple[str, float, ast.AST]


@dataclass(eq=False)
class Code:
    """One function of the user's, as it can be changed.

    Attributes:
        function: the plain function.
        jit: Triton's interpreted kernel around it; None for a function of the host.
        tree: its definition, as it is compiled.
        module: what is compiled: the tree alone, or in a function whose names it uses.
        file: its source file.
        lines: those that a traced call has run.
        kinds: of the names in it, by the values that they had in that call.
        integers: those among these values, of its first run.
        sizes: of the tensors among them.
        narrow: whether one of these has 16 bits.
    """

    function: FunctionType
    jit: Any
    tree: ast.FunctionDef
    module: ast.Module
    file: str
    lines: set[int] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)
    integers: dict[str, int] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)
    narrow: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    def put(self) -> None:
        """Have the process run the tree as it is now.

        Raises:
            SyntaxError, ValueError, TypeError: if it does not compile.
        """
        whole = compile(self.module, self.file, "exec")
        if self.jit is not None:
            made: dict[str, Any] = dict(self.jit.kwargs)
            exec(whole, self.function.__globals__, made)
            self.jit.rewritten_fn[self.function] = made[self.name]
            return
        self.function.__code__ = next(
            c for c in all_codes(whole) if c.co_name == self.name
        )

    def note(self, held: Mapping[str, Any]) -> None:
        """Note what its names hold as it returns."""
        is_first = not self.kinds
        for name, value in held.items():
            kind = self.kinds.setdefault(name, _kind_of(value))
            value = getattr(value, "value", value)  # a constexpr
            if is_first and isinstance(value, int):
                self.integers[name] = value
            elif is_first and kind == "tensor":
                self.sizes |= {*value.shape, math.prod(value.shape)}
                self.narrow |= value.dtype.itemsize == _NARROW

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restore the function at the end of the block."""
        before = self.function.__code__
        held = None if self.jit is None else self.jit.rewrite()
        try:
            yield
        finally:
            self.function.__code__ = before
            if self.jit is not None:
                self.jit.rewritten_fn[self.function] = held


@dataclass(frozen=True, eq=False)
class Edit:
    """One expression, or statement, replaced by another.

    Attributes:
        code: the function that it is in.
        parent: the node that has it.
        place: the field, and the position in it where that is a list, else -1.
        node: what is replaced.
        text: what takes its place.
        cost: how far it is from the original: the least is tried first.
        spot: the part of what is replaced that differs; None for the whole.
        hinted: whether it is about a size that the data is above, or computes in more
            bits than data of 16 has.
    """

    code: Code
    parent: ast.AST
    place: tuple[str, int]
    node: Any
    text: str
    cost: float
    spot: Any = None
    hinted: bool = False

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.code.file

    @property
    def line(self) -> int:
        """The line of what is replaced."""
        return int((self.spot or self.node).lineno)

    @property
    def column(self) -> int:
        """Where on the line that is."""
        return int((self.spot or self.node).col_offset)

    @property
    def words(self) -> str:
        """What takes the place of what."""
        before = _text(self.node)
        match self.node:
            case ast.Assign(targets=[target], value=ast.Call() as value):
                if _is_wrapper(value):
                    before = f"{_text(target)} = {_text(value.args[0])}"
        return f"with `{_short(self.text)}` for `{_short(before)}`"

    @contextmanager
    def made(self) -> Iterator[bool]:
        """Have the process run the changed function; whether it can."""
        new = self._new()
        if new is None:
            yield False
            return
        for inner in ast.walk(new):
            ast.copy_location(inner, self.node)
        with self.code.kept():
            self._set(new)
            try:
                self.code.put()
                possible = True
            except (SyntaxError, ValueError, TypeError):
                possible = False
            finally:
                self._set(self.node)
            yield possible

    def patched(self, text: str) -> str | None:
        """Return the text of the file with the change; None where that has no form.

        Args:
            text: of the file, as it is.
        """
        new, tree = self._new(), ast.parse(text)
        old = next((n for n in ast.walk(tree) if _is_same_place(n, self.node)), None)
        if new is None or old is None:
            return None
        wanted = ast.dump(_Replacing(old, new).visit(ast.parse(text)))
        for made in _texts(text, old, new, self.text):
            try:
                if ast.dump(ast.parse(made)) == wanted:
                    return made
            except SyntaxError:
                continue
        return None

    @property
    def is_of_check(self) -> bool:
        """Whether it changes what decides if the kernel raises."""
        return any(
            self.node in ast.walk(each.test)
            for each in ast.walk(self.code.tree)
            if isinstance(each, ast.Assert)
            or (isinstance(each, ast.If) and ast.Raise in map(type, ast.walk(each)))
        )

    def _new(self) -> Any:
        """Return what takes the node's place; None where it is no Python."""
        try:
            made: Any = ast.parse(self.text).body[0]
        except SyntaxError:
            return None
        is_expression = isinstance(made, ast.Expr) and isinstance(self.node, ast.expr)
        return made.value if is_expression else made

    def _set(self, node: Any) -> None:
        name, at = self.place
        if at < 0:
            setattr(self.parent, name, node)
        else:
            getattr(self.parent, name)[at] = node


# A change as text: as little as can be of what is written is written anew.


class _Replacing(ast.NodeTransformer):
    """Puts one node in the place of that which stands where another one does."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        if _is_same_place(node, self._old):
            return self._new
        return self.generic_visit(node)


def _span(node: Any) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _is_same_place(one: ast.AST, other: ast.AST) -> bool:
    alike = type(one) is type(other) and hasattr(one, "lineno")
    return alike and _span(one) == _span(other)


def _texts(text: str, old: Any, new: Any, written: str) -> Iterator[str]:
    """Yield texts with one node in the place of another, the shortest change first.

    Args:
        text: of the file.
        old: a node of it.
        new: what is to stand there.
        written: the text of that.
    """
    content = text.encode()
    starts = [0, *(match.end() for match in re.finditer(b"\n", content))]

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    def between(begin: int, end: int, made: str) -> str:
        return (content[:begin] + made.encode() + content[end:]).decode()

    old, new = _differing(old, new)
    line, column, end_line, end_column = _span(old)
    begin, end = place(line, column), place(end_line, end_column)
    if isinstance(old, ast.Call) and isinstance(new, ast.Call):
        last = max((_span(a)[2:] for a in (*old.args, *old.keywords)), default=None)
        more = new.keywords[len(old.keywords) :]
        if last and len(more) == 1:
            yield between(place(*last), place(*last), f", {_text(more[0])}")
    match old, new:
        case (ast.BinOp(op=was, right=right), ast.BinOp(op=op)) | (
            ast.Compare(ops=[was], comparators=[right]),
            ast.Compare(ops=[op]),
        ):
            first = place(*_span(old.left)[2:])
            second = place(*_span(right)[:2])
            sign = content[first:second].decode()
            yield between(first, second, sign.replace(_text_of(was), _text_of(op)))
    segments = [
        ast.get_source_segment(text, n)
        for n in ast.walk(old)
        if ast.dump(n) == ast.dump(new)
    ]
    segments.append(ast.get_source_segment(written, new))
    for made in filter(None, segments):
        yield between(begin, end, made)
        yield between(begin, end, f"({made})")


def _differing(old: Any, new: Any) -> tuple[Any, Any]:
    """Return the least parts of two nodes that differ, with a place in the text."""
    while type(old) is type(new):
        pairs = zip(ast.iter_fields(old), ast.iter_fields(new), strict=True)
        differ = [(a, b) for (_, a), (_, b) in pairs if _form(a) != _form(b)]
        if len(differ) == 1 and isinstance(differ[0][0], list):
            [(many, others)] = differ
            if len(many) == len(others):
                both = zip(many, others, strict=True)
                differ = [(a, b) for a, b in both if _form(a) != _form(b)]
        if len(differ) != 1 or not isinstance(differ[0][0], ast.expr | ast.keyword):
            break
        if not isinstance(differ[0][1], ast.expr | ast.keyword):
            break
        [(old, new)] = differ
    return old, new


def _form(value: Any) -> Any:
    if isinstance(value, list):
        return [_form(each) for each in value]
    return ast.dump(value) if isinstance(value, ast.AST) else value


# Which functions there are, and what a call of them shows.


def codes_of(
    function: Callable[..., Any], call: Callable[[], object] = lambda: None
) -> list[Code]:
    """Return the functions of a kernel that can be changed, the wrapper first.

    They are what it refers to by name, of the user's own files, and what a call runs.

    Args:
        function: the kernel.
        call: calls it.
    """
    made: list[Code] = []
    seen: set[int] = set()
    pieces: list[tuple[Any, Any]] = [(function, None)]
    pieces += [(piece, None) for piece in _run_by(call)]
    for piece, jit in pieces:
        if id(piece) in seen or len(seen) > 16 * _MOST_FUNCTIONS:
            continue
        seen.add(id(piece))
        if isinstance(piece, FunctionType):
            if not is_foreign(piece):
                code = _code(piece, jit)
                made += [] if code is None else [code]
                pieces += [(each, None) for each in referred(piece)]
        elif isinstance(piece, type):
            own = () if is_foreign(piece) else vars(piece).values()
            pieces += [(getattr(each, "__func__", each), None) for each in own]
        elif not isinstance(piece, str | int | float | ModuleType):
            kernel = piece if hasattr(piece, "rewritten_fn") else None
            inner = [inspect.getattr_static(piece, name, None) for name in _HOLDING]
            pieces += [(each, kernel) for each in inner if each is not None]
            pieces.append((type(piece), None))
    return made[:_MOST_FUNCTIONS]


def _run_by(call: Callable[[], object]) -> list[Any]:
    """Return what runs of users' files, as their modules have it."""
    found: dict[tuple[str, str], Any] = {}

    def entered(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _FOREIGN:
            name = frame.f_code.co_qualname.partition(".")[0]
            found[module, name] = frame.f_globals.get(name)

    with _tracing(entered):
        call()
    return [piece for piece in found.values() if piece is not None]


@contextmanager
def _tracing(entered: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(before)


def is_foreign(piece: Any) -> bool:
    """Whether a function or class is of a package that is nobody's kernel."""
    return (getattr(piece, "__module__", "") or "").partition(".")[0] in _FOREIGN


def referred(function: FunctionType) -> Iterator[Any]:
    """Yield what a function refers to by name, through modules and closures too."""
    # In order: what is drawn for a kernel follows from it.
    names = dict.fromkeys(n for c in all_codes(function.__code__) for n in c.co_names)
    for name in names:
        held = function.__globals__.get(name)
        yield held
        if isinstance(held, ModuleType) and (
            held.__name__.partition(".")[0] not in _FOREIGN
        ):
            yield from (vars(held).get(each) for each in names)
    yield from (c.cell_contents for c in function.__closure__ or () if _full(c))


def all_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and those of the functions within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from all_codes(each)


def _full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _code(function: FunctionType, jit: Any) -> Code | None:
    """Return a function with its tree; None where it has none that runs alike."""
    file = function.__code__.co_filename
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    first = function.__code__.co_firstlineno
    found = next(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and node.name == function.__name__
            and first in (node.lineno, *(d.lineno for d in node.decorator_list))
        ),
        None,
    )
    free = ", ".join(function.__code__.co_freevars)
    if found is None or (free and jit is not None):
        return None
    found.decorator_list = []
    if jit is not None:
        try:
            transformed = type(jit.rewriter).ast_transformer.visit(found)
        except (AttributeError, ValueError):
            return None
        found = ast.fix_missing_locations(transformed)
    body: list[ast.stmt] = [found]
    if free:  # all of it, whatever a change leaves out
        found.body += ast.parse(f"if 0: ({free},)").body
        around = ast.parse(f"def around({free}): pass").body[0]
        around.body, body = body, [around]  # type: ignore[attr-defined]
    return Code(function, jit, found, ast.Module(body, []), file)


@contextmanager
def traced(
    codes: Iterable[Code], look: Callable[[FrameType, str], None] = lambda *_: None
) -> Iterator[None]:
    """Note of functions which lines run in the block, and what their names hold.

    Args:
        codes: the functions.
        look: is called with each event of them, "call" and "return" among these.
    """
    known = {(code.file, code.name): code for code in codes}

    def entered(frame: FrameType, event: str, _: Any) -> Any:
        where = frame.f_code.co_filename, frame.f_code.co_name
        code = known.get(where)
        if code is None:
            return None

        look(frame, event)

        def ran(frame: FrameType, event: str, _: Any) -> Any:
            look(frame, event)
            code.lines.add(frame.f_lineno)
            if event == "return":
                code.note(frame.f_locals)
            return ran

        return ran

    with _tracing(entered):
        yield


def _kind_of(value: Any) -> str:
    """Return what a value is to a kernel; in capitals where it is a block."""
    value = getattr(value, "value", value)  # a constexpr
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "int" if isinstance(value, int) else "float"
    if type(value).__module__.startswith("torch") and hasattr(value, "stride"):
        return "tensor"
    dtype = getattr(value, "dtype", None)
    scalar = getattr(dtype, "scalar", None)
    if scalar is None:
        return ""
    kind = "int" if scalar.is_int() else "float"
    if scalar.is_ptr():
        kind = "ptr"
    elif scalar.is_int1():
        kind = "mask"
    return kind.upper() if getattr(value, "shape", ()) else kind


# Which changes there are.


def edits_of(codes: Iterable[Code], *, of_memory: bool = False) -> list[Edit]:
    """Return the changes of what a traced call has run, the least first.

    Before these are those that the call hints at.

    Args:
        codes: the functions.
        of_memory: whether it is about an access: what guards come first, then indices.
    """
    made: dict[tuple[int, str], Edit] = {}
    codes = list(codes)
    for code in codes:
        site = _Sites(code, codes, of_memory)
        for edit in site.edits():
            before = made.get((id(edit.node), edit.text))
            if before is None or edit.cost < before.cost:
                made[id(edit.node), edit.text] = edit
    return sorted(made.values(), key=lambda e: (not e.hinted, e.cost))


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _short(text: str) -> str:
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"


def _called(node: ast.AST) -> str:
    return _text(node.func) if isinstance(node, ast.Call) else ""


def _computes(node: ast.AST) -> bool:
    """Whether a node is a call that computes with tensors, and changes none."""
    name = _called(node).rpartition(".")[2]
    of_tensors = hasattr(getattr(sys.modules.get("torch"), "Tensor", None), name)
    plain = not name.endswith("_") and name not in _OF_GRAPH
    return bool(name) and of_tensors and plain and name not in _OF_HOST


def _is_wrapper(node: ast.AST) -> bool:
    """Whether a call is the interpreter's own, around what is assigned."""
    return _called(node) == "interpreter_semantic.to_tensor"


def _header(node: ast.AST) -> str:
    """Return a statement as text, what begins a block without its body."""
    if hasattr(node, "body"):
        node = copy(node)
        node.body, node.orelse = [ast.Pass()], []  # type: ignore[attr-defined]
    return _text(node)


def _around(
    node: ast.AST, parent: Any, place: tuple[str, int], above: tuple[ast.AST, ...]
) -> str:
    """Return the statement that a node is in, with `_HERE` in its place."""
    statement = next((a for a in above if isinstance(a, ast.stmt)), None)
    if statement is None or isinstance(node, ast.stmt):
        return _HERE
    name, at = place
    held = getattr(parent, name)
    here = ast.Name(_HERE)
    setattr(parent, name, here if at < 0 else [*held[:at], here, *held[at + 1 :]])
    try:
        return _header(statement)
    except ValueError:  # the text of a formatted string is no expression
        return _HERE
    finally:
        setattr(parent, name, held)


def _inner(node: ast.expr) -> str:
    """Return an expression as an operand."""
    text = _text(node)
    plain = isinstance(
        node, ast.Name | ast.Call | ast.Constant | ast.Subscript | ast.Attribute
    )
    return text if plain else f"({text})"


class _Sites:
    """The changes of one function."""

    def __init__(self, code: Code, codes: Iterable[Code], of_memory: bool) -> None:
        self._code = code
        self._functions = {each.name for each in codes}
        self._sizes = {n for each in codes for n in each.sizes}
        self._narrow = any(each.narrow for each in codes)
        self._prior = _OF_MEMORY if of_memory else {}
        self._kernel = code.jit is not None
        self._statements = {
            _header(each)
            for every in codes
            for each in ast.walk(every.tree)
            if isinstance(each, ast.stmt)
        }
        nodes = list(ast.walk(code.tree))
        read = {n.id for n in nodes if isinstance(n, ast.Name)}
        self._unread = {a.arg for a in code.tree.args.args} - read
        self._names: dict[str, list[str]] = {}
        for name, kind in code.kinds.items():
            self._names.setdefault(kind, []).append(name)
        # What calls are given by one name, and the conditions there are.
        self._given: dict[tuple[str, str], dict[str, None]] = {}
        self._conditions: dict[str, None] = {}
        for node in nodes:
            if isinstance(node, ast.Call):
                for word in node.keywords:
                    role = _called(node), word.arg or ""
                    self._given.setdefault(role, {})[_text(word.value)] = None
            if self.kind(node) in ("mask", "MASK") and isinstance(
                node, ast.Compare | ast.BinOp
            ):
                self._conditions[_text(node)] = None
        masks = dict.fromkeys((*self.named("MASK"), *self.named("mask")))
        self._masks = [*masks, *(c for c in self._conditions if c not in masks)]
        # Guards that stand nowhere: a block of indices below a size.
        laid = (
            _text(node)
            for node in nodes
            if isinstance(node, ast.Subscript) and self.kind(node) == "INT"
        )
        known = {c.rpartition(" < ")[2].strip("()") for c in self._conditions}
        self._guards = {
            f"{index} < {bound}": 1.6 if bound in known else 2.0
            for index in dict.fromkeys((*self.named("INT"), *laid))
            for bound in self.named("int")
            if f"{index} < {bound}" not in self._conditions
        }

    def named(self, *kinds: str) -> list[str]:
        """Return the names of some kinds."""
        return [name for kind in kinds for name in self._names.get(kind, ())]

    def kind(self, node: ast.AST) -> str:
        """Return the kind of an expression, as far as its form tells."""
        match node:
            case ast.Name(id=name):
                return self._code.kinds.get(name, "")
            case ast.Constant(value=bool()):
                return "flag"
            case ast.Constant(value=int()):
                return "int"
            case ast.Constant(value=float()):
                return "float"
            case ast.Compare():
                return "MASK"
            case ast.UnaryOp(operand=operand):
                return self.kind(operand)
            case ast.Subscript(value=value):
                return self.kind(value)
            case ast.IfExp(body=body):
                return self.kind(body)
            case ast.BinOp(left=left, op=op, right=right):
                if isinstance(op, ast.Div):
                    return "FLOAT"
                both = self.kind(left), self.kind(right)
                return next((k for k in _KINDS if k in both), "")
            case ast.Call(func=func, args=args):
                return self._kind_of_call(_text(func), args)
        return ""

    def _kind_of_call(self, name: str, args: list[ast.expr]) -> str:
        last = name.rpartition(".")[2]
        if last in ("arange", "program_id", "num_programs", "cdiv", "numel", "stride"):
            return "INT" if last == "arange" else "int"
        if last == "to":
            return "INT" if args and ".int" in _text(args[0]) else "FLOAT"
        if last in ("load", "sum", "max", "min", "dot", "exp", "log", "sqrt", "rsqrt"):
            return "FLOAT"
        if last in ("maximum", "minimum", "where", "abs", "zeros", "full", "sigmoid"):
            return self.kind(args[-1]) or "FLOAT" if args else "FLOAT"
        return "float" if last == "float" else ""

    def edits(self) -> Iterator[Edit]:
        """Yield the changes."""
        yield from self._below(self._code.tree, self._code.tree.body, "body", ())

    def _below(
        self, parent: ast.AST, nodes: Any, name: str, above: tuple[ast.AST, ...]
    ) -> Iterator[Edit]:
        listed = isinstance(nodes, list)
        for at, node in enumerate(nodes if listed else [nodes]):
            if not isinstance(node, ast.AST):
                continue
            if isinstance(node, ast.stmt) and not self._ran(node):
                continue
            place = name, at if listed else -1
            if isinstance(node, ast.expr | ast.stmt) and not _is_wrapper(node):
                prior = self._prior.get(self.kind(node).upper(), 0.0)
                if _called(node) in ("tl.load", "tl.store"):
                    prior = self._prior.get("MASK", 0.0)
                computes = not self._kernel and any(map(_computes, (node, *above)))
                near = (node, *ast.iter_child_nodes(node))
                bound = isinstance(node, ast.expr) and any(map(self._is_bound, near))
                before = _text(node)
                around = _around(node, parent, place, above)
                for text, cost, *spots in self._changes(node, above):
                    if text and text != before:
                        forms = {around.replace(_HERE, f) for f in (text, f"({text})")}
                        if text in self._unread or forms & self._statements:
                            cost -= _LIKELY
                        wider = self._narrow and "float32" in text.replace(before, "")
                        cost += prior
                        if computes:
                            cost = max(cost, _COMPUTING + cost / 10)
                        spot = spots[0] if spots else None
                        yield Edit(
                            self._code, parent, place, node, text, cost, spot,
                            bound or wider,
                        )  # fmt: skip
            for inner, value in ast.iter_fields(node):
                if self._is_fixed(node, inner, value):
                    continue
                if isinstance(value, ast.AST | list):
                    yield from self._below(node, value, inner, (node, *above))

    def _is_bound(self, node: ast.AST) -> bool:
        """Whether a node is a size that the data of the failing call is above."""
        match node:
            case ast.Constant(value=int(held)):
                pass
            case ast.Name(id=name):
                held = self._code.integers.get(name, 0)
            case _:
                return False
        if held + 1 in self._sizes:
            return held >= _LEAST_BOUND
        return _LARGE <= held < max(self._sizes, default=0) and held not in self._sizes

    def _is_fixed(self, node: ast.AST, name: str, value: Any) -> bool:
        """Whether a field of a node is left as it is."""
        if name == "slice":  # but for the grid of a launch
            return self._kernel
        if isinstance(node, ast.Call) and name == "func":
            return not isinstance(value, ast.Attribute | ast.Subscript)
        return name in _FIXED or (isinstance(node, ast.AugAssign) and name == "target")

    def _ran(self, node: ast.stmt) -> bool:
        end = node.end_lineno or node.lineno
        return any(line in self._code.lines for line in range(node.lineno, end + 1))

    def _changes(self, node: Any, above: tuple[ast.AST, ...]) -> Iterator[_Change]:
        parent = next((a for a in above if not _is_wrapper(a)), node)
        if not self._kernel and not self._is_free(node, above):
            return
        match node:
            case ast.Constant():
                yield from self._constants(node, parent)
            case ast.Name() | ast.Attribute():
                yield from self._names_for(node, parent)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                for sign in _COMPARED.get(type(op), ()):
                    yield f"{_text(left)} {sign} {_text(right)}", 1.0
            case ast.BinOp():
                yield from self._calculated(node)
            case ast.UnaryOp(operand=operand):
                yield _text(operand), 1.0
            case ast.IfExp(body=body, orelse=orelse):
                yield _text(body), 1.6
                yield _text(orelse), 1.6
            case ast.Subscript(value=value, slice=ast.Slice(step=ast.expr())):
                yield _text(value), 1.0
            case ast.Call():
                yield from self._calls(node)
            case ast.Assign(targets=[ast.Name(target)], value=value):
                if isinstance(value, ast.Call) and _is_wrapper(value):
                    value = value.args[0]
                if self._kernel and any(isinstance(a, ast.For) for a in above):
                    yield f"{target} += {_inner(value)}", 1.4  # keeps what it had
            case ast.AugAssign(target=target, op=op, value=value):
                for sign in _CALCULATED.get(type(op), ()):
                    cost = 1.0 if sign in "+-" else 1.5  # sums are seldom products
                    yield f"{_text(target)} {sign}= {_text(value)}", cost
                yield "pass", 2.0
        if isinstance(node, ast.expr):
            yield from self._wrapped(node, parent)
            if not self._kernel and not isinstance(node, ast.Starred):
                yield from self._strides(node, parent)

    def _is_free(self, node: ast.AST, above: tuple[ast.AST, ...]) -> bool:
        """Whether nothing but arithmetic and launches follow from a host's node."""
        outer = [a for a in above if isinstance(a, ast.Call)]
        if isinstance(node, ast.stmt):
            return False
        launched = bool(outer) and isinstance(outer[0].func, ast.Subscript)
        if launched and isinstance(node, ast.Constant):
            return False  # a block's size: other tiles hide a fault
        branches = [a for a in above if isinstance(a, ast.If | ast.While | ast.IfExp)]
        calls = [c for branch in branches for c in ast.walk(branch)]
        return all(map(self._is_harmless, (node, *outer, *calls)))

    def _is_harmless(self, node: ast.AST) -> bool:
        """Whether a node is no call of a function that may do anything."""
        if not isinstance(node, ast.Call) or isinstance(node.func, ast.Subscript):
            return True
        name = _called(node).rpartition(".")[2]
        return name in _OF_HOST or name in self._functions or _computes(node)

    def _constants(self, node: ast.Constant, parent: ast.AST) -> Iterator[_Change]:
        value = node.value
        if isinstance(value, bool):
            yield str(not value), 1.5
        elif isinstance(value, int):
            for other, cost in ((value - 1, 1.2), (value + 1, 1.2), (0, 1.1), (1, 1.4)):
                yield str(other), cost
            if isinstance(parent, ast.BinOp):
                for name in self.named("int"):
                    yield name, 1.8
            if isinstance(parent, ast.keyword) or self._is_value(parent):
                for neutral in _NEUTRAL:
                    yield neutral, 1.3
        elif isinstance(value, float):
            yield from self._numbers(value)

    def _is_value(self, parent: ast.AST) -> bool:
        if isinstance(parent, ast.keyword):
            return parent.arg == "other"
        return _called(parent) in ("tl.full", "tl.where", "tl.maximum", "tl.minimum")

    def _numbers(self, value: float) -> Iterator[_Change]:
        """Yield other numbers for one that is written down."""
        for digits in (6, 5, 3):
            short = float(f"{value:.{digits}g}")
            if short != value:
                yield repr(short), 0.8
        for known in _KNOWN:
            for sign in (1, -1):
                if value != sign * known and abs(value / (sign * known) - 1) < 0.02:
                    yield repr(sign * known), 0.7
        for other, cost in (
            (value - 1, 1.2), (value + 1, 1.2), (-value, 1.3), (2 * value, 1.6),
            (value / 2, 1.6),
        ):  # fmt: skip
            yield repr(other), cost
        for neutral in _NEUTRAL:
            yield neutral, 1.3

    def _names_for(self, node: Any, parent: ast.AST) -> Iterator[_Change]:
        text = _text(node)
        if text in _WIDER:
            yield _WIDER[text], 1.0 if text != "tl.float32" else 2.2
        if text in ("torch.float32", "torch.float64"):
            for tensor in self.named("tensor"):
                yield f"{tensor}.dtype", 1.2
        if text.endswith(".dtype.element_ty"):
            yield "tl.float32", 1.2
        if not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Store):
            return
        kind = self.kind(node)
        if kind:
            for name in self.named(kind):
                if name != text:
                    yield name, 1.9
        if kind in ("FLOAT", "float") and self._is_value(parent):
            for neutral in _NEUTRAL:
                yield neutral, 1.8
        if kind == "int" and _called(parent) == "range":
            yield "0", 1.4
        if kind == "int" and isinstance(parent, ast.BinOp | ast.Compare):
            for sign in "+-":
                yield f"({text} {sign} 1)", 1.6
        if kind == "tensor" and isinstance(parent, ast.Call | ast.Assign):
            yield f"{text}.contiguous()", 2.0  # it hides what strides are at fault

    def _calculated(self, node: ast.BinOp) -> Iterator[_Change]:
        left, right = node.left, node.right
        one, two = _inner(left), _inner(right)
        for sign in _CALCULATED.get(type(node.op), ()):
            yield f"{one} {sign} {two}", 1.0
        match node:
            case ast.BinOp(ast.Call(args=[each]) as call, ast.Add()):
                yield self._call(call, args=[f"{_text(each)} + {two}"]), 1.2
        if isinstance(node.op, ast.FloorDiv):
            yield f"({one} + {two} - 1) // {two}", 1.1
        if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod):
            yield f"{two} {_text_of(node.op)} {one}", 1.0
        yield from self._hoisted(node)
        if self._kernel and isinstance(node.op, ast.Mult | ast.Div):
            named = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            for name in filter(named.__contains__, self.named("FLOAT")):
                yield f"tl.where({name} != 0, {_text(node)}, 0.0)", 2.1
        # a * (1 / b), as a division is written that is to be fast.
        if isinstance(node.op, ast.Mult):
            inner = right
            while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                inner = inner.func.value
            match inner:
                case ast.BinOp(left=ast.Constant(value=1.0), op=ast.Div(), right=base):
                    yield f"{one} / {_inner(base)}", 1.1

    def _hoisted(self, node: ast.expr) -> Iterator[_Change]:
        """Yield what is below an expression, in its place: the nearest cost least."""
        size, own = _size(node), 0.0
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            own = _OWN_CALL if node.func.id not in ("min", "max") else 0.0
        data = self._data_of(node)
        pieces = [(each, 0) for each in _operands(node)]
        for each, depth in pieces:
            if not isinstance(each, ast.Starred | ast.Constant):
                lost = _LOST if data - self._data_of(each) else 0.0
                cost = 0.9 + _EACH_NODE * (size - _size(each)) + own + lost
                yield _inner(each), cost
            if depth < _DEEPEST:
                pieces += [(below, depth + 1) for below in _operands(each)]

    def _data_of(self, node: ast.AST) -> set[str]:
        """Return the names of data in an expression, sizes and flags apart."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return {n for n in names if self._code.kinds.get(n, "").upper() in _DATA}

    def _calls(self, node: ast.Call) -> Iterator[_Change]:
        name = _called(node)
        yield from self._hoisted(node)
        owner, dot, own = name.rpartition(".")
        for family in _SIBLINGS:
            if dot and own in family:
                for other in family:
                    yield self._call(node, function=f"{owner}.{other}"), 1.0
        args = [_text(a) for a in node.args]
        match node.args:
            case [ast.BinOp(left, ast.Add(), right)]:
                yield f"{self._call(node, args=[_text(left)])} + {_inner(right)}", 1.2
        if own == "exp" and args:
            each = _inner(node.args[-1])
            dim = "dim" if "dim" in self.named("int") else "-1"
            top = f"{each}.amax({dim}, True)"
            top = f"tl.max({each}, 0)" if self._kernel else top
            yield self._call(node, args=[f"{each} - {top}"]), 2.1
            yield self._call(node, args=[f"-{each}"]), 1.4
        for at in range(len(args) - 1):
            if self._alike(node.args[at], node.args[at + 1]):
                swapped = [*args[:at], args[at + 1], args[at], *args[at + 2 :]]
                yield self._call(node, args=swapped), 1.5, node.args[at]
        words = {k.arg or "": _text(k.value) for k in node.keywords}
        if not self._kernel:
            if own in ("var", "std", "var_mean") and "unbiased" not in words:
                yield self._call(node, words={**words, "unbiased": "False"}), 2.1
            return
        if name in ("tl.load", "tl.store"):
            yield from self._masked(node, name, words)
        if name in ("tl.maximum", "tl.minimum") and "propagate_nan" not in words:
            more = {**words, "propagate_nan": "tl.PropagateNan.ALL"}
            yield self._call(node, words=more), 1.3

    def _masked(
        self, node: ast.Call, name: str, words: Mapping[str, str]
    ) -> Iterator[_Change]:
        """Yield a load or store with another mask, and what stands for the rest."""
        siblings = [
            text
            for other in ("tl.load", "tl.store")
            for text in self._given.get((other, "mask"), ())
        ]
        fills = dict.fromkeys((*self._given.get((name, "other"), ()), *_NEUTRAL))
        if "mask" in words:
            if name == "tl.load" and "other" not in words:
                for fill in fills:
                    yield self._call(node, words={**words, "other": fill}), 1.3
            return
        masks = dict.fromkeys((*siblings, *self._masks), 1.3)
        costs = {**self._guards, **masks}
        for mask, cost in costs.items():
            more = {**words, "mask": mask}
            if name == "tl.store":
                yield self._call(node, words=more), cost
                continue
            for fill in fills:
                yield self._call(node, words={**more, "other": fill}), cost

    def _strides(self, node: ast.expr, parent: ast.AST) -> Iterator[_Change]:
        """Yield what a stride of a wrapper may be instead."""
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Subscript):
            for tensor in self.named("tensor"):
                for axis in (0, 1, -1, -2):
                    yield f"{tensor}.stride({axis})", 1.5

    def _alike(self, one: ast.expr, two: ast.expr) -> bool:
        if isinstance(one, ast.Starred) or isinstance(two, ast.Starred):
            return False
        return type(one) is type(two) and self.kind(one) == self.kind(two)

    def _call(
        self,
        node: ast.Call,
        *,
        function: str = "",
        args: list[str] | None = None,
        words: Mapping[str, str] | None = None,
    ) -> str:
        given = [_text(a) for a in node.args] if args is None else args
        named = {k.arg or "": _text(k.value) for k in node.keywords}
        named = named if words is None else dict(words)
        parts = [*given, *(f"{k}={v}" if k else f"**{v}" for k, v in named.items())]
        return f"{function or _called(node)}({', '.join(parts)})"

    def _wrapped(self, node: ast.expr, parent: ast.AST) -> Iterator[_Change]:
        """Yield an expression with something around it."""
        kind, text = self.kind(node), _inner(node)
        whole = isinstance(parent, ast.Return | ast.Assign)
        if not self._kernel and whole and isinstance(node, ast.Call | ast.BinOp):
            yield f"{text}.sqrt()", 2.2
            for name in self.named("int"):  # a factor that is missing
                yield f"{text} / {name}", 2.2
                yield f"{text} * {name}", 2.2
        if not self._kernel or isinstance(node, ast.Constant):
            return
        if kind in ("MASK", "mask") and not isinstance(parent, ast.BinOp):
            # Where it is made rather than where it is used.
            used = 0.2 if isinstance(node, ast.Name) else 0.0
            for mask in self._masks:
                if mask != _text(node):
                    yield f"{text} & ({mask})", 1.7 + used
            for guard, cost in self._guards.items():
                yield f"{text} & ({guard})", cost + used
        whole = isinstance(parent, ast.Call | ast.Assign | ast.AugAssign | ast.BinOp)
        if kind not in ("FLOAT", "float") or not whole:
            if kind in ("INT", "int") and isinstance(parent, ast.BinOp):
                yield f"{text}.to(tl.int64)", 1.6
            return
        yield f"{text}.to(tl.float32)", 1.3
        of_call = _called(parent)
        if of_call in ("tl.sum", "tl.max", "tl.min", "tl.exp") or isinstance(
            parent, ast.AugAssign | ast.Assign
        ):
            neutral = _IDENTITY.get(of_call, "0.0")
            for mask in self._masks:
                yield f"tl.where({mask}, {text}, {neutral})", 2.2
        if isinstance(parent, ast.Call | ast.Assign | ast.AugAssign) or not isinstance(
            node, ast.Name
        ):
            for name in self.named("FLOAT", "float"):
                if name == _text(node):
                    continue
                for sign, cost in (("*", 2.3), ("-", 2.3), ("+", 2.4), ("/", 2.5)):
                    yield f"({text} {sign} {name})", cost


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return what an expression may be without: operands, and what is called on."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args):
            if _text(value) not in ("tl", "torch", "triton", "math"):
                return args[1:] if name == "setdefault" else [value]
            return [] if name in ("load", "store") else list(args)
        case ast.Call(args=args):
            return list(args)
    return []


def _size(node: ast.AST) -> int:
    return sum(isinstance(n, ast.expr) for n in ast.walk(node))


def _text_of(op: ast.AST) -> str:
    """Return the sign of an operator."""
    one, two = ast.Name("a"), ast.Name("b")
    made: ast.expr = ast.BinOp(one, op, two)  # type: ignore[arg-type]
    if isinstance(op, ast.cmpop):
        made = ast.Compare(one, [op], [two])
    return " ".join(_text(made).split()[1:-1])


# In a process whose caller tells by an argument which change is made: this file's text,
# and a line below it, are then sent there as what it imports.

LIST: Final = -1
"""As the number of a change: return the changes, in JSON as bytes, in place of results.
"""
LIST_OF_MEMORY: Final = -2
"""The same for what is about an access."""


def steered(file: str, build: str, args: tuple[Any, ...]) -> Any:
    """Return what a file defines, whose calls take the number of a change besides.

    Args:
        file: the file, which is imported.
        build: name of the class in it.
        args: of its constructor.
    """
    name = f"{file.rpartition('/')[2].removesuffix('.py')}_file"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    sys.path.insert(0, file.rpartition("/")[0])
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    target = getattr(module, build)(*args)
    plain, edits = target.forward, list[Edit]()

    def forward(*given: Any) -> Any:
        *values, number = given
        if int(number) >= 0:
            chosen = edits[int(number) - 1].made() if number else nullcontext()
            with chosen:
                return plain(*values)

        def call() -> None:
            with suppress(Exception):  # that may be what it is asked for
                plain(*values)

        made = codes_of(getattr(plain, "__func__", plain), call)
        codes = [code for code in made if code.file == file]
        with traced(codes):
            call()
        is_triton = any(code.jit for code in codes)
        of_memory = int(number) == LIST_OF_MEMORY
        edits[:] = edits_of(codes, of_memory=of_memory) if is_triton else []
        told = [[e.line, e.column, e.cost, e.words] for e in edits]
        return number.new_tensor(list(json.dumps(told).encode()))

    target.forward = forward
    return target
