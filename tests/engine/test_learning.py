"""What runs learn is handed on; what is damaged or of something else is not."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from kfuzz.contracts import kernel as bind
from kfuzz.contracts import operators as ops
from kfuzz.core.budget import SIZE_BUDGETS
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search import learnt_store
from kfuzz.engine.search.drawing import search_round, strategy_of
from kfuzz.engine.search.guidance import Discovery, shares
from kfuzz.engine.search.learning import Learning
from kfuzz.engine.search.learnt import Learnt
from kfuzz.engine.search.learnt_store import Key, Store, chosen
from kfuzz.engine.search.record import Record
from kfuzz.engine.search.round import KernelTurns
from kfuzz.engine.search.strata import stratum_named, stratum_of
from kfuzz.strategies.favour import Favour, favouring
from kfuzz.targets.load import LoadedKernel, Source

ROOT = Path(__file__).parents[2]
KEY = Key("k", "a.py::k", "cpu", "sha256:1")
ONE = "tile several | contiguous | float32 | randn"
OTHER = "small one | offset | float16 | ones"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KFUZZ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def case(family: str = "randn", dtype: str = "float32") -> Case:
    return Case({"x": TensorSpec((4, 40), ("a", "b"), dtype, fill=Fill(family))})


def kernel(
    *, name: str = "k", discovery: Discovery | None = None, source: object = len
) -> KernelTurns:
    bound = SimpleNamespace(name=name, function=source)
    loaded = LoadedKernel(bound, Target("a.py", name), Source())  # type: ignore[arg-type]
    record = Record(frozenset(), ("float32",))
    made = KernelTurns(loaded, None, None, record, rounds=1)  # type: ignore[arg-type]
    made.discovery = discovery or Discovery()
    return made


def config(tmp_path: Path, *, learn: bool = True, learnt: str = "") -> RunConfig:
    return RunConfig((), tmp_path, tmp_path / "corpus", learn=learn, learnt=learnt)


def file_of(cache: Path) -> Path:
    [path] = cache.glob("learnt/*/*.json")
    return path


def test_a_stratum_survives_as_text() -> None:
    stratum = stratum_of(case())
    assert stratum_named(str(stratum)) == stratum
    assert stratum_named("of another version") is None


def test_the_next_run_begins_with_what_was_learnt(tmp_path: Path) -> None:
    first = kernel()
    first.discovery.take(case(), CaseReport({}, ratio=0.25), branches=2)
    first.discovery.take(case("ones"), CaseReport({}, ratio=0.01), branches=2)
    first.discovery.end_round()
    first.discovery.end_round()
    Learning(config(tmp_path), "cpu").keep(first, now=True)

    begun, learn = chosen("auto", seeded=False, root=tmp_path)
    assert begun
    assert learn
    learning = Learning(config(tmp_path, learnt=begun), "cpu")
    second = Discovery(learning.of(kernel()))
    assert not list(learning.notices())
    # Nothing of it is new, and it is not counted as this run's.
    assert second.rate == first.discovery.rate
    assert not second.ledger.visits
    assert not second.ledger.visit(case())
    second.take(case(), CaseReport({}, ratio=0.25), branches=2)
    assert not second.ledger.news
    second.take(case("zeros"), CaseReport({}, ratio=0.9), branches=2)
    assert [s.family for s in second.ledger.news] == ["zeros"]
    # What showed something is drawn more often; what did not is not.
    assert dict(second.favour.families) == {"randn": 1.0}


def test_a_kernel_that_discovered_more_begins_with_more_of_the_time(
    tmp_path: Path,
) -> None:
    rich, poor = kernel(name="rich"), kernel(name="poor")
    for number in range(8):
        family = f"family {number}"  # each case a stratum of its own
        rich.discovery.take(case(family), CaseReport({}), branches=number + 1)
        poor.discovery.take(case(), CaseReport({}), branches=1)
        for each in (rich, poor):
            each.discovery.end_round()
    first = Learning(config(tmp_path), "cpu")
    first.keep(rich, now=True)
    first.keep(poor, now=True)
    begun, _ = chosen("auto", seeded=False, root=tmp_path)
    learning = Learning(config(tmp_path, learnt=begun), "cpu")
    rates = [
        Discovery(learning.of(kernel(name=name))).rate
        for name in ("rich", "poor", "new")
    ]
    assert rates[0] > 0.9
    assert rates[1] < 0.1
    assert rates[2] == 1.0
    divided = shares(rates)
    assert divided[0] > 1.8 * divided[1]


def test_what_showed_something_is_drawn_more_often() -> None:
    bound = bind(ops.relu, name="learning_relu")(lambda x: x)
    drawn = []
    favour = Favour((("float16", 3.0),), (("offset", 1.0),), (("offset", 1.0),))
    for chosen_favour in (Favour(), favour):
        strategy = strategy_of(bound, SIZE_BUDGETS["cpu"], favour=chosen_favour)
        assert strategy is not None
        found: list[Case] = []
        search_round(
            strategy,
            lambda c, f=found: f.append(c),
            cases=400,
            seed_value=1,  # type: ignore[misc]
        )
        drawn.append(Counter(stratum_of(c) for c in found))

    def share(trait: str, value: str, counts: Counter[object]) -> float:
        hits = sum(n for s, n in counts.items() if getattr(s, trait) == value)
        return hits / counts.total()

    usual, favoured = drawn
    for trait, value in (
        ("dtype", "float16"), ("layout", "offset"), ("family", "offset")
    ):  # fmt: skip
        before, after = share(trait, value, usual), share(trait, value, favoured)
        assert after > 1.3 * before
        assert after > 0.3
    # The other half of the draws is as usual: nothing is starved.
    assert len({s.family for s in favoured}) > 0.6 * len({s.family for s in usual})
    assert share("dtype", "float32", favoured) > 0.1


def test_options_without_a_weight_are_as_they_were() -> None:
    assert favouring(("a", "b"), ()) == ("a", "b")
    assert favouring(("a", "b"), (("c", 1.0), ("b", 0.0))) == ("a", "b")
    made = Counter(favouring(("a", "b", "c"), (("b", 3.0), ("c", 1.0))))
    assert made["a"] == made.total() / 6
    assert made["b"] > made["c"] > made["a"]


def test_with_a_seed_nothing_learnt_is_used_unless_asked_for(tmp_path: Path) -> None:
    Store(tmp_path).add(KEY, Learnt({ONE: 1}), first=True)
    begun, learn = chosen("auto", seeded=False, root=tmp_path)
    assert learn
    assert chosen("auto", seeded=True, root=tmp_path) == ("", False)
    assert chosen("none", seeded=False, root=tmp_path) == ("", False)
    assert chosen("last", seeded=True, root=tmp_path) == (begun, True)
    assert chosen(begun, seeded=True, root=tmp_path) == (begun, False)
    with pytest.raises(UsageError, match=r"not kept here.*without --learnt"):
        chosen("0123456789ab", seeded=True, root=tmp_path)
    with pytest.raises(UsageError, match="not kept here"):
        chosen("../../etc/passwd", seeded=True, root=tmp_path)
    other = tmp_path / "other"
    assert chosen("last", seeded=False, root=other) == ("", True)


def test_what_a_run_began_with_stays_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(KEY, Learnt({ONE: 1}), first=True)
    begun = store.begin()
    store.add(KEY, Learnt({ONE: 5}), first=True)
    assert KEY.read(store.begun(begun)[KEY.file]).visits == {ONE: 1}
    assert store.begin() != begun
    for number in range(learnt_store.KEPT + 3):
        store.add(KEY, Learnt({OTHER: number + 1}), first=True)
        newest = store.begin()
    assert KEY.read(store.begun(newest)[KEY.file]).visits[OTHER]
    with pytest.raises(UsageError, match="not kept"):
        store.begun(begun)


def test_what_two_runs_learn_adds_up_and_old_news_fades(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(KEY, Learnt({ONE: 3}, {ONE: 4.0}, 0.5, -2, 3, ("a",)), first=True)
    store.add(KEY, Learnt({ONE: 1, OTHER: 2}, {OTHER: 1.0}, 0.1, -5, 9), first=True)
    kept = KEY.read(store.begun(store.begin())[KEY.file])
    assert kept == Learnt(
        {ONE: 4, OTHER: 2}, {ONE: 2.0, OTHER: 1.0}, 0.1, -2, 9, ("a",)
    )
    for _ in range(8):
        store.add(KEY, Learnt(), first=True)
    kept = KEY.read(store.begun(store.begin())[KEY.file])
    assert kept.visits == {ONE: 4, OTHER: 2}
    assert not kept.news


def test_a_run_that_writes_often_counts_nothing_twice(
    tmp_path: Path, cache: Path
) -> None:
    learning, each = Learning(config(tmp_path), "cpu"), kernel()
    for _ in range(3):
        each.discovery.take(case(), CaseReport({}, ratio=0.5), branches=1)
        learning.keep(each, now=True)
    learning.keep(each, now=False)  # a moment after the last time: later is enough
    head, body = file_of(cache).read_text().splitlines()
    assert '"kernel": "a.py::k"' in head
    assert f'"{stratum_of(case())}": 3' in body


def test_a_run_that_is_not_to_learn_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    each = kernel()
    each.discovery.take(case(), CaseReport({}), branches=1)
    Learning(config(tmp_path, learn=False), "cpu").keep(each, now=True)
    assert not list(cache.rglob("*.json"))


def damaged(cache: Path, how: str) -> None:
    path = file_of(cache)
    data = path.read_bytes()
    path.write_bytes(
        {
            "cut short": data[: len(data) // 2],
            "empty": b"",
            "a digit changed": data.replace(b": 1", b": 7"),
            "no text": b"\xff\xfe\x00" + data,
            "no object": b"[1, 2]\n{}\n",
            "nested": b"[" * 5000,
            "the wrong kind": data.replace(b'"visits"', b'"visitors"'),
        }[how]
    )


@pytest.mark.parametrize(
    "how",
    ["cut short", "empty", "a digit changed", "no text", "no object", "nested",
     "the wrong kind"],
)  # fmt: skip
def test_what_is_damaged_is_dropped_with_a_notice_and_replaced(
    how: str, tmp_path: Path, cache: Path
) -> None:
    each = kernel()
    each.discovery.take(case(), CaseReport({}), branches=1)
    Learning(config(tmp_path), "cpu").keep(each, now=True)
    damaged(cache, how)
    begun, _ = chosen("auto", seeded=False, root=tmp_path)
    learning = Learning(config(tmp_path, learnt=begun), "cpu")
    assert learning.of(kernel()) is None
    [text] = learning.notices()
    assert text.startswith("what earlier runs learnt of a.py::k is dropped: ")
    assert not list(learning.notices())
    learning.keep(each, now=True)
    begun, _ = chosen("auto", seeded=False, root=tmp_path)
    assert Learning(config(tmp_path, learnt=begun), "cpu").of(kernel()) is not None


def test_what_is_of_something_else_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = kernel(source=len)
    each.discovery.take(case(), CaseReport({}), branches=1)
    Learning(config(tmp_path), "cpu").keep(each, now=True)
    begun, _ = chosen("auto", seeded=False, root=tmp_path)

    def told(turns: KernelTurns, backend: str = "cpu") -> list[str]:
        learning = Learning(config(tmp_path, learnt=begun), backend)
        assert learning.of(turns) is None
        return list(learning.notices())

    assert told(kernel(source=max)) == [
        "what earlier runs learnt of a.py::k is dropped: the kernel's source has "
        "changed"
    ]
    assert told(kernel(name="other")) == []
    assert told(kernel(), backend="interpret") == []
    monkeypatch.setattr(learnt_store, "version_of", lambda name: "99")
    [text] = told(kernel())
    assert "another version of kfuzz" in text


def test_a_head_of_another_kernel_is_no_key() -> None:
    text = KEY.written(Learnt({ONE: 1}))
    assert KEY.read(text).visits == {ONE: 1}
    for other in (
        Key("k", "b.py::k", "cpu", "sha256:1"),
        Key("k", "a.py::k", "cuda", "sha256:1"),
        Key("k", "a.py::k", "cpu", "sha256:2"),
    ):
        with pytest.raises(DecodeError):
            other.read(text)


def test_where_nothing_can_be_kept_the_run_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    each = kernel()
    each.discovery.take(case(), CaseReport({}), branches=1)
    learning = Learning(config(tmp_path), "cpu")
    monkeypatch.setattr(learnt_store, "replace_file", full)
    learning.keep(each, now=True)
    assert list(learning.notices()) == [
        "what this run learns is not kept: No space left on device"
    ]
    assert chosen("auto", seeded=False, root=tmp_path) == ("", True)


WRITES = """
import sys
from pathlib import Path
from kfuzz.engine.search.learnt import Learnt
from kfuzz.engine.search.learnt_store import Key, Store

key, store = Key("k", "a.py::k", "cpu", "sha256:1"), Store(Path(sys.argv[1]))
strata = {f"s{n} | contiguous | float32 | randn": n + 1 for n in range(500)}
while True:
    store.add(key, Learnt(strata, {s: 1.0 for s in strata}), first=False)
    print("kept", flush=True)
"""


def test_writers_that_are_killed_leave_what_can_be_read(
    tmp_path: Path, cache: Path
) -> None:
    for _ in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITES, str(tmp_path)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        time.sleep(0.05)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        kept = KEY.read(file_of(cache).read_text())
        counts = {n // (int(s[1 : s.index(" ")]) + 1) for s, n in kept.visits.items()}
        assert len(counts) == 1  # each writer's part is there as a whole
        assert len(kept.visits) == 500
