"""Witnesses of the contracts as candidates: correct ones, and faulty ones beside them.

Foreign files import nothing of kfuzz, so that each takes with it what it uses.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from kfuzz.contracts import witnesses
from kfuzz.contracts.witnesses.roster import everywhere
from tests.features.judge.adversaries.problems import Problem

_PACKAGE: Final = witnesses.__name__
_ROWS: Final = "[torch.randn(6, 40)]"
_TWO: Final = "[torch.randn(9, 20), torch.randn(9, 20)]"


def _use(
    right: str, inputs: str, calls: str, faulty: str = "", arguments: str = "x"
) -> tuple[Problem, str, str]:
    """Return a problem, and its correct and faulty witnesses as they are called."""
    name = calls.partition("(")[0]
    return Problem(name, inputs, right, right, arguments=arguments), calls, faulty


USES: Final = (
    _use("torch.relu(x)", _ROWS, "triton_relu(x)", "relu_one_shape(x)"),
    _use("torch.sigmoid(x)", _ROWS, "triton_sigmoid(x)"),
    _use("torch.exp(x)", _ROWS, "triton_exp(x)"),
    _use("torch.tanh(x)", _ROWS, "triton_tanh(x)"),
    _use("F.softplus(x)", _ROWS, "triton_softplus(x)"),
    _use("F.gelu(x)", _ROWS, "triton_gelu(x)", "gelu_by_tanh(x)"),
    _use("F.gelu(x, approximate='tanh')", _ROWS, "triton_gelu_tanh(x)"),
    _use("F.silu(x)", _ROWS, "triton_silu(x)"),
    _use("F.elu(x)", _ROWS, "triton_elu(x)"),
    _use("F.leaky_relu(x, 0.1)", _ROWS, "triton_leaky_relu(x, 0.1)"),
    _use("x.clamp(-0.5, 0.75)", _ROWS, "triton_clamp(x, -0.5, 0.75)"),
    _use("A + B", _TWO, "triton_add(A, B)", arguments="A, B"),
    _use("A * B", _TWO, "triton_mul(A, B)", arguments="A, B"),
    _use("F.silu(A) * B", _TWO, "triton_swiglu(A, B)", arguments="A, B"),
    _use("F.gelu(A) * B", _TWO, "triton_geglu(A, B)", arguments="A, B"),
    _use("x.t().contiguous()", _ROWS, "triton_transpose(x)"),
    _use(
        "torch.softmax(x, dim=-1)", _ROWS, "triton_softmax(x)",
        "softmax_tail_zero(x); softmax_no_max(x)",
    ),
    _use("F.log_softmax(x, dim=-1)", _ROWS, "triton_log_softmax(x)"),
    _use("x.sum(dim=1)", _ROWS, "triton_sum(x, 1)", "sum_drop_tail(x, 1)"),
    _use(
        "x.amax(dim=1)", _ROWS, "triton_amax(x, 1)",
        "amax_zero_identity(x, 1); amax_nan_swallowed(x, 1)",
    ),
    _use(
        "x.argmax(dim=1)", _ROWS, "triton_argmax(x, 1)", "argmax_last_of_equals(x, 1)"
    ),
    _use("x.cumsum(dim=1)", _ROWS, "triton_cumsum(x, 1)"),
    _use(
        "F.layer_norm(x, (x.shape[-1],), w, b)",
        "[torch.randn(6, 40), torch.rand(40) + 0.5, torch.randn(40)]",
        "triton_layer_norm(x, w, b)", "layer_norm_padded_variance(x, w, b); "
        "layer_norm_one_pass(x, w, b)", "x, w, b",
    ),
    _use(
        "F.rms_norm(x, (x.shape[-1],), w, 1e-6)",
        "[torch.randn(6, 40), torch.rand(40) + 0.5]",
        "triton_rms_norm(x, w)", "rms_norm_eps_outside(x, w)", "x, w",
    ),
    _use(
        "A @ B", "[torch.randn(20, 24), torch.randn(24, 12)]", "triton_matmul(A, B)",
        "matmul_drop_tail(A, B)", "A, B",
    ),
    _use(
        "torch.bmm(A, B)", "[torch.randn(2, 8, 12), torch.randn(2, 12, 6)]",
        "triton_bmm(A, B)", arguments="A, B",
    ),
    _use(
        "F.kl_div(A, B)",
        "[torch.randn(6, 9).log_softmax(1), torch.randn(6, 9).softmax(1)]",
        "triton_kl_div(A, B)", "", "A, B",
    ),
)  # fmt: skip


def sources() -> Iterator[tuple[Problem, str, str, bool]]:
    """Yield problem, name, file and whether it has to violate, of each witness."""
    for problem, correct, faulty in USES:
        for wrong, calls in ((False, correct), (True, faulty)):
            for call in filter(None, calls.split("; ")):
                name = call.partition("(")[0]
                source = problem.candidate(
                    "return self.right(" + problem.arguments + ")",
                    top=standalone(everywhere()[name].module, name),
                    right=call,
                )
                yield problem, name, source, wrong


def standalone(module: str, name: str) -> str:
    """Return the text of a function of a module and of all that it uses."""
    imports, defined = _read(module)
    wanted, kept = {name}, set[str]()
    while wanted:
        kept.add(one := wanted.pop())
        used = {n.id for n in ast.walk(defined[one]) if isinstance(n, ast.Name)}
        wanted |= (used & defined.keys()) - kept
    nodes = [*imports, *(node for key, node in defined.items() if key in kept)]
    return "\n\n".join(dict.fromkeys(map(ast.unparse, nodes)))


@cache
def _read(module: str) -> tuple[list[ast.stmt], dict[str, ast.stmt]]:
    """Return what a module imports, and what it and its helpers define, by name."""
    below = module.removeprefix(_PACKAGE + ".")
    file = Path(witnesses.__path__[0], *below.split(".")).with_suffix(".py")
    tree = ast.parse(file.read_text())
    imports: list[ast.stmt] = []
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kfuzz"):
            helpers = str(node.module)
            if helpers.startswith(_PACKAGE) and not helpers.endswith(".witness"):
                more, theirs = _read(helpers)
                imports += more
                defined |= theirs
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.FunctionDef):
            node.decorator_list = [
                d for d in node.decorator_list if "triton.jit" in ast.unparse(d)
            ]
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            names = [n for t in node.targets for n in ast.walk(t)]
            defined |= {n.id: node for n in names if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined[node.target.id] = node
    return imports, defined
