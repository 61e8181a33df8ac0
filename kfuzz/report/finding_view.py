"""A finding for people, as a value; all that shows one only lays this out.

Which parts there are, what each says, in which order and where room is short: here.
"""

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from shlex import quote
from typing import Final

from kfuzz.core.codec import encode
from kfuzz.core.errors import DecodeError
from kfuzz.core.finding import BESIDE, SHOWS, Explanation, Finding, Line, Patch, Target
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import (
    FAILING,
    VALUE_KINDS,
    Access,
    ErrorMap,
    Failure,
    Feature,
    Kind,
    State,
    in_digits,
)
from kfuzz.execution.device.backends import named
from kfuzz.report.promises import bound_contract, parts_of, titled
from kfuzz.report.tables import Shown, numbers, panels, place_in, scale
from kfuzz.report.text import (
    LABEL,
    Section,
    counted,
    draw_case,
    draw_scalar,
    draw_tensor,
    fact_lines,
    one_line,
    plain,
    section_lines,
    shown_path,
    table,
    tuple_text,
)
from kfuzz.store.files import read_source, read_toml
from kfuzz.targets.load import project_root

# Accesses at fault, each in words.

# Accesses put into words; they come one per line of source and place.
MAX_ACCESSES: Final = 12

_GAP: Final = "…"


def accesses_words(accesses: Sequence[Access]) -> list[str]:
    """Return each access in words, as many as are worth reading."""
    lines = list(map(access_words, accesses[:MAX_ACCESSES]))
    more = len(accesses) - MAX_ACCESSES
    return [*lines, f"{_GAP} and {more} more"] if more > 0 else lines


def access_words(access: Access) -> str:
    """Return one access as a sentence: what, where in the source, which memory."""
    place = access_place(access)
    head = one_line(access.access) + (f" {place}" if place else "")
    return f"{head}: {_memory(access)}"


def access_place(access: Access) -> str:
    """Return "at file.py:41, program (0, 0, 0)"; "" for native code."""
    line = f"at {one_line(access.line)}" if access.line else ""
    if access.program is None:
        return line
    link = f"{line}, program" if line else "in program"
    return f"{link} {tuple_text(access.program)}"


_MEANWHILE: Final = {"load": "loads meanwhile", "atomic": "does an atomic meanwhile"}


def _memory(access: Access) -> str:
    name = one_line(access.memory or access.argument) or "unknown memory"
    away = counted(abs(access.distance), "element")
    if access.program is None:
        away += " or more"  # a page that faults shows the least distance
    match access.where:
        case "after":
            text = f"{away} past the end of {name}"
        case "before":
            text = f"{away} before the start of {name}"
        case "slack":
            text = f"in a gap of {name}, {away} from the nearest of its own"
        case "unwritten":
            text = (
                f"element at offset {access.offset} of {name}, which is uninitialized"
            )
        case "hint":
            text = f"untrue, such as of {access.offset}" if access.offset else "untrue"
        case "race":
            other = "another program"
            if access.other is not None:
                other = f"program {tuple_text(access.other)}"
            done = _MEANWHILE.get(access.other_access, "stored another value")
            text = f"element at offset {access.offset} of {name}, where {other} {done}"
            if access.other_line:
                text += f" at {one_line(access.other_line)}"
        case _:
            text = "memory that the launch was not given"
            if access.argument:
                side = "before the start" if access.offset < 0 else "past the end"
                text += f", {away} {side} of {name}"
    if access.count > 1 and access.where != "hint":
        text += f" ({access.count} elements in all)"
    return text


def line_lines(line: Line | None) -> tuple[str, ...]:
    """Return the line that a finding comes from: place, source, caret, evidence."""
    if line is None:
        return ()
    source = line.source.strip()
    before = len(line.source) - len(line.source.lstrip())
    caret = " " * max(line.column - before, 0) + "^"
    place, _, evidence = one_line(str(line)).partition(": ")
    return (f"{place}:", f"  {plain(source)}", f"  {caret}", evidence)


