"""How wide the running-error shadow is beside the formulas of four operators.

    python -m tests.benchmarks.shadow_against_formulas [--speed]

The ratio of half-widths, both without a safety factor, over the decided elements of
every family with a finite result: its median, the 1st and 99th percentiles.

With --speed instead, of these operators and of others of rows: processor time of the
oracle in float64 on all families as the members of a batch, and what the bound takes by
the operator's own formula and by the shadow of its oracle or its forms, medians over
sizes, in milliseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from tests.benchmarks.rows import OPERATORS, Config, configs  # isort: skip  (it sets the paths)

from kfuzz.contracts import operators
from kfuzz.contracts.oracle import _evaluated as evaluated
from kfuzz.contracts.oracle import accept
from kfuzz.numerics.acceptance import FINITE, Acceptance, tightened


def widths(config: Config) -> torch.Tensor:
    """Return the ratios of half-widths where both are finite and not 0."""
    operator = OPERATORS[config.operator]
    problem = config.problem(operator.defaults)
    formula = accept(operator, problem)["y"]
    shadow = tightened(accept(replace(operator, error_model=None), problem)["y"])
    usable = _decided(formula) & _decided(shadow)
    ours, theirs = ((a.high - a.low)[usable] for a in (shadow, formula))
    some = (ours > 0) & (theirs > 0)
    return ours[some] / theirs[some]


def _decided(a: Acceptance) -> torch.Tensor:
    return (a.classes == FINITE) & ~a.undecided & ~a.ambiguous


ROWS = (
    "relu", "exp", "silu", "gelu", "elu", "softplus", "softmax", "log_softmax",
    "logsumexp", "var", "mean", "sum", "l2_normalize", "layer_norm", "matmul",
)  # fmt: skip


def times(name: str, config: Config) -> tuple[float, float, float]:
    """Return what the oracle, the operator's bound and the shadow's take, in ms."""
    operator = operators.OPERATORS[name]
    problem = config.problem(operator.defaults)
    scalars = {n: p.default for n, p in operator.scalars.items()}
    given = {n: v for n, v in problem.scalars.items() if n in operator.inputs}
    problem = replace(problem, scalars={**scalars, **given})
    shadow = replace(operator, error_model=None)
    return (
        _least(lambda: evaluated(operator, problem)),
        _least(lambda: accept(operator, problem)),
        _least(lambda: accept(shadow, problem)),
    )


def _least(call: Callable[[], object]) -> float:
    found = []
    for _ in range(3):
        began = time.process_time()
        call()
        found.append(1e3 * (time.process_time() - began))
    return min(found)


def speed(largest: int) -> None:
    """Print the table of times."""
    print("| operator | oracle | as judged | shadow |\n|---|---|---|---|")
    for name in ROWS:
        source = name if name in OPERATORS else "softmax"
        made = [
            times(name, config)
            for config in configs(source, seeds=1, largest=largest, dtypes=("float32",))
            if config.size > 1
        ]
        cells = (
            f"{statistics.median(column):.2f}" for column in zip(*made, strict=True)
        )
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--largest", type=int, default=1025)
    parser.add_argument("--speed", action="store_true", help="times instead")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.speed:
        speed(given.largest)
        return
    print("| operator, dtype | 1 % | median | 99 % | elements |\n|---|---|---|---|---|")
    for name in OPERATORS:
        found: dict[str, list[torch.Tensor]] = {}
        for config in configs(name, seeds=given.seeds, largest=given.largest):
            found.setdefault(config.dtype, []).append(widths(config))
        for dtype, parts in found.items():
            ratio = torch.cat(parts).sort().values
            at = [ratio[int(q * (len(ratio) - 1))] for q in (0.01, 0.5, 0.99)]
            cells = " | ".join(f"{float(v):.3g}" for v in at)
            print(f"| {name}, {dtype} | {cells} | {len(ratio)} |")


if __name__ == "__main__":
    main()
