"""What candidates are judged on: a reference's text, or an operator and its inputs."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.features.judge.candidate import BUILT
from kfuzz.store.files import read_source
from kfuzz.strategies.parameters import IndexParameter

_TENSOR: Final = re.compile(r"(\w+)\s*\[\s*([\d\s,]*)\]")
# What follows from the arguments that a reference gives, and from how it is called.
_OF_THE_FORM: Final = frozenset(
    {"dtypes", "layouts", "alignment", "shape_class", "inplace", "out"}
)
# Before these no other statement may stand.
_FUTURE: Final = re.compile(r"^from __future__ import (\([^)]*\)|.*)$", re.MULTILINE)
_MODULE: Final = """

if {built!r} not in globals():
    import torch as _torch

    class {built}(_torch.nn.Module):
        def forward(self, *arguments):
            return {entry}({given})
"""


@dataclass(frozen=True)
class Task:
    """What candidates are judged on.

    Attributes:
        reference: the text of a reference in KernelBench's form; trusted, it is run.
        entry: what a candidate's file defines: a class `ModelNew`, or a function of
            this name that takes the tensors.
        claims: what candidates declare, as `kfuzz.kernel` takes it.
        packed: whether that function takes several tensors as one tuple.
        given: what runs before a candidate's text: the modules that it may import.
    """

    reference: str
    entry: str = BUILT
    claims: Mapping[str, Any] = field(default_factory=dict)
    packed: bool = False
    given: str = ""

    def __post_init__(self) -> None:
        """Check what is declared, and the name.

        Raises:
            BindingError: if a declaration is unknown or impossible.
            UsageError: if the entry is no name, or what is declared follows from the
                reference.
        """
        if given := sorted(_OF_THE_FORM & self.claims.keys()):
            raise UsageError(
                f"{given[0]} is not declared of candidates", where="the task",
                fix="get_inputs() of the reference says what they are given",
            )  # fmt: skip
        Declaration().declare("the task", **self.claims)
        if not all(part.isidentifier() for part in self.entry.split(".")):
            raise UsageError(f"entry {self.entry!r} is no Python name")

    def candidate(self, source: str) -> str:
        """Return the text of a candidate in KernelBench's form."""
        if self.given:
            first = list(_FUTURE.finditer(source))
            at = first[-1].end() if first else 0
            source = f"{source[:at]}\n{self.given}\n{source[at:]}"
        if self.entry == BUILT:
            return source
        one = "arguments[0] if len(arguments) == 1 else arguments"
        given = one if self.packed else "*arguments"
        return source + _MODULE.format(built=BUILT, entry=self.entry, given=given)


def task_of(
    problem: "str | Path | Task",
    inputs: Mapping[str, Any] | None = None,
    *,
    entry: str = BUILT,
    **claims: Any,
) -> Task:
    """Return a task.

    Args:
        problem: a reference's file or text, or the name of an operator; a task stays.
        inputs: of an operator: its tensors as texts such as "float32[64, 1000]", its
            scalars as values.
        entry: as `Task` has it.
        claims: what candidates declare.

    Raises:
        UsageError: if there is no such file or operator, or it does not have such
            inputs.
        BindingError: if a declaration is unknown or impossible.
        DecodeError: if the file cannot be read.
    """
    if isinstance(problem, Task):
        return problem
    text = str(problem)
    if isinstance(problem, str) and "\n" in text:
        return Task(text, entry, claims)
    if os.path.isfile(text):
        return Task(read_source(Path(text)), entry, claims)
    if text in OPERATORS:
        return Task(_reference_of(text, inputs or {}), entry, claims)
    if isinstance(problem, Path) or text.endswith(".py"):
        raise UsageError("no such file", where=text, fix="check the path")
    raise UsageError(f"no operator {text!r:.60}", fix=suggestion(text, OPERATORS))


