"""Proving one bound kernel: launches, premises, properties, counterexamples."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice, zip_longest
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.errors import HarnessError
from kfuzz.core.event import Event, KernelProof, Proven, ProvenProperty
from kfuzz.core.recipe import Case, config_of, contiguous_strides
from kfuzz.core.verdict import ATTRIBUTED, VALUE_KINDS, Kind
from kfuzz.engine.search.campaign import Keep
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.launches.building import NotCompiledError, beside
from kfuzz.execution.launches.capture import (
    IntArgument,
    Launch,
    NotCapturedError,
    TensorArgument,
    capture,
)
from kfuzz.execution.processes.child import OwnProcess
from kfuzz.features.prove.fitting import (
    SMALL,
    Premise,
    Relations,
    held_by,
    quantities,
    within_grid,
)
from kfuzz.features.prove.ir.graph import NARROW, WIDE, graph_of, ttir
from kfuzz.features.prove.ir.ttir import Function, UnreadableError, read
from kfuzz.features.prove.ir.values import (
    CHOICE,
    DATA,
    GREATEST,
    ITERATION,
    LANE,
    LEAST,
    LOAD,
    PROGRAM,
    QUOTIENT,
    REMAINDER,
    SYMBOL,
    Access,
    Atom,
    Graph,
    UnknownValueError,
    Valuation,
    all_of,
    atoms_in,
)
from kfuzz.features.prove.observing import (
    ENTRY,
    Counterexample,
    Observed,
    Outcome,
    Task,
    observe,
)
from kfuzz.features.prove.properties import (
    PROVED,
    STEPS,
    Property,
    Prover,
    Reply,
    Solver,
    Verdict,
)
from kfuzz.features.prove.sampling import (
    Constants,
    Grouping,
    Groups,
    Key,
    Made,
    Sampling,
    Watch,
    constants_of,
    grouped,
    numbers,
    variants_of,
)
from kfuzz.strategies.layouts import layout_name
from kfuzz.targets.load import LoadedKernel, load_all

SECONDS: Final = 60.0
"""Processor time of one kernel."""

OBSERVE_SECONDS: Final = 15.0
"""How long real launches may take, in all."""

_OBSERVED_CASES: Final = 12
_OBSERVED_ELEMENTS: Final = 1500
_TRIED: Final = 48
_PER_PROPERTY: Final = 4
_SINGLE_STEPS: Final = 2_000_000
_FAILED: Final = 4

Place = tuple[Key, Constants]
Wanted = TypeVar("Wanted", Property, str)


@dataclass
class _Variant:
    """Launches of a group with the same constants.

    Attributes:
        made: the launches, of small cases first.
        graph: what they access, or why that is not known.
        verdicts: by property; None where it says nothing.
        covered: by argument whether it is stored whole.
    """

    made: list[Made]
    graph: Graph | str
    verdicts: dict[Property, Verdict | None] = field(default_factory=dict)
    covered: dict[str, Verdict] = field(default_factory=dict)


class KernelProver:
    """Proves the properties of one kernel.

    Args:
        kernel: the kernel.
        node_id: its name in a run.
        seconds: of the processor that it may take.
        observe: runs a case in the interpreter; None where graphs are not held against
            real launches.
        pause: called every now and then.
    """

    def __init__(
        self, kernel: BoundKernel, node_id: str, *, seconds: float = SECONDS,
        observe: Callable[[Case], list[Observed] | None] | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._kernel, self._node_id = kernel, node_id
        self._seconds = seconds
        self._end = time.process_time() + seconds
        self._observe, self._observed, self._differs = observe, 0, ""
        self._spent, self._pause = Counter[str](), pause
        until = self._end - seconds / 2
        self._sampling = Sampling(kernel, until=until, pause=pause)
        self._held: dict[Key, Relations] = {}
        self._variants: dict[Place, _Variant] = {}
        self._failed: dict[tuple[object, ...], list[Verdict]] = {}
        self._refused: set[Place] = set()
        self._alike: dict[object, _Variant] = {}
        self._casts: dict[object, bool] = {}
        self._modules: dict[tuple[Any, Constants], dict[str, Function]] = {}
        self._graphs: dict[int, tuple[Launch, Graph | str]] = {}

    def run(self) -> Outcome:
        """Return what is proved."""
        self._sampling.capture()
        if why := self._sampling.nothing():
            return nothing(self._node_id, why)
        grouping, groups = self._grouping()
        if self._forget_overwritten(groups):
            groups = grouped(self._sampling.calls, grouping)
        for key, group in groups.items():
            relations = self._folded(self._sampling.fit(group), group)
            if self._kernel.declaration.offsets == "int32":  # it claims no more
                relations = relations.below(SMALL)
            self._held[key] = relations
            for constants, made in variants_of(group).items():
                self._variants[key, constants] = self._proved(key, made)
        self._drop_refused()
        known = {
            key: frozenset(c for k, c in (*self._variants, *self._refused) if k == key)
            for key in groups
        }
        watch = Watch(grouping, self._held, known)
        self._hold_against_launches(watch)
        properties, examples = self._answers(groups)
        proof = KernelProof(
            self._node_id,
            tuple(properties),
            self._premises(groups),
            len(self._variants),
            self._observed,
            int(self._spent["queries"]),
            self._spent["seconds"],
            layouts=self._layouts(),
        )
        return Outcome(proof, examples, watch)

    def _layouts(self) -> tuple[str, ...]:
        """Return what all launches have in common of the layouts of tensors."""
        given = [call.case.tensors for call in self._sampling.calls]
        every = set[str]().union(*given)
        strided = {
            name
            for each in given
            for name, spec in each.items()
            if spec.element_strides != contiguous_strides(spec.shape)
        }
        texts = [f"{name} is contiguous" for name in sorted(every - strided)]
        premises = (p.text for each in self._held.values() for p in each.premises)
        limits = [t for t in premises if " is 1 or " in t or "share memory" in t]
        return tuple(dict.fromkeys([*texts, *limits]))

    def _grouping(self) -> tuple[Grouping, Groups]:
        """Return the groups with as many constants as symbols as may be.

        Block sizes may not: shapes are made of them.
        """
        calls = self._sampling.calls
        launches = [launch for call in calls for launch in call.launches]
        symbols = self._sampling.constants()
        for place in list(symbols):
            function, launch = symbols[place]
            alone = Grouping.of((), [place]).general(launch)
            if isinstance(self._evaluated(function, alone), str):
                del symbols[place]
        while True:
            grouping = Grouping.of(launches, symbols)
            groups = grouped(calls, grouping)
            failed = {
                (made[0].launch.kernel, made[0].launch.line)
                for group in groups.values() if symbols
                for made in variants_of(group).values()
                if isinstance(self._graph(made[0]), str) and self._some_graph(made)
            }  # fmt: skip
            fewer = {p: each for p, each in symbols.items() if p[:2] not in failed}
            if len(fewer) == len(symbols):
                return grouping, groups
            symbols = fewer

    def _some_graph(self, variant: Sequence[Made]) -> bool:
        """Whether what some launch accesses is known with all of its constants."""
        own = {made.given.constants: made for made in variant}.values()
        return not all(
            isinstance(self._evaluated(made.function, made.given), str) for made in own
        )

    def _folded(self, relations: Relations, group: Sequence[Made]) -> Relations:
        """Return relations with those of the numbers that Python computes.

        Of 32 bits these are constants like any others; wider ones have other types.
        """
        made: dict[Premise, None] = {}
        for first, *_ in variants_of(group).values():
            graph = self._graph(first)
            for check in () if isinstance(graph, str) else graph.checks:
                if check.folded and check.bits:
                    text = f"{check.poly} has {check.bits} bits"
                    made[Premise(check.goal, text)] = None
        kept = held_by([each.launch for each in group], made)
        return replace(relations, premises=(*relations.premises, *kept))

    def _forget_overwritten(self, groups: Groups) -> bool:
        """Forget what indices are in memory that a kernel stores to; whether any is."""
        calls = self._sampling.calls
        if not any(map(_has_indices, (n for call in calls for n in call.launches))):
            return False
        written: dict[int, set[int]] = {}
        for group in groups.values():
            for variant in variants_of(group).values():
                graph = self._graph(variant[0])
                if isinstance(graph, str):
                    continue
                stored = {a.base for a in graph.accesses if a.kind != LOAD}
                for made in variant:
                    given = made.launch.arguments
                    places = (given.get(name) for name in stored)
                    written.setdefault(made.call, set()).update(
                        a.storage for a in places if isinstance(a, TensorArgument)
                    )
        changed = False
        for number, storages in written.items():
            for place, launch in enumerate(calls[number].launches):
                made_ = _unknown_in(launch, storages)
                changed |= made_ is not launch
                calls[number].launches[place] = made_
        return changed

    # Variants.

    def _proved(self, key: Key, made: list[Made]) -> _Variant:
        graph = self._graph(made[0])
        variant = _Variant(made, graph)
        if isinstance(graph, str):
            return variant
        fixed = numbers(made[0].launch)
        # The same of other data types as a rule.
        same = key, tuple(fixed.items()), tuple(outputs(made)), graph.signature()
        if (known := self._alike.get(same)) is not None:
            return replace(known, made=made)
        self._alike[same] = variant
        prover = self._prover(graph, self._held[key], fixed)
        overflow = self._tried(key, Property.INT32, prover.verdict)
        if overflow is not None and overflow.reply is not Reply.PROVED:
            # Of tensors that 32-bit offsets reach the rest may hold all the same.
            self._held[key] = small = self._held[key].below(SMALL)
            prover = self._prover(graph, small, fixed)
        for wanted in Property:
            self._pause()
            if time.process_time() > self._end:
                break
            if wanted is Property.INT32:
                variant.verdicts[wanted] = overflow
            elif wanted is not Property.COVERED:
                variant.verdicts[wanted] = self._tried(key, wanted, prover.verdict)
        for name in outputs(made):
            if time.process_time() <= self._end:
                covered = self._tried(key, name, prover.covered)
                if covered is not None:
                    variant.covered[name] = covered
        return variant

    def _tried(
        self, key: Key, wanted: Wanted, verdict: Callable[[Wanted], Verdict | None]
    ) -> Verdict | None:
        """Return what becomes of a property, or of a result that is stored.

        Where it is open for several variants of a kernel it is not tried for others:
        that costs the most, and time is left for the other properties.
        """
        failed = self._failed.setdefault((*key[:2], wanted), [])
        if len(failed) >= _FAILED:
            return replace(failed[0], reply=Reply.UNKNOWN)
        made = verdict(wanted)
        if made is not None and made.reply is not Reply.PROVED:
            failed.append(made)
        return made

    def _graph(self, made: Made) -> Graph | str:
        """Return what a launch accesses, or why that is not known."""
        known = self._graphs.get(id(made.launch))
        if known is None:
            known = made.launch, self._evaluated(made.function, made.launch)
            self._graphs[id(made.launch)] = known
        return known[1]

    def _evaluated(self, function: Any, launch: Launch) -> Graph | str:
        self._pause()
        try:
            place = function, constants_of(launch)
            functions = self._modules.get(place)
            if functions is None:
                functions = read(ttir(function, launch, integers=NARROW))
                self._modules[place] = functions
            graph = graph_of(functions, launch)
        except NotCompiledError as error:
            return f"{_REFUSED}: {error}"
        except UnreadableError as error:
            return f"its IR is not understood: {str(error)[:80]}"
        if graph.open:
            return f"not understood: {graph.open}"
        if self._narrows(function, launch, functions):
            return "an argument of 64 bits is made narrower"
        return graph

    def _narrows(
        self, function: Any, launch: Launch, narrow: Mapping[str, Function]
    ) -> bool:
        """Whether a kernel casts an argument of 64 bits to fewer.

        The widths of results are followed from those of arguments; such a cast breaks
        that.
        """
        arguments = launch.arguments.values()
        if not any(isinstance(a, IntArgument) and not a.declared for a in arguments):
            return False
        place = launch.line, launch.constants
        if place not in self._casts:
            try:
                wide = read(ttir(function, launch, integers=WIDE))
                self._casts[place] = _casts(wide) > _casts(narrow)
            except NotCompiledError:  # no such launch is possible
                self._casts[place] = False
        return self._casts[place]

    def _prover(
        self, graph: Graph, relations: Relations, fixed: Mapping[Atom, int],
        steps: int = STEPS,
    ) -> Prover:  # fmt: skip
        solver = Solver(graph.data, steps=steps, spent=self._spent)
        return Prover(graph, relations, solver, fixed=fixed)

    def _hold_against_launches(self, watch: Watch) -> None:
        """Compare graphs and premises with what the interpreter records."""
        if self._observe is None:
            return
        seen: set[Place] = set()
        end = time.monotonic() + OBSERVE_SECONDS
        tried = 0
        for call in self._sampling.calls:
            places = set(map(watch.place, call.launches))
            if not places or call.case.elements > _OBSERVED_ELEMENTS:
                continue
            if places <= seen or tried >= _OBSERVED_CASES or time.monotonic() > end:
                continue
            tried += 1
            seen |= places
            self._pause()
            for observed in self._observe(call.case) or ():
                self._observed += 1
                if why := self._difference(observed, watch):
                    self._differs = why
                    return

    def _drop_refused(self) -> None:
        """Forget launches that no compiler takes, where it takes others of the kernel.

        They raise, and access nothing.
        """
        fine = {
            key[:2]
            for (key, _), variant in self._variants.items()
            if not isinstance(variant.graph, str)
        }
        for place, variant in list(self._variants.items()):
            why = variant.graph if isinstance(variant.graph, str) else ""
            if why.startswith(_REFUSED) and place[0][:2] in fine:
                del self._variants[place]
                self._refused.add(place)

    def _difference(self, observed: Observed, watch: Watch) -> str:
        launch = observed.launch
        if launch.vacuous:
            return ""
        if why := watch.broken_by([launch], partly=True):
            return f"really, {why}"
        variant = self._variants.get(watch.place(launch))
        # What no compiler takes is interpreted all the same.
        if variant is None or isinstance(variant.graph, str):
            return ""
        return difference(variant.graph, launch, observed.touched, observed.unowned)

    # Answers.

    def _answers(
        self, groups: Groups
    ) -> tuple[list[ProvenProperty], list[Counterexample]]:
        made, examples = [], []
        for wanted in Property:
            failing = self._failing(wanted)
            if failing is None:
                continue
            if self._differs:
                made.append(ProvenProperty(wanted, Proven.OPEN, self._differs))
                continue
            bare = self._bare() if wanted is Property.COVERED else []
            if not failing and not bare:
                made.append(ProvenProperty(wanted, Proven.ALL_SIZES))
                continue
            found = bare or list(islice(self._examples(wanted, failing), _PER_PROPERTY))
            examples += found
            first = found[0] if found else failing[0][1]
            made.append(ProvenProperty(wanted, Proven.OPEN, first.why, first.line))
        return made, examples

    def _failing(self, wanted: Property) -> list[tuple[Place, Verdict]] | None:
        """Return the variants for which a property is not proved, with why.

        None where it says nothing of any.
        """
        if wanted is Property.COVERED:
            return self._uncovered()
        every = self._variants.items()
        verdicts = [
            (place, Verdict(Reply.UNKNOWN, 0, v.graph))
            if isinstance(v.graph, str)
            else (place, v.verdicts.get(wanted, _LATE))
            for place, v in every
        ]
        said = [(place, verdict) for place, verdict in verdicts if verdict is not None]
        found = [(place, v) for place, v in said if v.reply is not Reply.PROVED]
        return found if said else None

    def _uncovered(self) -> list[tuple[Place, Verdict]] | None:
        """Return the results that no launch of their call is proved to store whole."""
        by_call: dict[int, list[tuple[Place, Made]]] = {}
        for place, variant in self._variants.items():
            for made in variant.made:
                by_call.setdefault(made.call, []).append((place, made))
        found: dict[Place, Verdict] = {}
        said = False
        for launches in by_call.values():
            stored: dict[int, bool] = {}
            last: dict[int, tuple[Place, Verdict]] = {}
            for place, made in launches:
                variant = self._variants[place]
                for name, argument in made.launch.arguments.items():
                    if not isinstance(argument, TensorArgument) or not argument.output:
                        continue
                    said = True
                    if argument.filled:
                        verdict = PROVED
                    elif isinstance(variant.graph, str):
                        verdict = Verdict(Reply.UNKNOWN, 0, variant.graph)
                    else:
                        verdict = variant.covered.get(name, _LATE)
                    number = argument.storage
                    proved = verdict.reply is Reply.PROVED and (
                        argument.filled or whole(argument)
                    )
                    stored[number] = stored.get(number, False) or proved
                    last[number] = place, verdict
            for number, stored_whole in stored.items():
                if not stored_whole:
                    place, verdict = last[number]
                    found.setdefault(place, verdict)
        return list(found.items()) if said else None

    def _bare(self) -> list[Counterexample]:
        """Return cases of which a result is given to no kernel."""
        calls = [call for call in self._sampling.calls if call.unstored]
        calls.sort(key=lambda call: call.case.elements)
        why = "a result is given to no kernel, and holds nothing"
        return [
            Counterexample(Property.COVERED, call.case, 0, why)
            for call in calls[:_PER_PROPERTY]
        ]

    def _examples(
        self, wanted: Property, failing: Sequence[tuple[Place, Verdict]]
    ) -> Iterator[Counterexample]:
        """Yield cases on which a property does not hold, by its formula."""
        launches = [
            (made, place)
            for place, _ in failing
            for made in self._variants[place].made
            if not isinstance(self._variants[place].graph, str)
        ]
        for tried, (made, place) in enumerate(varied(launches)):
            self._pause()
            if tried >= _TRIED or time.process_time() > self._end + self._seconds / 4:
                return
            # Of what is stored whole there is a proof or none.
            fails = {Reply.REFUTED}
            if wanted is Property.COVERED:
                fails.add(Reply.UNKNOWN)
            verdicts = self._of_launch(wanted, made, place, quantities(made.launch))
            found = next((v for v in verdicts if v.reply in fails), None)
            if found is not None:
                yield Counterexample(wanted, made.case, found.line, found.why)

    def _of_launch(
        self, wanted: Property, made: Made, place: Place, fixed: Mapping[Atom, int]
    ) -> list[Verdict]:
        """Return what becomes of a property for a launch of these numbers."""
        graph, relations = self._variants[place].graph, self._held[place[0]]
        assert isinstance(graph, Graph)
        bounds = all_of(within_grid(axis) for axis in range(3))
        relations = replace(relations, premises=(Premise(bounds, ""),), known={})
        prover = self._prover(graph, relations, fixed, _SINGLE_STEPS)
        if wanted is Property.COVERED:
            return [prover.covered(name) for name in outputs([made])]
        verdict = prover.verdict(wanted)
        return [] if verdict is None else [verdict]

    def _premises(self, groups: Groups) -> dict[str, tuple[str, ...]]:
        made: dict[str, dict[str, None]] = {}
        for key, group in groups.items():
            texts = made.setdefault(group[0].launch.kernel, {})
            for premise in self._held[key].premises:
                if premise.text:
                    texts[premise.text] = None
            for constants in variants_of(group):
                shown = ", ".join(f"{n}={text}" for n, text in constants)
                if shown:
                    texts[f"constants: {shown}"] = None
        return {kernel: tuple(texts) for kernel, texts in made.items()}


def nothing(node_id: str, why: str) -> Outcome:
    """Return the outcome of a kernel of which nothing is known."""
    found = tuple(ProvenProperty(p, Proven.OPEN, why) for p in Property)
    return Outcome(KernelProof(node_id, found))


_REFUSED: Final = "Triton's frontend rejects it"
_LATE: Final = Verdict(Reply.UNKNOWN, 0, "for want of time")


def _has_indices(launch: Launch) -> bool:
    made = launch.arguments.values()
    return any(isinstance(a, TensorArgument) and a.below is not None for a in made)


def _casts(functions: Mapping[str, Function]) -> int:
    count = 0
    pending = [block for f in functions.values() for block in f.blocks]
    while pending:
        for operation in pending.pop().operations:
            count += operation.name == "arith.trunci"
            pending += [block for region in operation.regions for block in region]
    return count


def outputs(made: Iterable[Made]) -> list[str]:
    """Return the arguments that hold results in some launches, and held nothing."""
    return list(
        dict.fromkeys(
            name
            for each in made
            for name, argument in each.launch.arguments.items()
            if isinstance(argument, TensorArgument)
            if argument.output and not argument.filled
        )
    )


def whole(argument: TensorArgument) -> bool:
    """Whether a tensor is all of its storage that is a result's."""
    return argument.before == 0 and argument.after <= argument.span


