"""The JSON documents: strict, one at a time, in the promised shape."""

import io
from typing import Any

from kfuzz.core.event import Event, Notice, RunStarted
from kfuzz.core.verdict import State, Tried
from kfuzz.report import json_report
from kfuzz.store import files as strict_json
from tests.helpers.events import LARGEST, NODE, SEARCHED, campaign, finished, saved
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
        "import_s": 0.0,
        "reducing_s": 0.0,
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
                        "input": [
                            "x: float32[1, 3] contiguous = [[1, 1, 1]]", "dim = -1",
                        ],
                        "cause": [
                            "a size that is no multiple of the block", "n = 4 passes",
                        ],
                        "line": None,
                        "patches": [],
                        "next": [
                            f"kfuzz replay {found.id}",
                            f"kfuzz replay {found.id} --script repro.py",
                            f"kfuzz shrink {found.id}",
                        ],
                    }
                ],
            }
        ],
        "replayed": [],
        "notices": [{"kernel": NODE, "message": "slow", "about": ""}],
    }  # fmt: skip


def test_what_was_searched_is_listed_by_classes_of_sizes() -> None:
    tried = Tried(331, 70, 58)
    [kernel] = report([finished(tried=tried, searched=SEARCHED, largest=LARGEST)])[
        "kernels"
    ]
    assert (kernel["decided"], kernel["structures"]) == (331, 70)
    first, second, third, last = kernel["searched"]
    assert first == {
        "cases": 211, "structures": 40, "once": 30, "seconds": 2.04, "most": 256,
        "worst": 0.0,
    }  # fmt: skip
    assert (second["above"], second["most"]) == (256, 4096)
    assert third["lacks"] == "no time was left"
    assert last["lacks"] == "the limit on the CPU"
    assert "most" not in last
    assert kernel["largest"] == LARGEST


def test_no_announced_finding_is_lost_when_a_run_is_cut_off() -> None:
    early = finding(state=State.NEW, explanation=None)
    shown = report([RunStarted(7, "cpu", (NODE,)), saved(early, "found"),
                    saved(finding(), "done")])  # fmt: skip
    assert shown["interrupted"] is True
    assert shown["seed"] == 7
    (kernel,) = shown["kernels"]
    assert [f["id"] for f in kernel["findings"]] == [finding().id]
