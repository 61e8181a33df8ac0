"""One execution of a kernel on one case, and what it left behind."""

import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from kfuzz.core.errors import BuildError
from kfuzz.core.recipe import Case, Destination, Edge, TensorSpec
from kfuzz.core.untrusted import KernelEnded
from kfuzz.core.verdict import Access, Allocation, Kind
from kfuzz.execution.allocations import AllocationTouch, GuardedAllocations
from kfuzz.execution.autotuning import Measuring
from kfuzz.execution.destinations import handed_back, poisoned, write_maps
from kfuzz.execution.device.launches import UncheckedLaunch
from kfuzz.execution.device.surroundings import Company, surroundings_of
from kfuzz.execution.devices import fault_of
from kfuzz.execution.footprints import Footprint
from kfuzz.execution.interpreter import (
    interpreting,
    is_interpreter_failure,
    watch,
)
from kfuzz.execution.memory import Arena, Placement, place
from kfuzz.execution.occupied import by_kernel
from kfuzz.execution.pages import NoAddressSpace
from kfuzz.execution.poison import Poison
from kfuzz.execution.randomness import SEED, seeded
from kfuzz.execution.reach import Reach
from kfuzz.execution.touches import Touch
from kfuzz.execution.traps import explanation

# Enough to see the kernel's own frames; a recursion error has thousands.
TRACE_LIMIT: Final = 4000


@dataclass(frozen=True)
class Raised:
    """An exception that left the kernel.

    Attributes:
        type: its class name.
        message: its first line.
        traceback: as Python prints it, cut to `TRACE_LIMIT` characters.
        backend: whether it came from inside Triton's interpreter, or Triton had
            nothing to run on.
        memory: whether it says that memory ran out.
        fault: for what the device can do nothing more in this process, as
            `devices.fault_of` names it; "" if it can.
        build: what could not be built for the call, as the `BuildError` says it;
            "" if that is not why.
    """

    type: str
    message: str
    traceback: str
    backend: bool = False
    memory: bool = False
    fault: str = ""
    build: str = ""

    @property
    def lost(self) -> bool:
        """Whether the device can do nothing more in this process."""
        return bool(self.fault)


class RaisedElsewhere(Exception):
    """An exception that left a kernel in another process.

    Attributes:
        raised: what is known of it.
    """

    def __init__(self, raised: Raised) -> None:
        self.raised = raised
        super().__init__(f"{raised.type}: {raised.message}")


@dataclass(frozen=True)
class Metadata:
    """What is wrong with a result before any value is read."""

    kind: Kind
    output: str
    message: str