def patch_lines(patch: Patch) -> tuple[str, ...]:
    """Return a patch: what was tried with it, and the diff."""
    return one_line(patch.statement), *map(plain, patch.diff.splitlines())


# Where a kernel stands: file and line, as editors open them, and its packages.

# What every kernel imports; their versions are known of the time of the finding.
_EVERYWHERE: Final = frozenset({"kfuzz", "torch", "triton", "numpy"})


def place_of(target: Target, root: Path) -> str:
    """Return "file.py:12", "file.py" where the line is unknown, "" without a file."""
    line = line_of(target, root)
    return target.file if line is None else f"{target.file}:{line}"


def line_of(target: Target, root: Path) -> int | None:
    """Return the line of a kernel, counted from 1; None if it is not found.

    That is its definition, the call or assignment that gives it its name, or the call
    that binds what has it.
    """
    text = _source(target, root)
    # Gradients stand where the kernel does that `gradients=` binds them with.
    for name in (target.name, target.name.removesuffix(".backward")):
        name = re.escape(name)
        for pattern in (
            rf"""\bname\s*=\s*["']{name}["']""",
            rf"^\s*(?:async\s+)?(?:def|class)\s+{name}\b",
            rf"^\s*{name}\s*=",
            # Not the operator's, nor one of an import's in parentheses.
            rf"(?<=[\w)])(?<!\bkernel)\(\s*(?:\w+\.)*{name}(?=\s*[,)])",
        ):
            if found := re.search(pattern, text, re.MULTILINE):
                return text.count("\n", 0, found.end()) + 1
    return None


def packages_of(target: Target, root: Path) -> dict[str, str]:
    """Return the versions of the packages that a kernel is from, by name.

    Those of its module, or of what its file imports, as they are installed now; and
    the project's own, as its pyproject.toml says.
    """
    names = {target.module.partition(".")[0]} if target.module else set()
    text = _source(target, root)
    names |= set(re.findall(r"^\s*(?:import|from)\s+(\w+)", text, re.MULTILINE))
    known = metadata.packages_distributions()
    found = {d for name in names - _EVERYWHERE for d in known.get(name, ())}
    installed = sorted(found - _EVERYWHERE)
    own = _project(root) if text else {}
    return own | {name: metadata.version(name) for name in installed}


def _project(root: Path) -> dict[str, str]:
    """Return the name and version of a project, nothing where it says neither."""
    try:
        project = read_toml(root / "pyproject.toml")
        made = project["project"]
        return {str(made["name"]): str(made["version"])}
    except (DecodeError, LookupError, TypeError):
        return {}


def _source(target: Target, root: Path) -> str:
    """Return the text of a kernel's file, "" where it cannot be read."""
    # Findings may be a stranger's: nothing outside, and no device, is read.
    path = Path(target.file)
    if not target.file or path.is_absolute() or ".." in path.parts:
        return ""
    with suppress(DecodeError):
        return read_source(root / path)
    return ""


# What people read of a text that kernels or strangers wrote; JSON has all of it.
MAX_LINE: Final = 1_000
MAX_LINES: Final = 40
# A traceback's end says what happened.
TRACE_LINES: Final = 20
# A part of a contract on the page of a finding; `contracts show` has it whole.
PART_WIDTH: Final = 110
# A block: its first line ends where a terminal does, its labels stand in a column.
WIDTH: Final = 80
COLUMN: Final = 9

_OF_GPUS: Final = re.compile(r"cuda|hip\b|rocm|gpu|device", re.IGNORECASE)
_NO_CAUSE: Final = "no cause found"
_AT_SHAPES: Final = "passes at "
_IN_GRADIENT: Final = " in a gradient"
_RUNS: Final = re.compile(r"(\d+ of \d+) fresh processes")
# What unwritten memory holds in every other call, `kfuzz.execution.memory.poison`.
_POISON: Final = 2.0**100
# The part of a message that repeats a failure's numbers, of earlier versions too.
_NUMBERS: Final = re.compile(
    r"^(\S+ in a gradient)?(?:: )?[^\s\[]+\[[\d, ]*\] = [^\s,]+, "
    r"(?:allowed \[[^\]]*\]|admissible \S+ to [^\s,;]+|(?:exactly|expected) [^\s,;]+)"
    r"(?:, \S+ x tolerance)?(?: \(\d+ of \d+ elements(?: wrong)?\))?[;, ]*"
)


