"""Torch's own CPU kernels, by the names of their overloads: what is decided and found.

    python -m tests.benchmarks.aten                      # 300 cases of every overload
    python -m tests.benchmarks.aten --cases 50 --only 'add*' 'softmax.int'

Judges cases in processes that take overloads in turn. Prints a table: overload, cases,
cases of which a value was decided, undecided ones, rejections and findings. Exits with 1
on a finding that is not listed, with its reason, in `tests/benchmarks/aten_listed.py`, or
where nothing was decided.
"""

import argparse
import fnmatch
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

CASES: Final = 300
ELEMENTS: Final = 1 << 10
MODULE: Final = "tests.benchmarks.aten"
VALUES: Final = frozenset({"K-VAL-01", "C-CMP-03", "C-PRC-01", "C-PRC-02", "C-EXC-01"})


def searched(
    name: str, cases: int, given: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """Judge cases of one overload in this process.

    Args:
        name: of the overload.
        cases: how many.
        given: the implementation; torch's own by default.

    Returns:
        Counts, and per finding its class, kind and first message.
    """
    from kfuzz.contracts.aten.binding import bound
    from kfuzz.contracts.aten.schemas import overload
    from kfuzz.contracts.classes import CLASSES
    from kfuzz.core.budget import Depth, SizeBudget
    from kfuzz.core.recipe import Case
    from kfuzz.core.verdict import CaseReport, Verdict
    from kfuzz.engine.search.case_drawing import search_round, strategy_of
    from kfuzz.evaluation.evaluator import Evaluator, setting_of
    from tests.benchmarks.aten_listed import claims_of

    began = time.monotonic()
    kernel = bound(name, given or overload(name), name=name, **claims_of(name))
    budget = SizeBudget(ELEMENTS, ELEMENTS)
    classes = set(CLASSES) - {"C-ORD-03", "C-CMP-02"}
    evaluator = Evaluator(kernel, setting_of("cpu", budget, classes))
    counts: Counter[str] = Counter()
    findings: dict[str, str] = {}

    def take(case: Case) -> CaseReport | None:
        if counts["cases"] >= cases:
            return None
        counts["cases"] += 1
        report = evaluator.judge(case, Depth.BASE)
        if report.failure is not None and counts["failing"] < 5:
            report = evaluator.judge(case, Depth.FULL)
        found = report.failure
        if found is not None:
            counts["failing"] += 1
            key = f"{found.contract} {found.kind} {found.output} {case.data.dtype}"
            findings.setdefault(key, f"{found.message} | {_described(case)}")
        values = {report.verdicts.get(c) for c in VALUES}
        decided = Verdict.CONFORMS in values or Verdict.VIOLATES in values
        for what, holds in (
            ("decided", decided),
            ("rejected", report.refusal is not None),
            ("outside", bool(report.oracle_raised)),
            ("error", report.error is not None or report.unsupported is not None),
        ):
            counts[what] += holds
        for note in report.notes:
            counts[f"note: {note}"] += 1
        if report.error:
            findings.setdefault("error", report.error)
        if report.oracle_raised:
            findings.setdefault("outside", report.oracle_raised)
        return None

    strategy = strategy_of(kernel, budget)
    if strategy is not None:
        search_round(strategy, take, cases=cases, seed_value=7)
    return {
        "name": name,
        **counts,
        "findings": {k: v for k, v in findings.items() if " " in k},
        "other": {k: v for k, v in findings.items() if " " not in k},
        "seconds": round(time.monotonic() - began, 1),
    }


def _described(case: Any) -> str:
    tensors = [
        f"{n}: {s.dtype}{list(s.shape)} {s.fill.family if s.fill else ''}"
        f"{' strided' if s.strides else ''}{' plants' if s.plants else ''}"
        for n, s in case.tensors.items()
    ]
    scalars = [f"{n}={v!r}" for n, v in case.scalars.items()]
    return "; ".join([*tensors, *scalars])


def _row(made: dict[str, Any]) -> str:
    columns = [made.get(k, 0) for k in ("cases", "decided", "outside", "rejected")]
    text = " | ".join(str(c) for c in columns)
    found = "; ".join(made["findings"]) or "-"
    return f"| {made['name']} | {text} | {made.get('failing', 0)} | {found} |"


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--only", nargs="*", default=["*"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--slice", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.slice:
        import torch

        torch.set_num_threads(1)
        for name in options.slice.split():
            try:
                made = searched(name, options.cases)
            except Exception as error:
                made = {"name": name, "findings": {}, "other": {
                    "error": f"{type(error).__name__}: {error}"}}  # fmt: skip
            print(json.dumps(made), flush=True)
        return 0
    from kfuzz.contracts.aten.overloads import names

    wanted = [
        n for n in names() if any(fnmatch.fnmatchcase(n, g) for g in options.only)
    ]
    print("| overload | cases | decided | outside | rejected | failing | findings |")
    print("|---|---|---|---|---|---|---|")
    made: list[dict[str, Any]] = []
    parts = [wanted[i :: options.jobs] for i in range(options.jobs)]

    def run(part: list[str]) -> None:
        left = list(part)
        while left:
            command = [sys.executable, "-m", MODULE, "--cases", str(options.cases),
                       "--slice", " ".join(left)]  # fmt: skip
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            for line in process.stdout:
                result = json.loads(line)
                left.remove(result["name"])
                made.append(result)
                print(_row(result), flush=True)
                if options.verbose or result["other"].get("error"):
                    for key, text in {**result["findings"], **result["other"]}.items():
                        print(f"    {key}: {text}")
            if process.wait() and left:
                name = left.pop(0)
                died = {"name": name, "findings": {f"crash {process.returncode}": ""},
                        "other": {}}  # fmt: skip
                made.append(died)
                print(_row(died), flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, [p for p in parts if p]))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(made, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
