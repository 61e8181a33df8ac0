"""What people see of a campaign, a finding and its input."""

import io
import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kfuzz.core.event import (
    Event,
    RunFinished,
)
from kfuzz.core.finding import Explanation, Finding
from kfuzz.core.recipe import Fill, Plant, TensorSpec
from kfuzz.core.verdict import (
    Failure,
    Kind,
    Tried,
)
from kfuzz.report.finding_view import finding_page, measured, place_of, view
from kfuzz.report.tables import Shown
from kfuzz.report.terminal import TerminalReport
from kfuzz.report.text import draw_tensor
from tests.helpers.events import (
    LARGEST,
    NODE,
    SEARCHED,
    UNDECIDED,
    campaign,
    finished,
    saved,
)
from tests.helpers.findings import finding


def text_of(events: list[Event], out: io.StringIO | None = None, **how: object) -> str:
    out = out or io.StringIO()
    with TerminalReport(out, **how) as report:
        for event in events:
            report.feed(event)
    return out.getvalue()


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def test_a_whole_run_reads_like_this() -> None:
    found = finding(failure=Failure("C-PRC-01", Kind.VALUE, "off by 3", "y", ratio=41.0,
                                    got=4.0, expected=1.0, low=0.5, high=1.5,
                                    index=(0, 2), elements=2))  # fmt: skip
    shown = text_of(campaign(found), repeat="kfuzz run mine.py --max-time 60s")
    assert (
        shown
        == f"""\
1 kernel on cpu, seed 7
candidate softmax: wrong value in out (C-PRC-01); confirming it

FAIL softmax: wrong value in out                                 kernels/mine.py
  actual    y[0, 2] = 4 (2 elements wrong, error 41 x tolerance)
  expected  1, allowed [0.5, 1.5]
  input     x: float32[1, 3] contiguous = [[1, 1, 1]]
            dim = -1
  cause     a size that is no multiple of the block
            off by 3
            n = 4 passes
  contract  C-PRC-01: computes in the declared accumulator and intermediate precision
  status    confirmed in fresh processes; shrunk from 280 to 3 elements
  replay    kfuzz replay {found.id}
4 s  400 cases (100/s)  0/1 kernels done  worst ratio 0.5  findings 1
7 s  750 cases (100/s)  0/1 kernels done  worst ratio 0.5  findings 1

kernel                    operator  cases  cases/s  findings  worst ratio
{NODE}  softmax     412     88.1         1          0.5

{NODE}
  violates   C-PRC-01: computes in the declared accumulator and intermediate \
precision (30 of 40 decided cases failed, 2 undecided)
  undecided  K-MEM-02: every output element is written, no uninitialized memory is \
read (7 undecided)
  1 contract holds, 1 does not apply (-v lists them)
  256 of 412 cases ran in batches of 2 structures, with the checks that are always on

FAILED {found.id} - softmax: wrong value in out
1 finding in 412 cases, 12.3 s on cpu, seed 7
repeat: kfuzz run mine.py --max-time 60s --seed 7
""".replace("7 s  750", "8 s  750")
    )


def test_nothing_decided_never_conforms() -> None:
    told = finished(contracts=UNDECIDED, uncompared="time was up")
    shown = text_of([told, RunFinished(1.0, False, 7, "cpu")])
    assert "conforms" not in shown
    assert "  no value was compared: time was up\n" in shown
    assert "no finding in 412 cases, no value compared for 1 kernel, " in shown


@pytest.mark.parametrize(
    ("tried", "told"),
    [
        (Tried(14, 9, 9), " (barely tried: 14 cases of 9 structures)"),
        (Tried(412, 3, 1), " (barely tried: 412 cases of 3 structures)"),
        (None, ""),
    ],
)
def test_conforms_says_so_where_little_was_tried(
    tried: Tried | None, told: str
) -> None:
    found = finding()
    events = [finished(found, tried=tried), RunFinished(1.0, False, 7, "cpu")]
    shown = text_of(events)
    assert f"  1 contract holds{told}, 1 does not apply (-v lists them)\n" in shown
    head = f"conforms{told}".ljust(len("under_specified"))
    shown = text_of(events, verbose=True)
    assert f"  {head}  K-VAL-01 (400 decided, 12 undecided)\n" in shown
    assert "  not_applicable   C-EXC-01\n" in shown
    assert "violates         C-PRC-01 (30 of 40 decided cases failed, 2" in shown


def test_time_to_reduce_after_the_search_is_stated() -> None:
    events = [finished(finding()), RunFinished(32.5, False, 7, "cpu", 1.5, 12.3, 0.4)]
    spent = "with 12.3 s to reduce and locate findings"
    told = f"32.5 s (1.5 s to start, 0.4 s importing) {spent}"
    assert told in text_of(events)