@dataclass(frozen=True)
class StateText:
    """How a state of a finding is shown.

    Attributes:
        headline: the word before the finding's summary.
        words: the state.
        sign: one letter or mark for it.
        level: the class of CSS.
    """

    headline: str
    words: str
    sign: str
    level: str


_FAILS: Final = partial(StateText, "FAIL", sign="✗", level="v-violates")
_OPEN: Final = partial(StateText, level="v-under_specified")
STATES: Final = {
    State.REGRESSED: _FAILS("regressed: it was fixed, and fails again"),
    State.CONFIRMED: _FAILS("confirmed in fresh processes"),
    State.WITNESSED: _FAILS("witnessed: inputs and wrong result are recorded"),
    State.NEW: _OPEN("UNCONFIRMED", "not confirmed: the time limit came first", "?"),
    State.FLAKY: _OPEN("FLAKY", "flaky: it fails in some runs only", "≈"),
    State.UNREPRODUCED: _OPEN("UNCONFIRMED", "not reproduced: seen once", "≈"),
    State.KNOWN: StateText("KNOWN", "known", "K", "v-known"),
    State.FIXED: StateText("FIXED", "fixed", "✓", "v-conforms"),
}
"""All texts of states, those that fail a run first; colour only repeats them."""

FEATURES: Final = {
    Feature.FLOAT64: "float64 data",
    Feature.FLOAT32: "float32 data",
    Feature.SIXTEEN_BIT: "16-bit data",
    Feature.EIGHT_BIT: "8-bit data",
    Feature.NON_CONTIGUOUS: "non-contiguous tensors",
    Feature.MISALIGNED: "tensors with a storage offset",
    Feature.TAIL: "a size that is no multiple of the block",
    Feature.ZERO_SIZE: "a size of zero",
    Feature.BEYOND_TILE: "a size above 256",
    Feature.NAN: "NaN in the input",
    Feature.INF: "infinity in the input",
    Feature.SUBNORMAL: "subnormal numbers in the input",
    Feature.MAGNITUDE: "the magnitude of the values, or their spread",
}
"""What a failure needs, as its cause is printed."""


class Depth(IntEnum):
    """How much room there is: of a run's output, of a report, of a page of its own."""

    SHORT = 0
    MEDIUM = 1
    WHOLE = 2


class Form(StrEnum):
    """How the lines of a part stand.

    FACT: one line beside its label. LIST: one below the other. DRAWING: likewise, in
    letters of one width. PROMISE: a list, of which a layout may have a longer form.
    """

    FACT = "fact"
    LIST = "list"
    DRAWING = "drawing"
    PROMISE = "promise"


@dataclass(frozen=True)
class Part:
    """One labelled part of the view of a finding.

    Attributes:
        label: what it is.
        lines: plain text, control characters spelled out.
        form: how they stand.
        depth: the least room in which it is shown.
        folded: of interest to few; a layout that can folds it away.
    """

    label: str
    lines: tuple[str, ...]
    form: Form = Form.LIST
    depth: Depth = Depth.WHOLE
    folded: bool = False


@dataclass(frozen=True)
class FindingView:
    """A finding for people.

    Attributes:
        id: its id.
        state: how its state is shown, its reason and whether it is new included.
        contract: id of the contract class.
        title: the contract's id and name on one line.
        kernel: node id.
        summary: kernel and failure in a few words: "my_softmax: wrong value in y".
        place: file and line of the kernel; its node id where they are unknown.
        severity: how grave it is, in words.
        parts: what else there is to say, in this order.
        errors: maps of errors, each with what it is of.
        replay: the command that replays it; "" where it is not stored.
    """

    id: str
    state: StateText
    contract: str
    title: str
    kernel: str
    summary: str
    place: str
    severity: str
    parts: tuple[Part, ...]
    errors: tuple[tuple[str, ErrorMap], ...]
    replay: str

    @property
    def head(self) -> str:
        """The first line: what happened, and where."""
        what = f"{self.state.headline} {self.summary}"
        return f"{what}  {self.place.rjust(WIDTH - len(what) - 2)}"


