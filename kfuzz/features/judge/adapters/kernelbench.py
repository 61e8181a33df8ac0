"""KernelBench: `eval_kernel_against_ref`, with its arguments and its result.

Facts: github.com/ScalingIntelligence/KernelBench, src/kernelbench/eval.py.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.core.errors import HarnessError, UsageError
from kfuzz.features.judge.adapters.rewards import judge_with, program
from kfuzz.features.judge.service.judge import Ruling

# What KernelBench does to a reference for a precision: floating numbers alone are
# converted here.
_CONVERTED: Final = Path(__file__).with_name("kernelbench.py.jinja")


@dataclass
class KernelExecResult:
    """What KernelBench's class of this name holds; times are never measured here.

    Attributes:
        compiled: whether the candidate could be built.
        correctness: whether it conforms.
        metadata: "verdict", "reward", "cases", "seconds", and where it does not conform
            "correctness_issue" or "compilation_error", and "finding".
        runtime: -1.0, as where KernelBench measures none.
        runtime_stats: likewise {}.
        ref_runtime: likewise -1.0.
        ref_runtime_stats: likewise {}.
    """

    compiled: bool = False
    correctness: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    runtime: float = -1.0
    runtime_stats: dict[str, Any] = field(default_factory=dict)
    ref_runtime: float = -1.0
    ref_runtime_stats: dict[str, Any] = field(default_factory=dict)

    def model_dump(self) -> dict[str, Any]:
        """Return it as a dictionary, as the class of pydantic's does."""
        return asdict(self)


def eval_kernel_against_ref(
    original_model_src: str,
    custom_model_src: str,
    seed_num: int = 42,
    num_correct_trials: int = 1,
    num_perf_trials: int = 10,
    measure_performance: bool = False,
    timing_method: str = "cuda_event",
    verbose: bool = False,
    build_dir: Any = None,
    device: "torch.device | int | str | None" = None,
    backend: str = "cuda",
    precision: torch.dtype = torch.float32,
    check_for_excessive_speedup: bool = True,
    excessive_speedup_threshold: float = 10,
    *,
    options: Mapping[str, Any] | None = None,
) -> KernelExecResult:
    """Judge a candidate against a reference, both as texts.

    Args:
        original_model_src: the reference, which is trusted.
        custom_model_src: the candidate, which runs in a contained process.
        seed_num: everything drawn depends on it.
        num_correct_trials: of no effect: the time decides how many cases there are.
        num_perf_trials: of no effect, as the other arguments on timing and building.
        measure_performance: must be False.
        timing_method: of no effect.
        verbose: of no effect.
        build_dir: of no effect: builds lie in folders of the candidate's process.
        device: torch's, or a GPU's number; the first GPU by default.
        backend: of no effect.
        precision: what weights and floating inputs are converted to.
        check_for_excessive_speedup: of no effect.
        excessive_speedup_threshold: of no effect.
        options: as `kfuzz.Judge` takes them: `{"max_time": 20, "jobs": 4}`. Nothing is
            asked of NaN and infinities unless `nonfinite` says so.

    Raises:
        UsageError: if performance is to be measured, or the reference is not of the
            form.
        HarnessError: if kfuzz or the machine failed, which says nothing of the
            candidate: try again.
    """
    if measure_performance:
        raise UsageError(
            "kfuzz measures no performance", where="measure_performance",
            fix="judge first, then measure what conforms with KernelBench's own",
        )  # fmt: skip
    place = f"cuda:{device}" if isinstance(device, int) else str(device or "auto")
    given = {"device": place, "nonfinite": "undefined", **(options or {})}
    judge, reference = judge_with(**given), original_model_src
    claims: dict[str, Any] = {}
    if precision != torch.float32:
        reference = program(_CONVERTED, reference=reference, dtype=precision)
        # As the converted reference rounds the result of each of its operators.
        claims["intermediates"] = "output"
    task = judge.task(reference, **claims)
    made = judge.judge(custom_model_src, task=task, seed=seed_num)
    failed = made.verdict is Ruling.ERROR
    if failed and made.reward is None:
        raise HarnessError(made.reason)
    told = {n: made.document[n] for n in ("verdict", "reward", "cases", "seconds")}
    right = made.verdict is Ruling.CONFORMS
    if not right:
        told["compilation_error" if failed else "correctness_issue"] = made.reason
        told["finding"] = made.finding
    return KernelExecResult(not failed, right, told)
