"""Bursts: a drawn case, and the value families of further members of its structure."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hypothesis import strategies as st

from kfuzz.core.burst import Burst
from kfuzz.core.declaration import Declaration
from kfuzz.core.random_streams import Purpose, generator
from kfuzz.core.recipe import Case
from kfuzz.core.value_families import COPIES
from kfuzz.strategies import value_choice as values
from kfuzz.strategies.parameters import Parameter, TensorParameter

_MOST_GROUPS: Final = 3


@dataclass(frozen=True)
class Groups:
    """Chooses value families for groups of members.

    Attributes:
        parameters: the operator's, in order.
        declaration: the kernel's.
        families: value families to draw data from; None for all.
        subtracts_mean: whether the operator takes the mean out of its data.
    """

    parameters: Mapping[str, Parameter]
    declaration: Declaration
    families: Sequence[str] | None = None
    subtracts_mean: bool = False

    @cached_property
    def _allowed(self) -> tuple[str, ...]:
        return values.allowed_families(self.declaration, self.families)

    @cached_property
    def _tensors(self) -> dict[str, TensorParameter]:
        items = self.parameters.items()
        return {n: p for n, p in items if isinstance(p, TensorParameter)}

    def chosen(
        self, case: Case, number: int, wanted: Sequence[str] = ()
    ) -> tuple[dict[str, str], ...]:
        """Return the families of one to three groups, as often as `values` draws each.

        There are as many groups as families wanted, if these are more.

        Args:
            case: the structure; pinned arguments keep their values.
            number: settles everything.
            wanted: families of the first data argument, one per group from the first
                on; those that the declaration does not admit are passed over.

        Returns:
            Per group the family of each filled argument by name. No index is out of
            bounds; none copies from another argument unless the case's own does.
        """
        chance = generator(number, Purpose.GROUPS)
        # The first data argument has nothing before it to copy from.
        first = [n for n in wanted if n in self._allowed and n not in COPIES]
        made = []
        for group in range(max(1 + chance.randrange(_MOST_GROUPS), len(first))):
            forced = first[group] if group < len(first) else None
            made.append(self._group(case, chance, forced))
        return tuple(made)

    def burst(
        self, case: Case, members: int, number: int, wanted: Sequence[str] = ()
    ) -> Burst:
        """Return a burst of a structure; one of a single member has no groups.

        Args:
            case: the structure.
            members: how many.
            number: settles the groups.
            wanted: see `chosen`.
        """
        if members == 1:
            return Burst(case, 1)
        return Burst(
            case,
            members,
            self.chosen(case, number, wanted),
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
            and values.takes_plants(self._tensors[name])
        )

    def _group(
        self, case: Case, chance: random.Random, forced: str | None
    ) -> dict[str, str]:
        made: dict[str, str] = {}
        data: str | None = None
        for name, spec in case.tensors.items():
            if spec.fill is None:
                continue
            parameter = self._tensors[name]
            is_data = parameter.kind == "float" and parameter.role == "data"
            if is_data and data is None and forced is not None:
                made[name] = forced
            else:
                options = values.family_options(
                    parameter,
                    self._allowed,
                    partner=made.get(data or ""),
                    correlated=spec.fill.source in case.tensors,
                    subtracts_mean=self.subtracts_mean,
                )
                made[name] = options[chance.randrange(len(options))]
            if is_data and data is None:
                data = name
        return made


def bursts(
    cases: st.SearchStrategy[Case],
    groups: Groups,
    *,
    members: Callable[[Case], int],
    wanted: Callable[[Case], Sequence[str]] = lambda case: (),
) -> st.SearchStrategy[Burst]:
    """Return a strategy for bursts: what `cases` draws, and families for its members.

    Args:
        cases: strategy of the structures.
        groups: of the same kernel.
        members: how many members a burst of a structure has; of one alone there are
            no groups.
        wanted: families that the first data argument of further groups is to have,
            see `Groups.chosen`.
    """

    @st.composite
    def draw_burst(draw: st.DrawFn) -> Burst:
        case = draw(cases)
        # One draw settles all groups: each costs some 50 us.
        number = draw(values.seeds)
        return groups.burst(case, members(case), number, wanted(case))

    return draw_burst()
