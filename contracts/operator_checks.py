"""What an operator says of its parameters and results, checked."""

from collections.abc import Collection
from types import MappingProxyType
from typing import TYPE_CHECKING

from kfuzz.core.domain import parsed
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.results import LIST, output_of
from kfuzz.core.shape_class import ShapeClass
from kfuzz.strategies.parameters import ScalarParameter, SizeParameter, TensorParameter

if TYPE_CHECKING:
    from kfuzz.contracts.operator import Operator


def check_parameters(operator: "Operator") -> None:
    """Check what parameters say of one another, and their domains.

    Raises:
        BindingError: naming the parameter.
    """
    where = f"operator {operator.name}"
    whole = {n for n, p in operator.scalars.items() if type(p.default) is int}
    if not all(type(r) is int and r >= 0 for r in _listed(operator.ranks)):
        raise BindingError(
            f"ranks={operator.ranks!r} are no ranks",
            where=where,
            fix="write for example ranks=range(2, 6)",
        )
    for name, index in operator.indices.items():
        others = [p.names for n, p in operator.tensors.items() if n != name]
        others.append(index.names if index.domain else ())
        if not any(index.below in names for names in (*others, whole)):
            raise BindingError(
                f"{name}: below={index.below!r} is no dimension of another tensor, "
                "and no integer scalar",
                where=where,
            )
        if index.ignored and index.ignored not in operator.scalars:
            raise BindingError(
                f"{name}: ignored={index.ignored!r} is no scalar parameter", where=where
            )
    for name, size in operator.inputs.items():
        if isinstance(size, SizeParameter):
            _check_size(operator, name, size)
    for name, tensor in operator.tensors.items():
        _check_domain(operator, name, tensor)
        if tensor.variadic and max(operator.ranks, default=-1) < len(tensor.names):
            raise BindingError(
                f"{name}: {tensor.dims!r} has no rank among {list(operator.ranks)}",
                where=where,
                fix=f"give ranks= from {len(tensor.names)} up",
            )


def check_results(operator: "Operator") -> None:
    """Check the data types of results.

    Raises:
        BindingError: naming the output.
    """
    where = f"operator {operator.name}: results"
    for output in operator.outputs:
        if output.removesuffix(LIST) != output_of(output):
            raise BindingError(
                f"{output!r} is no name",
                where=where,
                fix=f"write {output_of(output) + LIST!r} for a list of tensors, "
                "whatever it holds",
            )
    made = {n: str(d).removeprefix("torch.") for n, d in operator.results.items()}
    outputs = [output_of(output) for output in operator.outputs]
    for name, dtype in made.items():
        if name not in outputs:
            fix = suggestion(name, outputs)
            raise BindingError(f"{name!r} is no output", where=where, fix=fix)
        if dtype not in DTYPES:
            raise BindingError(
                f"{name}: unknown dtype {dtype!r}",
                where=where,
                fix=suggestion(dtype, DTYPES),
            )
    whole = [n for n, d in made.items() if DTYPES[d].kind != "float"]
    whole = [n for n in whole if n not in operator.integers]
    object.__setattr__(operator, "results", MappingProxyType(made))
    object.__setattr__(operator, "integers", (*operator.integers, *whole))


def _check_size(operator: "Operator", name: str, size: SizeParameter) -> None:
    where, index = f"operator {operator.name}", operator.indices.get(size.of)
    if size.longest and (index is None or not parsed(index.domain).cuts):
        raise BindingError(
            f"{name}: {size.of!r} is no parameter of offsets or spans",
            where=where,
            fix='write for example cu_seqlens=ks.offsets("S", of="T"), '
            'max_seqlen=ks.longest("cu_seqlens")',
        )
    if not size.longest and not any(
        size.of in p.names for p in operator.tensors.values()
    ):
        raise BindingError(
            f"{name}: {size.of!r} is no dimension of a tensor", where=where
        )


def _check_domain(operator: "Operator", name: str, tensor: TensorParameter) -> None:
    domain, where = parsed(tensor.domain), f"operator {operator.name}"
    dtypes = (tensor.dtype,) if tensor.dtype else operator.dtypes
    if domain.axis and (tensor.kind != "float" or not tensor.dims):
        raise BindingError(
            f"{name}: probabilities are a floating tensor of one dimension or more",
            where=where,
        )
    if domain.axis and not tensor.variadic and -domain.axis > len(tensor.names):
        raise BindingError(
            f"{name}: probabilities={domain.axis}, and it has "
            f"{len(tensor.names)} dimensions",
            where=where,
        )
    if domain.interval is None:
        return
    if tensor.kind == "bool":
        raise BindingError(f"{name}: within= is for numbers", where=where)
    if any(number in domain.interval for number in (0.0, 1.0)):
        return  # a number of every data type; torch, which knows the others, waits
    from kfuzz.numerics.domains import has_numbers

    for dtype in dtypes:
        if domain.interval.is_empty or not has_numbers(domain.interval, dtype):
            raise BindingError(
                f"{name}: no {dtype} number is in {domain.interval}",
                where=where,
                fix="mend within=, or declare other dtypes",
            )


def _listed(ranks: object) -> list[object]:
    return list(ranks) if isinstance(ranks, Collection) else [None]


def sizes_of(operator: "Operator") -> set[str]:
    """Return the names of dimensions that a shape class may have."""
    named = {name for p in operator.tensors.values() for name in p.names}
    return {"N", "M", *named, *(f"d{i}" for i in range(max(operator.ranks, default=0)))}


def check_relations(operator: "Operator") -> None:
    """Check that the shape class speaks of what there is.

    Raises:
        BindingError: if it does not parse, or names anything else.
    """
    where = f"operator {operator.name}"
    shape_class = ShapeClass.parse(operator.shape_class, where=where)
    known = sizes_of(operator)
    known |= {n for n, p in operator.scalars.items() if isinstance(p, ScalarParameter)}
    if unknown := sorted(shape_class.names - known):
        raise BindingError(
            f"shape_class {operator.shape_class!r} names {unknown[0]!r}, which is "
            "neither a dimension nor an integer scalar",
            where=where,
            fix=suggestion(unknown[0], sorted(known)),
        )


def check_homogeneity(operator: "Operator") -> None:
    """Check what is said to be homogeneous, and which outputs are integers.

    Raises:
        BindingError: if one is no floating argument, or no output.
    """
    kinds = {n: p.kind for n, p in operator.tensors.items()}
    named = [name for group in operator.homogeneous for name in group.split()]
    wrong = [n for n in named if kinds.get(n) != "float"]
    outputs = [output_of(output) for output in operator.outputs]
    wrong += [n for n in operator.integers if n not in outputs]
    if wrong:
        raise BindingError(
            f"{wrong[0]!r} is no floating argument, or no output",
            where=f"operator {operator.name}: homogeneous, integers",
        )
    made = MappingProxyType(dict(operator.homogeneous))
    object.__setattr__(operator, "homogeneous", made)
