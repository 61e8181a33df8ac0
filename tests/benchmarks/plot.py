"""Draw what `to_first_falsification.py` measured.

    python tests/benchmarks/plot.py results.json tests/benchmarks/plots/falsified.svg

How many planted faults each tool has told from correct kernels after how many seconds:
the median over the seeds, on a logarithmic axis. What a tool says of a kernel whose
correct twin it calls wrong too does not count; that many stand in the legend.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from peers.faults import FAULTS
from to_first_falsification import KFUZZ, Search, median, rows

# Distinct in grey too: by dash as well as by colour.
STYLES: Final = (
    ("#0b62a4", "-", 2.4),
    ("#c44e52", "--", 1.6),
    ("#c44e52", "-", 1.6),
    ("#dd8452", "--", 1.6),
    ("#dd8452", "-", 1.6),
    ("#55a868", "-", 1.6),
    ("#8c8c8c", "-", 1.6),
)
LEAST_SECONDS: Final = 0.01


def curves(
    searches: Sequence[Search],
) -> list[tuple[str, list[float], int]]:
    """Return name, ascending seconds and number of false alarms of each tool."""
    known = {s.kernel for s in searches}
    faults = [f for f in FAULTS if f.kernel in known]
    made = []
    for row in rows(searches, faults):
        own = [s for s in searches if s.tool == row.tool]
        times = [
            median([s for s in own if s.kernel == kernel], lambda s: s.seconds)
            for kernel in row.told
        ]
        made.append((row.tool, sorted(times), len(row.alarmed)))
    return made


def draw(
    searches: Sequence[Search], seconds: float, path: Path, *, where: str = ""
) -> None:
    """Write the plot; `where` says where kernels ran."""
    import matplotlib

    matplotlib.use("Agg")
    # The same file for the same numbers.
    matplotlib.rcParams["svg.hashsalt"] = path.name
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.8), layout="constrained")
    total = len({s.kernel for s in searches if not s.correct})
    every = curves(searches)
    for (tool, times, alarmed), style in zip(every, STYLES, strict=False):
        label = tool
        if alarmed:
            kernels = "kernel" if alarmed == 1 else "kernels"
            label += f" ({alarmed} correct {kernels} called wrong)"
        colour, dashes, width = style
        axes.step(
            [LEAST_SECONDS, *(max(t, LEAST_SECONDS) for t in times), seconds],
            [0, *range(1, len(times) + 1), len(times)],
            where="post", color=colour, linestyle=dashes, linewidth=width,
            label=label, zorder=3 if tool == KFUZZ else 2,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(LEAST_SECONDS, seconds)
    axes.set_ylim(0, 1.03 * total)
    axes.axhline(total, color="#bbbbbb", linewidth=0.8, zorder=1)
    axes.set_xlabel("seconds until the fault is seen")
    axes.set_ylabel("faults told from correct kernels")
    axes.set_title(f"{total} planted faults, {where}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7.5, frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def main() -> int:
    """Read the results and write the plot."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("results", type=Path, help="of to_first_falsification.py --json")
    parse.add_argument("plot", type=Path, help="SVG or PNG")
    options = parse.parse_args()
    stored: dict[str, Any] = json.loads(options.results.read_text())
    searches = [Search(**s) for s in stored["searches"]]
    longest = max((s.seconds for s in searches), default=math.nan)
    seconds = max(stored["budget"]["seconds"], longest)
    on_cpu = stored.get("device", "cpu") == "cpu"
    where = "CPU and Triton's interpreter" if on_cpu else "CUDA"
    draw(searches, seconds, options.plot, where=where)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