def _reference_of(name: str, inputs: Mapping[str, Any]) -> str:
    """Return a reference in KernelBench's form that computes an operator.

    Raises:
        UsageError: if the operator does not take such inputs.
    """
    operator, where = OPERATORS[name], f"operator {name}"
    tensors = {n: inputs[n] for n in operator.tensors if n in inputs}
    lacking = [
        n for n, p in operator.tensors.items() if n not in inputs and not p.optional
    ]
    unknown = [n for n in inputs if n not in operator.inputs]
    if lacking or unknown:
        what = f"no input {unknown[0]!r}" if unknown else ""
        raise UsageError(
            what or f"no shape is given for {lacking[0]}", where=where,
            fix=f'{operator.signature_text()}: write {{"x": "float32[64, 1000]"}}',
        )  # fmt: skip
    drawn = {n: _drawn(operator, n, text, inputs) for n, text in tensors.items()}
    scalars = {n: v for n, v in inputs.items() if n not in tensors}
    if not all(
        isinstance(v, str | int | float | list | None) for v in scalars.values()
    ):
        raise UsageError("scalars are numbers, texts and truth values", where=where)
    listed = ", ".join(drawn)
    return (
        "import torch\n"
        "from kfuzz.features.judge.service.task import computed\n\n\n"
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, {listed}):\n"
        f"        given = dict({', '.join(f'{n}={n}' for n in drawn)})\n"
        f"        return computed({name!r}, given, {scalars!r})\n\n\n"
        "def get_inputs():\n"
        f"    return [{', '.join(drawn.values())}]\n\n\n"
        "def get_init_inputs():\n"
        "    return []\n"
    )


def _drawn(operator: Operator, name: str, text: Any, inputs: Mapping[str, Any]) -> str:
    """Return the expression that draws one tensor.

    Raises:
        UsageError: if it is no tensor's text, or kfuzz draws none of its kind.
    """
    where, parameter = f"operator {operator.name}: {name}", operator.tensors[name]
    dtype, shape = tensor_of(text, where)
    if parameter.domain or parameter.kind == "bool" or parameter.role == "mask":
        raise UsageError(
            f"{parameter.describe()} is not drawn here", where=where,
            fix="write a reference file, whose get_inputs() gives what is meant",
        )  # fmt: skip
    if isinstance(parameter, IndexParameter):
        most = _size(operator, parameter.below, inputs, where)
        return f"torch.randint(0, {most}, {shape}, dtype=torch.{dtype})"
    shift = " + 0.5" if parameter.role in ("weight", "variance") else ""
    draw = "rand" if shift else "randn"
    return f"(torch.{draw}({shape}){shift}).to(torch.{dtype})"


def tensor_of(text: Any, where: str) -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape of a tensor's text, such as "float32[64, 1000]".

    Raises:
        UsageError: if it is none.
    """
    found = _TENSOR.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise UsageError(
            f"{text!r:.60} is no tensor", where=where, fix='write "float32[64, 1000]"'
        )
    if found[1] not in DTYPES:
        raise UsageError(
            f"unknown dtype {found[1]!r}", where=where, fix=suggestion(found[1], DTYPES)
        )
    return found[1], tuple(int(n) for n in found[2].split(",") if n.strip())


def _size(operator: Operator, dim: str, inputs: Mapping[str, Any], where: str) -> int:
    """Return the size of a dimension, from the tensors that have it."""
    if isinstance(inputs.get(dim), int):
        return int(inputs[dim])
    for name, parameter in operator.tensors.items():
        if dim in parameter.names and name in inputs:
            _, shape = tensor_of(inputs[name], where)
            if len(shape) >= len(parameter.names):
                return parameter.sizes(shape)[dim]
    raise UsageError(f"the size of {dim} is not known", where=where)


# An operator's oracle as a plain function, for references made of operators.


def computed(
    name: str, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]
) -> Any:
    """Return what an operator gives, in the dtype of its first floating tensor.

    Args:
        name: the operator's.
        tensors: its tensors by name; optional ones may be left out.
        scalars: its scalars; those left out have their defaults.

    Returns:
        One tensor, or a tuple of them in the order of the operator's outputs. What the
        operator defines as integers or truth values stays so.
    """
    operator = OPERATORS[name]
    lead = next(x for x in tensors.values() if x.is_floating_point())
    defaults = {n: operator.default_of(n) for n in operator.scalars}
    given = [
        x.double() if x.is_floating_point() else x
        for n in operator.tensors
        if (x := tensors.get(n)) is not None
    ]
    made = operator.oracle_on(tensors)(*given, **{**defaults, **scalars})
    if isinstance(made, Tensor):
        return _stored(made, lead)
    return tuple(_stored(y, lead) for y in made)


def _stored(y: Tensor, lead: Tensor) -> Tensor:
    return y.to(lead.dtype) if y.is_floating_point() else y
