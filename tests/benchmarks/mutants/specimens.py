"""The correct Triton kernels, each as one file of its own that a mutator can change."""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import Witness

FOLDER: Final = Path(__file__).resolve().parents[3] / "contracts" / "witnesses"
# Written into the file itself: its functions are part of the kernel.
_INLINED: Final = ("activations", "rows")
_PACKAGE: Final = "kfuzz.contracts.witnesses"

Known = Mapping[str, object]


@dataclass(frozen=True)
class Specimen:
    """One correct kernel.

    Attributes:
        name: of the witness.
        known: constants of its kernels that no call changes: what they switch off is
            not code of this kernel.
        backends: where it runs.
        witness: with the shapes of its functional test.
    """

    name: str
    known: Known = field(default_factory=dict)
    backends: tuple[str, ...] = ("interpret", "cuda")

    @property
    def witness(self) -> Witness:
        """The witness that it is made of."""
        return _witness(self.name)

    @cached_property
    def text(self) -> str:
        """The file: imports and what the witness reaches, as they are written."""
        own = _Module.of(self.witness.module)
        wanted = own.reached({self.name})
        lines: list[str] = [own.segment(own.tree.body[0]), ""]
        inlined: list[str] = []
        for node in own.tree.body[1:]:
            if isinstance(node, ast.ImportFrom) and (base := _inlined(node)):
                other = _Module.of(base)
                names = {alias.name for alias in node.names}
                lines += [
                    other.segment(n)
                    for n in other.tree.body
                    if isinstance(n, ast.Import | ast.ImportFrom)
                    and other.segment(n) not in lines
                ]
                reached = other.reached(names & wanted)
                inlined += [
                    other.segment(n) for n in other.tree.body if _defined(n) & reached
                ]
            elif isinstance(node, ast.Import | ast.ImportFrom):
                lines.append(own.segment(node))
            elif _defined(node) & wanted:
                inlined.append(own.segment(node))
        return "\n".join(lines) + "\n\n\n" + "\n\n\n".join(inlined) + "\n"

    @property
    def digest(self) -> str:
        """Tells the file from what it was when something was learnt of it."""
        return digest(self.text)

    @cached_property
    def tree(self) -> ast.Module:
        """The file's syntax."""
        return ast.parse(self.text)

    def functions(self) -> Iterator[ast.FunctionDef]:
        """Yield the functions that its calls reach, in order."""
        known = {n.name: n for n in self.tree.body if isinstance(n, ast.FunctionDef)}
        left, seen = {self.name}, set()
        while left:
            seen.add(name := left.pop())
            left |= (_called(known[name], self.known) & known.keys()) - seen
        yield from (node for name, node in known.items() if name in seen)


