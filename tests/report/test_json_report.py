"""The JSON documents: strict, one at a time, in the promised shape."""

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.contracts.suite import every_contract
from kfuzz.core.codec import decode
from kfuzz.core.event import Event, Note, Notice, RunFinished, RunStarted
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State, Tried
from kfuzz.engine.config import ReplayOutcome, ReplayResult
from kfuzz.report import json_report
from kfuzz.report.corpus_lists import corpus_document
from kfuzz.report.promises import promise
from kfuzz.store import strict_json
from kfuzz.store.corpus import Problem, ProblemKind, Stored
from kfuzz.store.entry import summary_of
from tests.helpers.events import NODE, REFUSAL, campaign, finished, saved
from tests.helpers.findings import finding
from tests.helpers.reported import gathered


def parsed(document: dict[str, Any]) -> Any:
    """Return what a strict reader makes of the one document written."""
    out = io.StringIO()
    json_report.write(document, out)
    value = strict_json.loads(out.getvalue())
    assert next(iter(value)) == "format"
    assert value.pop("format") == 1
    return value


def report(events: list[Event]) -> Any:
    return parsed(json_report.run_document(gathered(events)))


def test_a_run_has_the_documented_shape() -> None:
    found = finding()
    shown = report([*campaign(found), Notice(NODE, "slow")])
    assert shown == {
        "seed": 7,
        "device": "cpu",
        "elapsed_s": 12.34,
        "startup_s": 0.0,
        "interrupted": False,
        "jobs": 1,
        "kernels": [
            {
                "kernel": NODE,
                "operator": "softmax",
                "cases": 412,
                "cases_per_s": 88.1,
                "screened": 256,
                "bursts": 2,
                "worst_ratio": 0.5,
                "contracts": {
                    "C-PRC-01": {
                        "verdict": "violates",
                        "decided": 40,
                        "undecided": 2,
                        "failed": 30,
                    },
                    "K-VAL-01": {
                        "verdict": "conforms", "decided": 400, "undecided": 12,
                    },
                    "K-MEM-02": {
                        "verdict": "under_specified", "decided": 0, "undecided": 7,
                    },
                    "C-EXC-01": {"verdict": "not_applicable"},
                },
                "uncompared": None,
                "refusals": [],
                "notes": [],
                "findings": [
                    {
                        "id": found.id,
                        "contract": "C-PRC-01",
                        "kind": "value",
                        "severity": "precision",
                        "bucket": found.bucket,
                        "state": "confirmed",
                        "path": f"corpus/{found.folder}",
                        "message": "off by 3",
                        "ratio": 41.0,
                        "input_elements": 3,
                        "nonzero_elements": 3,
                    }
                ],
            }
        ],
        "replayed": [],
        "notices": [{"kernel": NODE, "message": "slow", "about": ""}],
    }  # fmt: skip


@pytest.mark.parametrize("ratio", [None, math.inf, math.nan])
def test_a_ratio_that_is_no_number_is_null(ratio: float | None) -> None:
    found = finding(failure=replace(finding().failure, ratio=ratio))
    shown = report([finished(found, worst_ratio=math.inf, cases_per_s=math.nan)])
    kernel = shown["kernels"][0]
    assert kernel["findings"][0]["ratio"] is None
    assert kernel["worst_ratio"] is None
    assert kernel["cases_per_s"] is None


def test_notes_are_told_with_how_often_they_were_made() -> None:
    shown = report([finished(notes=(Note("loads what nothing wrote", 3),))])
    assert shown["kernels"][0]["notes"] == [
        {"note": "loads what nothing wrote", "cases": 3}
    ]


def test_refusals_are_told_with_their_remedy() -> None:
    shown = report([finished(refusals=(REFUSAL,))])
    assert shown["kernels"][0]["refusals"] == [
        {
            "reason": "non-contiguous input",
            "cases": 31,
            "remedy": 'layouts="contiguous"',
            "example": "ValueError: no",
        }
    ]


def test_no_announced_finding_is_lost_when_a_run_is_cut_off() -> None:
    early = finding(state=State.NEW, explanation=None)
    shown = report([RunStarted(7, "cpu", (NODE,)), saved(early, "found"),
                    saved(finding(), "done")])  # fmt: skip
    assert shown["interrupted"] is True
    assert shown["seed"] == 7
    (kernel,) = shown["kernels"]
    assert [f["id"] for f in kernel["findings"]] == [finding().id]


def test_an_interrupted_run_says_so() -> None:
    assert report([RunFinished(1.0, True, 7, "cpu")])["interrupted"] is True


def test_a_shown_finding_can_be_read_back() -> None:
    found = finding(failure=replace(finding().failure, got=math.nan, low=-math.inf))
    shown = parsed(json_report.finding_document(Stored(found, Path("corpus/a/b"))))
    assert shown["path"] == "corpus/a/b"
    assert shown["kernel"] == NODE
    again = decode(Finding, shown["finding"])
    assert math.isnan(again.failure.got or 0)
    assert again.case == found.case


def test_a_corpus_lists_findings_and_problems() -> None:
    listed = (Path("corpus/a/b"), summary_of(finding()))
    problem = Problem(Path("corpus/a/c"), "truncated", ProblemKind.DAMAGED)
    shown = parsed(corpus_document([listed, (problem.path, problem)]))
    (listed,) = shown["findings"]
    assert (listed["id"], listed["kernel"]) == (finding().id, NODE)
    assert shown["problems"] == [
        {"path": "corpus/a/c", "kind": "damaged", "message": "truncated"}
    ]


def test_replayed_findings_are_told_each() -> None:
    results = [
        ReplayResult(finding(), Path("corpus/a/b"), ReplayOutcome.FLAKY, 1, 3, "some",
                     ("torch: 2.11 -> 2.13",)),
        ReplayResult(None, Path("corpus/a/c"), ReplayOutcome.ERROR, 0, 0, "damaged"),
    ]  # fmt: skip
    shown = parsed(json_report.replay_document(results))
    flaky, broken = shown["results"]
    assert (flaky["id"], flaky["outcome"]) == (finding().id, "FLAKY")
    assert flaky["differences"] == ["torch: 2.11 -> 2.13"]
    assert (broken["id"], broken["outcome"]) == (None, "ERROR")


def test_a_contract_has_its_eight_parts() -> None:
    contract = every_contract()[0]
    shown = parsed(json_report.contract_document(contract))
    assert shown.pop("title") == promise(contract)
    assert list(shown) == [
        "identifier", "scope", "precondition", "postcondition", "tolerance", "oracle",
        "protocol", "signature",
    ]  # fmt: skip


def test_a_number_that_is_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_report.write({"x": math.nan}, io.StringIO())


def test_a_kernel_says_what_its_verdicts_rest_on() -> None:
    for tried, evidence in ((Tried(14, 9, 9), "thin"), (Tried(412, 40, 9), "enough")):
        [kernel] = report([finished(tried=tried)])["kernels"]
        told = (kernel["decided"], kernel["structures"], kernel["evidence"])
        assert told == (tried.cases, tried.structures, evidence)


def test_start_up_is_told_apart_once_it_is_known() -> None:
    told = report([*campaign()[:-1], RunFinished(12.34, False, 7, "cpu", 3.21)])
    assert (told["elapsed_s"], told["startup_s"]) == (12.34, 3.21)
    assert "startup_s" not in report(campaign()[:-1])
