"""Launches that are proved together: of one Triton kernel, alike but for numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kfuzz.core.recipe import Case
from kfuzz.execution.launches.capture import Captured
from kfuzz.execution.launches.launch import ConstArgument, Launch, TensorArgument
from kfuzz.prove.ir.terms import Atom
from kfuzz.prove.ir.values import symbol
from kfuzz.prove.relations import Relations

Key = tuple[Any, ...]
Constants = tuple[tuple[str, str], ...]


class Made(NamedTuple):
    """A launch, and the call that made it."""

    launch: Launch
    function: Any
    case: Case
    call: int


Groups = dict[Key, list[Made]]
"""Launches of one Triton kernel each, whose tensors have equal ranks."""


def variants_of(group: Sequence[Made]) -> dict[Constants, list[Made]]:
    """Return launches by constants and types, those of small cases first."""
    found: dict[Constants, list[Made]] = {}
    for each in sorted(group, key=lambda m: m.case.elements):
        found.setdefault(constants_of(each.launch), []).append(each)
    return found


@dataclass(frozen=True)
class Grouping:
    """Puts launches into groups.

    Attributes:
        dense: (kernel, argument) whose tensor is contiguous in every launch: its rank
            says nothing.
    """

    dense: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, launches: Iterable[Launch]) -> "Grouping":
        """Return the grouping of some launches."""
        every: dict[tuple[str, str], bool] = {}
        for launch in launches:
            for name, argument in launch.arguments.items():
                if isinstance(argument, TensorArgument):
                    place = launch.kernel, name
                    every[place] = every.get(place, True) and argument.contiguous
        return cls(frozenset(place for place, dense in every.items() if dense))

    def key(self, launch: Launch) -> Key:
        """Return what launches of one group have in common."""
        parts: list[Any] = [launch.kernel, launch.line]
        for name, argument in launch.arguments.items():
            match argument:
                case ConstArgument() if argument.number is None:
                    parts.append((name, argument.text))
                case TensorArgument():
                    dense = (launch.kernel, name) in self.dense
                    rank = -1 if dense else len(argument.shape)
                    parts.append((name, rank, argument.contiguous or not dense))
                case _:
                    parts.append((name, type(argument).__name__))
        return tuple(parts)


def grouped(calls: Sequence[Captured], grouping: Grouping) -> Groups:
    """Return the groups of the launches of some calls."""
    found: Groups = {}
    for number, call in enumerate(calls):
        for launch, function in zip(call.launches, call.functions, strict=True):
            group = found.setdefault(grouping.key(launch), [])
            group.append(Made(launch, function, call.case, number))
    return found


def constants_of(launch: Launch) -> Constants:
    """Return the constants of a launch, and the types of its arguments."""
    return (*launch.constants, ("types", " ".join(filter(None, launch.types))))


def numbers(launch: Launch) -> dict[Atom, int]:
    """Return the values of a launch's integer constants."""
    made = launch.arguments.items()
    return {
        symbol(name): argument.number
        for name, argument in made
        if isinstance(argument, ConstArgument) and argument.number is not None
    }


@dataclass(frozen=True)
class Watch:
    """The premises of a kernel's proof, to hold launches against."""

    grouping: Grouping
    relations: Mapping[Key, Relations]
    constants: Mapping[Key, frozenset[Constants]]

    def place(self, launch: Launch) -> tuple[Key, Constants]:
        """Return the group of a launch, and its constants."""
        return self.grouping.key(launch), constants_of(launch)

    def broken_by(self, launches: Iterable[Launch], *, partly: bool = False) -> str:
        """Return what the first launch breaks that breaks a premise, or "".

        Args:
            launches: the launches.
            partly: as of `Relations.broken_by`.
        """
        return next(self._broken(launches, partly=partly), "")

    def _broken(self, launches: Iterable[Launch], *, partly: bool) -> Iterator[str]:
        for launch in launches:
            if launch.vacuous:
                continue
            key, constants = self.place(launch)
            relations = self.relations.get(key)
            if relations is None:
                yield f"{launch.kernel} is launched with arguments of other kinds"
                continue
            if constants not in self.constants[key]:
                told = ", ".join(f"{name}={text}" for name, text in constants)
                yield f"{launch.kernel} is launched with {told}"
            premise = relations.broken_by(launch, partly=partly)
            if premise is not None:
                text = premise.text or str(premise.holds)
                yield f"a launch of {launch.kernel} breaks its premise: {text}"