def digest(text: str) -> str:
    """Return what tells a file from another one."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_kernel(function: ast.FunctionDef) -> bool:
    """Whether a function is compiled by Triton, and no function of the host."""
    return any("jit" in ast.dump(d) for d in function.decorator_list)


def live(node: ast.AST, known: Known) -> Iterator[ast.AST]:
    """Yield a node and what lies below it, without what known constants switch off."""
    yield node
    match node:
        case ast.If(test=test, body=body, orelse=orelse):
            yield from live(test, known)
            for each in _chosen(test, body, orelse, known):
                yield from live(each, known)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield from live(test, known)
            for each in _chosen(test, [body], [orelse], known):
                yield from live(each, known)
        case _:
            for each in ast.iter_child_nodes(node):
                yield from live(each, known)


def _called(function: ast.FunctionDef, known: Known) -> set[str]:
    """Return the names in a function, but for what they are told apart from."""
    nodes = list(live(function, known))
    told = {
        id(n)
        for compare in nodes
        if isinstance(compare, ast.Compare) and isinstance(compare.ops[0], ast.Is)
        for n in compare.comparators
    }
    return {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in told}


def _chosen(test: ast.expr, body: list, orelse: list, known: Known) -> list[ast.AST]:
    try:
        code = compile(ast.Expression(test), "", "eval")
        taken = eval(code, {"__builtins__": {}}, dict(known))
    except NameError:  # decided by the arguments
        return [*body, *orelse]
    return body if taken else orelse


class _Module:
    """A module of the witnesses, by its names."""

    def __init__(self, name: str) -> None:
        self.text = (
            FOLDER.joinpath(*name.split(".")).with_suffix(".py").read_text("utf-8")
        )
        self.tree = ast.parse(self.text)
        self._lines = self.text.splitlines()
        for node in self.tree.body:  # what says that it is a witness is no part of it
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = [
                    d for d in node.decorator_list if "id='witness'" not in ast.dump(d)
                ]

    @staticmethod
    @cache
    def of(name: str) -> "_Module":
        return _Module(name)

    def segment(self, node: ast.stmt) -> str:
        """Return a statement as it is written, decorators and all."""
        first = min([node.lineno, *(d.lineno for d in _decorators(node))])
        return "\n".join(self._lines[first - 1 : node.end_lineno])

    def reached(self, names: set[str]) -> set[str]:
        """Return names, and all that their definitions mention, near or far."""
        seen: set[str] = set()
        while names - seen:
            name = (names - seen).pop()
            seen.add(name)
            for node in self.tree.body:
                if name in _defined(node):
                    inside = (n for n in ast.walk(node) if isinstance(n, ast.Name))
                    names = names | {n.id for n in inside}
        return seen


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return list(getattr(node, "decorator_list", ()))


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module binds, imports apart."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            inside = (n for t in targets for n in ast.walk(t))
            return {n.id for n in inside if isinstance(n, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def _inlined(node: ast.ImportFrom) -> str:
    """Return the module of the package that an import is replaced by, "" if none."""
    package, _, name = (node.module or "").rpartition(".")
    return name if package == _PACKAGE and name in _INLINED else ""


def _witness(name: str) -> Witness:
    if name in everywhere():
        return everywhere()[name]
    from kfuzz.contracts.witnesses.gpu.faults import WITNESSES as ON_GPU

    return next(w for w in ON_GPU if w.kernel == name)


def _elementwise(name: str) -> Specimen:
    return Specimen(f"triton_{name}", {"NAME": name})


def _product(name: str, *, bias: bool, activation: str) -> Specimen:
    named = ("HALF_ACCUMULATOR", "COERCE", "half_accumulator", "coerce", "drop_tail")
    faults = {"tuned_for": None, **dict.fromkeys(named, False)}
    known = {"BIAS": bias, "ACTIVATION": activation, "NAME": activation, **faults}
    return Specimen(f"triton_{name}", known)


def _norm(name: str, *, centred: bool = False, residual: bool = False) -> Specimen:
    known = {"CENTRED": centred, "RESIDUAL": residual, "EPS_OUTSIDE": False}
    return Specimen(f"triton_{name}", known)


_GPU: Final = ("cuda",)
SPECIMENS: Final = (
    Specimen("triton_softmax", {"TAIL_ZERO": False, "SUBTRACT_MAX": True}),
    _norm("layer_norm", centred=True),
    _product("matmul", bias=False, activation="none"),
    Specimen("triton_sum"),
    Specimen("triton_amax", {"ZERO_IDENTITY": False, "SWALLOW_NAN": False}),
    Specimen("triton_relu"),
    Specimen("triton_embedding", {"checked": True}),
    Specimen("triton_cross_entropy"),
    Specimen("triton_copy"),
    Specimen("triton_transpose"),
    Specimen("triton_argmax", {"LAST": False, "last": False}),
    Specimen("triton_cumsum"),
    _norm("add_rms_norm", residual=True),
    _norm("rms_norm"),
    Specimen("triton_log_softmax"),
    _product("bmm", bias=False, activation="none"),
    _product("linear", bias=True, activation="none"),
    _product("linear_relu", bias=True, activation="relu"),
    _product("linear_gelu", bias=True, activation="gelu"),
    Specimen("triton_attention"),
    Specimen("triton_add", {"SUM": True}),
    Specimen("triton_mul", {"SUM": False, "GATE": "none", "NAME": "none"}),
    Specimen("triton_swiglu", {"SUM": False, "GATE": "silu", "NAME": "silu"}),
    Specimen("triton_geglu", {"SUM": False, "GATE": "gelu", "NAME": "gelu"}),
    *(
        _elementwise(name)
        for name in (
            "clamp", "leaky_relu", "elu", "sigmoid", "tanh", "exp", "log", "softplus",
            "gelu", "gelu_tanh", "silu",
        )
    ),
    Specimen("triton_sum_atomic", backends=_GPU),
)  # fmt: skip
"""Where several share code, the first in order has its mutants."""
