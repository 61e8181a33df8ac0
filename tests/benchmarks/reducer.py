"""The reducer beside Hypothesis's own shrinking of the same fault.

    python -m tests.benchmarks.reducer --seconds 60

Hypothesis draws cases of a witness from kfuzz's strategy until one fails, and shrinks
it with the symptom as the assertion. kfuzz then takes the same first failing case to
its minimum: confirm, reduce, confirm, explain. Both have the same time. The command
fails if kfuzz ends with more elements than Hypothesis on any witness.
"""

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import HypothesisException

from kfuzz.contracts.suite import select_classes
from kfuzz.contracts.witnesses.roster import Entry, roster
from kfuzz.core.budget import Depth
from kfuzz.core.calibration import Role
from kfuzz.core.errors import KfuzzError
from kfuzz.core.finding import Finding
from kfuzz.core.fingerprint import host_fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.engine.confirm import lifecycle
from kfuzz.engine.search.case_drawing import round_seed, strategy_of
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.runner import Runner
from kfuzz.targets.load import LoadedKernel, load_all
from tests.helpers.budgets import SIZE_BUDGETS

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "kfuzz.contracts.witnesses"
# Of each kind of fault, and of operators with one argument and with several. Those that
# end or hang their process are left out: Hypothesis would pay for every fresh child.
CHOSEN: Final = (
    "amax_last_chunk_wins", "amax_nan_swallowed", "amax_short_if_falling",
    "amax_stale_partials", "amax_zero_identity", "argmax_last_of_equals",
    "cleaned_in_linear_gelu", "cross_entropy_padded_label", "embedding_wraps_index",
    "epsilon_in_linear", "gelu_by_tanh", "layer_norm_one_pass",
    "layer_norm_padded_variance", "linear_relu_saturates", "matmul_drop_tail",
    "matmul_half_accumulator", "matmul_within_half_range", "narrow_in_attention",
    "narrow_in_conv2d", "offset_of_chain_in_attention", "relu_flushes",
    "relu_ignores_strides", "relu_one_shape", "relu_overwrites_input",
    "relu_reads_one_past", "relu_tail_store_unmasked", "rms_norm_eps_outside",
    "softmax_no_max", "softmax_tail_zero", "softmax_unmasked_block",
    "sum_bfloat16_accumulator", "sum_drop_tail", "sum_half_accumulator",
    "sum_ignores_column_stride", "sum_random_order", "sum_split_by_rows",
    "unstable_in_group_norm", "unstable_in_logsumexp", "wrong_block_in_cross_entropy",
)  # fmt: skip

MOST_EXAMPLES: Final = 100_000


@dataclass
class Row:
    """What the two made of one witness's first failing case.

    Attributes:
        kernel: the witness.
        first: elements of the case as first found.
        theirs: elements of Hypothesis's result, and those that are not 0; of the first
            case where Hypothesis was not to shrink it.
        their_seconds: from the first failing case to Hypothesis's end.
        ours: elements of kfuzz's result, and those that are not 0.
        stages: seconds of confirming, reducing, confirming and explaining.
        evaluations: candidates that kfuzz judged.
    """

    kernel: str
    first: int
    theirs: tuple[int, int]
    their_seconds: float
    ours: tuple[int, int]
    stages: dict[str, float]
    evaluations: int

    @property
    def seconds(self) -> float:
        """Seconds that kfuzz took, all stages together."""
        return self.stages["all"]


class Over(BaseException):
    """The time is over; Hypothesis lets it through."""


class Fault:
    """The symptom that the first failing case shows, and every failing case since."""

    def __init__(self, runner: Runner, deadline: Callable[[], float]) -> None:
        self.runner = runner
        self.report: CaseReport | None = None
        self.failing: list[Case] = []
        self.began = 0.0
        self._deadline = deadline

    def shows(self, case: Case) -> bool:
        """Whether a case fails like the first one that did.

        Raises:
            Over: after the time.
        """
        if time.monotonic() >= self._deadline():
            raise Over
        if self.report is None:
            report = self.runner.judge(case, Depth.SEARCH)
            if report.failure is None:
                return False
            self.report, self.began = report, time.monotonic()
            self.failing.append(case)
            return True
        assert self.report.failure is not None
        signature = self.report.failure.signature(self.runner.loaded.kernel.name)
        if signature.kind in lifecycle.BEYOND_BASE:
            # As pinned cases are: else only a share of cases gets further calls.
            report = self.runner.judge(self.runner.pin(case), Depth.SEARCH)
        else:
            report = self.runner.judge(case, Depth.BASE)
        if not report.shows(signature):
            return False
        self.failing.append(case)
        return True


def shrunk(
    fault: Fault, loaded: LoadedKernel, backend: str, number: int
) -> Case | None:
    """Return what Hypothesis makes of a kernel's first failing case; None without one.

    Cut short by the time, the least that it has seen fail.
    """
    strategy = strategy_of(loaded.kernel, SIZE_BUDGETS[backend])
    assert strategy is not None
    over = False

    def once(case: Case) -> None:
        assert not fault.shows(case)

    configured = settings(
        max_examples=MOST_EXAMPLES,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )
    chosen = round_seed(number, loaded.kernel.name, 0)
    try:
        seed(chosen)(configured(given(strategy)(once)))()
    except (Over, HypothesisException):  # HypothesisException: it fails at times
        over = True
    except AssertionError:
        pass
    if not fault.failing:
        return None
    if over:
        return min(fault.failing, key=lambda c: c.elements)
    return fault.failing[-1]  # the minimum is run last


