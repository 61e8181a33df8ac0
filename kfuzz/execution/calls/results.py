"""What a kernel returned, read in the form that its contract demands."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from opcode import opname
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from typing_extensions import TypeIs

from kfuzz.core import errors
from kfuzz.core.recipe import Case, Destination, Edge, TensorSpec
from kfuzz.core.verdict import Kind, OtherForm, described, in_place
from kfuzz.execution.calls.compiling import by_device, by_kernel
from kfuzz.execution.calls.torch_state import put_back
from kfuzz.execution.calls.tuning import Measuring
from kfuzz.execution.device.backends import backend_of, fault_of
from kfuzz.execution.device.surroundings import Company, surroundings_of
from kfuzz.execution.interpreter.language import explanation
from kfuzz.execution.interpreter.memory import Reach
from kfuzz.execution.interpreter.watch import (
    Launches,
    interpreting,
    is_interpreter_failure,
    watch,
)
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.fences import NoAddressSpace
from kfuzz.execution.memory.placement import Placement, as_batch, place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena, Rows, handed_back, write_maps
from kfuzz.execution.processes.wire import is_child
from kfuzz.execution.values.fills import SEED, seeded
from kfuzz.numerics.formats import Footprint
from kfuzz.numerics.run import Expected, Metadata, Raised, Run, UncheckedLaunch

# What a kernel is called on, and in which form, alone or in a burst.


@dataclass(frozen=True)
class Invocation:
    """A kernel on one case, values apart.

    Attributes:
        call: takes the tensors, then the destinations positionally and the scalars
            by keyword.
        case: gives order and layout of the tensors.
        expected: metadata of each output, in order.
        alignment: bytes to which unsliced arguments are aligned.
        around: what lies around and between the arguments' elements.
        scalars: the scalars that the implementation takes.
        inplace: arguments whose bytes become the result.
        destinations: memory for the outputs, one for each in order, where the kernel is
            given it: placed as the arguments are, and holding what fresh memory does.
        config: which autotune configuration runs, modulo their number.
    """

    call: Callable[..., Any]
    case: Case
    expected: Mapping[str, Expected]
    alignment: int
    around: Poison
    scalars: Mapping[str, object] = field(default_factory=dict)
    inplace: Sequence[str] = ()
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    config: int = 0

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """The tensors that it is given, destinations last."""
        places = {name: d.spec() for name, d in self.destinations.items()}
        return {**self.case.tensors, **places}


class Reading(NamedTuple):
    """What a call gave.

    Attributes:
        outputs: the results by name; empty if something is wrong with them.
        results: where their elements lay.
        problem: what is wrong with them.
        wider: the first that is right but for its wider type.
    """

    outputs: Mapping[str, Tensor] = MappingProxyType({})
    results: Mapping[str, Footprint] = MappingProxyType({})
    problem: Metadata | None = None
    wider: Metadata | None = None


class Reader:
    """Reads what calls return, in the memory that they were to write where given it.

    Attributes:
        places: per destination the memory of each item, as the call finds it.
    """

    def __init__(
        self, asked: Invocation, placement: Placement, device: torch.device
    ) -> None:
        """Keep what a call may change."""
        self._asked = asked
        self._placement = placement
        self._device = device
        # Other tensor objects: a kernel may put other memory under the ones it has.
        self.places = {name: placement.views(name) for name in asked.destinations}

    def read(self, returned: object, number: int = 0, *, copy: bool = True) -> Reading:
        """Return what the call of an item gave; see `read_results`."""
        asked = self._asked
        return read_results(
            returned,
            asked.expected,
            self._device,
            inplace={n: self._placement.every[n][number] for n in asked.inplace},
            memory={name: all_[number] for name, all_ in self.places.items()},
            copy=copy,
        )


def read_results(
    returned: object,
    expected: Mapping[str, Expected],
    device: torch.device,
    *,
    inplace: Mapping[str, Tensor],
    memory: Mapping[str, Tensor],
    copy: bool = True,
) -> Reading:
    """Return what a call gave, in the memory that it was to write where it was given.

    Args:
        returned: what the kernel returned.
        expected: metadata of each output, in order.
        device: where results have to lie.
        inplace: arguments whose bytes become results: the only one, or those of their
            names.
        memory: the destinations as the call found them, by output.
        copy: whether to clone them; else they are as the kernel returned them.
    """
    if not expected:  # the oracle has no result here, and how many there are none says
        return Reading()
    problem = None
    own = {**memory, **inplace} if len(expected) > 1 else dict(memory)
    rest = [name for name in expected if name not in own]
    if own and rest:
        whole = _completed(returned, expected, own)
        if whole is None:
            what = f"returns {described(returned)}, expected {', '.join(rest)}"
            what += f", with {', '.join(own)} written where the kernel was given them"
            problem = Metadata(Kind.WRONG_TYPE, "", what)
        returned = whole
    elif own:
        places = [own[name] for name in expected]
        if not handed_back(returned, places):
            what = f"returns {described(returned)} other than its destination "
            problem = Metadata(Kind.WRONG_TYPE, "", what + ", ".join(own))
        returned = places if len(places) > 1 else places[0]
    else:
        for name, given in list(inplace.items())[:1]:
            own_tensor = isinstance(returned, Tensor) and (
                returned.data_ptr() == given.data_ptr()
            )
            if returned is not None and not own_tensor:
                what = f"returns {described(returned)} other than {name}, which it "
                problem = Metadata(Kind.WRONG_TYPE, "", what + "declares inplace")
            returned = given
    if problem is not None:
        return Reading(problem=problem)
    return read_outputs(returned, expected, device, copy=copy)


def _completed(
    returned: object, names: Collection[str], own: Mapping[str, Tensor]
) -> list[object] | None:
    """Return all results where some lie in memory that the kernel was given.

    It returns the others alone, or all of them, these in their memory; None for
    anything else.
    """
    items = list(returned) if isinstance(returned, tuple | list) else [returned]
    rest = [name for name in names if name not in own]
    if len(items) == len(names):
        handed = dict(zip(names, items, strict=True))
        if any(not handed_back(handed[n], [own[n]]) for n in names if n in own):
            return None
    elif len(items) == len(rest):
        handed = dict(zip(rest, items, strict=True))
    else:
        return None
    return [own.get(name, handed.get(name)) for name in names]


def read_outputs(
    returned: object,
    expected: Mapping[str, Expected],
    device: torch.device,
    *,
    copy: bool = True,
) -> Reading:
    """Return results by name and where they lay, or what is wrong with them.

    They are contiguous clones, or as they were returned. Results of which nothing is
    wrong but that their type is wider are there as well, rounded to the expected one.
    """
    try:
        items = in_place(returned, expected)
    except OtherForm as other:
        return Reading(problem=Metadata(Kind.WRONG_TYPE, other.name, other.what))
    outputs, lay, wider = {}, {}, None
    for name, item in items.items():
        problem = _problem(name, item, expected[name], device)
        if problem is not None and not problem.wider:
            return Reading(problem=problem)
        wider = wider or problem
        assert isinstance(item, Tensor)
        outputs[name] = item.detach()
        if copy:
            outputs[name] = item.detach().clone(memory_format=torch.contiguous_format)
        outputs[name] = outputs[name].to(expected[name].dtype)
        lay[name] = Footprint.of(item)
    return Reading(outputs, lay, wider=wider)


def _problem(
    name: str, item: object, expected: Expected, device: torch.device
) -> Metadata | None:
    kind, wider = Kind.WRONG_TYPE, ""
    if not isinstance(item, Tensor) or type(item) not in (Tensor, torch.nn.Parameter):
        what = f"is {described(item)}, expected torch.Tensor"
    elif item.layout is not torch.strided or item.is_quantized:
        what = f"has layout {item.layout}, expected dense"
    elif tuple(item.shape) != expected.shape:
        kind = Kind.WRONG_SHAPE
        what = f"has shape {tuple(item.shape)}, expected {expected.shape}"
    elif item.device.type != device.type:
        kind, what = Kind.WRONG_DEVICE, f"is on {item.device}, expected {device}"
    elif item.dtype != expected.dtype:
        kind, what = Kind.WRONG_DTYPE, f"is {item.dtype}, expected {expected.dtype}"
        floats = item.is_floating_point() and expected.dtype.is_floating_point
        if floats and item.dtype.itemsize > expected.dtype.itemsize:
            wider = str(item.dtype).removeprefix("torch.")
    else:
        return None
    return Metadata(kind, name, f"{name} {what}", wider)


# What the calls of a batch return: checked one by one, gathered all at once.

EARLIER: Final = "returned memory of an earlier call"
"""Why an item failed whose result another call has written over."""


class BatchResults:
    """The results of all items.

    Attributes:
        outputs: by name [items, *shape], contiguous.
        failed: per item that returned other than it should have, why.
    """

    def __init__(
        self, asked: Invocation, placement: Placement, device: torch.device
    ) -> None:
        """Expect results."""
        self.failed: dict[int, str] = {}
        self.outputs = {
            name: _buffer(placement.items, wanted, device)
            for name, wanted in asked.expected.items()
        }
        self._asked = asked
        self._placement = placement
        self._reader = Reader(asked, placement, device)
        # Results are arguments: they lie where these do.
        self._in_arguments = bool(asked.inplace or asked.destinations)
        given = {*asked.destinations, *asked.inplace}
        self._inputs = [name for name in placement.every if name not in given]

    def take(self, number: int, returned: object) -> None:
        """Check what one call returned, and copy it now."""
        for name, tensor in self._read(number, returned).items():
            self.outputs[name][number].copy_(tensor)

    def gather(
        self, returned: Mapping[int, object], known: Sequence[Rows]
    ) -> list[int]:
        """Check and copy what calls returned whose results are all alive.

        Where a result lies in the memory of another call's, both have failed.

        Args:
            returned: by item, ascending.
            known: where results may lie a pitch apart, if they are no arguments.

        Returns:
            The items that have not failed of which a result lies in none of the rows
            known though the first one's does.
        """
        if not self.outputs:
            return []  # values are not judged
        if self._asked.inplace and len(self.outputs) > 1:
            for number, what in returned.items():
                self.take(number, what)
            return []
        if self._in_arguments:
            known = (self._placement.rows,)
        columns = [
            {n: x for n, x in items.items() if self._is_plain(x, out)}
            for items, out in zip(
                self._candidates(returned), self.outputs.values(), strict=True
            )
        ]
        plain = set.intersection(*map(set, columns))
        for number in sorted(returned.keys() - plain):
            read = self._read(number, returned[number])
            for name, column in zip(self.outputs, columns, strict=True):
                column.pop(number, None)
                if read:
                    column[number] = read[name]
        strangers: list[int] = []
        for column, out in zip(columns, self.outputs.values(), strict=True):
            places = {n: x.data_ptr() for n, x in column.items() if x.numel()}
            if not self._in_arguments:
                self._note_shared(places)
            strangers += _strangers(places, known)
            _copy({n: column[n] for n in column if n not in self.failed}, out)
        return [number for number in strangers if number not in self.failed]

    def _candidates(self, returned: Mapping[int, object]) -> list[dict[int, object]]:
        """Return per output what may be the result of each item."""
        places = list(self._reader.places.values())
        if places:
            handed = [
                number
                for number, what in returned.items()
                if what is None or handed_back(what, [all_[number] for all_ in places])
            ]
            return [{number: all_[number] for number in handed} for all_ in places]
        if self._asked.inplace:  # the only result
            own = self._placement.every[self._asked.inplace[0]]
            same = [n for n, w in returned.items() if w is None or w is own[n]]
            return [{n: own[n] for n in same}]
        alike: dict[int, dict[str, object]] = {}
        for number, what in returned.items():
            with suppress(OtherForm):
                alike[number] = in_place(what, self.outputs)
        return [{n: each[name] for n, each in alike.items()} for name in self.outputs]

    def _is_plain(self, item: object, out: Tensor) -> TypeIs[Tensor]:
        """Whether an item is of the right form, and where a result may lie."""
        given = self._placement.rows
        return (
            type(item) is Tensor
            and item.layout is torch.strided
            and item.dtype is out.dtype
            and item.shape == out.shape[1:]
            and item.device == out.device
            and (self._in_arguments or not given.low <= item.data_ptr() < given.high)
        )

    def _read(self, number: int, returned: object) -> dict[str, Tensor]:
        """Return one item's results as they lie; none if something is wrong."""
        read = self._reader.read(returned, number, copy=False)
        if read.problem is not None:
            self.failed[number] = f"metadata: {read.problem.message}"
        elif shared := self._shared(number, read.results):
            self.failed[number] = shared
        if number in self.failed:
            return {}
        # Another device of the same type is none of the reader's matters.
        outputs = read.outputs.items()
        return {name: t.to(self.outputs[name].device) for name, t in outputs}

    def _shared(self, number: int, lay: Mapping[str, Footprint]) -> str:
        """Return which argument a result lies in that is none of its own."""
        rows = self._placement.rows
        for output, spot in lay.items():
            if not (rows.low <= spot.address < rows.high):
                continue
            for name in self._inputs:
                if spot.overlaps(Footprint.of(self._placement.every[name][number])):
                    return f"aliases: {output} shares memory with the input {name}"
        return ""

    def _note_shared(self, places: Mapping[int, int]) -> None:
        """Take those for failed that lie where another call's result does."""
        count = Counter(places.values())
        if len(count) < len(places):
            shared = (number for number, at in places.items() if count[at] > 1)
            self.failed.update(dict.fromkeys(shared, EARLIER))


