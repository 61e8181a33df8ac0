"""Draw what `to_first_falsification.py` measured.

    python -m tests.benchmarks.plot results.json falsified.svg

How many planted faults each tool has told from correct kernels after how many seconds:
the median over the seeds, on a logarithmic axis. What a tool says of a kernel whose
correct twin it calls wrong too does not count; that many stand in the legend.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.peers.faults import FAULTS
from tests.benchmarks.step_plot import Curve, Style, draw
from tests.benchmarks.to_first_falsification import KFUZZ, Search, median, rows

# Distinct in grey too: by dash as well as by colour.
STYLES: Final[tuple[Style, ...]] = (
    ("#0b62a4", "-", 2.4),
    ("#c44e52", "--", 1.6),
    ("#c44e52", "-", 1.6),
    ("#dd8452", "--", 1.6),
    ("#dd8452", "-", 1.6),
    ("#55a868", "-", 1.6),
    ("#8c8c8c", "-", 1.6),
)


def curves(searches: Sequence[Search]) -> list[Curve]:
    """Return the curve of each tool, kfuzz first."""
    known = {s.kernel for s in searches}
    faults = [f for f in FAULTS if f.kernel in known]
    made = []
    for row, style in zip(rows(searches, faults), STYLES, strict=False):
        own = [s for s in searches if s.tool == row.tool]
        times = sorted(
            median([s for s in own if s.kernel == kernel], lambda s: s.seconds)
            for kernel in row.told
        )
        made.append(Curve(row.tool, tuple(times), 1.0, len(row.alarmed), style))
    return sorted(made, key=lambda curve: curve.tool != KFUZZ)


def drawn(
    searches: Sequence[Search], seconds: float, path: Path, *, where: str = ""
) -> None:
    """Write the plot; `where` says where kernels ran."""
    total = len({s.kernel for s in searches if not s.correct})
    labels = ("seconds until the fault is seen", "faults told from correct kernels")
    title = f"{total} planted faults, {where}"
    draw(curves(searches), path, seconds=seconds, top=total, title=title, labels=labels)


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
    drawn(searches, seconds, options.plot, where=where)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
