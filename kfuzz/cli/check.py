"""kfuzz check: whether a binding can be judged, in seconds."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kfuzz.cli.project import open_project
from kfuzz.cli.settings import DeviceOption, FormatOption, TargetsArgument
from kfuzz.cli.streams import ExitCode, code_of_search, print_each, report_error
from kfuzz.core.codec import encode
from kfuzz.core.errors import BindingError
from kfuzz.engine.workers import zygotes
from kfuzz.report.text import counted, one_line

if TYPE_CHECKING:
    from kfuzz.cli.checking import Answer, CheckedKernel, JudgedCase


# The result of a check as text and as plain values.

# Labels stand in a column of this width.
_LABEL: Final = 13


def lines_of(checked: CheckedKernel) -> Iterator[str]:
    """Yield the result of a check of a kernel, line by line."""
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


def document(
    kernels: Iterable[CheckedKernel],
    *,
    interrupted: bool,
    left: Iterable[BindingError] = (),
) -> dict[str, Any]:
    """Return the document of `kfuzz check`, with what is wrong with other files."""
    made = [encode(k) | {"uncompared": k.uncompared or None} for k in kernels]
    return {"interrupted": interrupted, "kernels": made, "errors": [*map(str, left)]}


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


# kfuzz check: whether a binding can be judged, before it is searched.


def check(
    targets: TargetsArgument = None,
    device: DeviceOption = "auto",
    format: FormatOption = "text",
) -> int:
    """Check in seconds that kernels can be judged; nothing is searched or stored.

    The binding and the oracle are tried on small cases. Then one case of ordinary data
    is judged for each data type and layout. The output lists which contracts these
    cases decide, which a search decides, and which do not bind the kernel. A file with
    a wrong binding is named, and the others are checked.

    Exit codes: 0 all cases hold, 1 a case violates a contract, 2 usage, a wrong
    binding, or an oracle that can judge nothing, 3 internal error, 4 no kernel, or no
    value of some kernel was compared, 5 device missing, or a kernel needs a GPU and
    there is none, 130 interrupted.
    """
    from kfuzz.cli.checking import Answer, check_all

    left: list[BindingError] = []

    project = open_project(None)
    wanted = project.targets(targets)
    zygotes.expect(device)  # it imports torch while this process does

    made, interrupted = print_each(
        lambda stop: check_all(
            wanted, root=project.root, device=device, stop=stop, failed=left
        ),
        sys.maxsize,
        format,
        lines=lambda kernel: [*lines_of(kernel), ""],
        document=partial(document, left=left),
        total=lambda kernels: (
            [f"Nothing was searched; {shlex.join(['kfuzz', 'run', *wanted])} does that"]
            if kernels
            else []
        ),
    )
    for error in left:
        report_error(error, verbose=False)
    code = code_of_search(
        interrupted=interrupted,
        violated=any(k.has(Answer.VIOLATES) for k in made),
        failed=any(k.has(Answer.ERROR) for k in made),
        ran=bool(made) and not any(k.uncompared for k in made),
        lacking=any(k.needs_gpu for k in made),
    )
    return ExitCode.USAGE if left and code is ExitCode.OK else code
