"""Whole cases: the parameters of an operator, drawn as recipes."""

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from hypothesis import strategies as st

from kfuzz.core.budget import Burst, SizeBudget
from kfuzz.core.declaration import Declaration, ShapeClass
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError
from kfuzz.core.random_streams import Purpose, generator
from kfuzz.core.recipe import Case, Fill, Scalar, TensorSpec, parsed, with_surroundings
from kfuzz.core.value_families import is_hostile
from kfuzz.strategies import layouts, values
from kfuzz.strategies.parameters import (
    DimParameter,
    DtypeParameter,
    IndexParameter,
    Parameter,
    ScalarParameter,
    SizeParameter,
    TensorParameter,
    widest,
)
from kfuzz.strategies.shapes import Plan, plan, unnamed
from kfuzz.strategies.values import Chooser, Weighted, weighted, weighted_names

# Which optional tensors a case is without.

# One case in so many is without some, where a kernel can do without.
_SHARE: Final = 8


def removable(
    tensors: Mapping[str, TensorParameter], nullable: Set[str], needed: Set[str]
) -> tuple[str, ...]:
    """Return the tensors without which a case has all that is asked of it.

    Not the first one, which rank and shape class speak of, nor one that alone has a
    needed dimension.

    Args:
        tensors: the tensor parameters that are passed.
        nullable: the optional ones that the kernel can do without.
        needed: dimensions that others depend on.
    """
    plain = [n for n, p in tensors.items() if not isinstance(p, IndexParameter)]
    free = [n for n in tensors if n in nullable and n not in plain[:1]]
    kept = [p for n, p in tensors.items() if n not in free]
    if all(p.kind != "float" for p in kept):
        return ()
    ranks = widest(kept, default=-1)
    named = {name for p in kept for name in p.names}
    return tuple(
        name
        for name in free
        if not needed & (set(tensors[name].names) - named)
        and not (tensors[name].variadic and len(tensors[name].names) > ranks)
    )


def left_out(free: Sequence[str], drawn: object) -> frozenset[str]:
    """Return the tensors that a case is without: one alone, or all of them.

    Args:
        free: those that it may be without.
        drawn: what else is drawn, which settles it: of draws for this Hypothesis would
            make a third as many.
    """
    if not free:
        return frozenset()
    chance = generator(repr(drawn), Purpose.OPTIONAL)
    if chance.randrange(_SHARE):
        return frozenset()
    together = [tuple(free)] if len(free) > 1 else []
    return frozenset(chance.choice([*((name,) for name in free), *together]))


def shortened(lists: Sequence[Sequence[str]], drawn: object) -> frozenset[str]:
    """Return the tensors of lists that a case is without: the last ones of each."""
    chance = generator(repr((drawn, "lists")), Purpose.OPTIONAL)
    return frozenset(
        name for items in lists for name in items[chance.randint(1, len(items)) :]
    )


# How often a rank is drawn, besides once, by how far it is from the usual one. Those
# that a kernel declares are drawn alike.
_RANK_WEIGHTS: Final = (4, 2)
# A common multiple of the numbers of axes and signed axes of ranks 1 to 4.
_RANK_SLOTS: Final = 24
_MOST_GROUPS: Final = 3


def cases(
    parameters: Mapping[str, Parameter], **fields: Any
) -> st.SearchStrategy[Case]:
    """Return a strategy for the inputs of a kernel, as recipes.

    Dimensions of "*" are named d0, d1, … Every drawn case is in the domain: its
    specs have no problem, its sizes keep budget, `shape_class`, `dims` and
    `layouts` of the declaration.

    Args:
        parameters: the operator's, in order.
        fields: what the cases depend on besides, see `Domain`.

    Raises:
        BindingError: if the declaration leaves no shape within the budget.
    """
    domain = Domain(parameters, **fields)
    if domain.frames is None:
        made, budget = domain.restriction, domain.budget
        raise BindingError(
            f"{f'shape_class {made.expression!r}' if made else 'dims'} allows no shape "
            f"of at most {budget.elements} elements and {budget.rows} rows",
            fix="relax the declaration, or run on a device with a larger budget",
        )
    return _cases(domain)


