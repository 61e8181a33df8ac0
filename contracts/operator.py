"""Operators: what kernels compute, with domain, oracle and error model."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kfuzz.contracts.language import Structure as Structure
from kfuzz.contracts.language import Tolerance as Tolerance
from kfuzz.contracts.lists import expanded, gathering
from kfuzz.contracts.operator_checks import (
    check_homogeneity,
    check_parameters,
    check_relations,
    check_results,
)
from kfuzz.core.declaration import Declaration
from kfuzz.core.domain import parsed
from kfuzz.core.dtypes import FLOAT8
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.recipe import Case, Scalar
from kfuzz.core.shape_class import ShapeClass
from kfuzz.strategies.parameters import (
    DimParameter,
    DtypeParameter,
    IndexParameter,
    ListParameter,
    Parameter,
    ScalarParameter,
    SizeParameter,
    TensorParameter,
    placed,
    widest,
)

if TYPE_CHECKING:
    from torch import Tensor

    from kfuzz.numerics.acceptance import Acceptance, Problem
    from kfuzz.numerics.models.elementwise import Elementwise


AcceptFunction = Callable[["Problem"], "Acceptance | Mapping[str, Acceptance]"]
RelationFunction = Callable[["Problem", "Mapping[str, Tensor]"], "Mapping[str, Tensor]"]

# What operators that only move or select elements start from, and hold for.
MOVES: Final = Declaration(subnormals="preserve")
EVERY_DTYPE: Final = ("float64", "float32", "float16", "bfloat16", *FLOAT8)


@dataclass(frozen=True)
class Operator:
    """What a kernel computes; contracts/operators/README.md shows how to write one.

    Attributes:
        name: e.g. "softmax".
        inputs: ordered parameters: `kfuzz.strategies.tensors`, `indices`,
            `offsets`, `masks`, `lists`, `scalar`, `size`, `longest`, `dtype`, `dim`.
        oracle: plain torch function of float64 copies of the tensors (int64
            ones of integers, masks as they are; positional, in order) and the
            scalars (keywords, dtypes by name); returns one tensor, float64, of integers
            or of truth values, or a tuple in the order of `outputs`; a list of tensors,
            nested or not, for those that are lists.
        error_model: how much a result may differ: `kfuzz.numerics.elementwise(...)`,
            or a function from a `Problem` to the acceptance of the output, or of each
            output by name; None for the running-error shadow of the oracle.
        relation: where the answer is not unique, a function of a `Problem` and
            of the kernel's results: see `kfuzz.contracts.relation`. It judges
            what the error model admits.
        outputs: names of the results; "parts[]" for a list of tensors, whose results
            are "parts[0]", "parts[1]", ….
        ranks: ranks that a "*" tensor may have, one with most named dimensions.
        usual_rank: the rank that is drawn most, that functional tests have, and that a
            kernel has to take which declares none.
        reduced: axis that the operator reduces where it has no `dim`
            parameter: a dimension name or a negative number; None where it
            reduces none.
        shape_class: what dimensions and integer scalars must satisfy together,
            e.g. "C % num_groups == 0"; every case keeps it, besides what the
            kernel declares.
        chain: names of the operators that a fused one combines, in order,
            e.g. ("linear", "relu").
        batch: dimension along which rows are independent of one another; "" for
            the first of the "*" ones.
        homogeneous: the degree of the result in an argument, or in several that are
            scaled together ("x bias"; a kernel may omit some): scaling by a power of
            two then commutes with the operator exactly. Only for operators that
            consist of sums, products and choices of arguments and constants.
        integers: outputs that hold integers; they keep their value.
        results: the data types of outputs that do not have that of the data, by name:
            {"loss": "float32"}; of integers and truth values where they are not those
            that the oracle returns.
        workspaces: dimension names of tensors that the oracle allocates,
            e.g. "B H S T"; they count against the element budget, as arguments do.
        usual: sizes of some dimensions in functional tests; the others get powers
            of two.
        defaults: the declaration that a kernel starts from.
        dtypes: floating dtypes for which the oracle is precise enough.
        algorithms: what `algorithm=` may name, each with its meaning in words.
        empty_reduction: whether the reduced axis may have size 0.
        recentres: whether shifting the data by a constant per row leaves the
            problem well posed, so that cancellation can be told apart.
        groups: the scalar that says into how many groups the dimension before the
            reduced one falls, a row being all of a group; "" where none does.
        subtracts_mean: whether the mean is taken out of the data: those with a large
            one are drawn more often.
        out_of_bounds: policies for indices out of bounds that the error model
            knows; "clamp" and "zero" need one that reads the declaration.
        lists: names of the tensors of each list among the parameters; made from these.
        written: whether a NaN that the oracle makes of infinities may be its manner of
            writing: see `kfuzz.contracts.oracle.accept`.
        within: puts changed values, by argument, back into the domain where that is
            more than shapes and types can say; None where it is not.
        forward: the operator whose gradients this one computes; None for others.
        tolerance: the error model in words, for `kfuzz contracts show`.
        special_values: rules for NaN, Inf and zero in words.
    """

    name: str
    inputs: Mapping[str, Parameter]
    oracle: Callable[..., Any]
    error_model: "AcceptFunction | Elementwise | None" = None
    relation: RelationFunction | None = None
    outputs: tuple[str, ...] = ("y",)
    ranks: range = range(1, 5)
    usual_rank: int = 2
    reduced: str | int | None = None
    shape_class: str = ""
    chain: tuple[str, ...] = ()
    batch: str = ""
    homogeneous: Mapping[str, int] = field(default_factory=dict)
    integers: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    workspaces: tuple[str, ...] = ()
    usual: Mapping[str, int] = field(default_factory=dict)
    defaults: Declaration = field(default_factory=Declaration)
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    algorithms: Mapping[str, str] = field(default_factory=dict)
    empty_reduction: bool = True
    recentres: bool = False
    groups: str = ""
    subtracts_mean: bool = False
    out_of_bounds: tuple[str, ...] = ("raise", "undefined")
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    written: bool = False
    within: "Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None" = None
    forward: "Operator | None" = None
    tolerance: Tolerance = field(
        default=Tolerance(
            Structure.INTERVAL,
            "RNE(reference - E) <= y <= RNE(reference + E)",
            "the error model given with the operator",
        )
    )
    special_values: str = "as IEEE 754 arithmetic on the float64 reference"

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            BindingError: if a parameter has no known kind, none is a floating
                tensor, or the shape class does not parse, or one of indices
                names what is not there; if there is no output, or what is to be
                called cannot be.
        """
        self._expand_lists()
        if not self.outputs:
            raise BindingError("no output", where=f"operator {self.name}")
        for part in ("oracle", "relation"):
            given = getattr(self, part)
            if not callable(given) and (part == "oracle" or given is not None):
                raise BindingError(
                    f"{part} is {type(given).__name__}, no function",
                    where=f"operator {self.name}",
                )
        for name, parameter in self.inputs.items():
            if not isinstance(parameter, Parameter):
                raise BindingError(
                    f"parameter {name!r} is {type(parameter).__name__}",
                    where=f"operator {self.name}",
                    fix="use kfuzz.strategies.tensors, indices, masks, scalar, dtype "
                    "or dim",
                )
        if all(p.kind != "float" for p in self.tensors.values()):
            raise BindingError(
                "no floating tensor parameter",
                where=f"operator {self.name}",
                fix="cases have a floating data type: let the kernel take one more "
                "tensor, inputs={..., 'z': ks.tensors('N')}, and return its copy, too",
            )
        check_parameters(self)
        check_results(self)
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        object.__setattr__(self, "usual", MappingProxyType(dict(self.usual)))
        check_homogeneity(self)
        demands = [p.demands for p in self.indices.values()]
        terms = [self.shape_class, *(d for d in demands if d not in self.shape_class)]
        whole = " and ".join(term for term in terms if term)
        object.__setattr__(self, "shape_class", whole)
        if self.shape_class:
            check_relations(self)
        named = dict(self.algorithms)
        if self.error_model is None:
            named.setdefault("as_reference", "the very steps of the oracle")
        object.__setattr__(self, "algorithms", MappingProxyType(named))

    def _expand_lists(self) -> None:
        """Have the tensors of lists as parameters, and an oracle that gathers them."""
        inputs, found = expanded(self.inputs, f"operator {self.name}")
        if found and callable(self.oracle):
            tensors = [n for n, p in inputs.items() if isinstance(p, TensorParameter)]
            object.__setattr__(self, "inputs", inputs)
            object.__setattr__(self, "lists", {**self.lists, **found})
            object.__setattr__(self, "oracle", gathering(self.oracle, tensors, found))

    @property
    def name_in_contracts(self) -> str:
        """What follows the class in identifiers: "softmax" in "K-VAL-01/softmax".

        Of gradients it is the forward operator's name: "K-GRD-01/softmax", of the
        operator "softmax.backward".
        """
        return self.name if self.forward is None else self.forward.name

    @property
    def tensors(self) -> dict[str, TensorParameter]:
        """The tensor parameters, in order."""
        items = self.inputs.items()
        return {n: p for n, p in items if isinstance(p, TensorParameter)}

    @property
    def indices(self) -> dict[str, IndexParameter]:
        """The index parameters, in order."""
        items = self.inputs.items()
        return {n: p for n, p in items if isinstance(p, IndexParameter)}

    @property
    def takes_nonfinite(self) -> bool:
        """Whether a floating argument may hold NaN or an infinity."""
        floats = (p for p in self.tensors.values() if p.kind == "float")
        return any(not p.domain or not parsed(p.domain).is_finite for p in floats)

    @property
    def listed(self) -> frozenset[str]:
        """The tensors that belong to lists."""
        return frozenset(name for items in self.lists.values() for name in items)

    @property
    def straying(self) -> dict[str, IndexParameter]:
        """Those of the index parameters that may be out of bounds, in order."""
        return {n: p for n, p in self.indices.items() if p.strays}

    @property
    def scalars(self) -> dict[str, ScalarParameter | SizeParameter | DimParameter]:
        """The scalar, size and dimension parameters, in order."""
        items = self.inputs.items()
        others = (TensorParameter, ListParameter)
        return {n: p for n, p in items if not isinstance(p, others)}

    @property
    def dim(self) -> str | None:
        """Name of the dimension parameter, if there is one."""
        dims = (n for n, p in self.inputs.items() if isinstance(p, DimParameter))
        return next(dims, None)

    def fixed(self, **scalars: Scalar) -> "Operator":
        """Return the operator with scalars at given values, the only ones drawn.

        For kernels that know no other: `attention.fixed(causal=True)`.

        Raises:
            BindingError: if one is no scalar parameter, or not in its domain where
                that is of words or truth values.
        """
        inputs = dict(self.inputs)
        for name, value in scalars.items():
            parameter = inputs.get(name)
            if not isinstance(parameter, ScalarParameter):
                raise BindingError(
                    f"{name!r} is no scalar parameter",
                    where=f"operator {self.name}",
                    fix=suggestion(name, self.scalars),
                )
            known = (parameter.default, *parameter.domain)
            closed = any(isinstance(v, str | bool) for v in (value, *known))
            if closed and value not in known:
                raise BindingError(
                    f"{name}={value!r} is not {parameter.describe()}",
                    where=f"operator {self.name}",
                )
            inputs[name] = replace(parameter, default=value, domain=())
        return replace(self, inputs=inputs)

    def unfolded(self, **dims: str) -> "Operator":
        """Return the operator at other ranks: `ops.group_norm.unfolded(L="*")`.

        See `kfuzz.contracts.unfolded`.

        Args:
            dims: by dimension the names that stand for it, "" for none, "*" for any.

        Raises:
            BindingError: where a dimension cannot be replaced.
        """
        from kfuzz.contracts.unfolded import unfolded

        return unfolded(self, dims)

    def fitted(self, case: Case, values: "Mapping[str, Tensor]") -> dict[str, Any]:
        """Return changed values put back into the domain; those in it as they are."""
        from kfuzz.numerics.domains import fitted, holds

        made = dict(values)
        for name, x in values.items():
            if domain := self.tensors[name].domain:
                spec = case.tensors[name]
                whole, rank = case.bound(spec), len(spec.shape)
                if not holds(x, domain, whole, rank):
                    made[name] = fitted(x, domain, whole, rank)
        return made if self.within is None else self.within(made)

    def following(
        self, case: Case, values: "Mapping[str, Tensor]"
    ) -> dict[str, Scalar]:
        """Return the scalars that follow from sizes and values.

        None for one whose parameter of offsets the case is without.

        Args:
            case: the structure.
            values: elements of the offsets at least, of one item.
        """
        made: dict[str, Scalar] = {}
        for name, p in self.inputs.items():
            if not isinstance(p, SizeParameter):
                continue
            made[name] = case.dims.get(p.of)
            if p.longest and p.of in values:
                parts = values[p.of].diff()
                made[name] = int(parts.max()) if parts.numel() else 0
        return made

    def settled(self, sizes: Mapping[str, int], case: Case) -> dict[str, int]:
        """Return sizes of dimensions, those that the shape class computes settled."""
        if not self.shape_class:
            return dict(sizes)
        scalars = {
            name: value
            for name, p in self.scalars.items()
            if type(value := case.scalars.get(name, p.default)) is int
        }
        return ShapeClass(self.shape_class).settled(sizes, scalars)

    def signature_text(self) -> str:
        """Return the call signature, e.g. "layer_norm(x, weight, bias, *, eps)"."""
        parts = list(self.tensors)
        if self.scalars:
            parts += ["*", *self.scalars]
        return f"{self.name}({', '.join(parts)})"

    def domain_text(self) -> str:
        """Return the domain of the parameters as text."""
        parts = [f"{n}: {p.describe()}" for n, p in self.inputs.items()]
        if any(p.variadic for p in self.tensors.values()):
            parts.append(f"rank {self.ranks.start} to {self.ranks.stop - 1}")
        if not self.empty_reduction:
            parts.append("reduced axis not empty")
        if self.shape_class:
            parts.append(self.shape_class)
        if self.algorithms:
            parts.append(f"algorithm: {', '.join(self.algorithms)}")
        if self.homogeneous:
            degrees = self.homogeneous.items()
            joint = [f"{n.replace(' ', ' with ')}: {d}" for n, d in degrees]
            parts.append(f"homogeneous, of degree: {', '.join(joint)}")
        return "; ".join(parts) + "."

    def oracle_text(self) -> str:
        """Return what the reference is, as text."""
        doc = (self.oracle.__doc__ or "").strip().splitlines()
        body = doc[0] if doc else f"{self.name} in plain torch."
        return (
            f"{body} Evaluated in float64 on the very bits the kernel was given. "
            f"Special values: {self.special_values}."
        )

    def oracle_on(self, given: Container[str]) -> Callable[..., Any]:
        """Return the oracle as a function of these of the tensors, see `padded`."""
        there = [name in given for name in self.tensors]
        if all(there):
            return self.oracle
        return padded(self.oracle, there, cut=False)

    def reduced_axis(self, case: Case) -> int | None:
        """Return the reduced axis of the case's leading tensor, negative, or None.

        None too where only other tensors have it, as the keys of attention.
        """
        spec = case.lead
        if self.dim is not None:
            rank = len(spec.shape)
            axis = int(case.scalars.get(self.dim, self.default_of(self.dim)))
            return axis if axis < 0 else axis - rank
        if isinstance(self.reduced, str):
            if self.reduced not in spec.axes:
                return None
            return spec.axes.index(self.reduced) - len(spec.axes)
        return self.reduced

    def reduced_size(self, case: Case) -> int | None:
        """Return the size of the reduced axis, None where nothing is reduced."""
        if self.dim is None and isinstance(self.reduced, str):
            return case.dims.get(self.reduced)
        axis = self.reduced_axis(case)
        return None if axis is None else case.lead.shape[axis]

    def outer_sizes(self, case: Case) -> dict[str, int]:
        """Return the sizes of the leading tensor's dimensions but the reduced one.

        Of one that reduces nothing, all but the last, if it has several; of one that
        selects by indices, those of the indices.
        """
        axes = self._remaining_axes(case)
        every = case.tensors.values()
        indices = [s.axes for s in every if s.below and not s.domain]
        if indices and self.reduced_size(case) is None:
            return {axis: case.dims[axis] for axis in indices[0]}
        if len(axes) == len(case.lead.axes) > 1:
            axes = axes[:-1]
        return {axis: case.dims[axis] for axis in axes}

    def _remaining_axes(self, case: Case) -> tuple[str, ...]:
        """Return the leading tensor's axes but the reduced one."""
        axes, reduced = case.lead.axes, self.reduced_axis(case)
        if reduced is None or not -len(axes) <= reduced < 0:
            return axes
        return (*axes[: len(axes) + reduced], *axes[len(axes) + reduced + 1 :])

    def dtype_of(self, case: Case) -> str:
        """Return the declared dtype that a case takes; its first one if it takes none.

        That of the first floating argument without a dtype of its own.
        """
        free = (n for n, p in self.tensors.items() if p.kind == "float" and not p.dtype)
        found = (case.tensors[n].dtype for n in free if n in case.tensors)
        return next(found, case.data.dtype)

    def widest(self, case: Case) -> int:
        """Return the most named dimensions that a "*" tensor of the case has."""
        passed = (self.tensors[name] for name in case.tensors)
        return widest(passed)

    def spaces(self, case: Case) -> tuple[tuple[str, ...], ...]:
        """Return the dimensions that the workspaces have in a case."""
        shared = (
            [axis for axis in spec.axes if axis not in self.tensors[name].names]
            for name, spec in case.tensors.items()
            if self.tensors[name].variadic and not self.tensors[name].without
        )
        others = next(shared, [])
        return tuple(placed(dims, others) for dims in self.workspaces)

    def default_of(self, scalar: str) -> Any:
        """Return the default value of a scalar parameter."""
        return self.scalars[scalar].default

    def admits(self, case: Case, declaration: Declaration) -> bool:
        """Whether a case lies in the operator's and the kernel's domain."""
        if tuple(case.tensors) != tuple(n for n in self.tensors if n in case.tensors):
            return False
        for items in self.lists.values():
            given = [name in case.tensors for name in items]
            if given != sorted(given, reverse=True):
                return False
        sizes: dict[str, int] = {}
        widest = self.widest(case)
        ranks = self.ranks if declaration.ranks is None else declaration.ranks
        for name, spec in case.tensors.items():
            parameter = self.tensors[name]
            index = parameter if isinstance(parameter, IndexParameter) else None
            dtypes = declaration.index_dtypes if index else declaration.dtypes
            if parameter.dtype:
                dtypes = (parameter.dtype,)
            if spec.problem() is not None or spec.dtype not in dtypes:
                return False
            if not declaration.reaches(spec.span):
                return False
            if spec.below != (index.below if index else ""):
                return False
            if spec.domain != parameter.domain:
                return False
            steps = zip(spec.shape, spec.element_strides, strict=True)
            if not parameter.repeats and any(n > 1 and not step for n, step in steps):
                return False
            if not parameter.takes(spec.axes):
                return False
            missing = widest - len(parameter.names) + bool(parameter.without)
            if parameter.without and spec.axes != self._remaining_axes(case):
                return False
            if parameter.variadic and len(spec.shape) + missing not in ranks:
                return False
            for axis, n in zip(spec.axes, spec.shape, strict=True):
                if sizes.setdefault(axis, n) != n:
                    return False
        for name, scalar in self.scalars.items():
            if not isinstance(scalar, DtypeParameter) or name not in case.scalars:
                continue
            if case.scalars[name] not in scalar.values(declaration.dtypes):
                return False
        for name, index in self.indices.items():
            held = case.tensors.get(name)
            if held is None or parsed(index.domain).cuts:
                continue
            if held.numel and case.bound(held) < 1:
                return False  # no index is valid
        rank = len(case.lead.shape)
        if self.dim is not None:
            dim = int(case.scalars.get(self.dim, self.default_of(self.dim)))
            declared = declaration.dims
            if not -rank <= dim < max(rank, 1):
                return False
            if declared is not None and not {dim, dim % rank, dim % rank - rank} & set(
                declared
            ):
                return False
        if not self.empty_reduction and self.reduced_size(case) == 0:
            return False
        claims = [ShapeClass(self.shape_class)] if self.shape_class else []
        if declaration.shape_class is not None:
            claims.append(declaration.shape_class)
        return not claims or all(c.admits(named_sizes(self, case)) for c in claims)


