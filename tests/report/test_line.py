"""The line that a finding comes from, in every report, and findings without one."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError
from kfuzz.core.event import RunFinished
from kfuzz.core.finding import Finding, Line, Patch
from kfuzz.core.verdict import Kind, State
from kfuzz.report.finding_view import Depth, finding_lines, finding_page, view
from kfuzz.report.json_report import finding_summary
from kfuzz.report.kinds import html, junit, markdown, sarif
from kfuzz.report.tables import Gathered, Shown
from kfuzz.report.terminal import TerminalReport
from tests.helpers.events import campaign, finished, saved
from tests.helpers.findings import finding

LINE = Line(
    "kernels/mine.py", 41, True, "with `i < m` for `i <= m`, the 9 that fail pass",
    column=11, source="    mask = i <= m",
)  # fmt: skip
FOUND = finding(line=LINE)
PATCH = Patch(
    "kernels/mine.py", 41,
    "--- a/kernels/mine.py\n+++ b/kernels/mine.py\n@@ -40,3 +40,3 @@\n"
    "     i = lanes()\n-    mask = i <= m\n+    mask = i < m\n     store(i)\n",
    "with this change: 90 cases, 0 findings; it is not a review",
)  # fmt: skip
MENDED = replace(FOUND, patches=(PATCH,))
BLOCK = [
    "  line",
    "    kernels/mine.py:41 (certain):",
    "      mask = i <= m",
    "             ^",
    "    with `i < m` for `i <= m`, the 9 that fail pass",
]


def gathered(found: Finding) -> Gathered:
    made = Gathered()
    for event in campaign(found):
        made.feed(event)
    return made


def test_the_block_shows_source_caret_and_evidence() -> None:
    lines = finding_lines(view(Shown("mine.py::softmax", FOUND, "")), Depth.SHORT)
    at = lines.index("  line")
    assert lines[at : at + len(BLOCK)] == BLOCK
    doubtful = finding(line=replace(LINE, certain=False))
    page = "\n".join(finding_page(view(Shown("mine.py::softmax", doubtful, ""))))
    assert "kernels/mine.py:41 (probably):" in page


def test_every_report_has_it() -> None:
    run = gathered(FOUND)
    for text in (junit.document(run), markdown.document(run), html.document(run)):
        assert "kernels/mine.py:41 (certain):" in text
    assert "; line kernels/mine.py:41" in junit.document(run)
    (result,) = json.loads(sarif.document(run))["runs"][0]["results"]
    (place,) = result["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "kernels/mine.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 41, "startColumn": 12},
    }
    summary = finding_summary(FOUND, "")
    assert summary["line"]["file"] == "kernels/mine.py"
    assert (summary["line"]["line"], summary["line"]["certain"]) == (41, True)


def test_a_line_outside_the_project_is_no_place_in_it() -> None:
    outside = finding(line=replace(LINE, file=str(Path("/elsewhere/mine.py"))))
    (result,) = json.loads(sarif.document(gathered(outside)))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "kernels/mine.py"
    assert place.get("region", {}).get("startLine") != 41


def test_a_patch_is_shown_where_there_is_room_and_a_fix_in_sarif() -> None:
    page = finding_page(view(Shown("mine.py::softmax", MENDED, "")))
    assert "  -    mask = i <= m" in page
    assert f"  {PATCH.statement}" in page
    assert "mask = i &lt; m" in html.document(gathered(MENDED))
    (result,) = json.loads(sarif.document(gathered(MENDED)))["runs"][0]["results"]
    [fix] = result["fixes"]
    [change] = fix["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "kernels/mine.py"
    assert change["replacements"] == [
        {
            "deletedRegion": {
                "startLine": 40, "startColumn": 1, "endLine": 43, "endColumn": 1
            },
            "insertedContent": {
                "text": "    i = lanes()\n    mask = i < m\n    store(i)\n"
            },
        }
    ]  # fmt: skip
    elsewhere = replace(MENDED, patches=(replace(PATCH, file="/elsewhere/mine.py"),))
    (result,) = json.loads(sarif.document(gathered(elsewhere)))["runs"][0]["results"]
    assert "fixes" not in result


@pytest.mark.parametrize("diff", ["", "no diff\n", PATCH.diff + "@@ -1 +1 @@\n"])
def test_a_strangers_patch_that_is_none_is_not_read(diff: str) -> None:
    assert decode(Finding, encode(MENDED)) == MENDED
    stored = encode(MENDED)
    stored["patches"][0]["diff"] = diff
    with pytest.raises(DecodeError, match="no unified diff"):
        decode(Finding, stored)


def test_findings_stored_without_one_are_read_and_show_none() -> None:
    stored = encode(finding())
    assert "line" not in stored
    read = decode(Finding, stored)
    assert read.line is None
    assert finding_summary(read, "")["line"] is None
    assert "  line" not in finding_lines(view(Shown("mine.py::softmax", read, "")))
    assert decode(Finding, encode(FOUND)) == FOUND


def test_what_a_stranger_wrote_in_it_drives_no_terminal() -> None:
    told = replace(LINE, source="    \x1b[31mred", evidence="a\nb \x1b[0m", file="x\ty")
    page = "\n".join(
        finding_page(view(Shown("mine.py::softmax", finding(line=told), "")))
    )
    assert "\x1b" not in page


def test_two_findings_that_one_change_mends_are_told_as_one() -> None:
    first = finding(n=3)
    failure = replace(first.failure, kind=Kind.READ_OUTSIDE, message="one past the end")
    second = finding(
        n=4, failure=failure, signature=failure.signature(first.signature.kernel)
    )
    one = replace(first, line=LINE)
    both = replace(one, also=(second.signature,))
    out = io.StringIO()
    with TerminalReport(out) as report:
        for event in (
            campaign(first)[0], saved(first, "done"), saved(second, "done"),
            saved(one, "done"), replace(saved(both, "done"), merged=second.id),
            finished(findings=(both,)), RunFinished(1.0, False, 7, "cpu"),
        ):  # fmt: skip
            report.feed(event)
    text = out.getvalue()
    assert text.count("\nFAIL ") == 2  # each was printed as it was confirmed
    assert text.count("kernels/mine.py:41 (certain)") == 1
    assert f"mends another failure: {first.id}, too" in text
    assert text.count("\nFAILED ") == 1
    assert "1 finding in" in text


def test_what_another_finding_was_once_merged_with_is_a_finding_of_its_own() -> None:
    """`also` is kept for good, and other buckets have the same signature."""
    failing = finding(n=3)
    signature = replace(failing.signature, contract="C-CMP-03")
    failure = replace(failing.failure, contract="C-CMP-03")
    mended = replace(
        finding(n=4), signature=signature, failure=failure,
        also=(failing.signature,), state=State.FIXED,
    )  # fmt: skip
    for order in ((failing, mended), (mended, failing)):
        made = Gathered()
        for found in order:
            made.feed(saved(found, "done"))
        assert {s.finding.id for s in made.findings} == {failing.id, mended.id}
