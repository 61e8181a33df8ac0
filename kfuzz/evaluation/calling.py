"""Where a binding stands, and which line of a user's code raised."""

import inspect
import linecache
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts import oracle
from kfuzz.contracts.binding import BoundKernel, Derived
from kfuzz.contracts.evidence import UNPROMISED, Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.core import errors
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import NOWHERE, Case, Scalar, is_dtype, poison_of
from kfuzz.execution.calls.results import PLAIN, Held, Invocation, Options, execute
from kfuzz.execution.calls.tuning import held
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.run import Expected, Metadata, Run

# Frames below these are no code of the user's.
_OURS: Final = (Path(__file__).parents[1], Path(torch.__file__).parent)


def broken(kernel: BoundKernel, what: str, fix: str) -> errors.BindingError:
    """Return the error that says where a binding stands and what is wrong with it."""
    operator = kernel.operator.forward or kernel.operator
    file = getattr(sys.modules.get(kernel.module), "__file__", None)
    place = f"{shown(file)}:{kernel.line}: " if file else ""
    return errors.BindingError(
        what, where=f"{place}kernel {kernel.name}, operator {operator.name}", fix=fix
    )


def raised(error: BaseException, called: Callable[..., Any] | None = None) -> str:
    """Return an exception with its message in one line, and the user's line.

    Args:
        error: what was raised.
        called: the user's function, named where no line of it ran.
    """
    text = " ".join(errors.message_of(error).split())
    told = f"{errors.class_name(error)}: {text}".removesuffix(": ")
    if line := _line_of(error):
        return f"{told} (at {line})"
    return told if called is None else f"{told} ({defined(called)})"


def defined(function: Callable[..., Any]) -> str:
    """Return a function's name and where it is defined, for people."""
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return str(name)
    return f"{name} of {shown(code.co_filename)}:{code.co_firstlineno}"


def shown(file: str) -> str:
    """Return a path as people write it: relative where that is shorter."""
    try:
        near = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return min(near, file, key=len)


def _line_of(error: BaseException) -> str:
    """Return the innermost line that is no library's, "" where there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith("<"):
            continue
        if any(Path(frame.filename).is_relative_to(folder) for folder in _OURS):
            continue
        source = linecache.getline(frame.filename, frame.lineno or 0).strip()
        place = f"{shown(frame.filename)}:{frame.lineno}"
        return f"{place}: {source}" if source else place
    return ""


# Calls of a kernel: on a case, and on what is derived from it.

# Memory beside the usual is taken anew each time and kept for a while: a kernel
# that remembers addresses has not met it before.
_ELSEWHERES: Final = 4
# Elements of the free blocks that are taken, too, which a kernel would get again.
_TAKEN: Final = (1, 1 << 7, 1 << 10, 1 << 14, 1 << 18) * 4


class Memory:
    """Where the arguments of one kernel's calls lie.

    Attributes:
        device: on which it is.
        usual: where they lie unless another place is asked for.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.usual = Arena(device)
        self._elsewhere: deque[tuple[Arena, list[Tensor]]] = deque(maxlen=_ELSEWHERES)

    def elsewhere(self) -> Arena:
        """Return memory at addresses that no recent placement had.

        Nor does a kernel's own memory lie where it lay before, as long as it is held.
        """
        taken = [torch.empty(n, device=self.device) for n in _TAKEN]
        self._elsewhere.append((Arena(self.device), taken))
        return self._elsewhere[-1][0]


