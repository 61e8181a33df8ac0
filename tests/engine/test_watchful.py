"""What a run warns of in itself, and what it must not warn of."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kfuzz.contracts import Operator, kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.codec import encode
from kfuzz.core.errors import KfuzzError
from kfuzz.core.event import ContractTally, Notice
from kfuzz.core.finding import Fingerprint, Target
from kfuzz.core.statement import Calibration, ContractCalibration, Soundness
from kfuzz.core.verdict import Verdict
from kfuzz.engine.search.self_check import Calibrations
from tests.helpers.events import finished

_names = map("k{}".format, itertools.count())


def bind(operator: Operator, function: Any, **claims: Any) -> BoundKernel:
    return kernel(operator, name=next(_names), **claims)(function)


RELU = bind(ops.relu, torch.relu)


def search_of(bound: BoundKernel) -> Any:
    """Return the search of a kernel."""
    return SimpleNamespace(
        node_id="a.py::k",
        loaded=SimpleNamespace(kernel=bound, target=Target("a.py", "k")),
    )


def warned(
    calibrations: Calibrations,
    bound: BoundKernel,
    decided: Sequence[str] = ("K-VAL-01", "C-PRC-02"),
) -> list[Notice]:
    tallies = {name: ContractTally(Verdict.CONFORMS, 9) for name in decided}
    tallies["C-ORD-02"] = ContractTally(Verdict.NOT_APPLICABLE)
    result = finished(contracts=tallies)
    return list(calibrations.warn([search_of(bound)], [result]))


def test_contracts_that_nothing_calibrates_are_reported() -> None:
    # No unstable formula of relu is in use; those of others are told from stable ones.
    assert warned(Calibrations("cpu", None), RELU) == []
    own = replace(ops.relu, name="my_relu")
    [notice] = warned(Calibrations("interpret", None), bind(own, torch.relu))
    assert notice.about == "uncalibrated"
    assert "my_relu (your own)" in notice.message


def test_a_calibration_made_here_goes_before_what_is_kept(tmp_path: Path) -> None:
    sound = [
        ContractCalibration(f"{name}/relu", Soundness.SOUND)
        for name in ("K-VAL-01", "C-PRC-02")
    ]
    file = tmp_path / "calibration.json"
    for contracts, expected in ((sound, []), (sound[1:], ["relu (K-VAL-01)"])):
        made = Calibration(
            0, 1, 1, "cpu", Fingerprint(python="3.11"), tuple(contracts), ()
        )
        file.write_text(json.dumps({"format": 1, "calibration": encode(made)}))
        notices = warned(Calibrations("cpu", file), RELU)
        assert [n.message.split(": ")[1] for n in notices] == expected
    file.write_text("{}")
    with pytest.raises(KfuzzError):
        Calibrations("cpu", file)
