"""`kfuzz.assert_conforms`: results held to a derived bound, in a line of any test.

It judges one call that has been made, as the monitor does: no search, no process.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel, declared
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import INTERPRET, NO_DRIVER, UsageError
from kfuzz.core.verdict import Failure, Verdict
from kfuzz.features.examining import operator_named
from kfuzz.features.monitor.references import (
    OperatorSubject,
    ReferenceSubject,
    reference_declaration,
)
from kfuzz.features.monitor.seen import Call, Seen, TensorCopy, can_copy, parts_of
from kfuzz.features.monitor.subjects import Outside, Subject, Undefined, signature_of
from kfuzz.numerics.formats import Footprint

WHERE: Final = "kfuzz.assert_conforms"
# The classes that compare elements: others conform where nothing is compared.
_OF_VALUES: Final = ("K-VAL-01", "K-GRD-01")

# What would accept a miss, that which allows least first. Tried where a test fails.
_ACCEPTING: Final[tuple[dict[str, Any], ...]] = (
    {"subnormals": "any"},
    {"intermediates": "output"},
    {"accumulator": "tf32"},
    {"accumulator": "float16"},
    {"accumulator": "bfloat16"},
    {"approx": True},
    {"nonfinite": "undefined"},
)


def assert_conforms(
    actual: Any,
    operator: "str | Operator | BoundKernel | Callable[..., Any]",
    /,
    *inputs: Any,
    **named: Any,
) -> None:
    """Check that results are what an operator gives on these inputs, within its bound.

    In the place of `torch.testing.assert_close(actual, expected)`, where the tolerance
    follows from the operator, its inputs and what the kernel declares:

        y = my_softmax(x, dim=-1)
        kfuzz.assert_conforms(y, "softmax", x, dim=-1)

    Args:
        actual: the result, or a tuple of the results in the operator's order; tensors
            on the CPU or on a GPU, of any layout.
        operator: an operator or its name, "softmax.backward" for gradients; a bound
            kernel, which brings its declaration; or a function in plain torch that
            takes the same inputs, whose results are bounded under the running-error
            shadow.
        inputs: the operator's tensors, then its scalars, in its order.
        named: further inputs by name; everything else is a declaration, as for
            `kfuzz.kernel`: `intermediates="output"`, `accumulator="float16"`.

    Raises:
        AssertionError: if a result is wrong. The message names the worst element, what
            is allowed there, how many elements miss and how, and the declaration that
            would accept it, if there is one.
        UsageError: if the operator says nothing of such inputs, or nothing of the
            results can be compared: nothing would have been checked.
        BindingError: if a declaration is unknown or impossible for the operator.
    """
    __tracebackhide__ = True  # pytest shows the caller's line, and not this docstring
    subject, args, given = _subject(operator, inputs, named)
    # Its tensors have no versions, which references of one's own are run with.
    inference = torch.is_inference_mode_enabled()
    try:
        with torch.inference_mode(False) if inference else nullcontext():
            seen = _seen(subject.call(args, given), actual)
            report = subject.judge(seen).report
    except Outside as error:
        usual = "declare what the kernel takes, or call the operator as it is defined"
        raise UsageError(
            f"nothing was checked: {error}",
            where=f"{WHERE}: {subject.operator_name}",
            fix=INTERPRET if NO_DRIVER in str(error) else usual,
        ) from None
    if report.failure is not None:
        raise AssertionError("\n".join(_message(subject, seen, report.failure)))
    if not any(report.verdicts.get(c) is Verdict.CONFORMS for c in _OF_VALUES):
        raise UsageError(
            "nothing was checked: no element of the results can be decided",
            where=f"{WHERE}: {subject.operator_name}",
            fix="the bound is unlimited there, or the inputs are not numbers",
        )


def _subject(
    operator: Any, inputs: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Subject, tuple[Any, ...], dict[str, Any]]:
    """Return what results are held to, and the inputs that are its own."""
    if isinstance(operator, str):
        operator = operator_named(operator, WHERE)
    kernel = operator if isinstance(operator, BoundKernel) else None
    known = operator if kernel is None else kernel.operator
    parameters: Collection[str] = ()
    if isinstance(known, Operator):
        parameters = known.inputs
    elif not callable(known):
        what = f"{operator!r:.60} is neither an operator nor a function"
        raise UsageError(what, where=WHERE)
    elif signature := signature_of(known):
        parameters = signature.parameters
    own = {n: v for n, v in named.items() if n in parameters}
    claims = {n: v for n, v in named.items() if n not in own}
    explicit = frozenset(claims)
    if not isinstance(known, Operator):
        subject: Subject = ReferenceSubject(
            known, known, reference_declaration(WHERE, **claims),
            name=getattr(known, "__name__", "reference"), outputs=("y",),
            explicit=explicit, arguments=None,
        )  # fmt: skip
    elif kernel is not None:
        declaration = kernel.declaration.declare(WHERE, **claims)
        subject = _held(known, declaration, kernel.explicit | explicit)
    else:
        subject = _held(known, declared(known, claims, WHERE), explicit)
    return subject, inputs, own


def _held(operator: Operator, declaration: Any, explicit: frozenset[str]) -> Subject:
    # Where the results lie is no matter of a call that is over.
    declaration = replace(declaration, inplace=(), out=())
    order = (*operator.tensors, *operator.scalars)

    def arguments(*args: Any, **given: Any) -> dict[str, Any]:
        if len(args) > len(order):
            raise UsageError(
                f"{len(args)} inputs, {operator.signature_text()} takes {len(order)}",
                where=WHERE,
            )
        return dict(zip(order, args, strict=False)) | given

    return OperatorSubject(
        arguments, operator, declaration,
        name=operator.name_in_contracts, explicit=explicit, arguments=arguments,
    )  # fmt: skip


def _seen(call: Call, actual: Any) -> Seen:
    """Return a call that is over as the monitor would have seen it."""
    tensors, outline = parts_of(actual)
    return Seen(
        tensors={name: _copy(x) for name, x in call.tensors.items()},
        scalars=call.scalars,
        returned=outline.filled([_copy(x) for x in tensors]),
        rest=call.rest,
        is_compiled=True,  # addresses say nothing of a call that is over
        tf32=call.tf32,
        verdict_only=True,
    )


def _copy(x: Tensor) -> TensorCopy:
    if not can_copy(x):
        raise Outside(f"{type(x).__name__} is no plain tensor")
    values = x.detach().cpu()
    values = values.clone() if values.is_inference() else values
    return TensorCopy(values, x.device, Footprint.of(x))


def _message(subject: Subject, seen: Seen, failure: Failure) -> Iterator[str]:
    """Yield the lines of a message."""
    yield f"{subject.operator_name}: {failure.message} ({failure.contract})"
    if failure.index is not None:
        where = f"{failure.output}[{', '.join(map(str, failure.index))}]"
        line = f"  worst     {where} = {failure.got!r}, expected {failure.expected!r}"
        if failure.low is not None and failure.high is not None:
            line += f", allowed [{failure.low!r}, {failure.high!r}]"
        yield line
    if failure.elements:
        results = [c.values for c in seen.returned.copies]
        real = [y.to(torch.float64) for y in results if y.dtype is not torch.bool]
        total = sum(map(Tensor.numel, results))
        nan = sum(int(y.isnan().sum()) for y in real)
        infinite = sum(int(y.isinf().sum()) for y in real)
        counts = {"NaN": nan, "infinite": infinite, "finite": total - nan - infinite}
        kinds = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
        yield f"  missed    {failure.elements} of {total} elements; {kinds}"
    if found := _accepting(subject, seen):
        text = ", ".join(f"{name}={value!r}" for name, value in found.items())
        yield f"  accepted  with {text}: declare it if the kernel computes so"


def _accepting(subject: Subject, seen: Seen) -> dict[str, Any]:
    """Return the declaration under which nothing misses, {} if none is known."""
    stated = subject.declaration
    for claims in _ACCEPTING:
        if all(getattr(stated, name) == value for name, value in claims.items()):
            continue
        subject.declaration = replace(stated, **claims)
        try:
            if subject.judge(seen).report.failure is None:
                return claims
        except Undefined:
            return claims
        except Exception:  # a declaration that the operator cannot have
            continue
        finally:
            subject.declaration = stated
    return {}