def view(shown: Shown, options: str = "", *, root: Path | None = None) -> FindingView:
    """Return a finding for people.

    Args:
        shown: the finding.
        options: what the commands in it need to find the corpus.
        root: the project's folder; by default that around the working folder.
    """
    finding, signature = shown.finding, shown.finding.signature
    state = STATES[finding.state]
    words = state.words
    if shown.known and shown.reason:
        words += f": {shown.reason}"
    if not shown.is_new:
        words += "; the corpus had it already"
    state = replace(state, words=_short(words))
    target = plain(target_option(finding, shown.outside))
    place = place_of(finding.target, root or project_root())
    return FindingView(
        id=finding.id,
        state=state,
        contract=signature.contract,
        title=titled(signature.contract),
        kernel=one_line(shown.kernel),
        summary=_short(f"{signature.kernel}: {finding.summary}"),
        place=one_line(place or shown.kernel),
        severity=finding.severity.words,
        parts=tuple(
            part for part in _parts(shown, state.words, target, options) if part.lines
        ),
        errors=_errors(finding),
        replay=finding.operator and f"kfuzz replay {finding.id}{target}{options}",
    )


def finding_lines(made: FindingView, depth: Depth = Depth.SHORT) -> list[str]:
    """Return a finding as a block, the command to type next as the last line."""
    lines = [made.head]
    for part in made.parts:
        if part.depth > depth:
            continue
        if part.form is Form.DRAWING:
            lines += [f"  {part.label}", *(f"    {line}" for line in part.lines)]
            continue
        labels = [part.label, *[""] * (len(part.lines) - 1)]
        lines += [_row(*row) for row in zip(labels, part.lines, strict=True)]
    return lines + ([_row("replay", made.replay)] if made.replay else [])


def _row(label: str, text: str) -> str:
    return f"  {label:<{COLUMN}} {text}"


def finding_page(made: FindingView) -> list[str]:
    """Return everything about a finding."""
    facts = [(p.label, p.lines[0]) for p in made.parts if p.form is Form.FACT]
    sections = [
        Section(p.label, p.lines) for p in made.parts if p.form is not Form.FACT
    ]
    sections += [
        Section(f"{errors.output} {name}", picture_lines(errors))
        for name, errors in made.errors
    ]
    return [made.head, *fact_lines([("id", made.id), *facts]), *section_lines(sections)]


# Short forms of `ERROR_LETTERS`, which has all.
_LEGEND: Final = (
    "error: . , : ; within the tolerance, x up to 4 times it, X up to 64, # more,",
    "  ! a miss without a number, ? not decided",
)


def picture_lines(errors: ErrorMap) -> list[str]:
    """Return what an output holds around its worst element, in letters of one width.

    Nothing of a finding without the values, of earlier versions.
    """
    drawn = panels(errors)
    if not drawn:
        return []
    place, (rows, columns) = place_in(errors), errors.around
    if made := numbers(errors):
        return _numbers(made, place, rows, columns)
    side, gap = max(len(str(rows[-1])), 3), " " * 3
    width = max(len(columns), len("expected"))
    lines = [" " * (side + 3) + gap.join(f"{name:<{width}}" for name in drawn)]
    for i, texts in enumerate(zip(*drawn.values(), strict=True)):
        mark = ">" if i == place[0] else " "
        each = gap.join(f"{text:<{width}}" for text in texts)
        lines.append(f"{rows[i]:>{side}} {mark} {each}")
    lines.append(" " * (side + 3) + gap.join([f"{' ' * place[1] + '^':<{width}}"] * 3))
    least, most = scale(errors)
    return [
        *map(str.rstrip, lines),
        f"columns {columns[0]} to {columns[-1]}; worst: row {errors.worst[0]}, "
        f"column {errors.worst[1]}",
        f"0 to 9: {least:.4g} to {most:.4g}, < > beyond; N NaN, + - infinity",
        *_LEGEND,
    ]