def padded(
    function: Callable[..., Any], there: Sequence[bool], *, cut: bool = True
) -> Callable[..., Any]:
    """Return a function of some of its tensors, the others being None.

    Args:
        function: takes all by position.
        there: of each, whether it is given.
        cut: whether those that nothing follows are left out instead.
    """

    def call(*given: Any, **scalars: Any) -> Any:
        rest = iter(given)
        every = [next(rest) if each else None for each in there]
        while cut and every and every[-1] is None:
            every.pop()
        return function(*every, **scalars)

    return call


def named_sizes(operator: Operator, case: Case) -> dict[str, int]:
    """Return the sizes that a shape class may speak of.

    Besides the case's own dimension names and integer scalars: "N", the size of
    the reduced axis (of the last axis where nothing is reduced), and "M", the
    product of the other axes of the leading tensor, unless the operator uses
    those names.
    """
    spec = case.lead
    sizes = dict(case.dims)
    for name, parameter in operator.scalars.items():
        value = case.scalars.get(name, parameter.default)
        if type(value) is int:
            sizes.setdefault(name, value)
    axis = operator.reduced_axis(case)
    size = operator.reduced_size(case)
    if size is None:
        axis, size = -1, spec.shape[-1] if spec.shape else 1
    rest = 1
    for i, n in enumerate(spec.shape):
        rest *= 1 if axis is not None and i == len(spec.shape) + axis else n
    sizes.setdefault("N", size)
    sizes.setdefault("M", rest)
    return sizes
