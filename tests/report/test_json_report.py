"""The JSON documents: strict, one at a time, in the promised shape."""

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.core.codec import decode
from kfuzz.core.event import Event, Notice, RunStarted
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State
from kfuzz.engine.config import ReplayOutcome, ReplayResult
from kfuzz.report import json_report
from kfuzz.store import files as strict_json
from kfuzz.store.corpus import Stored
from tests.helpers.events import NODE, campaign, finished, saved
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


def test_a_shown_finding_can_be_read_back() -> None:
    found = finding(failure=replace(finding().failure, got=math.nan, low=-math.inf))
    shown = parsed(json_report.finding_document(Stored(found, Path("corpus/a/b"))))
    assert shown["path"] == "corpus/a/b"
    assert shown["kernel"] == NODE
    again = decode(Finding, shown["finding"])
    assert math.isnan(again.failure.got or 0)
    assert again.case == found.case


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


def test_no_announced_finding_is_lost_when_a_run_is_cut_off() -> None:
    early = finding(state=State.NEW, explanation=None)
    shown = report([RunStarted(7, "cpu", (NODE,)), saved(early, "found"),
                    saved(finding(), "done")])  # fmt: skip
    assert shown["interrupted"] is True
    assert shown["seed"] == 7
    (kernel,) = shown["kernels"]
    assert [f["id"] for f in kernel["findings"]] == [finding().id]