def _numbers(
    made: dict[str, list[list[str]]],
    place: tuple[int, int],
    rows: range,
    columns: range,
) -> list[str]:
    """Return a few elements in numbers, the worst one in brackets."""
    lines = [("row", "", *(f"column {c}" for c in columns))]
    for i, row in enumerate(rows):
        for name, texts in made.items():
            bracketed = [
                f"[{text}]" if (i, j) == place else text
                for j, text in enumerate(texts[i])
            ]
            label = "error / tolerance" if name == "error" else name
            lines.append((str(row) if name == "actual" else "", label, *bracketed))
    return table(lines, numbers=range(2, 2 + len(columns)))


def gpu_hint(finding: Finding) -> str:
    """Return what to try where a kernel may have raised for want of a GPU.

    "" where it ran on one, and where neither what it raised nor the line that raised
    it speaks of GPUs.
    """
    backend, failure = named(finding.device), finding.failure
    if failure.kind is not Kind.RAISES or not backend.has.on_host:
        return ""
    # Below a line of code Python may mark a part of it.
    trace = [t for t in failure.trace.splitlines() if t.strip(" ^~")]
    if not any(map(_OF_GPUS.search, [failure.message, *trace[-2:]])):
        return ""
    return f"the kernel ran {backend.place}; if it needs a GPU, use `--device cuda`"


def target_option(finding: Finding, outside: str = "") -> str:
    """Return what a printed command needs to find the kernel of a finding.

    Args:
        finding: the finding.
        outside: what `--target` takes for the kernel where the finding does not say
            where that lives; "" where it does, or nobody knows: then a person has to.
    """
    target = finding.target
    if not outside and (target.file or target.module):
        return ""
    return f" --target {quote(outside or f'FILE.py::{target.name}')}"


def _parts(shown: Shown, state: str, target: str, options: str) -> Iterable[Part]:
    """Yield every part; those without a line are left out."""
    finding, failure = shown.finding, shown.finding.failure
    signature, device = finding.signature, finding.device
    kind = f"{signature.kind}:{signature.detail}".removesuffix(":")
    of_output = f" of {signature.output}" if signature.output else ""
    counts = counted(finding.input_elements, "element")
    if finding.nonzero_elements is not None:
        counts += f", {finding.nonzero_elements} non-zero"
    trace = plain(failure.trace).splitlines()
    reduced = finding.reduction and (
        f"in {finding.reduction.evaluations} runs; stopped by: "
        f"{finding.reduction.stopped}"
    )
    actual, expected, _ = measured(failure)
    accesses = accesses_words(failure.accesses)
    # The message of an access out of bounds and the accesses say the same; where the
    # source line is known the accesses say more.
    outside = failure.kind in (Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE)
    precise = outside and any(access.line for access in failure.accesses)

    yield _fact("actual", "" if precise else actual, Depth.SHORT)
    yield _list("actual", accesses if precise else [], Depth.SHORT)
    yield _fact("expected", expected, Depth.SHORT)
    yield _list("access", [] if outside else accesses, Depth.SHORT)
    yield _list("input", input_lines(finding), Depth.SHORT)
    yield _list("cause", cause_lines(finding), Depth.SHORT)
    yield Part("line", line_lines(finding.line), Form.DRAWING, Depth.SHORT)
    patches = tuple(line for patch in finding.patches for line in patch_lines(patch))
    yield Part("patch", patches, Form.DRAWING)
    yield _fact("hint", gpu_hint(finding), Depth.SHORT)
    yield _fact("contract", titled(signature.contract), Depth.SHORT)
    also = [f"{s.summary} ({s.contract})" for s in finding.also]
    yield _list("also", also, Depth.SHORT)
    yield _fact("status", _status(finding, state), Depth.SHORT)
    yield _fact("kernel", shown.kernel)
    yield _fact("operator", f"{finding.operator}, run on {device}")
    yield _fact("severity", finding.severity.words)
    yield _fact("kind", kind + of_output)
    yield _fact("elements", counts)
    yield _fact("bucket", finding.bucket)
    claims = [f"{n}={encode(v)!r}" for n, v in finding.declaration.claims().items()]
    yield _fact("declared", ", ".join(claims) or "the defaults")
    yield _fact("seed", str(finding.seed))
    yield _fact("shrunk", reduced or "")
    end = tuple(line[:MAX_LINE] for line in trace[-TRACE_LINES:])
    yield Part("trace", end, Form.DRAWING, Depth.MEDIUM, folded=True)
    stored = shown_path(shown.path) if shown.path else ""
    yield _fact("stored", stored, Depth.MEDIUM)
    yield _list("first found as", draw_case(finding.first), folded=True)
    promise = _promise(signature.contract, finding.operator)
    yield Part("the contract", promise, Form.PROMISE)
    yield _list(
        "environment",
        [f"{k:<{LABEL}} {v}" for k, v in encode(finding.fingerprint).items() if v],
        folded=True,
    )
    history = [f"{c.when} {c.state} {c.note}" for c in finding.history]
    yield _list("history", history, folded=True)
    yield _list("next", next_commands(finding, target, options), folded=True)