@dataclass(frozen=True)
class Expected:
    """Metadata that one output must have.

    Attributes:
        shape: sizes.
        dtype: element type.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype


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


@dataclass(frozen=True)
class Run:
    """What one execution left.

    Attributes:
        outputs: cloned, contiguous results by output name; empty if it raised
            or returned something else.
        raised: the exception, if one left the kernel.
        metadata: what is wrong with the result's metadata, if anything.
        touches: writes to its arguments' memory.
        strays: writes around its own allocations.
        unreliable: why the backend's results may be wrong, or "".
        poison: what fresh memory held.
        accesses: what Triton's interpreter saw it do to memory that it should not.
        programs: programs that Triton's interpreter ran.
        config: the configuration that it ran, in words, or "".
        configs: of how many it is one, as far as that is known.
        foreign: torch's own operators that computed during the call.
        arguments: where the elements of each argument but the destinations lay.
        results: where each result's elements lay.
        unchecked: a launch that failed on a GPU though the call returned.
        held: its arguments and results, if they were to stay alive; None too where
            the arguments are no longer the tensors that they were.
        beside: its own allocation that was to lie at the edge, if there was one.
    """

    poison: Poison
    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    raised: Raised | None = None
    metadata: Metadata | None = None
    touches: tuple[Touch, ...] = ()
    strays: tuple[AllocationTouch, ...] = ()
    unreliable: str = ""
    accesses: tuple[Access, ...] = ()
    programs: int = 0
    config: str = ""
    configs: int = 0
    foreign: tuple[str, ...] = ()
    arguments: Mapping[str, Footprint] = field(default_factory=dict)
    results: Mapping[str, Footprint] = field(default_factory=dict)
    unchecked: UncheckedLaunch | None = None
    held: Held | None = field(default=None, repr=False, compare=False)
    beside: Allocation | None = None

    @property
    def returned(self) -> bool:
        """Whether the call came back without an exception."""
        return self.raised is None

    @property
    def comparable(self) -> bool:
        """Whether there are results of the right metadata; not if it never ran."""
        return self.returned and self.metadata is None and bool(self.outputs)


def execute(
    call: Callable[..., Any],
    case: Case,
    values: Mapping[str, Tensor],
    expected: Mapping[str, Expected],
    *,
    arena: Arena,
    alignment: int,
    around: Poison,
    fresh: Poison,
    scalars: Mapping[str, object],
    inplace: Sequence[str] = (),
    destinations: Mapping[str, Destination] | None = None,
    edge: Edge | None = None,
    seed: int = SEED,
    hold: bool = False,
    after: Run | None = None,
    reverse: bool = False,
    last: tuple[int, int, int] | None = None,
    config: int = 0,
    measuring: Measuring | None = None,
    stale: bool = False,
    company: Company = Company.NONE,
) -> Run:
    """Run a kernel once on guarded, poisoned memory.

    Args:
        call: takes the tensors, then the destinations positionally and the scalars
            by keyword.
        case: gives order and layout of the tensors.
        values: their logical elements, contiguous, on the arena's device.
        expected: metadata of each output, in order.
        arena: memory to place the arguments in; it is overwritten.
        alignment: bytes to which unsliced arguments are aligned.
        around: what lies around and between the arguments' elements.
        fresh: what memory holds that the kernel allocates.
        scalars: the scalars that the implementation takes.
        inplace: arguments whose bytes become the result.
        destinations: memory for the outputs, one for each in order, where the
            kernel is given it: placed as the arguments are, and holding `fresh`.
        edge: which arguments, and on a device own allocations, lie beside a page that
            faults.
        seed: of torch's random generators during the call.
        hold: whether arguments and results stay alive with the run.
        after: a held run of the same case: its very arguments are given again,
            overwritten with `values`; writes around them are not looked for.
        reverse: in Triton's interpreter, run each launch's programs last first.
        last: in Triton's interpreter, run this program last.
        config: which autotune configuration runs, modulo their number.
        measuring: where autotuners measure, None where they do not.
        stale: on a GPU, whether memory that nobody owns holds `fresh` too: what
            torch's allocator has free, and shared memory.
        company: on a GPU, what else runs meanwhile.
    """
    given = {} if destinations is None else dict(destinations)
    specs = {**case.tensors, **{n: d.spec() for n, d in given.items()}}
    values = {**values, **poisoned(given, arena.device, fresh)}
    if after is None:
        try:
            placement = place(
                specs, values, device=arena.device, alignment=alignment,
                poison=around, arena=arena, edge=edge,
            )  # fmt: skip
        except NoAddressSpace as error:
            return Run(poison=fresh, unreliable=error.what)
    else:
        assert after.held is not None
        placement = after.held.placement
        overwrite(placement, specs, values)
    allocations = GuardedAllocations(arena.device, fresh, edge=edge, pool=arena.pool)
    arguments = list(placement.tensors.values())
    lay = _footprints(placement)
    # Other tensor objects: a kernel may put other memory under the ones it has.
    memory = [placement.tensors[name].data for name in given]
    reach = Reach(
        specs, placement.tensors, allocations, owned=placement.owned,
        poison=around, writes=write_maps(given, fresh),
    )  # fmt: skip
    with watch(
        reach, reverse=reverse, last=last, config=config, measuring=measuring
    ) as launches:
        around_it = surroundings_of(arena.device)
        if around_it is not None:
            if stale:  # after the last of kfuzz's own results was freed
                around_it.poison(fresh)
            if not around_it.begin(company, fresh):
                return Run(poison=fresh, unreliable="nothing could run beside it")
        returned, raised, unchecked = call_once(
            call, arguments, scalars, allocations, seed=seed
        )
        if raised is not None:
            return Run(
                poison=fresh,
                raised=raised,
                unreliable=launches.unreliable,
                accesses=launches.accesses,
                programs=launches.programs,
                config=launches.config,
                configs=launches.configs,
                foreign=tuple(allocations.foreign),
                beside=allocations.beside(),
            )
    # A kernel may have made another tensor of its argument, as `t_` does.
    hold = hold and lay == _footprints(placement)
    held = Held(placement, returned, allocations) if hold else None
    outputs, results, problem = read_results(
        returned,
        placement,
        expected,
        inplace=inplace,
        memory=dict(zip(given, memory, strict=True)),
        device=arena.device,
    )
    free = (*inplace, *given)
    touches = () if after else tuple(placement.touches(inplace=free))
    return Run(
        poison=fresh,
        outputs=outputs,
        metadata=problem,
        touches=touches,
        strays=tuple(allocations.touches()),
        unreliable=launches.unreliable,
        accesses=launches.accesses,
        programs=launches.programs,
        config=launches.config,
        configs=launches.configs,
        foreign=tuple(allocations.foreign),
        arguments={name: lay[name] for name in case.tensors},
        results=results,
        unchecked=unchecked,
        held=held,
        beside=allocations.beside(),
    )


def call_once(
    call: Callable[..., Any],
    arguments: Sequence[Tensor],
    scalars: Mapping[str, object],
    allocations: GuardedAllocations,
    *,
    seed: int = SEED,
) -> tuple[object, Raised | None, UncheckedLaunch | None]:
    """Call a kernel and wait for its device.

    Args:
        call: takes the tensors, and the scalars by keyword.
        arguments: the tensors, then the destinations.
        scalars: the keywords.
        allocations: guards what it allocates, on its device.
        seed: of torch's random generators during the call.

    Returns:
        What it returned, the exception that left it, and a launch that failed on a GPU
        though the call returned.

    Raises:
        KernelEnded: it ran in a process of its own, which ended.
    """
    device, unchecked = allocations.device, None
    around = surroundings_of(device)
    if around is not None:
        around.forget_errors()
    try:
        with by_kernel():
            with seeded(device, seed), torch.no_grad(), allocations:
                returned = call(*arguments, **scalars)
                if around is not None:  # torch's next launch would raise it
                    unchecked = around.take_unchecked()
            _synchronize(device)
    except KernelEnded:
        raise  # nobody is there to call again
    except BaseException as error:
        if around is not None:
            around.forget_errors()
        if isinstance(error, KeyboardInterrupt) and not is_child():
            raise  # the user's, not the kernel's
        return None, raised_by(error, device), None
    return returned, None, unchecked


class Arguments(Protocol):
    """Placed arguments."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The arguments by name."""


