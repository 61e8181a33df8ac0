"""A plot of what tools have seen after how many seconds, as steps."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEAST_SECONDS: Final = 0.01
Style = tuple[str, str, float]


@dataclass(frozen=True)
class Curve:
    """What one tool saw.

    Attributes:
        tool: its name.
        seconds: until each thing that it saw, ascending.
        unit: by how much each raises the curve.
        alarmed: correct kernels that it calls wrong.
        style: colour, dashes and width.
    """

    tool: str
    seconds: tuple[float, ...]
    unit: float
    alarmed: int
    style: Style

    @property
    def label(self) -> str:
        """Its line in the legend."""
        if not self.alarmed:
            return self.tool
        kernels = "kernel" if self.alarmed == 1 else "kernels"
        return f"{self.tool} ({self.alarmed} correct {kernels} called wrong)"


def draw(
    curves: Sequence[Curve],
    path: Path,
    *,
    seconds: float,
    top: float,
    title: str,
    labels: tuple[str, str],
) -> None:
    """Write the plot, the same file for the same numbers.

    Args:
        curves: of the tools; the first is drawn above the others.
        path: an SVG or PNG file.
        seconds: the end of the horizontal axis, which is logarithmic.
        top: as high as a curve can get.
        title: above it.
        labels: of the axes.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = path.name
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.8), layout="constrained")
    for number, curve in enumerate(curves):
        colour, dashes, width = curve.style
        heights = [curve.unit * n for n in range(len(curve.seconds) + 1)]
        axes.step(
            [LEAST_SECONDS, *(max(t, LEAST_SECONDS) for t in curve.seconds), seconds],
            [*heights, heights[-1]],
            where="post", color=colour, linestyle=dashes, linewidth=width,
            label=curve.label, zorder=2 if number else 3,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(LEAST_SECONDS, seconds)
    axes.set_ylim(0, 1.03 * top)
    axes.axhline(top, color="#bbbbbb", linewidth=0.8, zorder=1)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7.5, frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    is_text = path.suffix == ".svg"
    figure.savefig(path, metadata={"Date": None} if is_text else None)
    pyplot.close(figure)
    if is_text:  # a path in one line
        path.write_text(re.sub(r' ?\n(?=[A-Za-z"])', " ", path.read_text()))
