"""FlashInfer-Bench and SOL-ExecBench: definition, workload and solution as JSON.

Facts: bench.flashinfer.ai/docs/flashinfer-trace; github.com/NVIDIA/SOL-ExecBench,
docs/*.md, whose formats are the same, with axes of type "expr" and "custom" inputs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.features.judge.adapters.rewards import program
from kfuzz.features.judge.service.judge import Judge, Score, Task
from kfuzz.store import files
from kfuzz.store.corpus import MAX_BYTES
from kfuzz.store.files import read_plain

Json = Mapping[str, Any]

# SOL-ExecBench's, of which kfuzz has none.
_PACKED: Final = ("float4_e2m1", "float4_e2m1fn_x2")
# The programs that are made of a definition and of a solution.
_REFERENCE: Final = Path(__file__).with_name("flashinfer_reference.py.jinja")
_SOLUTION: Final = Path(__file__).with_name("flashinfer_solution.py.jinja")
# Sizes have fewer.
_DIGITS: Final = 19


def task_of(
    definition: Json, workload: Json | None = None, *, root: Path | None = None
) -> Task:
    """Return a definition as a task for solutions, at the sizes of a workload.

    Args:
        definition: its JSON. Its reference is trusted, and run.
        workload: its JSON, or a trace that holds it; None where all axes are constant.
        root: what the paths of safetensors are relative to.

    Raises:
        UsageError: if one is not of the format, or names a type that kfuzz lacks.
    """
    checked, given = _checked(definition), workload or {}
    try:
        given = given.get("workload", given)
        sizes, axes = dict(given.get("axes", {})), checked["axes"]
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"no workload: {error!r}", where=checked["name"]) from None
    lacking = [n for n in axes if axes[n]["type"] == "var" and n not in sizes]
    if lacking:
        raise UsageError(f"no size of axis {lacking[0]}", where=checked["name"],
                         fix="give a workload that has it")  # fmt: skip
    return Task(
        program(
            _REFERENCE, reference=checked["reference"], definition=checked,
            names=", ".join(checked["inputs"]), workload=dict(given),
            root=str((root or Path()).resolve()), custom=checked["custom"],
            named=_dtypes(checked),
        )
    )  # fmt: skip


def candidate_of(definition: Json, solution: Json) -> str:
    """Return a solution's text as a candidate for the task of its definition.

    Raises:
        UsageError: if it is not of the format, or its entry point is not in Python.
    """
    checked = _checked(definition)
    where = "solution"
    try:
        where = f"solution {solution.get('name', '')}"
        sources = {s["path"]: s["content"] for s in solution["sources"]}
        spec = solution["spec"]
        file, _, function = spec["entry_point"].partition("::")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"not of the format: {error!r}", where=where) from None
    if file not in sources or not file.endswith(".py") or not function.isidentifier():
        raise UsageError(
            f"no entry point in Python: {spec['entry_point']!r}", where=where,
            fix='write "main.py::run"; what is compiled ahead is not judged',
        )  # fmt: skip
    axes, outputs = checked["axes"], checked["outputs"]
    into = spec.get("destination_passing_style", True)
    return program(
        _SOLUTION, sources=sources, function=function,
        module=file.removesuffix(".py").replace("/", "."),
        known={n: a["value"] for n, a in axes.items() if a["type"] == "const"},
        expressions={n: a["expression"] for n, a in axes.items() if "expression" in a},
        shapes=[s["shape"] or [] for s in checked["inputs"].values()],
        outputs=[(s["shape"] or [], s["dtype"]) for s in outputs.values() if into],
        named=_dtypes(checked),
    )  # fmt: skip


def judge_solution(
    judge: Judge, definition: Json, workload: Json | None, solution: Json,
    *, root: Path | None = None,
) -> Score:  # fmt: skip
    """Return the score of a solution; raises as `task_of` and `candidate_of`."""
    task = task_of(definition, workload, root=root)
    return judge.judge(candidate_of(definition, solution), task=task)


def sizes_of(definition: Json, given: Sequence[Any]) -> dict[str, int]:
    """Return the size of each axis, from a definition and the inputs of a call.

    Raises:
        ValueError: if the inputs do not keep to it: constant axes have one size.
    """
    axes = definition["axes"]
    known = {n: a["value"] for n, a in axes.items() if a["type"] == "const"}
    for spec, x in zip(definition["inputs"].values(), given, strict=True):
        for axis, n in zip(spec["shape"] or (), getattr(x, "shape", ()), strict=True):
            if known.setdefault(axis, int(n)) != n:
                raise ValueError(f"{axis} is {known[axis]}, not {n}")
    for name, axis in axes.items():
        if "expression" in axis:
            n = int(eval(axis["expression"], {"__builtins__": {}}, known))
            if known.setdefault(name, n) != n:
                raise ValueError(f"{name} is {known[name]}, not {n}")
    for text in definition["constraints"]:
        if not eval(text, {"__builtins__": {}}, known):
            raise ValueError(text)
    return known


def drawn(definition: Json, workload: Json, root: str, custom: Any) -> list[Any]:
    """Return the inputs that a workload describes; random ones are normal, or bits.

    Raises:
        UsageError: if one has no known description, or its file no such tensor.
        DecodeError: if its file cannot be read.
    """
    axes = {n: a["value"] for n, a in definition["axes"].items() if "value" in a}
    axes |= workload.get("axes", {})
    for name, axis in definition["axes"].items():
        if "expression" in axis:
            axes[name] = int(eval(axis["expression"], {"__builtins__": {}}, axes))
    made, told = [], workload.get("inputs", {})
    scalars = {n: d["value"] for n, d in told.items() if d.get("type") == "scalar"}
    whole = custom({**axes, **scalars}, torch.device("cpu")) if custom else {}
    for name, spec in definition["inputs"].items():
        how = told.get(name, {"type": "random"})
        shape, dtype = spec["shape"], getattr(torch, spec["dtype"])
        if how["type"] == "scalar":
            made.append(how["value"])
        elif how["type"] == "safetensors":
            made.append(_loaded(Path(root, how["path"]), how["tensor_key"]))
        elif how["type"] == "custom" and name in whole:
            made.append(whole[name])
        elif how["type"] == "random" and shape is not None:
            sizes = [axes[axis] for axis in shape]
            bits = dtype is torch.bool or not dtype.is_floating_point
            x = torch.randint(0, 2, sizes) if bits else torch.randn(sizes)
            made.append(x.to(dtype))
        else:
            raise UsageError(f"{how!r:.80} describes no input", where=name)
    return made


def _loaded(path: Path, key: str) -> Tensor:
    try:
        stored = files.load(read_plain(path, MAX_BYTES), where=str(path))[key]
    except KeyError:
        raise UsageError(f"no tensor {key!r}", where=str(path)) from None
    if not stored.data:
        return torch.empty(stored.shape, dtype=getattr(torch, stored.dtype))
    flat = torch.frombuffer(bytearray(stored.data), dtype=getattr(torch, stored.dtype))
    return flat.reshape(stored.shape)


def _checked(definition: Json) -> dict[str, Any]:
    """Return a definition with what is needed of it, every part as it has to be."""
    try:
        name, axes = definition["name"], dict(definition["axes"])
        made: dict[str, Any] = {
            "name": name, "axes": axes, "reference": str(definition["reference"]),
            "constraints": definition.get("constraints") or [],
            "custom": definition.get("custom_inputs_entrypoint"),
        }  # fmt: skip
        for told in axes.values():
            told[{"const": "value", "var": "type", "expr": "expression"}[told["type"]]]
        for part in ("inputs", "outputs"):
            made[part] = {}
            for each, spec in definition[part].items():
                dtype, shape = spec["dtype"], spec.get("shape")
                if dtype in _PACKED:
                    raise UsageError(
                        f"{dtype} is not supported", where=f"{name}: {each}",
                        fix="two numbers share a byte: take the bytes as uint8",
                    )  # fmt: skip
                if dtype not in DTYPES:
                    raise UsageError(
                        f"unknown dtype {dtype!r}", where=f"{name}: {each}",
                        fix=suggestion(dtype, DTYPES),
                    )  # fmt: skip
                for axis in shape or ():
                    if axis.isdecimal() and len(axis) < _DIGITS:  # SOL-ExecBench's
                        axes[axis] = {"type": "const", "value": int(axis)}
                    axes[axis]
                made[part][each] = {"dtype": dtype, "shape": shape}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"not of the format: {error!r}", where="the definition"
        ) from None
    return made


def _dtypes(checked: Json) -> dict[str, str]:
    return {name: spec["dtype"] for name, spec in checked["outputs"].items()}