def read_results(
    returned: object,
    placement: Arguments,
    expected: Mapping[str, Expected],
    *,
    inplace: Sequence[str],
    memory: Mapping[str, Tensor],
    device: torch.device,
    copy: bool = True,
) -> tuple[dict[str, Tensor], dict[str, Footprint], Metadata | None]:
    """Return what a call gave, in the memory that it was to write where it was given.

    Args:
        returned: what the kernel returned.
        placement: its arguments where they lie.
        expected: metadata of each output, in order.
        inplace: arguments whose bytes become the result.
        memory: the destinations as the call found them, by output.
        device: where results have to lie.
        copy: whether to clone them; else they are as the kernel returned them.

    Returns:
        The results by name, where they lay, and what is wrong with them.
    """
    problem = None
    if inplace:
        problem = _other_tensor(returned, inplace[0], placement.tensors[inplace[0]])
        returned = placement.tensors[inplace[0]]
    if memory:
        places = list(memory.values())
        if not handed_back(returned, places):
            what = f"returns {_described(returned)} other than its destination "
            problem = Metadata(Kind.WRONG_TYPE, "", what + ", ".join(memory))
        returned = places if len(places) > 1 else places[0]
    if problem is not None:
        return {}, {}, problem
    return read_outputs(returned, expected, device, copy=copy)


def _footprints(placement: Placement) -> dict[str, Footprint]:
    return {name: Footprint.of(t) for name, t in placement.tensors.items()}


