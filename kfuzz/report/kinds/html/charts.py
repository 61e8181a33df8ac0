"""Curves over time as plain numbers that the page draws as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.core.event import Progress

WIDTH: Final = 640
HEIGHT: Final = 200
# Room for the labels of the axes.
LEFT: Final = 64
BOTTOM: Final = 28
TOP: Final = 12
RIGHT: Final = 16
# Labels on an axis, about.
_TICKS: Final = 4


@dataclass(frozen=True)
class Tick:
    """A label of an axis and where it stands, in the units of the drawing."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """One curve.

    Attributes:
        title: what it shows.
        summary: first, last and greatest value, for those who do not see it.
        points: "x,y x,y …", in the units of the drawing.
        across: labels of the time axis.
        up: labels of the other axis.
    """

    title: str
    summary: str
    points: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


def charts(timeline: Sequence[Progress]) -> list[Chart]:
    """Return cases per second and kinds of cases visited over the time of a run.

    Empty for fewer than two points in time.
    """
    times = [0.0, *(p.elapsed_s for p in timeline)]
    cases = [0, *(p.cases for p in timeline)]
    strata = [0, *(p.strata for p in timeline)]
    rates = [
        (t1, (c1 - c0) / (t1 - t0))
        for t0, t1, c0, c1 in zip(times, times[1:], cases, cases[1:], strict=False)
        if t1 > t0
    ]
    if len(rates) < 2:
        return []
    made = [_chart("cases per second", rates)]
    if strata[-1]:
        visited = [(t, float(n)) for t, n in zip(times, strata, strict=True)]
        made.append(_chart("kinds of cases visited", visited))
    return made


def _chart(title: str, points: Sequence[tuple[float, float]]) -> Chart:
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    most_x = max((x for x, _ in finite), default=1.0) or 1.0
    most_y = max((y for _, y in finite), default=1.0) or 1.0
    top_y = _ticks(most_y)[-1]

    def at_x(x: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * x / most_x, 1)

    def at_y(y: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * y / top_y, 1)

    drawn = " ".join(f"{at_x(x)},{at_y(y)}" for x, y in finite)
    last = _number(finite[-1][1]) if finite else "0"
    return Chart(
        title=title,
        summary=f"at most {_number(most_y)}, at the end {last}",
        points=drawn,
        across=tuple(
            Tick(at_x(x), f"{_number(x)} s") for x in _ticks(most_x) if x <= most_x
        ),
        up=tuple(Tick(at_y(y), _number(y)) for y in _ticks(top_y)),
    )


def _ticks(most: float) -> list[float]:
    """Return round numbers from 0 to the first that is not below `most`."""
    rough = most / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough * 0.999)
    return [i * step for i in range(math.ceil(most / step - 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
