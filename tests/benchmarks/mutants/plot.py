"""Draw what a campaign of mutants came to.

    python -m tests.benchmarks.mutants.plot mutants.json \
        tests/benchmarks/plots/mutants.svg

Which share of the mutants that can be killed each tool has told from correct kernels
after how many seconds. What a tool says of a mutant whose correct kernel it calls wrong
too does not count; how many such kernels there are stands in the legend.
"""

import argparse
from pathlib import Path
from typing import Final

from tests.benchmarks.mutants import report
from tests.benchmarks.mutants.asking import KFUZZ
from tests.benchmarks.mutants.campaign import Settings, State
from tests.benchmarks.mutants.mutator import mutants
from tests.benchmarks.step_plot import Curve, Style, draw

# Distinct in grey too: by dash as well as by colour.
STYLES: Final[tuple[Style, ...]] = (
    ("#0b62a4", "-", 2.4),
    ("#8c8c8c", "-", 1.6),
    ("#8c8c8c", "--", 1.6),
    ("#55a868", "-", 1.6),
    ("#c44e52", "--", 1.6),
    ("#c44e52", "-", 1.6),
    ("#dd8452", "--", 1.6),
    ("#dd8452", "-", 1.6),
    ("#937860", "-", 1.6),
)


def curves(told: report.Told) -> list[Curve]:
    """Return a curve for each tool that searched anything, kfuzz first."""
    made = []
    for tool, style in zip(told.tools, STYLES, strict=False):
        kills = sorted(r.seconds for r in report.killed(told, tool))
        searched = len(told.searched(tool))
        alarmed = len({r.unit for r in told.false_alarms(tool)})
        if searched:
            made.append(Curve(tool, tuple(kills), 100 / searched, alarmed, style))
    return sorted(made, key=lambda curve: curve.tool != KFUZZ)


def drawn(told: report.Told, seconds: float, path: Path) -> None:
    """Write the plot, its axis up to so many seconds."""
    number = max((len(told.searched(tool)) for tool in told.tools), default=0)
    where = "CUDA" if told.device == "cuda" else "Triton's interpreter"
    labels = ("seconds until the mutant is killed", "mutants killed, %")
    title = f"{number} mutants of correct kernels, {where}"
    draw(curves(told), path, seconds=seconds, top=100, title=title, labels=labels)


def main() -> int:
    """Read the state and write the plot."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("state", type=Path, help="of mutants/run.py --state")
    parse.add_argument("plot", type=Path, help="SVG or PNG")
    options = parse.parse_args()
    settings = Settings.of(options.state)
    told = report.told(mutants(), State(options.state, settings), settings.tools)
    longest = max((r.seconds for r in told.rows), default=0.0)
    drawn(told, max(longest, settings.budget.seconds), options.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