def varied(launches: Iterable[tuple[Made, Place]]) -> Iterator[tuple[Made, Place]]:
    """Yield launches of different numbers, of each kind of layouts small ones first."""
    kinds: dict[tuple[str, ...], list[tuple[Made, Place]]] = {}
    seen = set()
    for pair in sorted(launches, key=lambda p: (p[0].case.elements, p[0].call)):
        made, place = pair
        same = place, frozenset(quantities(made.launch).items())
        if same not in seen:
            seen.add(same)
            layouts = tuple(map(layout_name, made.case.tensors.values()))
            kinds.setdefault(layouts, []).append(pair)
    for row in zip_longest(*kinds.values()):
        yield from (pair for pair in row if pair is not None)


# A graph on one launch: which bytes each program touches, by its formulas.

Array = NDArray[Any]
Touched = tuple[str, str]

_LANES: Final = 1 << 22
"""Lanes, iterations and programs of one access at most."""
_PROGRAMS: Final = 512


def touched(
    graph: Graph, launch: Launch
) -> tuple[dict[Touched, Array], set[Touched], int]:
    """Return what programs touch.

    Returns:
        By kind and argument the pairs of a program's number and a byte's distance, as
        of `Observed`; those of which some access depends on data; and for how many
        programs, from the first.
    """
    found: dict[Touched, list[Array]] = {}
    partly: set[Touched] = set()
    programs = min(int(np.prod(launch.grid)), _PROGRAMS)
    first: dict[int, str] = {}
    for name, argument in launch.arguments.items():
        if isinstance(argument, TensorArgument):
            first.setdefault(argument.storage, name)
    for access in graph.accesses:
        found_argument = launch.arguments.get(access.base)
        if not isinstance(found_argument, TensorArgument):
            raise UnknownValueError("an access through no argument")
        argument = found_argument
        key = access.kind, first[argument.storage]
        try:
            pairs = _pairs(access, launch, programs, argument.itemsize)
            found.setdefault(key, []).append(pairs)
        except UnknownValueError:
            partly.add(key)
    made = {k: np.unique(np.concatenate(v), axis=0) for k, v in found.items() if v}
    return {k: v for k, v in made.items() if v.size}, partly, programs


