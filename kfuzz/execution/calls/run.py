"""One execution of a kernel on one case, and what it left behind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from torch import Tensor

from kfuzz.core.recipe import Edge
from kfuzz.execution.calls.autotuning import Measuring
from kfuzz.execution.calls.environment import call_once
from kfuzz.execution.calls.invocation import Invocation
from kfuzz.execution.calls.results import Reader
from kfuzz.execution.device.surroundings import Company, surroundings_of
from kfuzz.execution.interpreter.reach import Reach
from kfuzz.execution.interpreter.watch import Launches, watch
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.arena import Arena
from kfuzz.execution.memory.destinations import write_maps
from kfuzz.execution.memory.host_fences import NoAddressSpace
from kfuzz.execution.memory.placement import Placement, as_batch, place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.values.randomness import SEED
from kfuzz.numerics.footprints import Footprint
from kfuzz.numerics.run import Run


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
        reach, reverse=manner.reverse, last=manner.last, config=asked.config,
        measuring=manner.measuring,
    ) as launches:  # fmt: skip
        around_it = surroundings_of(device)
        if around_it is not None:
            if manner.stale:  # after the last of kfuzz's own results was freed
                around_it.poison(fresh)
            if not around_it.begin(manner.company, fresh):
                return Run(unreliable="nothing could run beside it")
        call = partial(asked.call, *placement.tensors.values(), **asked.scalars)
        made = call_once(call, device, allocations, seed=manner.seed)
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
        config=launches.config,
        configs=launches.configs,
        foreign=tuple(allocations.foreign),
        beside=allocations.beside(),
    )


def _footprints(placement: Placement) -> dict[str, Footprint]:
    return {name: Footprint.of(t) for name, t in placement.tensors.items()}