def _strangers(places: Mapping[int, int], known: Sequence[Rows]) -> list[int]:
    """Return the items whose results lie nowhere known, unlike the first one's."""

    def lies(place: int) -> bool:
        return any(rows.low <= place < rows.high for rows in known)

    first = next(iter(places.values()), 0)
    return [n for n, place in places.items() if not lies(place)] if lies(first) else []


def _copy(tensors: Mapping[int, Tensor], out: Tensor) -> None:
    """Copy results into one output, all at once."""
    if tensors and out.numel():
        first, last = min(tensors), max(tensors)
        # Rows of items that failed hold anything.
        stand_in = tensors[first]
        every_one = [tensors.get(n, stand_in) for n in range(first, last + 1)]
        torch.stack(every_one, out=out[first : last + 1])


def _buffer(items: int, wanted: Expected, device: torch.device) -> Tensor:
    """Return memory for one output; what may serve as an index begins as 0."""
    make = torch.empty if wanted.dtype.is_floating_point else torch.zeros
    return make((items, *wanted.shape), dtype=wanted.dtype, device=device)


# Exceptions that leave a kernel, and what is kept of them.

# Enough to see the kernel's own frames; a recursion error has thousands.
TRACE_LIMIT: Final = 4000


class RaisedElsewhere(Exception):
    """An exception that left a kernel in another process."""

    def __init__(self, raised: Raised) -> None:
        self.raised = raised
        super().__init__(f"{raised.type}: {raised.message}")


