"""One execution of a kernel on one case, and what it left behind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.recipe import Edge, TensorSpec
from kfuzz.core.untrusted import KernelEnded
from kfuzz.execution.calls.autotuning import Measuring
from kfuzz.execution.calls.invocation import Invocation
from kfuzz.execution.calls.occupied import by_device, by_kernel
from kfuzz.execution.calls.raised import raised_by
from kfuzz.execution.calls.results import read_results
from kfuzz.execution.device.surroundings import Company, surroundings_of
from kfuzz.execution.interpreter.reach import Reach
from kfuzz.execution.interpreter.watch import Launches, watch
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.destinations import poisoned, write_maps
from kfuzz.execution.memory.pages import NoAddressSpace
from kfuzz.execution.memory.placement import Arena, Placement, place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.processes.interrupts import is_child
from kfuzz.execution.values.randomness import SEED, seeded
from kfuzz.numerics.footprints import Footprint
from kfuzz.numerics.run import Raised, Run, UncheckedLaunch


@dataclass(frozen=True)
class Manner:
    """How a call is made, beside what is asked of it.

    Attributes:
        seed: of torch's random generators during the call.
        reverse: in Triton's interpreter, run each launch's programs last first.
        last: in Triton's interpreter, run this program last.
        measuring: where autotuners measure, None where they do not.
        company: on a GPU, what else runs meanwhile.
        stale: on a GPU, whether memory that nobody owns holds what fresh memory does
            too: what torch's allocator has free, and shared memory.
    """

    seed: int = SEED
    reverse: bool = False
    last: tuple[int, int, int] | None = None
    measuring: Measuring | None = None
    company: Company = Company.NONE
    stale: bool = False


PLAIN: Final = Manner()


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
    manner: Manner = PLAIN,
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
        manner: how the call is made.
    """
    given, specs = dict(asked.destinations), asked.specs
    values = {**values, **poisoned(given, arena.device, fresh)}
    if after is None:
        try:
            placement = place(
                specs, values, device=arena.device, alignment=asked.alignment,
                poison=asked.around, arena=arena, edge=edge,
            )  # fmt: skip
        except NoAddressSpace as error:
            return Run(unreliable=error.what)
    else:
        placement = after.placement
        overwrite(placement, specs, values)
    allocations = GuardedAllocations(arena.device, fresh, edge=edge, pool=arena.pool)
    arguments = list(placement.tensors.values())
    lay = _footprints(placement)
    # Other tensor objects: a kernel may put other memory under the ones it has.
    memory = [placement.tensors[name].data for name in given]
    reach = Reach(
        specs, placement.tensors, allocations, owned=placement.owned,
        poison=asked.around, writes=write_maps(given, fresh),
    )  # fmt: skip
    with watch(
        reach, reverse=manner.reverse, last=manner.last, config=asked.config,
        measuring=manner.measuring,
    ) as launches:  # fmt: skip
        around_it = surroundings_of(arena.device)
        if around_it is not None:
            if manner.stale:  # after the last of kfuzz's own results was freed
                around_it.poison(fresh)
            if not around_it.begin(manner.company, fresh):
                return Run(unreliable="nothing could run beside it")
        returned, raised, unchecked = call_once(
            asked.call, arguments, asked.scalars, allocations, seed=manner.seed
        )
        if raised is not None:
            return replace(_observed(launches, allocations), raised=raised)
    # A kernel may have made another tensor of its argument, as `t_` does.
    if keep is not None and lay == _footprints(placement):
        keep(Held(placement, returned, allocations))
    outputs, results, problem = read_results(
        returned,
        placement,
        asked.expected,
        inplace=asked.inplace,
        memory=dict(zip(given, memory, strict=True)),
        device=arena.device,
    )
    free = (*asked.inplace, *given)
    touches = () if after else tuple(placement.touches(inplace=free))
    return replace(
        _observed(launches, allocations),
        outputs=outputs,
        metadata=problem,
        touches=touches,
        strays=tuple(allocations.touches()),
        arguments={name: lay[name] for name in asked.case.tensors},
        results=results,
        unchecked=unchecked,
    )


def _observed(launches: Launches, allocations: GuardedAllocations) -> Run:
    """Return a run with what is known of it, however it ended."""
    return Run(
        unreliable=launches.unreliable,
        accesses=launches.accesses,
        programs=launches.programs,
        config=launches.config,
        configs=launches.configs,
        foreign=tuple(allocations.foreign),
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
            if device.type == "cuda":
                by_device()
                torch.cuda.synchronize(device)
    except KernelEnded:
        raise  # nobody is there to call again
    except BaseException as error:
        if around is not None:
            around.forget_errors()
        if isinstance(error, KeyboardInterrupt) and not is_child():
            raise  # the user's, not the kernel's
        return None, raised_by(error, device), None
    return returned, None, unchecked


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
