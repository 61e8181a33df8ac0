"""A contract class is one file: adding it adds the class, and all that it says."""

from pathlib import Path

import pytest

from kfuzz.contracts import classes
from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.contracts.classes import results as k_val_01

MADE = """
from dataclasses import replace

from kfuzz.contracts.classes.results import K_VAL_01 as KNOWN

CLASS = replace(KNOWN, id={id!r}, rank={rank})
"""


def add(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, id: str, rank: int
) -> None:
    folder.joinpath(f"{name}.py").write_text(MADE.format(id=id, rank=rank))
    monkeypatch.setattr(classes, "__path__", [*classes.__path__, str(folder)])


def test_a_file_is_a_class(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add(monkeypatch, tmp_path, "k_new_01", "K-NEW-01", rank=k_val_01.K_VAL_01.rank + 1)
    ids = [c.id for c in classes._discovered()]
    assert sorted(ids) == sorted([*CLASSES, "K-NEW-01"])
    assert ids[ids.index("K-VAL-01") + 1] == "K-NEW-01"


def test_no_two_classes_have_one_rank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add(monkeypatch, tmp_path, "k_new_02", "K-NEW-02", rank=k_val_01.K_VAL_01.rank)
    with pytest.raises(ValueError, match=r"K-NEW-02 .*have one rank"):
        classes._discovered()


def test_what_a_class_says_of_kinds_is_of_its_own() -> None:
    for made in ATTRIBUTION:
        told = {*made.later_kinds, *made.by_chance, *made.unseen}
        assert not made.kinds or told <= set(made.kinds), made.id
