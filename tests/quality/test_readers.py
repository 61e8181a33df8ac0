"""Every reader of a file refuses what is wrong with it in a sentence, at once."""

import pytest

from kfuzz.core.errors import KfuzzError
from tests.benchmarks import readers
from tests.benchmarks.readers import READERS, Reader, Row, table
from tests.helpers.tiers import usual


@pytest.mark.slow
@pytest.mark.parametrize(
    "inputs", [usual(150, is_usual=True), usual(100_000, is_usual=False)]
)
def test_no_reader_raises_hangs_or_writes(inputs: int) -> None:
    rows = readers.run([], inputs, jobs=2, seed=inputs)
    assert rows.keys() == {reader.name for reader in READERS}
    assert {row.inputs for row in rows.values()} == {inputs}
    assert not [line for row in rows.values() for line in row.broken.values()]
    for reader in READERS:
        row = rows[reader.name]
        # What is changed is taken at times, and reaches further than the first check.
        assert row.taken + row.news > 2


@pytest.mark.slow
def test_what_no_reader_may_do_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(path: object) -> None:
        match len(readers.Path(str(path)).read_bytes()) % 4:
            case 0:
                raise KeyError("no field")
            case 1:
                readers.Path("/dev/null").write_text("outside")
            case 2 if readers.Path(str(path)).read_bytes().endswith(b"}"):
                while True:
                    pass
        raise KfuzzError("not this")

    made = Reader("bad", lambda: {"file": b'{"a": 1, "b": [2]}'}, bad)
    monkeypatch.setattr(readers, "READERS", (made,))
    monkeypatch.setattr(readers, "SECONDS", 0.2)
    rows: dict[str, Row] = readers.run([], 40, jobs=1, seed=1)
    ends = Reader("ends", lambda: {"file": b"{}"}, lambda path: readers.os._exit(3))
    monkeypatch.setattr(readers, "READERS", (ends,))
    rows |= readers.run([], 1, jobs=1, seed=1)
    text = "\n".join(table(rows))
    assert "! raises KeyError in test_readers.py bad" in text
    assert "! writes /dev/null" in text
    assert "! takes more than" in text
    assert "! ends its process: 3" in text
