"""Draw what a campaign of mutants came to.

    python tests/benchmarks/mutants/plot.py mutants.json \
        tests/benchmarks/plots/mutants.svg

Which share of the mutants that can be killed each tool has told from correct kernels
after how many seconds. What a tool says of a mutant whose correct kernel it calls wrong
too does not count; how many such kernels there are stands in the legend.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from mutants import report
from mutants.asking import KFUZZ
from mutants.campaign import Settings, State
from mutants.mutator import mutants

# Distinct in grey too: by dash as well as by colour.
STYLES: Final = (
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
LEAST_SECONDS: Final = 0.01


@dataclass(frozen=True)
class Curve:
    """One tool's kills.

    Attributes:
        tool: its name.
        seconds: until each kill, ascending.
        searched: mutants that it searched and that can be killed.
        alarmed: correct kernels that it calls wrong.
    """

    tool: str
    seconds: tuple[float, ...]
    searched: int
    alarmed: int


def curves(told: report.Told) -> list[Curve]:
    """Return a curve for each tool that searched anything."""
    made = []
    for tool in told.tools:
        kills = sorted(r.seconds for r in report.killed(told, tool))
        searched = len(told.searched(tool))
        alarmed = len({r.unit for r in told.false_alarms(tool)})
        if searched:
            made.append(Curve(tool, tuple(kills), searched, alarmed))
    return made


def draw(told: report.Told, seconds: float, path: Path) -> None:
    """Write the plot, its axis up to so many seconds."""
    import matplotlib

    matplotlib.use("Agg")
    # The same file for the same numbers.
    matplotlib.rcParams["svg.hashsalt"] = path.name
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.8), layout="constrained")
    made = curves(told)
    for curve, style in zip(made, STYLES, strict=False):
        label = curve.tool
        if curve.alarmed:
            kernels = "kernel" if curve.alarmed == 1 else "kernels"
            label += f" ({curve.alarmed} correct {kernels} called wrong)"
        colour, dashes, width = style
        shares = [100 * n / curve.searched for n in range(len(curve.seconds) + 1)]
        axes.step(
            [LEAST_SECONDS, *(max(t, LEAST_SECONDS) for t in curve.seconds), seconds],
            [*shares, shares[-1]],
            where="post", color=colour, linestyle=dashes, linewidth=width,
            label=label, zorder=3 if curve.tool == KFUZZ else 2,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(LEAST_SECONDS, seconds)
    axes.set_ylim(0, 103)
    axes.axhline(100, color="#bbbbbb", linewidth=0.8, zorder=1)
    axes.set_xlabel("seconds until the mutant is killed")
    axes.set_ylabel("mutants killed, %")
    number = max((c.searched for c in made), default=0)
    where = "CUDA" if told.device == "cuda" else "Triton's interpreter"
    axes.set_title(f"{number} mutants of correct kernels, {where}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7.5, frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def main() -> int:
    """Read the state and write the plot."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("state", type=Path, help="of mutants/run.py --state")
    parse.add_argument("plot", type=Path, help="SVG or PNG")
    options = parse.parse_args()
    settings = Settings.of(options.state)
    told = report.told(mutants(), State(options.state, settings), settings.tools)
    longest = max((r.seconds for r in told.rows), default=0.0)
    draw(told, max(longest, settings.budget.seconds), options.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
