"""Compiling what a case launches for GPUs that are not here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.evidence import Builds, Evidence, OpCheck
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import CustomOp
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.evaluation.calling import keywords_of
from kfuzz.evaluation.diagnosis import CaseCalls, Step
from kfuzz.execution.calls.compiling import at_work, by_kernel
from kfuzz.execution.processes.wire import is_child
from kfuzz.execution.values.fills import SEED, seeded
from kfuzz.numerics.formats import Footprint
from kfuzz.numerics.run import Expected


def with_builds(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with whether each launch builds for each GPU."""
    if calls.builds is None:
        return evidence.knowing(Builds("no process compiles beside this one"))
    return evidence.knowing(calls.builds(evidence.case, calls.caller.step))


STEP: Final = Step(
    (Probe.BUILD,), with_builds, lambda evidence, calls: bool(evidence.case.targets)
)


# torch's opcheck on operators of a user's library: do schema and fake tell the truth?
#
# Only what opcheck says of these two is evidence, and an alias only where a byte is
# shared; what it cannot run is a note.

_SCHEMA: Final = "test_schema"
_FAKE: Final = "test_faketensor"
_MUTATED: Final = re.compile(
    r"Argument (\w+) is not defined as mutable but was mutated"
)
_ALIASED: Final = re.compile(
    r"is not defined to alias output but was aliasing|alias unexpectedly"
    r"|not allowed to directly return inputs"
)
_NO_FAKE: Final = re.compile(r"no fake impl registered|UnsupportedOperatorException")


def opcheck(
    operator: CustomOp,
    tensors: Sequence[Tensor | None],
    scalars: Mapping[str, Any],
    outputs: Mapping[str, Expected],
    device: torch.device,
) -> OpCheck:
    """Return what opcheck says of a call; the tensors are copied first.

    Args:
        operator: the operator.
        tensors: what it is passed by position, without gaps; None for one that it is
            not.
        scalars: what it is passed by keyword.
        outputs: destinations that it is given by name.
        device: where it runs.
    """

    def arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = {
            name: torch.zeros(e.shape, dtype=e.dtype, device=device)
            for name, e in outputs.items()
        }
        copies = (None if t is None else t.clone() for t in tensors)
        return operator.packed(*copies, **given, **scalars)

    _prepare()
    with by_kernel(), seeded(device, SEED), torch.no_grad():
        positional, named = arguments()
        told: dict[str, Any] = torch.library.opcheck(
            operator.overload, positional, named,
            test_utils=(_SCHEMA, _FAKE), raise_exception=False,
        )  # fmt: skip
        shared = ""
        if _ALIASED.search(str(told[_SCHEMA])):
            positional, named = arguments()
            shared = _shared(operator.overload(*positional, **named), positional, named,
                             operator)  # fmt: skip
    return _read(told, shared)


@cache
def _prepare() -> None:
    """Import what opcheck is made of: seconds that are not the kernel's."""
    with at_work():
        for name in ("torch._dynamo", "torch.testing._internal.optests"):
            import_module(name)


def _read(told: Mapping[str, Any], shared: str) -> OpCheck:
    """Return what the answers of both tests come to."""
    notes = []
    mutated = aliased = fake = ""
    schema, faked = told[_SCHEMA], told[_FAKE]
    if isinstance(schema, Exception):
        text = str(schema)
        if met := _MUTATED.search(text):
            mutated = met.group(1)
        elif _ALIASED.search(text):
            aliased = shared
            if not shared:
                notes.append(f"opcheck: {_line(text)}; no byte is shared")
        else:
            notes.append(f"opcheck cannot check its schema: {_line(text)}")
    if isinstance(faked, Exception):
        text = str(faked)
        differs = type(faked).__name__ == "MetadataMismatchError" or (
            isinstance(faked, AssertionError) and "mismatch" in text
        )
        if _NO_FAKE.search(text) or _NO_FAKE.search(type(faked).__name__):
            notes.append("it has no fake implementation: torch.compile cannot trace it")
        elif differs and "alias" not in text:
            fake = _line(text.partition(", found ")[2] or text)
        else:
            notes.append(f"opcheck cannot check its fake: {_line(text)}")
    return OpCheck(mutated, aliased, fake, tuple(notes))


def _shared(
    returned: Any,
    positional: Sequence[Any],
    named: Mapping[str, Any],
    operator: CustomOp,
) -> str:
    """Return which arguments and results have a byte in common, in words, or ""."""
    schema = operator.overload._schema
    results = returned if isinstance(returned, tuple | list) else (returned,)
    places = [
        (i, Footprint.of(y)) for i, y in enumerate(results) if isinstance(y, Tensor)
    ]
    names = [a.name for a in schema.arguments if not a.kwarg_only]
    given = {**dict(zip(names, positional, strict=False)), **named}
    written = {a.name for a in schema.arguments if a.alias_info is not None}
    for i, place in places:
        for name, x in given.items():
            free = name in written or not isinstance(x, Tensor)
            if not free and place.overlaps(Footprint.of(x)):
                return f"result {i} shares memory with {name}"
        for j, other in places:
            if j > i and place.overlaps(other):
                return f"results {i} and {j} share memory"
    return ""


def _line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def with_opcheck(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence of a user's operator with what opcheck says of it."""
    caller, kernel, derived = calls.caller, calls.caller.kernel, calls.derived
    operator = kernel.function
    if not isinstance(operator, CustomOp) or evidence.acceptance is None:
        return evidence
    expected = expected_metadata(evidence.acceptance)
    tensors = [derived.values.get(name) for name in kernel.arguments.tensors]

    def asked(given: Sequence[Tensor | None]) -> OpCheck:
        caller.step()
        return opcheck(
            operator, given,
            keywords_of(kernel, derived.case, derived.values, caller.config),
            {name: expected[name] for name in kernel.arguments.destinations},
            caller.memory.device,
        )  # fmt: skip

    told = asked(tensors)
    found = told.mutated or told.aliased or told.fake
    turned = permuted(tensors) if kernel.declaration.layouts == "any" else None
    if found or turned is None:
        return evidence.knowing(told)
    there = asked(turned)
    # What cannot be checked there may be declined: nothing is said of it.
    return evidence.knowing(
        replace(
            told,
            mutated=there.mutated,
            aliased=there.aliased,
            fake=f"{there.fake} (on permuted inputs)" if there.fake else "",
        )
    )


def permuted(tensors: Sequence[Tensor | None]) -> list[Tensor | None] | None:
    """Return the same elements with the last two axes stored the other way round.

    None where no tensor has two axes to exchange.
    """
    turns = [x is not None and x.dim() >= 2 and min(x.shape[-2:]) > 1 for x in tensors]
    pairs = zip(tensors, turns, strict=True)
    found = [x.mT.contiguous().mT if x is not None and t else x for x, t in pairs]
    return found if any(turns) else None


# In a child alone: it runs under modes of torch's, and imports much of it.
OPCHECKING_STEP: Final = Step(
    (Probe.OPCHECK,), with_opcheck, lambda evidence, calls: is_child()
)