class Caller:
    """Calls a kernel for the judgement of one case.

    Attributes:
        kernel: the bound kernel.
        memory: where arguments lie.
        config: the configuration of the case, and of the cases derived from it.
        stale: whether stale memory on a device is poisoned before each call.
        captures: whether calls are captured in CUDA graphs; no more once one breaks.
        step: called before every call, for a watchdog.
        raised: whether any call raised.
        lost: whether the device can do nothing more in this process.
        outside: whether the case is known to lie outside the operator's domain.
        held: the calls that were to stay alive, and could, in their order.
        accepts_wider: whether results in a wider floating type are judged.
        wider: what was said of the first of them, if there was one.
    """

    def __init__(
        self,
        kernel: BoundKernel,
        memory: Memory,
        *,
        config: int,
        stale: bool,
        captures: bool,
        fences: bool,
        step: Callable[[], None],
    ) -> None:
        """Take what all calls have in common.

        Args:
            kernel: the bound kernel.
            memory: where arguments lie.
            config: the configuration of the case.
            stale: whether stale memory on a device is poisoned.
            captures: whether calls are captured in CUDA graphs.
            fences: whether arguments lie beside pages that fault where a case says so.
            step: called before every call.
        """
        self.kernel = kernel
        self.memory = memory
        self.config = config
        self.stale = stale
        self.captures = captures
        self.step = step
        self.raised = False
        self.lost = False
        self.outside = False
        self.held: list[Held] = []
        self.accepts_wider = True
        self.wider: Metadata | None = None
        self._fences = fences

    def accepted(self, derived: Derived) -> Mapping[str, Acceptance] | None:
        """Return what is admitted for a case, None where values are not judged.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        return posed(self.kernel.operator, self.kernel.declaration, derived).acceptance

    def evidence(
        self, derived: Derived, *, hold: bool = False, arena: Arena | None = None
    ) -> tuple[Evidence, str | None]:
        """Return evidence with the base run, or why the backend cannot judge it.

        Args:
            derived: the case with its values.
            hold: whether arguments and results stay, for a second call.
            arena: where the arguments lie, if not in the usual memory.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        # Before the run: after a device-side assertion nothing can be read.
        evidence, expected = self.before_run(derived)
        base = self.run(
            derived, expected, poison_of(derived.case), arena=arena, hold=hold
        )
        evidence = replace(evidence, runs={Probe.BASE: base})
        return evidence, unsupported_because(base)

    def before_run(self, derived: Derived) -> tuple[Evidence, Mapping[str, Expected]]:
        """Return the evidence that lacks the runs, and what results are expected.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        operator, claims = self.kernel.operator, self.kernel.declaration
        evidence = posed(operator, claims, derived)
        accepted = evidence.acceptance
        expected = {} if accepted is None else oracle.expected_metadata(accepted)
        places = (
            oracle.given(operator, derived.case, derived.values, claims, expected) or {}
        )
        evidence = replace(
            evidence,
            case=replace(derived.case, destinations=places),
            explicit=self.kernel.explicit,
            lacking=tuple(
                name
                for name in self.kernel.arguments.lacking(derived.case.tensors)
                if name not in operator.listed
            ),
        )
        return evidence, expected

    def judged(self, derived: Derived) -> Evidence | None:
        """Return the evidence of a case away from pages; None if undecided."""
        evidence, unsupported = self.evidence(without_edge(derived))
        if unsupported or evidence.acceptance is None or not evidence.base.comparable:
            return None
        return evidence

    def apart(self) -> Callable[[Derived], Evidence | None]:
        """Return what runs cases one after the other in memory that none has met.

        It returns None for what cannot be judged.
        """
        arena = self.memory.elsewhere()

        def run(derived: Derived) -> Evidence | None:
            evidence, unsupported = self.evidence(derived, arena=arena)
            return None if unsupported or not evidence.base.comparable else evidence

        return run

    def run(
        self,
        derived: Derived,
        expected: Mapping[str, Expected],
        poison: Poison,
        *,
        arena: Arena | None = None,
        options: Options = PLAIN,
        after: Held | None = None,
        hold: bool = False,
        step: int = 0,
        instead: Callable[..., Any] | None = None,
    ) -> Run:
        """Call the kernel once.

        Args:
            derived: the case with its values.
            expected: metadata of each output.
            poison: what fresh memory holds.
            arena: where the arguments lie, if not in the usual memory.
            options: how the call is made; stale memory is poisoned as for every call.
            after: a call in `held`, whose arguments are overwritten.
            hold: whether its arguments and results stay alive, in `held`.
            step: configurations from the case's to the one that runs.
            instead: called in place of the kernel: its results in another way.

        Raises:
            BuildError: if something could not be built for the call: no case is at
                fault.
        """
        claims = self.kernel.declaration
        asked = self.asked(derived, expected, step=step)
        if asked is None:
            return Run(unreliable="no shape is known for its outputs")
        if instead is not None:
            asked = replace(asked, call=instead)
        self.step()
        edge = derived.case.edge if self._fences else None
        run = execute(
            asked,
            derived.values,
            arena=arena or self.memory.usual,
            fresh=poison,
            edge=None if edge == NOWHERE else edge,
            after=after,
            keep=self.held.append if hold else None,
            options=replace(options, stale=self.stale),
        )
        if run.raised is not None:
            if run.raised.build:
                raise errors.BuildError(run.raised.build)
            self.raised = True
            self.lost = self.lost or run.raised.lost
        if self.accepts_wider:
            self.wider = self.wider or run.wider
        else:
            run = replace(run, metadata=run.metadata or run.wider)
        if not claims.configs:
            return run
        chosen = claims.config(asked.config).items()
        text = ", ".join(f"{name}={value!r}" for name, value in chosen)
        return replace(run, config=text, configs=len(claims.configs))

    def asked(
        self, derived: Derived, expected: Mapping[str, Expected], *, step: int = 0
    ) -> Invocation | None:
        """Return what the kernel is called on; None if outputs have no known shape.

        Args:
            derived: the case with its values.
            expected: metadata of each output.
            step: configurations from the case's to the one that runs.
        """
        return invocation(
            self.kernel, derived.case, derived.values, expected, self.config + step
        )


def invocation(
    kernel: BoundKernel,
    case: Case,
    values: Mapping[str, Tensor],
    expected: Mapping[str, Expected],
    config: int,
) -> Invocation | None:
    """Return what a kernel is called on, for one case or for a batch alike.

    Args:
        kernel: the bound kernel.
        case: the structure.
        values: the elements of the first item's tensors.
        expected: metadata of each output.
        config: which autotune configuration runs, modulo their number.

    Returns:
        None where the kernel is given memory for its outputs and no shape is known.
    """
    claims = kernel.declaration
    destinations = oracle.given(kernel.operator, case, values, claims, expected)
    if destinations is None:
        return None
    return Invocation(
        held(kernel.taking(case.tensors), kernel.tuners),
        case,
        expected,
        alignment=claims.alignment,
        around=poison_of(case),
        scalars=keywords_of(kernel, case, values, config),
        inplace=claims.inplace,
        destinations=destinations,
        config=config,
    )


def keywords_of(
    kernel: BoundKernel, case: Case, values: Mapping[str, Tensor], config: int
) -> dict[str, object]:
    """Return the scalars that the kernel takes, and those of a configuration.

    Args:
        kernel: the bound kernel.
        case: the structure.
        values: logical elements of one item, from which some follow.
        config: which autotune configuration runs, modulo their number.
    """
    known = {**case.scalars, **kernel.operator.following(case, values)}
    scalars = {name: as_argument(known[name]) for name in kernel.arguments.scalars}
    return {**scalars, **kernel.declaration.config(config)}


def as_argument(value: Scalar) -> object:
    """Return a scalar as kernels take it: a dtype's name as the dtype."""
    return getattr(torch, str(value)) if is_dtype(value) else value


