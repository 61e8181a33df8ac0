"""Calibration: every witness is searched, and each contract gets one of three states.

A contract is sound if it bore on a conforming witness, which no search reported, and
every witness that violates it passes the plain functional test and is falsified under
it. It is unsound if a witness contradicts that, and uncalibrated without such a pair.
"""

import fnmatch
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.witnesses.roster import Entry, roster, unplanted
from kfuzz.core.calibration import (
    Calibration,
    ContractCalibration,
    Outcome,
    Role,
    Soundness,
)
from kfuzz.core.errors import UsageError
from kfuzz.core.fingerprint import host_fingerprint
from kfuzz.execution.device.backends import alike, resolve
from kfuzz.grade.witness_pool import Pool
from kfuzz.grade.witness_search import CONFORMING_SHARE

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
    notify: Callable[[str], None] = lambda why: None,
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
        notify: takes which GPUs are left out, and why.

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
    with Pool(alike(backend, devices), cases=cases, seed=seed, jobs=jobs) as pool:
        for why in pool.left_out:
            notify(why)
        for outcome in pool.search(chosen, stop):
            outcomes[outcome.kernel] = outcome
            yield outcome
    ordered = tuple(
        outcomes[e.witness.kernel] for e in chosen if e.witness.kernel in outcomes
    )
    left = [e for e in chosen if e.witness.kernel not in outcomes]
    contracts = judged(wanted, ordered, unplanted(kind))
    yield Calibration(
        seed=seed,
        cases=cases,
        conforming_cases=max(cases // CONFORMING_SHARE, 1),
        device=first,
        fingerprint=host_fingerprint(device=backend.device_name(first)),
        contracts=tuple(_without(left, contracts)),
        outcomes=ordered,
        unsearched=len(left),
    )


def _without(
    left: Sequence[Entry], contracts: Iterable[ContractCalibration]
) -> Iterator[ContractCalibration]:
    """Yield contracts; those that a witness left out bears on are not sound."""
    open_still = set()
    for entry in left:
        operator = entry.load().operator.name_in_contracts
        violating = entry.role is Role.VIOLATING
        bears = [entry.witness.contract] if violating else [c.id for c in ATTRIBUTION]
        open_still |= {f"{contract}/{operator}" for contract in bears}
    for made in contracts:
        if made.identifier in open_still and made.state is Soundness.SOUND:
            why = (*made.problems, "interrupted before all its witnesses were searched")
            made = replace(made, state=Soundness.UNCALIBRATED, problems=why)
        yield made


def judged(
    identifiers: Sequence[str], outcomes: Sequence[Outcome], reasons: dict[str, str]
) -> Iterator[ContractCalibration]:
    """Yield the state of each contract, sorted by identifier.

    Args:
        identifiers: the contracts in question.
        outcomes: what the witnesses showed.
        reasons: why contracts have no planted fault.
    """
    conforming, violating = defaultdict(list), defaultdict(list)
    problems = defaultdict(list)
    for o in outcomes:
        if o.role is Role.CONFORMING:
            for contract in o.decided:
                conforming[f"{contract}/{o.operator}"].append(o.kernel)
            if o.fault:
                # Charged to what was found; else to all that it should bear on.
                charges = o.found or dict.fromkeys(c.id for c in ATTRIBUTION)
                for contract in charges:
                    at = f"{contract}/{o.operator}"
                    problems[at].append(f"{o.kernel}: {o.fault}")
        elif o.role is Role.VIOLATING:
            at = f"{o.contract}/{o.operator}"
            violating[at].append(o.kernel)
            if o.fault:
                problems[at].append(f"{o.kernel}: {o.fault}")
    for at in sorted({*identifiers, *(p for p in problems if problems[p])}):
        state, why = Soundness.SOUND, problems[at]
        if why:
            state = Soundness.UNSOUND
        elif not violating[at]:
            state = Soundness.UNCALIBRATED
            why = [f"no violating witness: {reasons[at]}" if at in reasons
                   else "no violating witness"]  # fmt: skip
        elif not conforming[at]:
            state, why = Soundness.UNCALIBRATED, ["bore on no conforming witness"]
        yield ContractCalibration(
            at, state, tuple(conforming[at]), tuple(violating[at]), tuple(why)
        )


def _selected(globs: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    """Return the identifiers of the contracts that globs select, sorted.

    Those of every operator's defaults, and of what its witnesses declare.
    """
    claims = [(o, o.defaults) for o in OPERATORS.values()]
    kernels = [e.load() for e in entries if e.role is not Role.IMPOSTOR]
    claims += [
        (OPERATORS.get(k.operator.name, k.operator), k.declaration) for k in kernels
    ]
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
