"""Every reader of a file refuses what is wrong with it in a sentence, at once."""

import pytest

from tests.helpers.tiers import usual

readers = pytest.importorskip("tests.benchmarks.readers")


@pytest.mark.slow
@pytest.mark.parametrize(
    "inputs", [usual(150, is_usual=True), usual(100_000, is_usual=False)]
)
def test_no_reader_raises_hangs_or_writes(inputs: int) -> None:
    rows = readers.run([], inputs, jobs=2, seed=inputs)
    assert rows.keys() == {reader.name for reader in readers.READERS}
    assert {row.inputs for row in rows.values()} == {inputs}
    assert not [line for row in rows.values() for line in row.broken.values()]
    for reader in readers.READERS:
        row = rows[reader.name]
        # What is changed is taken at times, and reaches further than the first check.
        assert row.taken + row.news > 2
