"""What a check tells, as text and as plain values."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

from kfuzz.check.checking import Answer, CheckedKernel, JudgedCase
from kfuzz.report.text import counted, one_line

# Labels stand in a column of this width.
_LABEL: Final = 13


def lines_of(checked: CheckedKernel) -> Iterator[str]:
    """Yield what a check tells of a kernel, line by line."""
    yield one_line(checked.kernel)
    brought = f", oracle {checked.oracle}" if checked.oracle else ""
    yield _line("operator", f"{checked.signature}{brought}")
    by_dtype: dict[str, list[JudgedCase]] = {}
    for case in checked.cases:
        by_dtype.setdefault(case.dtype, []).append(case)
    for dtype, cases in by_dtype.items():
        yield _line(dtype, "; ".join(_grouped(cases)))
    if checked.left_out:
        left_out = counted(checked.left_out, "case")
        yield _line("left out", f"{left_out}, for want of time")
    if checked.uncompared:
        yield _line("no value", f"was compared: {checked.uncompared}")
    if checked.decided:
        yield _line("judged", ", ".join(checked.decided))
    if checked.open:
        yield _line("in a search", ", ".join(checked.open))
    for name, scope in checked.inapplicable.items():
        yield _line("not judged", f"{name}: it binds {scope}")


def document(kernels: Iterable[CheckedKernel], *, interrupted: bool) -> dict[str, Any]:
    """Return the document of `kfuzz check`."""
    made = []
    for kernel in kernels:
        told = asdict(kernel)
        told["cases"] = [
            {**case, "answer": str(case["answer"])} for case in told["cases"]
        ]
        told["uncompared"] = kernel.uncompared or None
        made.append(told)
    return {"interrupted": interrupted, "kernels": made}


def _grouped(cases: Iterable[JudgedCase]) -> Iterator[str]:
    """Yield the layouts that had one answer, with it."""
    found: dict[tuple[Answer, str], list[str]] = {}
    for case in cases:
        found.setdefault((case.answer, case.message), []).append(case.layout)
    for (answer, message), layouts in found.items():
        text = f"{answer}: {', '.join(layouts)}"
        yield f"{text} ({one_line(message)})" if message else text


def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}} {one_line(text)}"
