"""A finding as the page shows it."""

from dataclasses import dataclass
from typing import Final

from kfuzz.core.codec import encode
from kfuzz.core.error_map import ErrorMap
from kfuzz.report.accesses import draw_accesses
from kfuzz.report.drawing import draw_case, draw_failure, one_line, plain, shown_path
from kfuzz.report.finding_text import gpu_hint, replay_line
from kfuzz.report.gathered import Shown
from kfuzz.report.html.grids import Grid, grids
from kfuzz.report.html.maps import MapView, map_view
from kfuzz.report.pages import TRACE_LINES
from kfuzz.report.promises import title

MAX_IMAGE_BYTES: Final = 3_000_000
"""What all images of maps may take together; the finding itself is not shortened."""

_MAX_LINE: Final = 1_000
_MAX_LINES: Final = 40

STATES: Final = {
    "regressed": ("✗", "v-violates", "regressed: it was fixed"),
    "confirmed": ("✗", "v-violates", "confirmed in fresh processes"),
    "new": ("?", "v-under_specified", "not confirmed"),
    "flaky": ("≈", "v-under_specified", "flaky: fails in some runs only"),
    "unreproduced": ("≈", "v-under_specified", "unreproduced: seen once"),
    "known": ("K", "v-known", "known"),
    "fixed": ("✓", "v-conforms", "fixed"),
}
"""Sign, class and words of each state of a finding."""


@dataclass(frozen=True)
class FindingView:
    """One finding; all texts are plain, the template escapes them.

    Attributes:
        anchor: its id in the page.
        id: its id in the corpus.
        sign, level, state: how its state is shown.
        contract: id of the contract class.
        contract_anchor: of the contract's eight parts, "" where they are unknown.
        kernel: node id.
        message: one line.
        facts: label and text.
        grids: the minimal input.
        failing: the failing element.
        maps: each with what it is of.
        left_out: why a map is not shown, "" if none is missing.
        why: the explanation.
        accesses: memory accesses at fault, drawn.
        first: the input as first found.
        trace: the end of the kernel's traceback.
        history: how it came to its state.
        replay: the command.
    """

    anchor: str
    id: str
    sign: str
    level: str
    state: str
    contract: str
    contract_anchor: str
    kernel: str
    message: str
    facts: tuple[tuple[str, str], ...]
    grids: tuple[Grid, ...]
    failing: tuple[str, ...]
    maps: tuple[tuple[str, MapView], ...]
    left_out: str
    why: tuple[str, ...]
    accesses: str
    first: tuple[str, ...]
    trace: str
    history: tuple[str, ...]
    replay: str


class FindingViews:
    """Makes views, within what their images may take together.

    Args:
        options: what the replay commands need to find the corpus.
    """

    def __init__(self, options: str) -> None:
        self._options = options
        self._images = 0

    def view(self, shown: Shown, anchor: str, contract_anchor: str) -> FindingView:
        """Return a finding as the page shows it."""
        finding = shown.finding
        failure, explanation = finding.failure, finding.explanation
        sign, level, words = STATES[finding.state]
        if shown.reason and shown.known:
            words = f"{words}: {shown.reason}"
        why = list(explanation.lines) if explanation else []
        if explanation and explanation.features:
            why.append(f"needs: {', '.join(explanation.features)}")
        if explanation and not explanation.complete:
            why.append("the time ran out before everything was varied")
        maps, left_out = self._maps(failure.errors, finding.first_errors)
        trace = plain(failure.trace).splitlines()[-TRACE_LINES:]
        return FindingView(
            anchor=anchor,
            id=finding.id,
            sign=sign,
            level=level,
            state=_short(words),
            contract=finding.signature.contract,
            contract_anchor=contract_anchor,
            kernel=one_line(shown.kernel),
            message=_short(failure.message),
            facts=tuple(_facts(shown)),
            grids=tuple(grids(finding.case)),
            failing=(*filter(None, [gpu_hint(finding)]), *draw_failure(failure)),
            maps=maps,
            left_out=left_out,
            why=_lines(why),
            accesses="\n".join(draw_accesses(failure.accesses, finding.case)),
            first=_lines(draw_case(finding.first)),
            trace="\n".join(line[:_MAX_LINE] for line in trace),
            history=_lines([f"{c.when} {c.state} {c.note}" for c in finding.history]),
            replay=replay_line(shown, self._options),
        )

    def _maps(
        self, minimal: ErrorMap | None, first: ErrorMap | None
    ) -> tuple[tuple[tuple[str, MapView], ...], str]:
        named = [("of the minimal input", minimal), ("as first found", first)]
        if minimal == first:
            named.pop()
        made: list[tuple[str, MapView]] = []
        for name, errors in named:
            if errors is None:
                continue
            view = map_view(errors)
            if self._images + len(view.image) > MAX_IMAGE_BYTES:
                return tuple(made), "a map is left out: this page has very many"
            self._images += len(view.image)
            made.append((name, view))
        return tuple(made), ""


def _facts(shown: Shown) -> list[tuple[str, str]]:
    finding = shown.finding
    signature = finding.signature
    kind = f"{signature.kind} {signature.detail}".strip()
    elements = finding.input_elements
    counts = "1 element" if elements == 1 else f"{elements} elements"
    if finding.nonzero_elements is not None:
        counts += f", {finding.nonzero_elements} of them not zero"
    environment = encode(finding.fingerprint).items()
    facts = [
        ("contract", f"{signature.contract}: {title(signature.contract)}"),
        ("operator", f"{finding.operator}, run on {finding.device}"),
        ("kind", f"{kind} of {signature.output}" if signature.output else kind),
        ("minimal input", counts),
        ("stored", shown_path(shown.path) if shown.path else ""),
        ("environment", ", ".join(_said(k, v) for k, v in environment if v)),
    ]
    if finding.reduction is not None:
        runs = f"{finding.reduction.evaluations} runs"
        facts.insert(4, ("reduced", f"{runs}; stopped by: {finding.reduction.stopped}"))
    return [(label, _short(text)) for label, text in facts if text]


def _said(name: str, value: str | list[str]) -> str:
    return ", ".join(value) if isinstance(value, list) else f"{name} {value}"


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"


def _lines(texts: list[str]) -> tuple[str, ...]:
    shown = tuple(_short(text) for text in texts[:_MAX_LINES])
    more = len(texts) - len(shown)
    return (*shown, f"… {more} more") if more else shown
