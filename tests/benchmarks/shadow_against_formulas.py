"""How wide the running-error shadow is beside the formulas of four operators.

    python -m tests.benchmarks.shadow_against_formulas

The ratio of half-widths, both without a safety factor, over the decided elements of
every family with a finite result: its median, the 1st and 99th percentiles.
"""

import argparse
from dataclasses import replace

import torch

from tests.benchmarks.rows import OPERATORS, Config, configs  # isort: skip  (it sets the paths)

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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--largest", type=int, default=1025)
    given = parser.parse_args()
    torch.set_num_threads(1)
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