def next_commands(finding: Finding, target: str, options: str) -> list[str]:
    """Return what to type next.

    None for what was seen in a program, which is no case of a bound kernel.
    """
    if not finding.operator:
        return []
    named = f"{finding.id}{target}{options}"
    commands = [
        f"kfuzz replay {named}",
        f"kfuzz replay {named} --script repro.py",
        f"kfuzz shrink {named}",
    ]
    if finding.line is not None:
        commands.append(f"kfuzz repair {finding.id}{options}")
    return commands


def input_lines(finding: Finding) -> list[str]:
    """Return the smallest input that fails, a line for each tensor."""
    return [*_arguments(finding.case), *_edge(finding)]


def cause_lines(finding: Finding) -> list[str]:
    """Return what the failure depends on."""
    failure = finding.failure
    known = measured(failure)[2] or failure.cause
    is_value = failure.kind in VALUE_KINDS
    return _cause(known, finding.explanation, is_value=is_value)


def measured(failure: Failure) -> tuple[str, str, str]:
    """Return what a kernel did, what was expected, and what else the message says.

    Without numbers the message is all about what the kernel did.
    """
    message, got, expected = one_line(failure.message), failure.got, failure.expected
    if got is None or expected is None:
        return message, "", ""
    place = failure.output or "output"
    if failure.index:
        place += f"[{', '.join(map(str, failure.index))}]"
    counts = ["the finite poison of unwritten memory"] if got == _POISON else []
    if failure.elements > 1:
        all_ = f" of {math.prod(failure.errors.shape)}" if failure.errors else ""
        counts.append(f"{failure.elements}{all_} elements wrong")
    if failure.ratio:
        counts.append(f"error {failure.ratio:.3g} x tolerance")
    low, high = failure.low, failure.high
    bounded = math.isfinite(expected) and low is not None and high is not None
    bounds = (low, high) if bounded else ()
    shown, wanted, *allowed = in_digits(9, got, expected, *bounds)
    actual = f"{place} = {shown}" + (f" ({', '.join(counts)})" if counts else "")
    if bounded:
        several = f"{wanted}, allowed [{', '.join(allowed)}]"
        wanted = several if low != high else allowed[0]
    said = _NUMBERS.match(message)
    rest = (said[1], message[said.end() :]) if said else ("", message)
    return actual, wanted, "; ".join(filter(None, rest))


def _arguments(case: Case) -> list[str]:
    """Return a line for each tensor, and one for all scalars."""
    tensors = [draw_tensor(name, spec) for name, spec in case.tensors.items()]
    scalars = ", ".join(draw_scalar(name, v) for name, v in case.scalars.items())
    return [*tensors, *([scalars] if scalars else [])]