def caught(error: BaseException, device: torch.device) -> Raised:
    """Return what is to be kept of an exception that left a call; clear its errors.

    Raises:
        KernelEnded: the kernel ran in a process of its own, which ended.
        KeyboardInterrupt: if it is the user's, not the kernel's.
    """
    if isinstance(error, errors.KernelEnded):
        raise error  # nobody is there to call again
    around = surroundings_of(device)
    if around is not None:
        around.forget_errors()
    if isinstance(error, KeyboardInterrupt) and not is_child():
        raise error
    return raised_by(error, device)


def raised_by(error: BaseException, device: torch.device) -> Raised:
    """Return what is to be kept of an exception that left the kernel."""
    if isinstance(error, RaisedElsewhere):
        return error.raised
    text = errors.message_of(error)
    lines = text.strip().splitlines()
    # The CPU allocator raises a plain RuntimeError.
    out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        "DefaultCPUAllocator" in text
    )
    trap = explanation(error, interpreted=interpreting())
    if isinstance(error, errors.LanguageLimit):
        trap = text
    message = trap or (lines[0][:300] if lines else "")
    fault = fault_of(device)
    return Raised(
        type=errors.class_name(error),
        message=message,
        traceback=errors.trace_text(error)[-TRACE_LIMIT:],
        backend=bool(trap) or is_interpreter_failure(error),
        memory=out_of_memory,
        fault=fault,
        build=next(
            (str(e) for e in errors.chain(error) if isinstance(e, errors.BuildError)),
            "",
        ),
        gpu=backend_of(device).lack_of_gpu(error),
        stated=_is_stated(error),
    )