def _pairs(access: Access, launch: Launch, programs: int, itemsize: int) -> Array:
    loops = sorted(
        {
            a.parts[0]
            for part in (access.offset, access.mask, access.path)
            for a in atoms_in(part)
            if a.kind == ITERATION
        }
    )
    counts = [8] * len(loops)
    while True:
        frame = _Frame(launch, programs, loops, counts, access.shape)
        reached = np.broadcast_to(frame.cond(access.path), frame.shape)
        longer = [
            place
            for place in range(len(loops))
            if np.take(reached, -1, axis=1 + place).any()
        ]
        if not longer:
            break
        for place in longer:
            counts[place] *= 2
    live = reached & np.broadcast_to(frame.cond(access.mask), frame.shape)
    offsets = np.broadcast_to(frame.poly(access.offset), frame.shape)[live]
    numbers = np.broadcast_to(frame.programs, frame.shape)[live]
    pairs = np.stack([numbers, offsets * itemsize], 1)
    return np.unique(pairs, axis=0)


class _Frame(Valuation):
    """Arrays over programs, iterations and lanes."""

    def __init__(
        self, launch: Launch, programs: int, loops: list[int], counts: list[int],
        block: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.shape = (programs, *counts, *block)
        if int(np.prod([n for n in self.shape if n] or [1])) > _LANES:
            raise UnknownValueError("too much")
        super().__init__(
            {
                atom: np.asarray(value if -(2**63) <= value < 2**63 else 0, np.int64)
                for atom, value in quantities(launch).items()
            }
        )
        self._loops, self._rank = loops, len(self.shape)
        self.programs = self._along(0, programs)
        x, y, _ = launch.grid
        self._places = (
            self.programs % x, self.programs // x % y, self.programs // (x * y),
        )  # fmt: skip

    def _along(self, axis: int, count: int) -> Array:
        shape = [1] * self._rank
        shape[axis] = count
        return np.arange(count, dtype=np.int64).reshape(shape)

    def _computed(self, atom: Atom) -> Array:
        kind, parts = atom.kind, atom.parts
        if kind == PROGRAM:
            return self._places[parts[0]]
        if kind == LANE:
            axis = 1 + len(self._loops) + parts[0]
            return self._along(axis, self.shape[axis])
        if kind == ITERATION:
            axis = 1 + self._loops.index(parts[0])
            return self._along(axis, self.shape[axis])
        if kind in (DATA, SYMBOL):
            raise UnknownValueError(str(atom))
        if kind == CHOICE:
            condition, then, other = parts
            held, a, b = self.cond(condition), self.poly(then), self.poly(other)
            return np.asarray(np.where(held, a, b))
        left, right = (self.poly(part) for part in parts)
        if kind == LEAST:
            return np.asarray(np.minimum(left, right))
        if kind == GREATEST:
            return np.asarray(np.maximum(left, right))
        divisor = np.where(right == 0, 1, right)
        whole = np.abs(left) // np.abs(divisor) * np.sign(left) * np.sign(divisor)
        if kind == QUOTIENT:
            return np.asarray(whole)
        assert kind == REMAINDER
        return np.asarray(left - whole * divisor)

    def _joined(self, kind: str, held: Iterator[Any]) -> Any:
        if kind == "not":
            return np.logical_not(next(held))
        return reduce(np.logical_and if kind == "and" else np.logical_or, held)


def difference(
    graph: Graph, launch: Launch, observed: Mapping[Touched, Array], unowned: int
) -> str:
    """Return how a graph differs from what a launch did, "" where it does not.

    Args:
        graph: of the kernel.
        launch: the launch.
        observed: what it touched.
        unowned: accesses of it through pointers that come from no argument.
    """
    if unowned:
        return "a real launch accesses memory that is no argument's"
    try:
        made, partly, programs = touched(graph, launch)
    except UnknownValueError:
        return ""
    for key in {*made, *observed}:
        kind, name = key
        real = observed.get(key, np.zeros((0, 2), np.int64))
        real = real[real[:, 0] < programs]
        said = made.get(key, np.zeros((0, 2), np.int64))
        if key not in partly and not np.array_equal(real, said):
            return f"a real launch has other {kind}s of {name} than its IR says"
        if key in partly:
            every = {tuple(pair) for pair in real.tolist()}
            if any(tuple(pair) not in every for pair in said.tolist()):
                return f"a real launch lacks {kind}s of {name} that its IR has"
    return ""


# Counterexamples that were run: what each refutes.

_ENDS: Final = frozenset({Kind.CRASH, Kind.DEVICE_FAULT})
_OUTSIDE: Final = frozenset({Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE}) | _ENDS

REFUTING: Final = {
    "loads in bounds": _ENDS | {Kind.READ_OUTSIDE},
    "stores in bounds": _ENDS | {Kind.WRITE_OUTSIDE},
    "stores of programs apart": frozenset({Kind.RACE}),
    "loads apart from other programs' stores": frozenset({Kind.RACE}),
    "results stored whole": frozenset({Kind.UNWRITTEN}),
    "no 32-bit overflow": _OUTSIDE | VALUE_KINDS,
}
"""How a failure shows that refutes a property, by the property's name."""


class Examined:
    """Runs the counterexamples of a kernel, and reports what they refute.

    Args:
        kernel: the kernel's search.
    """

    def __init__(self, kernel: KernelSearch) -> None:
        self._kernel = kernel
        self._refuted: dict[str, str] = {}
        self._passed: dict[str, int] = {}

    def run(
        self,
        examples: Iterable[Counterexample],
        this_round: Callable[[], Round],
        keep: Keep,
    ) -> Iterator[Event]:
        """Judge each, keep what fails, and yield what happens.

        Raises:
            KfuzzError: what keeps kfuzz from judging.
        """
        for example in examples:
            if example.property in self._refuted:
                continue
            judging = this_round()
            report = judging.judge(example.case)
            if judging.error is not None:
                raise judging.error
            if report is None:
                continue
            if judging.found is not None:
                yield from keep(self._kernel, *judging.found)
            found = report.failure
            if found is None or found.kind not in REFUTING[example.property]:
                count = self._passed.get(example.property, 0)
                self._passed[example.property] = count + 1
                continue
            symptom = found.signature(self._kernel.name).symptom
            for finding in self._kernel.findings.values():
                if finding.signature.symptom == symptom and finding.state in ATTRIBUTED:
                    self._refuted[example.property] = finding.id

    def applied(self, proof: KernelProof) -> KernelProof:
        """Return a proof with what the counterexamples showed."""
        return replace(
            proof, properties=tuple(self._applied(p) for p in proof.properties)
        )

    def _applied(self, found: ProvenProperty) -> ProvenProperty:
        if found.answer is not Proven.OPEN:
            return found
        if identifier := self._refuted.get(found.name):
            return replace(found, answer=Proven.REFUTED, finding=identifier)
        if count := self._passed.get(found.name):
            cases = "case does" if count == 1 else "cases do"
            return replace(found, why=f"{found.why}; {count} {cases} not show it")
        return found


# The process that proves: its Triton compiles, whatever the run's does.
#
# Kernels are loaded as ever, their launches captured and nothing of them is run. It
# gets targets and sends an outcome for each kernel, in order. Then it captures the
# launches of cases that it is sent, and answers which premise they break.
#
# Where its Triton interprets it is the process that observes: it runs cases, and sends
# every access.

_OBSERVE_SECONDS: Final = 20.0


class _Enough(Exception):
    """No further kernel is to be proved."""


class Worker:
    """Proves kernels, and holds launches against the premises of what it has proved.

    Args:
        connection: to its parent.
        task: what to prove.
    """

    def __init__(self, connection: Connection, task: Task) -> None:
        self._connection, self._task = connection, task
        self._watches: dict[str, tuple[LoadedKernel, Watch]] = {}

    def prove(self, loaded: Sequence[LoadedKernel]) -> None:
        """Prove kernels in order, and send what comes of each."""
        with suppress(_Enough), beside(ENTRY, interpret=True) as observer:
            observer.send(self._task)
            for kernel in loaded:
                outcome = self._proved(kernel, observer)
                if outcome.watch is not None:
                    self._watches[kernel.node_id] = kernel, outcome.watch
                outcome.watch = None  # it stays here
                self._connection.send((kernel.node_id, outcome))
        self._connection.send(None)

    def serve(self) -> None:
        """Hold launches against premises as long as there is a parent."""
        while True:
            with suppress(_Enough):
                self._receive()

    def pause(self) -> None:
        """Do what the parent has asked for meanwhile.

        Raises:
            _Enough: nothing more is to be proved.
        """
        while self._connection.poll(0):
            self._receive()

    def _receive(self) -> None:
        message = self._connection.recv()
        if message is None:
            raise _Enough
        kernel, cases = message
        self._connection.send((kernel, len(cases), self._broken(kernel, cases)))

    def _broken(self, kernel: str, cases: Sequence[Case]) -> str:
        if kernel not in self._watches:
            return ""
        loaded, watch = self._watches[kernel]
        for case in cases:
            try:
                launches = capture(loaded.kernel, case, config=config_of(case)).launches
            except NotCapturedError:
                continue  # the kernel rejects it
            if text := watch.broken_by(launches):
                return text
        return ""

    def _proved(self, loaded: LoadedKernel, observer: OwnProcess) -> Outcome:
        """Return what is proved; an error of kfuzz's own proves nothing."""

        def observe(case: Case) -> list[Observed] | None:
            made: list[Observed] | None = None
            with suppress(HarnessError):  # once it is gone it answers nothing more
                made = observer.ask((loaded.node_id, case), _OBSERVE_SECONDS)
            return made

        try:
            prover = KernelProver(
                loaded.kernel, loaded.node_id, seconds=self._task.seconds,
                observe=observe, pause=self.pause,
            )  # fmt: skip
            return prover.run()
        except _Enough:
            raise
        except Exception as error:
            why = f"an error of kfuzz's own: {type(error).__name__}: {error}"
            return nothing(loaded.node_id, why)


def serve(connection: Connection) -> None:
    """Prove, or observe, what the first message names, and send what comes of it."""
    task: Task = connection.recv()
    try:
        loaded = load_all(task.targets, root=task.root)
    except Exception as error:
        connection.send(str(error))
        return
    if not interpreting():
        worker = Worker(connection, task)
        worker.prove(loaded)
        worker.serve()
    kernels = {each.node_id: each.kernel for each in loaded}
    while True:
        node_id, case = connection.recv()
        try:
            made = observe(kernels[node_id], case)
        except Exception:  # whatever a kernel raises: it rejects the case
            made = None
        connection.send(made)


def _unknown_in(launch: Launch, storages: Collection[int]) -> Launch:
    """Return a launch where nothing is known of integers in some storages."""
    arguments = {
        name: replace(a, below=None, ignored=None)
        if isinstance(a, TensorArgument) and a.storage in storages
        else a
        for name, a in launch.arguments.items()
    }
    return replace(launch, arguments=arguments)