def _status(finding: Finding, words: str) -> str:
    """Return the state, how it was confirmed, and by how much the input was shrunk."""
    notes = [c.note for c in finding.history if c.state is finding.state]
    runs = _RUNS.search(notes[-1]) if notes else None
    if runs is not None:
        words = words.replace("in fresh processes", f"({runs[0]})")
    if not finding.operator:
        return "seen in a program's own launch"
    before, now = finding.first.elements, finding.input_elements
    made = finding.reduction
    if made is not None and before != now:
        words += f"; shrunk from {before:,} to {counted(now, 'element')}"
    elif finding.state in (FAILING | {State.NEW}) - {State.WITNESSED} and (
        made is None or made.stopped == "time"
    ):
        words += "; not shrunk: time was up"
    return words


def _fact(label: str, text: str, depth: Depth = Depth.WHOLE) -> Part:
    lines = (_short(text),) if text else ()
    return Part(label, lines, Form.FACT, depth)


def _list(
    label: str, texts: list[str], depth: Depth = Depth.WHOLE, *, folded: bool = False
) -> Part:
    lines = tuple(_short(text) for text in texts[:MAX_LINES])
    if len(texts) > MAX_LINES:
        lines = (*lines, f"… {len(texts) - MAX_LINES} more")
    return Part(label, lines, Form.LIST, depth, folded)


def _short(text: str) -> str:
    # Columns made of spaces stay.
    line = " ".join(plain(text).splitlines()).rstrip()
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


def _edge(finding: Finding) -> list[str]:
    edge = finding.case.edge
    if edge is None or not edge.side:
        return []
    beside = one_line(edge.argument) or "every argument"
    if edge.allocation is not None:
        beside = f"tensor {edge.allocation} that it allocates, counted from 0"
    return [f"a guard page is at the {edge.side} of {beside}"]


def _cause(found: str, explanation: Explanation | None, *, is_value: bool) -> list[str]:
    """Return what was found out about the cause, the likeliest words first.

    Args:
        found: what the judge saw beside the values, "" for nothing.
        explanation: what was varied on the minimum.
        is_value: whether a value is wrong.
    """
    if explanation is None:
        return [found] if found else []
    told = [line for line in explanation.lines if not line.startswith(BESIDE)]
    beside = [line for line in explanation.lines if line.startswith(BESIDE)]
    if any(_AT_SHAPES in line for line in told) and found.startswith(_AT_SHAPES):
        found = ""  # the minimum itself tells more
    # The condition says which rest it is, the threshold which size.
    saying = {Feature.TAIL: SHOWS[0], Feature.BEYOND_TILE: SHOWS[1]}
    known = {f for f, w in saying.items() if any(line.startswith(w) for line in told)}
    features = [f for f in explanation.features if f not in known]
    needs = ", ".join(FEATURES[feature] for feature in features)
    lines = [line for line in (needs, found, *told) if line]
    if not explanation.complete:
        beside.append("the time limit ended the analysis")
    elif is_value and not [line for line in lines if not line.endswith(_IN_GRADIENT)]:
        lines.append(_NO_CAUSE)  # of what is no value the failure says it
    return [*lines, *beside]


def _errors(finding: Finding) -> tuple[tuple[str, ErrorMap], ...]:
    minimal, first = finding.failure.errors, finding.first_errors
    named = [("of the minimal input", minimal), ("as first found", first)]
    # NaN among the values would tell equal maps apart.
    same = encode(minimal) == encode(first)
    chosen = named[:1] if same else named
    return tuple((name, errors) for name, errors in chosen if errors is not None)


@cache
def _promise(contract: str, operator: str) -> tuple[str, ...]:
    bound = bound_contract(contract, operator)
    if bound is None:
        return ()  # an operator of the user's own
    return tuple(
        f"{name:<{LABEL}} {textwrap.shorten(texts[0], PART_WIDTH, placeholder=' …')}"
        for name, texts in parts_of(bound)
    )
