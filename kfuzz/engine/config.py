"""What a campaign, a replay and a shrink are asked to do."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kfuzz.contracts.language import SECOND_CALL_SHARE
from kfuzz.core.budget import MEMBERS, Budget, Scale
from kfuzz.core.event import FindingReplayed
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import ATTRIBUTED, ReplayOutcome, State


class Engine(StrEnum):
    """What chooses the cases of a search.

    HYPOTHESIS draws them at random. ATHERIS has libFuzzer
    change what they are drawn from, guided by the branches that they reach.
    """

    HYPOTHESIS = "hypothesis"
    ATHERIS = "atheris"


@dataclass(frozen=True)
class RunConfig:
    """One campaign.

    Attributes:
        targets: what to test, as on the command line.
        root: the project; targets and corpus entries are relative to it.
        corpus: folder of findings.
        seed: everything drawn depends on it.
        budget: when to stop.
        device: "auto", "cpu", "cuda", "cuda:i" or "interpret".
        isolate: "auto", "process" or "none".
        contracts: globs of contract classes; empty means all.
        exclude_contracts: globs of contract classes left out.
        scale: which sizes are searched.
        burst: most members of a burst; 1 for no bursts.
        engine: what chooses the cases.
        jobs: kernels searched side by side; None for one for each processor, on
            each GPU one for every four of them, at most four.
        probes: share of the cases that get the sampled probes.
        replay: whether the findings stored for the kernels are replayed first.
        calibration: what `kfuzz calibrate` printed; None for what is kept of others.
        prove: whether kernels are proved meanwhile, where a solver is installed; None
            leaves that to what proves them.
        locate: whether the lines of source that findings come from are looked for.
        also_compile: GPUs for which what kernels launch is also compiled, by the names
            of `kfuzz.execution.launches.building`.
        import_seconds: a limit on importing each of the users' files, beside that of
            `kfuzz.targets.load`; None for no other.
        started: `time.monotonic()` when the command began, from which start-up counts;
            the campaign's own start where it is None.
    """

    targets: tuple[str, ...]
    root: Path
    corpus: Path
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    device: str = "auto"
    isolate: str = "auto"
    contracts: tuple[str, ...] = ()
    exclude_contracts: tuple[str, ...] = ()
    scale: Scale = Scale.USUAL
    burst: int = MEMBERS
    engine: Engine = Engine.HYPOTHESIS
    jobs: int | None = None
    probes: float = 1 / SECOND_CALL_SHARE
    replay: bool = False
    calibration: Path | None = None
    prove: bool | None = None
    locate: bool = False
    also_compile: tuple[str, ...] = ()
    import_seconds: float | None = None
    started: float | None = None


@dataclass(frozen=True)
class ReplayConfig:
    """How findings are replayed.

    Attributes:
        root: the project.
        corpus: folder of findings.
        times: runs of each finding, in fresh children.
        device: as in `RunConfig`; None replays on the backend each was found on.
        isolate: as in `RunConfig`.
        target: overrides the target stored in the finding, "" for none.
        jobs: findings that are replayed side by side; None for one for two
            processors, or for each GPU where any is of one, and for at most 8.
        keep: whether the corpus is told of a fixed finding that fails again.
        until: `time.monotonic()` after which nothing more is replayed.
        trusted: modules and packages outside the project that may be imported because
            a finding names them; None for all. Strangers write findings too.
    """

    root: Path
    corpus: Path
    times: int = 3
    device: str | None = None
    isolate: str = "auto"
    target: str = ""
    jobs: int | None = None
    keep: bool = True
    until: float = math.inf
    trusted: tuple[str, ...] | None = ()


@dataclass(frozen=True)
class ReplayResult:
    """One replayed finding.

    Attributes:
        finding: as stored, or known where the mark of another one covers it, or
            regressed where it was fixed; None where it could not be read.
        path: its folder.
        outcome: FIXED (no run fails), FAILS (all do, the same way), FLAKY
            (some do, or another way), ERROR (it could not be judged).
        failures: runs that failed as stored.
        runs: runs made.
        message: one line for people.
        differences: how the environment differs from the stored one, one line
            each; empty unless the finding does not reproduce.
        by_chance: whether chance decides if it shows, so that passing says little.
    """

    finding: Finding | None
    path: Path
    outcome: ReplayOutcome
    failures: int
    runs: int
    message: str
    differences: tuple[str, ...] = ()
    by_chance: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it is of a known finding."""
        return self.finding is not None and self.finding.state is State.KNOWN

    @property
    def is_excused(self) -> bool:
        """Whether what is known of a finding is what failed, and nothing else."""
        return self.is_known and self.reproduces and self.failures > 0

    @property
    def reproduces(self) -> bool:
        """Whether a run failed, as stored or another way."""
        return self.outcome in (ReplayOutcome.FAILS, ReplayOutcome.FLAKY)

    @property
    def seems_fixed(self) -> bool:
        """Whether what a finding reports passes, and not by chance."""
        if self.finding is None or self.by_chance:
            return False
        return self.outcome is ReplayOutcome.FIXED and self.finding.state in ATTRIBUTED

    def event(self) -> FindingReplayed:
        """Return it as reports are told of it."""
        finding = self.finding
        mark = finding.mark if finding else None
        return FindingReplayed(
            kernel=finding.target.node_id if finding else "",
            id=finding.id if finding else "",
            contract=finding.signature.contract if finding else "",
            state=finding.state if finding else None,
            path=str(self.path),
            outcome=self.outcome,
            failures=self.failures,
            runs=self.runs,
            message=self.message,
            differences=self.differences,
            seems_fixed=self.seems_fixed,
            by_chance=self.by_chance,
            reason=" ".join(filter(None, (mark.reason, mark.link))) if mark else "",
        )