def _is_stated(error: BaseException) -> bool:
    """Whether `raise`, `assert` or what was called raised it, and no operation."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    done = opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return done == "RAISE_VARARGS" or done.startswith("CALL")  # compiled code's


# One way to call a kernel: what holds meanwhile, and what comes of a call.


@dataclass(frozen=True)
class Call:
    """What came of one call.

    Attributes:
        returned: what the kernel returned.
        raised: the exception that left it.
        unchecked: a launch that failed on a GPU though the call returned.
        left: what it left changed of torch's own state, in words; it was put back.
    """

    returned: object = None
    raised: Raised | None = None
    unchecked: UncheckedLaunch | None = None
    left: tuple[str, ...] = ()


@contextmanager
def environment(device: torch.device, seed: int = SEED) -> Iterator[list[str]]:
    """What holds during a call, or all calls of a batch.

    It gives a list that holds, at its end, what was left changed of torch's state.

    Args:
        device: where the kernel runs.
        seed: of torch's random generators.
    """
    around = surroundings_of(device)
    if around is not None:
        around.forget_errors()
    with by_kernel(), seeded(device, seed), torch.no_grad(), put_back() as left:
        yield left


def attempt(
    call: Callable[[], object],
    device: torch.device,
    guard: AbstractContextManager[object],
) -> Call:
    """Call a kernel within its environment, without waiting for its device.

    Raises:
        KernelEnded: it ran in a process of its own, which ended.
        KeyboardInterrupt: if it is the user's.
    """
    unchecked = None
    try:
        with guard:
            returned = call()
            around = surroundings_of(device)
            if around is not None:  # the next launch would raise it
                unchecked = around.take_unchecked()
    except BaseException as error:
        return Call(raised=caught(error, device))
    return Call(returned, unchecked=unchecked)


def call_once(
    call: Callable[[], object],
    device: torch.device,
    guard: AbstractContextManager[object],
    *,
    seed: int = SEED,
) -> Call:
    """Call a kernel in its environment and wait for its device; see `attempt`."""
    backend = backend_of(device)
    try:
        with environment(device, seed) as left:
            made = attempt(call, device, guard)
            if made.raised is None and backend.has.asynchronous:
                by_device()
                backend.wait(device)
    except BaseException as error:
        return Call(raised=caught(error, device))
    return replace(made, left=tuple(left))


# One execution of a kernel on one case, and what it left behind.


@dataclass(frozen=True)
class Options:
    """How a call is made, beside what is asked of it.

    Attributes:
        seed: of torch's random generators during the call.
        reverse: in Triton's interpreter, run each launch's programs last first.
        last: in Triton's interpreter, run this program last.
        outdated: in Triton's interpreter, whether loads that race with a store get what
            was there before it.
        measuring: where autotuners measure, None where they do not.
        company: on a GPU, what else runs meanwhile.
        delay: decides how much of it, and for how long.
        stale: on a GPU, whether memory that nobody owns holds what fresh memory does
            too: what torch's allocator has free, and shared memory.
    """

    seed: int = SEED
    reverse: bool = False
    last: tuple[int, int, int] | None = None
    outdated: bool = False
    measuring: Measuring | None = None
    company: Company = Company.NONE
    delay: int = 0
    stale: bool = False


PLAIN: Final = Options()


@dataclass(frozen=True)
class Held:
    """What keeps a call's arguments and results alive, for a call after it.

    Attributes:
        placement: its arguments where they lie.
        returned: what the kernel returned.
        allocations: the memory it allocated.
    """

    placement: Placement
    returned: object
    allocations: GuardedAllocations


def execute(
    asked: Invocation,
    values: Mapping[str, Tensor],
    *,
    arena: Arena,
    fresh: Poison,
    edge: Edge | None = None,
    after: Held | None = None,
    keep: Callable[[Held], None] | None = None,
    options: Options = PLAIN,
) -> Run:
    """Run a kernel once on guarded, poisoned memory.

    Args:
        asked: the kernel and the case.
        values: logical elements of its tensors, contiguous, on the arena's device.
        arena: memory to place the arguments in; it is overwritten.
        fresh: what memory holds that the kernel allocates.
        edge: which arguments, and on a device own allocations, lie beside a page that
            faults.
        after: a kept call of the same case: its very arguments are given again,
            overwritten with `values`; writes around them are not looked for.
        keep: given what keeps arguments and results alive, once they are read; not
            where the arguments are no longer the tensors that they were.
        options: how the call is made.
    """
    given, device = asked.destinations, arena.device
    if after is None:
        try:
            placement = place(
                asked.specs, values, device=device, alignment=asked.alignment,
                poison=asked.around, arena=arena, edge=edge, unwritten=given,
                fresh=fresh,
            )  # fmt: skip
        except NoAddressSpace as error:
            return Run(unreliable=error.what)
    else:
        placement = after.placement
        placement.write(as_batch(values), (fresh,))
    allocations = GuardedAllocations(device, fresh, edge=edge, pool=arena.pool)
    lay = _footprints(placement)
    reader = Reader(asked, placement, device)
    reach = Reach(
        asked.specs, placement.tensors, allocations, owned=placement.owned,
        poison=asked.around, writes=write_maps(given, fresh),
    )  # fmt: skip
    with watch(
        reach, reverse=options.reverse, last=options.last, config=asked.config,
        measuring=options.measuring, outdated=options.outdated,
    ) as launches:  # fmt: skip
        around_it = surroundings_of(device)
        if around_it is not None:
            if options.stale:  # after the last of kfuzz's own results was freed
                around_it.poison(fresh)
            if not around_it.begin(options.company, fresh, options.delay):
                return Run(unreliable="nothing could run beside it")
        call = partial(asked.call, *placement.tensors.values(), **asked.scalars)
        made = call_once(call, device, allocations, seed=options.seed)
        if made.raised is not None:
            observed = _observed(launches, allocations)
            return replace(observed, raised=made.raised, left=made.left)
    # A kernel may have made another tensor of its argument, as `t_` does.
    if keep is not None and lay == _footprints(placement):
        keep(Held(placement, made.returned, allocations))
    read = reader.read(made.returned)
    touches = () if after else placement.touches(inplace=(*asked.inplace, *given))
    return replace(
        _observed(launches, allocations),
        outputs=read.outputs,
        metadata=read.problem,
        wider=read.wider,
        touches=tuple(touches),
        strays=tuple(allocations.touches()),
        arguments={name: lay[name] for name in asked.case.tensors},
        results=read.results,
        unchecked=made.unchecked,
        left=made.left,
    )


def _observed(launches: Launches, allocations: GuardedAllocations) -> Run:
    """Return a run with what is known of it, however it ended."""
    return Run(
        unreliable=launches.unreliable,
        accesses=launches.accesses,
        programs=launches.programs,
        alone=tuple(launches.alone),
        config=launches.config,
        configs=launches.configs,
        foreign=tuple(allocations.foreign),
        beside=allocations.beside(),
    )


def _footprints(placement: Placement) -> dict[str, Footprint]:
    return {name: Footprint.of(t) for name, t in placement.tensors.items()}