def test_what_was_searched_stands_on_one_line_and_in_a_table_where_asked() -> None:
    events = [finished(searched=SEARCHED, largest=LARGEST)]
    events += [RunFinished(1.0, False, 7, "cpu")]
    assert (
        "\n  searched   to 256 elements 211 cases of 40 structures · to 4,096 120 of 30"
        " · nothing above 4,096 elements: no time was left · largest M 65, N 4,096\n"
    ) in text_of(events)
    assert """
  searched   elements      cases  structures  seconds
             to 256          211          40      2.0
             to 4,096        120          30      2.0
             to 65,536         0           0      0.0  no time was left
             above 65,536      0           0      0.0  the limit on the CPU
             largest M 65, N 4,096
""" in text_of(events, verbose=True)


def test_a_class_without_a_case_between_others_is_named() -> None:
    none, some, _, above = SEARCHED
    none = replace(none, cases=0, lacks="none is declared")
    events = [finished(searched=(none, some, above), largest=LARGEST)]
    shown = text_of([*events, RunFinished(1.0, False, 7, "cpu")])
    assert (
        "  searched   to 256 elements none: none is declared · to 4,096 elements 120 "
        "cases of 30 structures · nothing above 65,536 elements: the limit on the CPU"
    ) in shown


def test_where_no_case_decided_nothing_is_said_to_be_searched() -> None:
    none = replace(SEARCHED[0], cases=0, lacks="no case there decided a contract")
    told = finished(searched=(none, *SEARCHED[2:]), uncompared="it rejected all")
    shown = text_of([told, RunFinished(1.0, False, 7, "cpu")])
    assert "  searched   nothing: no case there decided a contract\n" in shown


def test_what_kernels_say_cannot_drive_the_terminal() -> None:
    failure = replace(finding().failure, message="a\x1b[31mb\nc", trace="\x1b]0;t\x07")
    shown = text_of([saved(finding(failure=failure), "done")], verbose=True)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "a\\x1b[31mb c" in shown


@pytest.mark.parametrize(
    ("spec", "drawn"),
    [
        (
            TensorSpec((1, 3), ("M", "N"), "float32", values=floats(0, 0.1, math.nan)),
            "x: float32[1, 3] contiguous = [[0, 0.1, nan]]",
        ),
        (
            TensorSpec((2, 2), ("M", "N"), "float32", (1, 2), 3, values=floats(1, 2,
                                                                              3, 4)),
            "x: float32[2, 2] strides (1, 2), offset 3 = [[1, 2], [3, 4]]",
        ),
        (
            TensorSpec((0, 3), ("M", "N"), "float16", values=b""),
            "x: float16[0, 3] contiguous, no element",
        ),
        (
            TensorSpec((40, 40), ("M", "N"), "float32", (0, 1),
                       values=floats(*[0.0] * 81, -0.0, *[0.0] * 1518)),
            "x: float32[40, 40] strides (0, 1) = 0 everywhere except [2, 1] = -0",
        ),
        (
            TensorSpec((100,), ("N",), "float32",
                       values=floats(*[0.0] * 50, *range(1, 10), *[0.0] * 41)),
            "x: float32[100] contiguous = in C order: 50 x 0, 1, 2, 3, 4, 5, 6, 7, 8, "
            "9, 41 x 0",
        ),
        (
            TensorSpec((100,), ("N",), "float32", values=floats(*range(100))),
            "x: float32[100] contiguous = 0, 1, 2, 3, 4, 5, … , 99 (100 values)",
        ),
        (
            TensorSpec((9, 9), ("M", "N"), "bfloat16", fill=Fill("randn", 5),
                       plants=(Plant((0, 8), 0x7F80),)),
            "x: bfloat16[9, 9] contiguous, filled with randn (seed 5) "
            "except [0, 8] = inf",
        ),
    ],
)  # fmt: skip
def test_a_tensor_is_drawn_on_one_line(spec: TensorSpec, drawn: str) -> None:
    assert draw_tensor("x", spec) == drawn


RANGE = {"got": 4.0, "expected": 1.0, "low": 0.5, "high": 1.5, "ratio": 41.0}
FAR = ("y[0, 2] = 4 (2 elements wrong, error 41 x tolerance)", "1, allowed [0.5, 1.5]")


