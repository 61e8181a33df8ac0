"""Calibration: every witness is searched, and each contract gets one of three states.

A contract is sound if it bore on a conforming witness, which no search reported, and
every witness that violates it passes the plain functional test and is falsified under
it. It is unsound if a witness contradicts that, and uncalibrated without such a pair.
"""

import fnmatch
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.witnesses.roster import Entry, roster, unplanted
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Depth, Scale
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import KfuzzError, UsageError
from kfuzz.core.finding import Target, host_fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Role, Soundness, Verdict
from kfuzz.engine.workers.jobs import Stopped, processors, streamed, waited
from kfuzz.engine.workers.runner import Runner, attributed, is_fault, runner_of
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.evaluation import worker
from kfuzz.evaluation.calling import as_argument
from kfuzz.evaluation.drawing import round_seed
from kfuzz.execution.calls.tuning import held
from kfuzz.execution.device.backends import (
    BACKENDS,
    alike,
    resolve,
    sharing,
)
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.processes.wire import ChildTimeout, Handler, Message
from kfuzz.features.lab.grade.statement import Calibration, ContractCalibration, Outcome
from kfuzz.numerics.domains import fitted
from kfuzz.report.text import Section, text_page
from kfuzz.strategies.parameters import IndexParameter, TensorParameter
from kfuzz.targets.load import LoadedKernel, Source, project_root

# The search of one witness: as a campaign's, but nothing is reduced or stored.

# As a campaign's: a gross fault shows in the first round.
FIRST_ROUND: Final = 25
LONGEST_ROUND: Final = 100
# Occurrences of one symptom that are diagnosed, and then each power of two: more where
# only a diagnosis shows the class that a witness violates.
DIAGNOSED: Final = 8
DIAGNOSED_FOR_CLASS: Final = 64

# Conforming witnesses use their budget up, and those in the interpreter, which costs
# a millisecond a program, use less.
CONFORMING_SHARE: Final = 4
INTERPRETED_SHARE: Final = 16