def overwrite(
    placement: Placement, specs: Mapping[str, TensorSpec], values: Mapping[str, Tensor]
) -> None:
    """Give the placed arguments other elements."""
    for name, spec in specs.items():
        tensor, given = placement.tensors[name], values[name]
        for axis, step in enumerate(spec.element_strides):
            if step == 0 and spec.shape[axis] > 1:
                tensor, given = tensor.narrow(axis, 0, 1), given.narrow(axis, 0, 1)
        tensor.copy_(given)


def is_child() -> bool:
    """Whether Ctrl-C cannot reach this process: children ignore it."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def _other_tensor(returned: object, name: str, given: Tensor) -> Metadata | None:
    """Return what is wrong with the return value of an in-place kernel."""
    if returned is None:
        return None
    if isinstance(returned, Tensor) and returned.data_ptr() == given.data_ptr():
        return None
    what = (
        f"returns {_described(returned)} other than {name}, which it declares inplace"
    )
    return Metadata(Kind.WRONG_TYPE, "", what)


def read_outputs(
    returned: object,
    expected: Mapping[str, Expected],
    device: torch.device,
    *,
    copy: bool = True,
) -> tuple[dict[str, Tensor], dict[str, Footprint], Metadata | None]:
    """Return results by name and where they lay, or what is wrong with them.

    They are contiguous clones, or as they were returned.
    """
    names = list(expected)
    if not names:  # the oracle has no result here: values are not judged
        return {}, {}, None
    items: Sequence[object] = (returned,)
    if len(names) > 1 or (isinstance(returned, tuple | list) and len(returned) == 1):
        if not isinstance(returned, tuple | list) or len(returned) != len(names):
            what = _described(returned)
            text = f"returns {what}, expected {len(names)} tensors"
            return {}, {}, Metadata(Kind.WRONG_TYPE, "", text)
        items = returned
    outputs, lay = {}, {}
    for name, item in zip(names, items, strict=True):
        problem = _problem(name, item, expected[name], device)
        if problem is not None:
            return {}, {}, problem
        assert isinstance(item, Tensor)
        outputs[name] = item.detach()
        if copy:
            outputs[name] = item.detach().clone(memory_format=torch.contiguous_format)
        lay[name] = Footprint.of(item)
    return outputs, lay, None


def _problem(
    name: str, item: object, expected: Expected, device: torch.device
) -> Metadata | None:
    if not isinstance(item, Tensor) or type(item) not in (Tensor, torch.nn.Parameter):
        what = f"{name} is {_described(item)}, expected torch.Tensor"
        return Metadata(Kind.WRONG_TYPE, name, what)
    if item.layout is not torch.strided or item.is_quantized:
        what = f"{name} has layout {item.layout}, expected dense"
        return Metadata(Kind.WRONG_TYPE, name, what)
    if tuple(item.shape) != expected.shape:
        what = f"{name} has shape {tuple(item.shape)}, expected {expected.shape}"
        return Metadata(Kind.WRONG_SHAPE, name, what)
    if item.dtype != expected.dtype:
        what = f"{name} is {item.dtype}, expected {expected.dtype}"
        return Metadata(Kind.WRONG_DTYPE, name, what)
    if item.device.type != device.type:
        what = f"{name} is on {item.device}, expected {device}"
        return Metadata(Kind.WRONG_DEVICE, name, what)
    return None


def _described(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def raised_by(error: BaseException, device: torch.device) -> Raised:
    """Return what is to be kept of an exception that left the kernel."""
    if isinstance(error, RaisedElsewhere):
        return error.raised
    text = "".join(traceback.format_exception(error))
    lines = str(error).strip().splitlines()
    # The CPU allocator raises a plain RuntimeError.
    out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        "DefaultCPUAllocator" in str(error)
    )
    trap = explanation(error, interpreted=interpreting())
    message = trap or (lines[0][:300] if lines else "")
    fault = fault_of(device)
    return Raised(
        type=type(error).__name__,
        message=message,
        traceback=text[-TRACE_LIMIT:],
        backend=bool(trap) or is_interpreter_failure(error),
        memory=out_of_memory,
        fault=fault,
        build=_unbuilt(error),
    )


def _unbuilt(error: BaseException) -> str:
    """Return what could not be built, "" if an exception has another cause."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BuildError):
            return str(seen)
        seen = seen.__cause__
    return ""


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