@contextlib.contextmanager
def timed(stages: dict[str, float]) -> Iterator[None]:
    """Note how long each stage of the lifecycle takes."""
    names = {"confirm": "confirm", "reduce_case": "reduce", "explain": "explain"}
    kept = {name: getattr(lifecycle, name) for name in names}

    def noting(name: str) -> Callable[..., object]:
        def stage(*args: object, **options: object) -> object:
            began = time.perf_counter()
            try:
                return kept[name](*args, **options)
            finally:
                spent = time.perf_counter() - began
                stages[names[name]] = stages.get(names[name], 0.0) + spent

        return stage

    try:
        for name in names:
            setattr(lifecycle, name, noting(name))
        yield
    finally:
        for name, function in kept.items():
            setattr(lifecycle, name, function)


def compared(
    entry: Entry, backend: Backend, *, seconds: float, number: int, alone: bool
) -> Row | str:
    """Return a witness's row, or why it has none."""
    name = entry.witness.kernel
    [loaded] = load_all((f"{PACKAGE}.{entry.witness.module}:{name}",), root=ROOT)
    place = Place(
        device=backend.device,
        backend=backend.name,
        budget=SIZE_BUDGETS[backend.name],
        classes=tuple(sorted(select_classes((), ()))),
        root=ROOT,
    )
    runner = Runner(loaded, place, backend.fork)
    try:
        begun = time.monotonic()
        shrinking = 0.0 if alone else seconds
        fault = Fault(
            runner,
            lambda: fault.began + shrinking if fault.began else begun + seconds,
        )
        theirs = shrunk(fault, loaded, backend.name, number)
        ended = time.monotonic()
        if theirs is None or fault.report is None:
            return "no case failed in time"
        failure = fault.report.failure
        assert failure is not None
        if failure.kind in (Kind.CRASH, Kind.HANG):
            return f"its process ends: {failure.kind}"
        first = fault.failing[0]
        finding = Finding(
            signature=failure.signature(name),
            target=loaded.target,
            operator=loaded.kernel.operator.name,
            device=backend.name,
            case=runner.pin(first),
            first=first,
            failure=failure,
            declaration=loaded.kernel.declaration,
            fingerprint=host_fingerprint(device=runner.device_name),
            seed=number,
        )
        stages: dict[str, float] = {}
        began = time.perf_counter()
        with timed(stages):
            final = lifecycle.process(
                runner,
                finding,
                seconds=lambda: seconds,
                stopped=lambda: False,
                save=lambda kept: kept,
            )
        stages["all"] = time.perf_counter() - began
        minimum = replace(finding, case=runner.pin(theirs))
        assert minimum.nonzero_elements is not None
        assert final.nonzero_elements is not None
        if final.reduction is None:
            return f"it was not confirmed: {final.history[-1].note}"
        return Row(
            name,
            first.elements,
            (minimum.input_elements, minimum.nonzero_elements),
            ended - fault.began,
            (final.input_elements, final.nonzero_elements),
            stages,
            final.reduction.evaluations,
        )
    finally:
        runner.close()


def printed(row: Row) -> str:
    """Return a row of the table."""
    stages = " + ".join(
        f"{row.stages.get(s, 0.0):.1f}" for s in ("confirm", "reduce", "explain")
    )
    cells = [
        row.kernel,
        str(row.first),
        f"{row.ours[0]} ({row.ours[1]})",
        f"{row.theirs[0]} ({row.theirs[1]})",
        f"{row.seconds:.1f}",
        stages,
        str(row.evaluations),
        f"{row.their_seconds:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD: Final = """\
| witness | elements found | kfuzz (not 0) | Hypothesis (not 0) | kfuzz s | \
confirm + reduce + explain s | cases | Hypothesis s |
|---|---|---|---|---|---|---|---|"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each of both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--alone", action="store_true", help="do not let Hypothesis shrink"
    )
    parser.add_argument("--only", nargs="*", default=list(CHOSEN), metavar="WITNESS")
    options = parser.parse_args()
    entries = {
        e.witness.kernel: e for e in roster(options.device) if e.role is Role.VIOLATING
    }
    backends: dict[str, Backend] = {}
    rows: list[Row] = []
    print(HEAD, flush=True)
    try:
        for name in options.only:
            entry = entries.get(name)
            if entry is None:
                print(f"{name}: not on {options.device}", file=sys.stderr)
                continue
            if entry.backend not in backends:
                backends[entry.backend] = Backend(entry.backend)
            backends[entry.backend].quiet = True
            try:
                row = compared(
                    entry,
                    backends[entry.backend],
                    seconds=options.seconds,
                    number=options.seed,
                    alone=options.alone,
                )
            except KfuzzError as error:
                row = str(error)
            if isinstance(row, str):
                print(f"{name}: {row}", file=sys.stderr, flush=True)
                continue
            rows.append(row)
            print(printed(row), flush=True)
    finally:
        for backend in backends.values():
            backend.close()
    if not rows:
        return 1
    print(
        f"\nmedian: kfuzz {statistics.median(r.seconds for r in rows):.1f} s, "
        f"Hypothesis {statistics.median(r.their_seconds for r in rows):.1f} s"
    )
    larger = [r.kernel for r in rows if r.ours[0] > r.theirs[0]]
    for kernel in larger:
        print(f"larger than Hypothesis's result: {kernel}", file=sys.stderr)
    return 1 if larger else 0


if __name__ == "__main__":
    sys.exit(main())