@dataclass(frozen=True)
class Domain:
    """Everything about a kernel that its cases depend on.

    Attributes:
        every: the operator's parameters, in order.
        declaration: the kernel's.
        budget: limits of the tensors.
        ranks: ranks of the tensors with "*", of those with most named dimensions.
        usual_rank: the rank of them that is drawn most.
        reduced: the axis that is reduced where no parameter selects it: a
            dimension name or an axis of the leading tensor (the first that is
            not an index); None if none is.
        empty_reduction: whether the reduced dimension may be 0.
        shape_class: what dimensions and integer scalars must satisfy together.
        workspaces: dimension names of further tensors within the budget.
        subtracts_mean: whether the operator takes the mean out of its data: those
            with a large one are drawn more often.
        omitted: scalars and optional tensors that the implementation does not
            take; they are absent from the cases and stay at their defaults.
        nullable: optional tensors that it takes and can do without: they are absent
            from some cases, each alone and together.
        lists: names of the tensors of each list: the first is never absent, the others
            are from some cases.
        named_sizes: sizes to draw besides those at which kernels mostly go wrong.
    """

    every: Mapping[str, Parameter]
    declaration: Declaration
    budget: SizeBudget
    ranks: Sequence[int] = range(1, 5)
    usual_rank: int = 2
    reduced: str | int | None = None
    empty_reduction: bool = True
    shape_class: str = ""
    workspaces: Sequence[str] = ()
    subtracts_mean: bool = False
    omitted: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    named_sizes: tuple[int, ...] = ()

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """Those that the kernel takes."""
        return {n: p for n, p in self.every.items() if n not in self.omitted}

    @cached_property
    def dim(self) -> tuple[str, DimParameter] | None:
        """The parameter that selects an axis, whether the kernel takes it or not."""
        items = self.every.items()
        return next(((n, p) for n, p in items if isinstance(p, DimParameter)), None)

    @cached_property
    def defaults(self) -> dict[str, Scalar]:
        """The defaults of all scalars."""
        items = self.every.items()
        return {n: p.default for n, p in items if isinstance(p, ScalarParameter)}

    @cached_property
    def restriction(self) -> ShapeClass | None:
        """What operator and declaration demand of sizes together."""
        declared = self.declaration.shape_class
        own = self.shape_class
        return ShapeClass(own).both(declared) if own else declared

    @cached_property
    def allowed(self) -> tuple[str, ...]:
        """The value families of data."""
        return values.allowed_families(self.declaration)

    @cached_property
    def span(self) -> int:
        """Elements that a view with unused memory between them may span."""
        if self.declaration.offsets == "int32":
            return 0
        return self.budget.span // max(d.itemsize for d in DTYPES.values())

    @cached_property
    def tensors(self) -> dict[str, TensorParameter]:
        """The tensor parameters that are passed."""
        items = self.parameters.items()
        return {n: p for n, p in items if isinstance(p, TensorParameter)}

    @cached_property
    def indices(self) -> dict[str, IndexParameter]:
        """The index parameters that are passed."""
        items = self.tensors.items()
        return {n: p for n, p in items if isinstance(p, IndexParameter)}

    @cached_property
    def removable(self) -> tuple[str, ...]:
        """The tensors that a case may be without."""
        needed = set(self.restriction.names) if self.restriction else set()
        needed |= {str(self.reduced), *(p.below for p in self.indices.values())}
        sizes = (p for p in self.parameters.values() if isinstance(p, SizeParameter))
        needed |= {p.of for p in sizes}
        needed |= {axis for dims in self.workspaces for axis in dims.split()}
        fixed = {*self.declaration.inplace, self.dim[1].of if self.dim else ""}
        listed = {name for items in self.lists.values() for name in items}
        free = self.nullable - fixed - needed - listed
        return removable(self.tensors, free, needed)

    @cached_property
    def scalars(self) -> dict[str, Weighted[Scalar]]:
        """Strategies of the scalars that are passed, the default first."""
        declared = self.declaration.dtypes
        return {
            name: weighted(
                p.values(declared)
                if isinstance(p, DtypeParameter)
                else dict.fromkeys((p.default, *p.domain))
            )
            for name, p in self.parameters.items()
            if isinstance(p, ScalarParameter)
        }

    def agreeing(self, drawn: dict[str, Scalar]) -> dict[str, Scalar]:
        """Return scalars with which sizes exist: some at their defaults if need be.

        To give the case up would have Hypothesis try thousands of others in vain.
        """
        made, restriction = dict(drawn), self.restriction
        if restriction is None:
            return made
        for name in (None, *(n for n in drawn if n in restriction.names)):
            if name is not None:
                made[name] = self.defaults[name]
            known = self.defaults | made
            whole = {n: v for n, v in known.items() if type(v) is int}
            if not restriction.contradicts(whole):
                return made
        return drawn

    @cached_property
    def frames(self) -> Weighted[tuple[int, int, str, str]] | None:
        """Value of dim, number of the plan, dtypes of data and of indices.

        None if no shape fits; "" where there are no indices.

        Each draw costs some 50 us, so what is independent and small is drawn
        together.
        """
        frames: list[tuple[int, int]] = []
        first = 0
        for rank, found in self._possible.items():
            weight = _RANK_SLOTS * (1 + self._weight(rank))
            numbered = [(d, first + i) for i, (d, _) in enumerate(found)]
            first += len(found)
            frames += (numbered * weight)[:weight]
        claims = self.declaration
        kinds = claims.index_dtypes if self.indices else ("",)
        dtypes = [(d, k) for d in claims.dtypes for k in kinds]
        every = [(*frame, *dtype) for frame in frames for dtype in dtypes]
        return weighted(every) if every else None

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of `frames`, by number."""
        return tuple(p for found in self._possible.values() for _, p in found)

    @cached_property
    def _possible(self) -> dict[int, list[tuple[int, Plan]]]:
        """By rank, likely ones first, the values of dim at which shapes exist."""
        ranks = sorted(self._ranks, key=lambda r: -self._weight(r))
        every = {r: [(d, p) for d, p in self._choices(r) if p.possible] for r in ranks}
        return {rank: found for rank, found in every.items() if found}

    def _weight(self, rank: int) -> int:
        far = abs(rank - self.usual_rank)
        if self.declaration.ranks is not None:
            return 0
        return _RANK_WEIGHTS[far] if far < len(_RANK_WEIGHTS) else 0

    @property
    def _ranks(self) -> Sequence[int]:
        if any(p.variadic for p in self.tensors.values()):
            named = widest(self.tensors.values())
            declared = self.declaration.ranks
            wanted = self.ranks if declared is None else declared
            return [rank for rank in wanted if rank >= named]
        return [len(next(iter(self.tensors.values())).names)]

    def _choices(self, rank: int) -> list[tuple[int, Plan]]:
        if self.dim is not None:
            name, parameter = self.dim
            wanted: Sequence[int] = [parameter.default]
            if name in self.parameters:
                every = [*range(-1, -rank - 1, -1), *range(rank)]
                declared = self.declaration.dims
                wanted = every if declared is None else declared
            valid = [d for d in wanted if -rank <= d < rank]
            return [(d, self._plan(rank, reduced=d)) for d in valid]
        if self.reduced is not None or (rank == 0 and not self.indices):
            return [(0, self._plan(rank, reduced=self.reduced))]
        wide: Sequence[int | str] = self._wide(rank) or range(-rank, 0)
        return [(0, self._plan(rank, reduced=None, large=axis)) for axis in wide]

    def _wide(self, rank: int) -> tuple[str, ...]:
        """Return the dimensions that may be large, none if no tensor has named ones.

        Those selected from, and the last one of each tensor, two where nothing is
        selected; leading ones mostly cost a program each.
        """
        every = {name for p in self.tensors.values() for name in p.names}
        found = [p.below for p in self.indices.values() if p.below in every]
        named = 1 if self.indices else 2
        others = unnamed(self.tensors, rank)
        for parameter in self.tensors.values():
            # A ragged batch has few parts, and what a reference does goes over them.
            if not parsed(parameter.domain).cuts:
                first = parameter.names[:1]
                axes = parameter.axes(others)
                last = axes[axes.index(first[0]) :] if first else ()
                found += last[-named:]
        return tuple(dict.fromkeys(found))

    def _plan(
        self, rank: int, *, reduced: str | int | None, large: int | str = -1
    ) -> Plan:
        return plan(
            self.tensors,
            rank=rank,
            reduced=reduced,
            large=large,
            budget=self.budget,
            shape_class=self.restriction,
            empty_reduction=self.empty_reduction,
            workspaces=self.workspaces,
            scalars={n: v for n, v in self.defaults.items() if type(v) is int},
            named_sizes=self.named_sizes,
        )

    # Bursts: a drawn case, and the value families of further members of its structure.

    def burst(self, case: Case, members: int, number: int) -> Burst:
        """Return a burst of a structure; one of a single member has no groups.

        Of the others each of one to three groups has the family of each filled
        argument as often as `values` draws it. No index is out of bounds; none copies
        from another argument unless the case's own does.

        Args:
            case: the structure; pinned arguments keep their values.
            members: how many.
            number: settles the groups.
        """
        if members == 1:
            return Burst(case, 1)
        chance = generator(number, Purpose.GROUPS)
        count = 1 + chance.randrange(_MOST_GROUPS)
        return Burst(
            case,
            members,
            tuple(self._group(case, chance) for _ in range(count)),
            planted=self.planted(case),
            finite=self.declaration.nonfinite == "undefined",
        )

    def planted(self, case: Case) -> tuple[str, ...]:
        """Return the arguments in which members have special values planted."""
        return tuple(
            name
            for name, spec in case.tensors.items()
            if spec.fill is not None
            and spec.numel
            and values.takes_plants(self.tensors[name])
        )

    def _group(self, case: Case, chance: random.Random) -> dict[str, str]:
        made: dict[str, str] = {}
        data: str | None = None
        for name, spec in case.tensors.items():
            if spec.fill is None:
                continue
            parameter = self.tensors[name]
            options = values.family_options(
                parameter,
                self.allowed,
                partner=made.get(data or ""),
                correlated=spec.fill.source in case.tensors,
                shape=spec.shape,
                subtracts_mean=self.subtracts_mean,
            )
            made[name] = options[chance.randrange(len(options))]
            if data is None and parameter.kind == "float" and parameter.role == "data":
                data = name
        return made


@st.composite
def _cases(draw: st.DrawFn, domain: Domain) -> Case:
    assert domain.frames is not None
    choose: Chooser[Any] = Chooser(draw)
    dim, number, dtype, index_dtype = choose(domain.frames)
    shapes = domain.plans[number]
    scalars = domain.agreeing({n: choose(s) for n, s in domain.scalars.items()})
    sizes = shapes.draw(choose, scalars)
    seed = draw(values.seeds)
    sizes = shapes.stretched(sizes, seed, scalars)
    if domain.dim is not None and domain.dim[0] in domain.parameters:
        scalars[domain.dim[0]] = dim
    for picks in domain.indices.values():
        if picks.below in domain.defaults:  # the values depend on it
            scalars.setdefault(picks.below, domain.defaults[picks.below])
    choices: dict[str, _Choice] = {}
    absent = left_out(domain.removable, (seed, sizes))
    absent |= shortened(tuple(domain.lists.values()), (seed, sizes))
    for name in domain.tensors:
        if name in absent:
            continue
        shape = tuple(sizes[axis] for axis in shapes.axes[name])
        choices[name] = _choice(choose, domain, name, shape, choices)
    # One integer seeds all arguments: their own seeds differ in upper bits.
    seed ^= choose.salt
    tensors = {}
    for index, (name, chosen) in enumerate(choices.items()):
        axes = shapes.axes[name]
        axis = axes.index(shapes.large) - len(axes) if shapes.large in axes else -1
        own = seed | index << values.SEED_BITS
        chooses = domain.indices.get(name)
        kind = domain.tensors[name].dtype or (index_dtype if chooses else dtype)
        if chooses and parsed(chooses.domain).cuts:
            axis = -1
        spec = _spec(domain, name, chosen, axes, axis, kind, own)
        if chooses:
            known = {**domain.defaults, **scalars}
            spec = _as_indices(chooses, spec, known.get(chooses.ignored))
        tensors[name] = spec
    tensors = values.with_ends(tensors, seed)
    return with_surroundings(Case(tensors, scalars), domain.declaration)


@dataclass(frozen=True)
class _Choice:
    """What is drawn for one tensor besides its shape."""

    shape: tuple[int, ...]
    family: str
    source: str | None
    plants: int
    layout: str


def _choice(
    choose: Chooser[Any],
    domain: Domain,
    name: str,
    shape: tuple[int, ...],
    before: Mapping[str, _Choice],
) -> _Choice:
    parameter, declaration = domain.tensors[name], domain.declaration
    source, partner = None, None
    if parameter.kind == "float" and parameter.role == "data":
        # The first data argument is what later ones may be correlated with.
        source = next(
            (n for n in before if _correlates(domain.tensors[n], parameter)), None
        )
        partner = None if source is None else before[source]
    plants = choose(values.plant_counts) if values.takes_plants(parameter) else 0
    strays = isinstance(parameter, IndexParameter) and parameter.strays
    options = values.family_options(
        parameter,
        domain.allowed,
        partner=None if partner is None else partner.family,
        correlated=partner is not None and min(len(shape), len(partner.shape)) >= 2,
        shape=shape,
        subtracts_mean=domain.subtracts_mean,
        hostile=strays and declaration.out_of_bounds != "undefined",
    )
    family = choose(weighted_names(options))
    kinds = layouts.layout_options(
        shape,
        declaration,
        span=domain.span,
        inplace=name in declaration.inplace or not parameter.repeats,
    )
    return _Choice(
        shape,
        family,
        source if family == "transpose_of" else None,
        0 if 0 in shape else plants,
        choose(weighted_names(kinds)),
    )


def _correlates(one: TensorParameter, other: TensorParameter) -> bool:
    """Whether two arguments are data of one dtype."""
    roles = {one.role, other.role}
    return roles == {"data"} and one.kind == "float" and one.dtype == other.dtype


def _spec(
    domain: Domain,
    name: str,
    chosen: _Choice,
    axes: tuple[str, ...],
    axis: int,
    dtype: str,
    seed: int,
) -> TensorSpec:
    declaration, shape = domain.declaration, chosen.shape
    strides, offset = layouts.build(
        chosen.layout, shape, seed, dtype, declaration, span=domain.span
    )
    kept = domain.tensors[name].domain
    finite = declaration.nonfinite == "undefined"
    finite = finite or (bool(kept) and parsed(kept).is_finite)
    return TensorSpec(
        shape,
        axes,
        dtype,
        strides,
        offset,
        fill=Fill(chosen.family, seed, axis, chosen.source),
        plants=values.plants(shape, axis, dtype, chosen.plants, seed, finite=finite),
        domain=kept,
    )


def _as_indices(
    parameter: IndexParameter, spec: TensorSpec, scalar: Scalar | None
) -> TensorSpec:
    """Return the spec below its bound, some elements holding the ignored scalar."""
    assert spec.fill is not None
    hostile = is_hostile(spec.fill.family)
    if scalar is None or hostile or not spec.numel:
        return replace(spec, below=parameter.below)
    plants = values.ignored(spec.shape, spec.dtype, int(scalar), spec.fill.seed)
    return replace(spec, below=parameter.below, plants=plants)


def bursts(
    cases: st.SearchStrategy[Case],
    domain: Domain,
    *,
    members: Callable[[Case], int],
) -> st.SearchStrategy[Burst]:
    """Return a strategy for bursts: what `cases` draws, and families for its members.

    Args:
        cases: strategy of the structures.
        domain: of the same kernel, of any budget.
        members: how many members a burst of a structure has; of one alone there are
            no groups.
    """

    @st.composite
    def draw_burst(draw: st.DrawFn) -> Burst:
        case = draw(cases)
        # One draw settles all groups: each costs some 50 us.
        return domain.burst(case, members(case), draw(values.seeds))

    return draw_burst()
