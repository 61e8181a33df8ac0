"""What the documents list is what the tree has."""

import re
from pathlib import Path

import pytest

from kfuzz.core.value_families import (
    BOOL_FAMILIES,
    FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
)
from kfuzz.execution.processes import limits
from kfuzz.store import cache

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([a-z_0-9]+)\.py`")


@pytest.mark.parametrize(
    "folder", ["contracts", "strategies", "kfuzz/cuda", "kfuzz/monitor", "kfuzz/judge"]
)
def test_a_folders_readme_names_its_files_and_no_others(folder: str) -> None:
    place = ROOT / folder
    named = set(NAMED.findall((place / "README.md").read_text()))
    own = {path.stem for path in place.glob("*.py")} - {"__init__"}
    assert sorted(own - named) == []
    assert sorted(named - {path.stem for path in place.rglob("*.py")}) == []


def test_the_changelog_counts_the_families_that_there_are() -> None:
    words = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    assert (
        f"{len(FAMILIES)} value families, {len(INDEX_FAMILIES)} of indices, "
        f"{len(BOOL_FAMILIES)} of masks and {len(INTEGER_FAMILIES)} of integers"
    ) in words


def test_the_readme_names_the_variables_that_are_no_settings() -> None:
    text = (ROOT / "README.md").read_text()
    for name in (cache.VARIABLE, limits.VARIABLE):
        assert f"`{name}`" in text
