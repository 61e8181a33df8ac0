"""What probes read of kernels: as a table, as a document, as a declaration to write."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kfuzz.core.arithmetic_facts import KernelReadings, Outcome, Reading
from kfuzz.probe.orders import outline, svg
from kfuzz.probe.tree import height
from kfuzz.report.text import one_line

_COLUMNS: Final = ("probe", "is", "declares", "verdict")
_STYLES: Final = {
    Outcome.DIFFERS: "bold red",
    Outcome.BETTER: "green",
    Outcome.UNDECIDED: "yellow",
    Outcome.NOT_APPLICABLE: "dim",
}


def console(out: TextIO) -> Console:
    """Return a console for tables: lines are wrapped on a terminal only."""
    wide = None if out.isatty() else 200
    return Console(
        file=out, highlight=False, markup=False, emoji=False, width=wide,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )  # fmt: skip


def print_readings(
    kernels: Sequence[KernelReadings],
    console: Console,
    *,
    verbose: bool = False,
    adopt: bool = False,
) -> None:
    """Print a table for each kernel and format, the orders found below it.

    Args:
        kernels: what was read of each.
        console: where it is printed.
        verbose: raw observations too, and probes that do not concern a kernel.
        adopt: the declaration that would state what was found.
    """
    for kernel in kernels:
        for formats in dict.fromkeys((r.dtype, r.output) for r in kernel.readings):
            own = [r for r in kernel.readings if (r.dtype, r.output) == formats]
            named = " to ".join(dict.fromkeys(formats))
            title = f"{kernel.kernel} ({kernel.operator}), {named}"
            console.print(Text(f"\n{title}", style="bold"))
            _print_format(own, console, verbose=verbose)
        if adopt:
            for line in adoption(kernel):
                console.print(Text(line))


def _print_format(own: Sequence[Reading], console: Console, *, verbose: bool) -> None:
    silent = [r.probe for r in own if _says_nothing(r)]
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True)
    for column in _COLUMNS:
        table.add_column(column)
    for reading in own:
        if _says_nothing(reading) and not verbose:
            continue
        terms = f" ({reading.terms} terms)" if reading.probe == "order" else ""
        told = "; ".join(filter(None, (reading.found, reading.reason)))
        table.add_row(
            Text(reading.probe + terms),
            Text(one_line(told)),
            Text(reading.declared),
            Text(reading.outcome.value, style=_STYLES.get(reading.outcome, "")),
        )
        if reading.finding:
            table.add_row("", Text(f"finding {reading.finding}"), "", "")
        if verbose or reading.outcome in (Outcome.DIFFERS, Outcome.UNDECIDED):
            for line in reading.observed:
                table.add_row("", Text(one_line(line), style="dim"), "", "")
    console.print(table)
    if silent and not verbose:
        names = ", ".join(dict.fromkeys(silent))
        console.print(Text(f"not applicable: {names}", style="dim"))
    trees = [(r.terms, r.tree) for r in own if r.tree is not None]
    for count, tree in trees[-1:]:
        console.print(Text(f"order of {count} terms:"))
        for line in outline(tree, indent="  "):
            console.print(Text(line))


def _says_nothing(reading: Reading) -> bool:
    return reading.outcome is Outcome.NOT_APPLICABLE and not reading.found


def adoption(kernel: KernelReadings) -> Iterator[str]:
    """Yield the declaration that would say what was found, and what it rests on."""
    claims = kernel.claims
    if not claims:
        yield f"\n{kernel.kernel}: nothing else to declare"
        return
    yield f"\n{kernel.kernel}: to declare what was found, give kfuzz.kernel"
    for key, value in claims.items():
        yield f"  {key}={value!r},"
    yield "It holds for what was probed. Nothing is changed unless you write it."


def document(
    kernels: Sequence[KernelReadings], device: str, *, interrupted: bool
) -> dict[str, Any]:
    """Return the document of `kfuzz probe --format json`, findings left out."""
    return {
        "device": device,
        "interrupted": interrupted,
        "kernels": [
            {
                "kernel": kernel.kernel,
                "operator": kernel.operator,
                "calls": kernel.calls,
                "claims": dict(kernel.claims),
                "readings": [_reading(r) for r in kernel.readings],
            }
            for kernel in kernels
        ],
    }


def _reading(reading: Reading) -> dict[str, Any]:
    tree = None
    if reading.tree is not None:
        tree = {"height": height(reading.tree), "order": reading.tree}
    return {
        "probe": reading.probe,
        "dtype": reading.dtype,
        "output": reading.output,
        "terms": reading.terms or None,
        "is": reading.found or None,
        "declares": reading.declared or None,
        "verdict": reading.outcome.value,
        "reason": reading.reason or None,
        "claims": dict(reading.claims),
        "tree": tree,
        "observed": list(reading.observed),
        "finding": reading.finding or None,
    }


def drawing(kernels: Sequence[KernelReadings]) -> str:
    """Return the longest order of each kernel and format as SVG, "" without any."""
    drawn = {}
    for kernel in kernels:
        for r in kernel.readings:
            if r.tree is not None:
                title = f"{kernel.kernel}, {r.dtype}, {r.terms} terms: {r.found}"
                drawn[kernel.kernel, r.dtype, r.output] = (title, r.tree)
    return svg(list(drawn.values())) if drawn else ""