@pytest.mark.parametrize(
    ("message", "numbers", "parts"),
    [
        ("y[0, 2] = 0, expected nan", {"got": 0.0, "expected": math.nan},
         ("y[0, 2] = 0 (2 elements wrong)", "nan", "")),
        ("y[0, 2] = 0, expected -inf",
         {"got": 0.0, "expected": -math.inf, "low": 0.0, "high": 0.0},
         ("y[0, 2] = 0 (2 elements wrong)", "-inf", "")),
        # What float16 holds of 65520.
        ("y[0, 2] = 65504, expected inf",
         {"got": 65504.0, "expected": 65520.0, "low": math.inf, "high": math.inf},
         ("y[0, 2] = 65504 (2 elements wrong)", "inf", "")),
        (
            "y[0, 2] = 4, allowed [0.5, 1.5], 41 x tolerance (2 of 3 elements wrong)"
            " with x times 2^3; the input as it is passes",
            RANGE, (*FAR, "with x times 2^3; the input as it is passes"),
        ),
        ("K-VAL-01 in a gradient: y[0, 2] = 4, allowed [0.5, 1.5], 41 x tolerance "
         "(2 of 3 elements wrong); passes at 4",
         RANGE, (*FAR, "K-VAL-01 in a gradient; passes at 4")),
        ("raises ValueError: no", {}, ("raises ValueError: no", "", "")),
    ],
)  # fmt: skip
def test_actual_and_expected_are_told_apart(
    message: str, numbers: dict[str, float], parts: tuple[str, str, str]
) -> None:
    """Each value is in one part, whichever version wrote the message."""
    failure = Failure(
        "C-EXC-01", Kind.VALUE, message, "y", index=(0, 2), elements=2, **numbers
    )
    assert measured(failure) == parts


def test_the_page_of_a_finding_tells_everything(tmp_path: Path) -> None:
    found = finding()
    page = "\n".join(
        finding_page(view(Shown(NODE, found, str(tmp_path)), " --corpus c"))
    )
    for part in (
        "FAIL softmax: wrong value in out",
        f"id              {found.id}",
        "C-PRC-01: computes in the declared accumulator",
        "off by 3",
        "kernels/mine.py::softmax",
        "3 elements, 3 non-zero",
        "[1, 1, 1]",
        "dim = -1",
        "n = 4 passes",
        "a size that is no multiple of the block",
        "shrunk          in 12 runs; stopped by: minimal",
        "x: float32[4, 70] contiguous, filled with randn (seed 7)",
        "tolerance       interval: exp(d - log S",
        "protocol ",
        "signature       kinds: value",
        "python          3.11",
        "2026-01-01T00:00:00Z new",
        str(tmp_path),
        f"kfuzz replay {found.id} --corpus c",
        f"kfuzz shrink {found.id} --corpus c",
        "--script repro.py",
    ):
        assert part in page


def test_a_block_names_the_line_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "mine.py").write_text("\n\ndef softmax(x): ...\n")
    monkeypatch.chdir(tmp_path)
    head = text_of([saved(finding(), "done")]).splitlines()[1]
    assert head.startswith("FAIL softmax: wrong value in out ")
    assert head.endswith(" kernels/mine.py:3")
    assert len(head) == 80
    gradient = replace(finding().target, name="softmax.backward")
    assert place_of(gradient, tmp_path) == "kernels/mine.py:3"
    (tmp_path / "kernels" / "mine.py").write_text(
        "from theirs import (softmax, k)\nkernel(softmax, name='a')(k.other)\n"
        "kfuzz.kernel(ops.softmax, accumulator='float32')(\n    k.softmax\n)\n"
    )
    assert place_of(gradient, tmp_path) == "kernels/mine.py:4"


@pytest.mark.parametrize(
    ("lines", "complete", "told"),
    [
        ((), True, ["passes at x [4]; fails at x [6]"]),
        (("passes at x [16]; fails at x [3]", "fails also in float16"), True,
         ["passes at x [16]; fails at x [3]", "fails also in float16"]),
        (("fails also in float16",), False,
         ["passes at x [4]; fails at x [6]", "fails also in float16",
          "the time limit ended the analysis"]),
    ],
)  # fmt: skip
def test_what_the_minimum_shows_of_shapes_is_told_once(
    lines: tuple[str, ...], complete: bool, told: list[str]
) -> None:
    message = "y[0] = 4, allowed [0.5, 1.5], 41 x tolerance"
    found = replace(
        finding(),
        failure=Failure(
            "C-CMP-03",
            Kind.VALUE,
            f"{message}; passes at x [4]; fails at x [6]",
            "y",
            **RANGE,
        ),
        explanation=Explanation(lines=lines, complete=complete),
    )
    assert cause_of(found) == told


def test_what_has_no_cause_says_so_first() -> None:
    lines = ("fails also in float16 and bfloat16, with stride = 2",)
    failure = Failure("K-VAL-01", Kind.VALUE, "y[0] = 4, expected 1", "y", **RANGE)
    explained = Explanation(lines=lines)
    found = replace(finding(), failure=failure, explanation=explained)
    assert cause_of(found) == ["no cause found", *lines]


def cause_of(found: Finding) -> list[str]:
    made = view(Shown(NODE, found, ""))
    [cause] = [part for part in made.parts if part.label == "cause"]
    return list(cause.lines)