def share(entry: Entry, cases: int) -> int:
    """Return how many cases a witness gets."""
    if entry.role is not Role.CONFORMING:
        return cases
    interpreted = not BACKENDS[entry.backend].has.native
    return max(cases // (INTERPRETED_SHARE if interpreted else CONFORMING_SHARE), 1)


def unsearched(entry: Entry, problem: str = "") -> Outcome:
    """Return what is known of a witness that was not searched, and why."""
    return Outcome(
        entry.witness.kernel, entry.load().operator.name_in_contracts, entry.role,
        entry.witness.contract, entry.backend, problem=problem,
    )  # fmt: skip


def search(
    entry: Entry, runner: Runner, *, cases: int, seed: int, stop: threading.Event
) -> Outcome:
    """Judge cases of a witness until the class that it violates is broken, or any.

    Args:
        entry: the witness.
        runner: draws and judges its cases.
        cases: see `share`.
        seed: everything drawn depends on it.
        stop: set to end it.

    Raises:
        Stopped: once it is set.
    """
    name, until = entry.witness.kernel, entry.witness.contract
    cases, number = share(entry, cases), 0
    found, decided = unsearched(entry), Counter[str]()
    most = DIAGNOSED_FOR_CLASS if until in _DISTINGUISHED else DIAGNOSED
    symptoms: Counter[tuple[object, ...]] = Counter()

    def is_over() -> bool:
        if stop.is_set():
            raise Stopped
        wanted = until in found.found if until else bool(found.found)
        return wanted or bool(found.problem) or found.cases >= cases

    def judge(case: Case, depth: Depth) -> CaseReport:
        report = runner.judge(case, depth)
        located = runner.locate(case) if is_fault(report) else None
        return report if located is None else attributed(report, located[1])

    while not is_over():
        size = min(FIRST_ROUND << min(number, 2), LONGEST_ROUND)
        drawn = runner.generate(
            budget=BACKENDS[entry.backend].limits.sizes, without=frozenset(),
            scale=Scale.USUAL, cases=min(size, cases - found.cases),
            seed_value=round_seed(seed, name, number),
        )  # fmt: skip
        if not drawn:
            break  # its domain holds no more
        number += 1
        for case in drawn:
            if is_over():
                break
            report = judge(case, Depth.SEARCH)
            found.cases += 1
            found.problem = report.error or ""
            for contract, verdict in report.verdicts.items():
                decided[contract] += verdict is Verdict.CONFORMS
            if (failure := report.failure) is not None:
                symptom = failure.signature(name).symptom
                symptoms[symptom] += 1
                times = symptoms[symptom]
                diagnosed = times <= most or times & (times - 1) == 0
                if diagnosed and failure.contract in _DISTINGUISHED:
                    failure = judge(case, Depth.FULL).failure or failure
                found.found.setdefault(failure.contract, failure.message)
    found.decided = {name: count for name, count in sorted(decided.items()) if count}
    return found


_DISTINGUISHED: Final = frozenset(
    c.id for c in ATTRIBUTION if c.provisional and not c.of_gradients
)


# The plain functional test: torch.allclose, rtol = atol, five inputs.
TOLERANCE: Final = 1e-2
INPUTS: Final = 5


def passes_functional(witness: Witness, *, device: str = "cpu") -> bool:
    """Whether a witness passes the test that people write for a kernel.

    `torch.allclose` with rtol = atol = 1e-2 against torch in float64, on five
    random inputs at its one friendly shape: normal, of integers uniform.

    Args:
        witness: its kernel, at which shapes and in which dtype.
        device: where it runs; Triton kernels need a GPU or the interpreter.
    """
    kernel = witness.load()
    operator = kernel.operator
    dtype = getattr(torch, witness.dtype)
    scalars = {name: p.default for name, p in operator.scalars.items()}
    taken = {name: as_argument(scalars[name]) for name in kernel.arguments.scalars}
    parameters = [operator.tensors[name] for name in kernel.arguments.tensors]
    oracle = operator.oracle_on(kernel.arguments.tensors)
    sizes = {
        axis: n
        for p, shape in zip(parameters, witness.shapes, strict=True)
        for axis, n in p.sizes(shape).items()
    }
    # Of what integer scalars and dimensions indices stay below.
    bounds = {n: v for n, v in scalars.items() if type(v) is int} | sizes
    for seed in range(INPUTS):
        random = torch.Generator().manual_seed(seed)
        inputs = [
            _drawn(p, shape, dtype, bounds, random).to(device)
            for p, shape in zip(parameters, witness.shapes, strict=True)
        ]
        exact = [
            x if x.dtype is torch.bool or isinstance(p, IndexParameter) else x.double()
            for p, x in zip(parameters, inputs, strict=True)
        ]
        expected = oracle(*exact, **scalars)
        # Where Triton interprets, with the bits of compiled Triton. Each of several
        # configurations takes its turn.
        own = kernel.declaration.config(seed)
        expected = (expected,) if isinstance(expected, Tensor) else expected
        given = [torch.empty_like(y, dtype=dtype) for y in expected]
        given = given[: len(kernel.arguments.destinations)]
        with watch(config=seed):
            returned = held(kernel.on, kernel.tuners)(*inputs, *given, **taken, **own)
        if given:
            returned = given
        elif returned is None:
            changed = dict(zip(kernel.arguments.tensors, inputs, strict=True))
            returned = [changed[name] for name in kernel.declaration.inplace]
        elif isinstance(returned, Tensor):
            returned = (returned,)
        if not all(map(_close, returned, expected)):
            return False
    return True


def _drawn(
    parameter: TensorParameter,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    bounds: Mapping[str, int],
    random: torch.Generator,
) -> Tensor:
    """Return an ordinary argument: normal, uniform where it holds integers."""
    own = getattr(torch, parameter.dtype) if parameter.dtype else dtype
    bound = 0
    if isinstance(parameter, IndexParameter):
        bound = bounds[parameter.below]
        drawn = torch.randint(bound, shape, generator=random)
    elif parameter.kind == "float":
        drawn = torch.randn(shape, generator=random).to(own)
        drawn = drawn.abs() if parameter.role == "variance" else drawn
    else:
        least, most = (0, 1) if own is torch.bool else (-100, 100)
        drawn = torch.randint(least, most + 1, shape, generator=random)
        drawn = (drawn.abs() if parameter.kind == "uint" else drawn).to(own)
    return fitted(drawn, parameter.domain, bound, len(shape))


def _close(y: Tensor, wanted: Tensor) -> bool:
    """Whether a result passes; integers must be equal."""
    tolerance = TOLERANCE if wanted.is_floating_point() else 0.0
    y, wanted = y.to(torch.float64), wanted.to(torch.float64)
    return y.shape == wanted.shape and torch.allclose(
        y, wanted, rtol=tolerance, atol=tolerance, equal_nan=True
    )


# The search runs as a campaign's does, in children of each witness; the functional test
# in one more, which may end by it.

SERVE: Final = "kfuzz.features.lab.grade.calibrating:serve"
# The functional test of a witness: what takes longer stalls.
FUNCTIONAL_SECONDS: Final = 300.0
# Jobs for each witness that may hang: that one mostly waits.
JOBS_PER_ALONE: Final = 3


def serve() -> Handler:
    """Return the handler of a fresh child: it runs the functional test of a witness."""
    worker.serve()  # one thread, as every child

    def answer(message: Message) -> Message:
        witness = decode(Entry, message["entry"], "entry").witness
        passes = False
        with suppress(Exception):  # what raises does not pass
            passes = passes_functional(witness, device=message["device"])
        return {"passes": passes}

    return answer


def _searched(
    entry: Entry, backend: Backend, stop: threading.Event, *, cases: int, seed: int
) -> Iterator[Outcome]:
    """Yield what a witness shows; nothing if it is stopped."""
    kernel, device = entry.load(), backend.turn()
    loaded = LoadedKernel(
        kernel, Target("", kernel.name, kernel.module),
        Source(module=kernel.module, only=(kernel.name,)),
    )  # fmt: skip
    runner = runner_of(
        loaded, backend, root=project_root(), expired=stop.is_set,
        budget=backend.on.limits.sizes, device=device,
    )  # fmt: skip

    try:
        found = search(entry, runner, cases=cases, seed=seed, stop=stop)
        child = backend.fork(
            lambda: True, device=device if backend.on.numbered else "", serve=SERVE
        )
        with child:
            child.send({"entry": encode(entry), "device": backend.device})
            reply = waited(child.wait, FUNCTIONAL_SECONDS, stop.is_set)
        found.functional = reply["passes"]
    except Stopped:
        return
    except ChildTimeout:
        what = f"the functional test takes over {FUNCTIONAL_SECONDS:.0f} s"
        found = unsearched(entry, what)
    except KfuzzError as error:
        found = unsearched(entry, str(error))
    finally:
        runner.close()
    yield found


DEFAULT_CASES: Final = 400


def calibrate(
    globs: Sequence[str] = (),
    *,
    cases: int = DEFAULT_CASES,
    seed: int = 0,
    device: str = "auto",
    jobs: int = 0,
    stop: threading.Event,
    entries: Sequence[Entry] | None = None,
) -> Iterator[Outcome | Calibration]:
    """Search the witnesses; yield what each shows, then the calibration.

    Args:
        globs: of contracts, by class or identifier; all without any.
        cases: most cases for a violating witness; conforming ones get a quarter, in
            the interpreter a sixteenth.
        seed: everything drawn depends on it.
        device: "auto", "cpu", "interpret" or "cuda:i".
        jobs: witnesses searched at once; by default one for each processor, or for
            each GPU.
        stop: set from outside to end with what there is: contracts of which a witness
            was not searched are uncalibrated then.
        entries: the witnesses; all of the device by default.

    Raises:
        UsageError: if a glob matches no contract.
        BackendError: if the device is not there.
    """
    backend, devices = resolve(device)
    kind, first = backend.torch_type, devices[0]
    listed = list(roster(kind)) if entries is None else list(entries)
    wanted = _selected(globs, listed)
    chosen = [e for e in listed if _bears(e, wanted)]
    outcomes: dict[str, Outcome] = {}
    # A calibration is about one kind of device.
    devices = alike(backend, devices)
    many = jobs or (len(devices) if backend.has.asynchronous else processors())
    # What may hang comes first, with jobs of its own.
    left = deque(sorted(chosen, key=lambda e: (not e.alone, e.backend)))
    with ExitStack() as opened:
        backends = {}
        # Natively on the CPU, Triton is not to interpret: some classes would not bind.
        for on in sharing(kind):
            made = Backend(",".join(devices) if on.numbered else on.name)
            # What witnesses print as they die is what they are there for.
            made.quiet = True
            backends[on.name] = opened.enter_context(closing(made))

        def take() -> Iterator[Outcome] | None:
            if not left or stop.is_set():
                return None
            entry = left.popleft()
            own = backends[entry.backend]
            return _searched(entry, own, stop, cases=cases, seed=seed)

        jobs = many + max(1, many // JOBS_PER_ALONE)
        for outcome in streamed(take, jobs, halt=stop.set):
            outcomes[outcome.kernel] = outcome
            yield outcome
    ordered = tuple(
        outcomes[e.witness.kernel] for e in chosen if e.witness.kernel in outcomes
    )
    unknown = [e for e in chosen if e.witness.kernel not in outcomes]
    yield Calibration(
        seed=seed,
        cases=cases,
        conforming_cases=max(cases // CONFORMING_SHARE, 1),
        device=first,
        fingerprint=host_fingerprint(device=backend.device_name(first)),
        contracts=tuple(judged(wanted, ordered, unplanted(kind), unknown)),
        outcomes=ordered,
        unsearched=len(unknown),
    )


def judged(
    identifiers: Sequence[str],
    outcomes: Sequence[Outcome],
    reasons: dict[str, str],
    left: Sequence[Entry] = (),
) -> Iterator[ContractCalibration]:
    """Yield the state of each contract, sorted by identifier.

    Args:
        identifiers: the contracts in question.
        outcomes: what the witnesses showed.
        reasons: why contracts have no mutant.
        left: witnesses that were not searched: contracts that one bears on are not
            sound.
    """
    conforming: dict[str, list[str]] = defaultdict(list)
    violating: dict[str, list[str]] = defaultdict(list)
    problems: dict[str, list[str]] = defaultdict(list)
    for o in outcomes:
        if o.role is Role.IMPOSTOR:
            continue
        own = o.role is Role.VIOLATING
        for contract in (o.contract,) if own else o.decided:
            kind = violating if own else conforming
            kind[f"{contract}/{o.operator}"].append(o.kernel)
        # Attributed to what was found of a conforming one; else to all classes.
        every = o.found or [c.id for c in ATTRIBUTION]
        for contract in ((o.contract,) if own else every) if o.fault else ():
            problems[f"{contract}/{o.operator}"].append(f"{o.kernel}: {o.fault}")
    unsearched = {
        f"{contract}/{entry.load().operator.name_in_contracts}"
        for entry in left
        for contract in (
            [entry.witness.contract]
            if entry.role is Role.VIOLATING
            else [c.id for c in ATTRIBUTION]
        )
    }
    for at in sorted({*identifiers, *problems}):
        state, why = Soundness.UNCALIBRATED, problems[at]
        if why:
            state = Soundness.UNSOUND
        elif not violating[at]:
            known = f": {reasons[at]}" if at in reasons else ""
            why = [f"no violating witness{known}"]
        elif not conforming[at]:
            why = ["bore on no conforming witness"]
        elif at in unsearched:
            why = ["interrupted before all its witnesses were searched"]
        else:
            state = Soundness.SOUND
        yield ContractCalibration(
            at, state, tuple(conforming[at]), tuple(violating[at]), tuple(why)
        )


def _selected(globs: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    """Return the identifiers of the contracts that globs select, sorted.

    Those of every operator's defaults, and of what its witnesses declare.
    """
    claims = [(o, o.defaults) for o in OPERATORS.values()]
    for e in entries:
        if e.role is not Role.IMPOSTOR:
            kernel = e.load()
            own = OPERATORS.get(kernel.operator.name, kernel.operator)
            claims.append((own, kernel.declaration))
    every = {
        f"{c.id}/{operator.name_in_contracts}"
        for operator, declaration in claims
        for c in ATTRIBUTION
        if c.binds(operator, declaration) and not c.on_request
    }
    if not globs:
        return sorted(every)
    found: set[str] = set()
    for glob in globs:
        pattern = glob if "/" in glob else f"{glob}/*"
        matching = {i for i in every if fnmatch.fnmatchcase(i, pattern)}
        if not matching:
            raise UsageError(
                f"no contract matches {glob!r}",
                fix="give a glob of class ids or identifiers: 'C-PRC-*', '*/softmax'",
            )
        found |= matching
    return sorted(found)


def _bears(entry: Entry, identifiers: Sequence[str]) -> bool:
    """Whether a witness says something about one of the contracts."""
    operator = entry.load().operator.name_in_contracts
    if entry.role is Role.VIOLATING:
        return f"{entry.witness.contract}/{operator}" in identifiers
    return any(i.endswith(f"/{operator}") for i in identifiers)


# A calibration as text, and as the JSON that a grade reads.


def lines(made: Calibration) -> list[str]:
    """Return a calibration as text: the table, then names."""
    roles = Counter(o.role for o in made.outcomes)
    host = made.fingerprint
    title = (
        f"{roles[Role.CONFORMING]} conforming and {roles[Role.VIOLATING]} violating "
        f"witnesses, {roles[Role.IMPOSTOR]} trivial baselines, "
        f"on {host.device or made.device}"
    )
    states = Counter(c.state for c in made.contracts)
    counts = ", ".join(f"{states[s]} {s}" for s in Soundness)
    facts = [
        ("versions", f"torch {host.torch}, triton {host.triton or 'none'}"),
        (
            "budget",
            f"seed {made.seed}, at most {made.cases} cases to find a fault, "
            f"{made.conforming_cases} on a conforming witness",
        ),
        ("in all", f"{len(made.contracts)} contracts: {counts}"),
    ]
    if made.unsearched:
        left = f"{made.unsearched} witnesses were not searched"
        facts.insert(2, ("interrupted", left))
    # Contracts without a pair, those of one class and reason together.
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for contract in made.contracts:
        if contract.state is Soundness.UNCALIBRATED:
            name, _, operator = contract.identifier.partition("/")
            grouped[name, contract.problems].append(operator)
    several = {
        "unsound": [f"{c.identifier}: {p}" for c in made.unsound for p in c.problems],
        "trivial baselines that nothing rejected": [
            f"{o.kernel}: {o.fault}" for o in made.admitted
        ],
        "uncalibrated, which does not count in a grade": [
            f"{name}: {'; '.join(problems)}: {', '.join(operators)}"
            for (name, problems), operators in grouped.items()
        ],
    }
    table = Section("contracts", rows=list(_rows(made)), numbers=range(1, 6))
    rest = [Section(heading, found) for heading, found in several.items()]
    return text_page(title, facts, [table, *rest])


def _rows(made: Calibration) -> Iterator[tuple[str, ...]]:
    """Yield a row for each class, below a header."""
    by_class = defaultdict(list)
    for contract in made.contracts:
        by_class[contract.identifier.partition("/")[0]].append(contract)
    yield ("class", "sound", "unsound", "uncalibrated", "conforming", "violating")
    for name in [c.id for c in ATTRIBUTION if c.id in by_class]:
        own = by_class[name]
        states = Counter(c.state for c in own)
        witnesses = (
            sum(len(c.conforming) for c in own), sum(len(c.violating) for c in own)
        )  # fmt: skip
        yield (name, *map(str, (*(states[s] for s in Soundness), *witnesses)))