def posed(operator: Operator, claims: Declaration, derived: Derived) -> Evidence:
    """Return the evidence of a case before it has run: what is accepted of it.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    problem = oracle.pose(operator, derived.case, derived.values, claims)
    index = oracle.first_out_of_bounds(operator, derived.case, problem)
    nonfinite = None
    if claims.nonfinite in oracle.ASKING:
        nonfinite = oracle.first_nonfinite(operator, derived.values)
    unpromised = nonfinite is not None and claims.nonfinite in UNPROMISED
    unpromised |= index is not None and claims.out_of_bounds in UNPROMISED
    acceptance, refused = None, None
    if not unpromised:
        try:
            acceptance = oracle.accept(operator, problem)
        except errors.BindingError:
            raise
        except Exception as error:  # outside the oracle's domain
            refused = error
    return Evidence(
        derived.case, operator, claims, problem, acceptance,
        out_of_bounds=index, nonfinite=nonfinite, refused=refused,
    )  # fmt: skip


def without_edge(derived: Derived) -> Derived:
    """Return a case away from pages that fault."""
    return replace(derived, case=replace(derived.case, edge=None))


def unsupported_because(run: Run) -> str | None:
    """Return why this run failed for the backend, not for the kernel."""
    if run.unreliable:
        return run.unreliable
    if run.raised is not None and run.raised.backend:
        if run.raised.type == errors.LanguageLimit.__name__:
            return run.raised.message
        what = "Triton's interpreter" if interpreting() else "Triton"
        return f"{what} cannot run it: {run.raised.message}"
    if run.raised is not None and run.raised.gpu:
        return (
            f"this kernel needs a GPU ({run.raised.gpu.rstrip('.')}): run it with "
            "--device cuda on a machine that has one"
        )
    return None
