"""What a team looks at: errors against tolerance, failing tensors, nights."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kfuzz.app import main
from kfuzz.core.event import Event
from kfuzz.core.finding import Change
from kfuzz.core.verdict import State, Tried
from kfuzz.numerics.compare import Comparison, Outcome, error_map
from kfuzz.report.finding_view import finding_page, view
from kfuzz.report.kinds import html
from kfuzz.report.tables import Gathered, Shown, nights, panels
from kfuzz.store.corpus import Corpus
from kfuzz.store.files import MAX_RUNS, keep_run, kept_runs, share_runs
from tests.helpers.acceptances import within_one
from tests.helpers.command_line import Engine
from tests.helpers.events import NODE, campaign, finished
from tests.helpers.findings import finding
from tests.helpers.pictures import failing, fill, seen, tensor
from tests.report.test_html_report import Page

HUNDRED = 100


def document(events: list[Event], corpus: Path | None = None) -> str:
    run = Gathered(corpus=corpus)
    for event in events:
        run.feed(event)
    return html.document(run)


@pytest.mark.slow
def test_a_hundred_kernels_with_a_month_of_nights_take_less_than_a_megabyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)  # takes most of the time
    # All of them fail, and have names of 67 letters: the page is longest then.
    text = document(fill(tmp_path, HUNDRED, every=1, stem="k" * 63), tmp_path)
    assert len(text.encode()) < 1_000_000
    page = Page(text)
    assert page.tags["article"] == HUNDRED
    assert "A picture is left out" in text
    assert "the last 30 runs, since 2026-03-01" in page.words
    # All that is drawn is put into words; what only repeats them is hidden.
    drawn = re.findall(r"<svg [^>]*>", text)
    assert len(drawn) > 5 * HUNDRED
    assert all('aria-label="' in svg or "aria-hidden" in svg for svg in drawn)


def test_a_failing_tensor_is_drawn_beside_the_expected_one(tmp_path: Path) -> None:
    text = document([*campaign(failing("k", tensor(worst=math.nan, code=255)))])
    page = Page(text)
    assert "y[40, 70] of the minimal input" in page.words
    assert "worst, outlined, row 20, column 67: nan, expected" in page.words
    labels = [v for v in page.values("aria-label") if "row 20, column 67" in v]
    assert [label.split(",")[0] for label in labels] == ["actual", "expected", "error"]
    # NaN is striped and has its letter; what misses is larger, and no colour alone.
    assert {"nan", "xn", "x2", "w1", "v0", "v9", "ring", "frame"} <= set(
        page.values("class")
    )
    assert ">N</text>" in text


def test_a_small_tensor_is_shown_in_numbers() -> None:
    text = document(campaign(failing("k", tensor(1, 4, worst=math.inf, code=255))))
    cells = re.findall(r'<td class="(\w+)( ring)?">([^<]*)</td>', text)
    assert ("inf", " ring", "inf") in cells
    assert ("xn", " ring", "✗no number") in cells
    assert ("x2", "", "✗5e+01") in cells


def test_neighbours_of_64_bits_do_not_look_alike() -> None:
    result = torch.tensor([2**40 + 1, 5])
    misses = torch.tensor([[Outcome.VALUE, Outcome.OK]], dtype=torch.uint8)
    right = torch.tensor([[2**40, 5]], dtype=torch.float64)
    expected = replace(within_one(result), reference=right)
    errors = error_map("y", Comparison(misses, result[None], expected))
    assert errors is not None
    exact = {"got": 2.0**40 + 1, "expected": 2.0**40, "low": 2.0**40, "high": 2.0**40}
    one = failing("k", errors)
    one = replace(one, failure=replace(one.failure, index=(0,), **exact))
    block = "\n".join(finding_page(view(Shown("k", one, ""))))
    assert "y[0] = 1099511627777 " in block
    assert re.search(r"expected +1099511627776\n", block)
    row = [r.split() for r in block.splitlines() if r.startswith("  0    actual")]
    assert ["0", "actual", "[1099511627777]", "5"] in row
    assert "1099511627777, expected 1099511627776" in document(campaign(one))


def test_a_kernel_is_drawn_by_size_and_dtype_failing_ones_first() -> None:
    events = [
        finished(kernel="a.py::good", errors=seen(0.5)),
        finished(kernel="a.py::exact", errors=seen(0.0)),
        finished(kernel="a.py::bad", errors=seen(602.0)),
    ]
    page = Page(document([*campaign()[:1], *events]))
    heads = [text for text in page.text if text.startswith("a.py::")][-3:]
    assert heads == ["a.py::bad", "a.py::good", "a.py::exact"]
    assert "greatest: 602, float16, to 4,096 elements" in page.words
    assert page.values("class").count("miss") == 1
    assert "≤ 4K" in page.words


def test_old_events_and_old_findings_are_shown_without(tmp_path: Path) -> None:
    old = replace(tensor(), worst=(), actual=(), expected=(), near="")
    text = document([*campaign(failing("k", old))], tmp_path)
    assert "error of the whole output" in text
    assert 'class="trends"' not in text
    assert 'class="ring"' not in text


def test_nights_count_what_is_open_and_mended_from_the_histories(
    tmp_path: Path,
) -> None:
    days = [f"2026-03-0{n}T00:00:00Z" for n in range(1, 5)]
    life = (Change(State.NEW, "2026-03-02T00:09:00Z"),
            Change(State.FIXED, "2026-03-04T00:09:00Z"))  # fmt: skip
    made = replace(failing("softmax", tensor()), history=life, state=State.FIXED)
    Corpus(tmp_path).save(made)
    for day, worst in zip(days, (0.5, math.inf, 602.0, 0.5), strict=True):
        keep_run(tmp_path, day, {NODE: seen(worst, cases=7), "other": ()})
    (tmp_path / ".runs" / "2026-03-02-bad.json").write_text("{")
    ((node, runs),) = nights(tmp_path).items()
    assert node == NODE
    assert [(n.open, n.mended) for n in runs] == [(0, 0), (1, 0), (1, 0), (0, 1)]
    assert [n.worst for n in runs] == [0.5, math.inf, 602.0, 0.5]
    assert {n.cases for n in runs} == {7 * 12}
    assert nights(tmp_path / "none") == {}


def test_so_many_runs_are_kept_and_a_merged_corpus_has_those_of_both(
    tmp_path: Path, project: Path
) -> None:
    for n in range(MAX_RUNS + 3):
        keep_run(tmp_path, f"2026-03-01T00:{n:02}:00Z", {NODE: seen(0.5)})
    runs = kept_runs(tmp_path)
    assert len(runs) == MAX_RUNS
    assert runs[-1][0] == f"2026-03-01T00:{MAX_RUNS + 2}:00Z"
    Corpus(tmp_path).save(finding())
    keep_run(project / "corpus", "2026-02-01T00:00:00Z", {NODE: seen(0.25)})
    assert main(["corpus", "merge", str(tmp_path)]) == 0
    assert kept_runs(project / "corpus")[-1] == runs[-1]


def test_what_is_no_run_is_not_thinned_out_and_keeps_no_run_from_a_merge(
    tmp_path: Path,
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        folder.mkdir()
    for n in range(MAX_RUNS + 3):
        (mine / f"{n:03}.json").write_text("{}")
    (theirs / ".runs").symlink_to(mine)  # as a stranger's corpus may have it
    keep_run(theirs, "2026-03-01T00:00:00Z", {NODE: seen(0.5)})
    assert len([*mine.glob("???.json")]) == MAX_RUNS + 3
    for n in range(5):
        (mine / f"2026-03-0{n}T000000Z-{n}.json").symlink_to("/dev/zero")
    share_runs(tmp_path / "both", theirs)
    assert len(kept_runs(tmp_path / "both")) == 1


@pytest.mark.usefixtures("project")
def test_a_run_is_kept_and_drawn_by_the_reports_that_follow(engine: Engine) -> None:
    for worst in (0.5, 602.0):
        engine.events = campaign(finding())
        engine.events[-2] = finished(finding(), errors=seen(worst))
        main(["run", "a.py", "-q", "--report", "html=run.html"])
    ((_, first), (_, last)) = kept_runs(Path("corpus"))
    assert (max(t.worst for t in first[NODE]), last[NODE][4].worst) == (0.5, 602.0)
    assert main(["report", "html=later.html"]) == 0
    for name in ("run.html", "later.html"):
        page = Page(Path(name).read_text())
        assert "worst error: 0.5 in the first run, 602 in the last" in page.values(
            "aria-label"
        )


def test_what_a_stranger_keeps_of_a_run_drives_no_terminal_and_no_page(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = finding()
    Corpus(project / "corpus").save(found)
    evil = Tried(3, above=-1, most=0, dtype="<b>\x1b[31m\n", worst=math.nan)
    keep_run(project / "corpus", "\x1b<i>", {NODE: (evil,), "<u>\x1b": (evil,)})
    keep_run(project / "corpus", "\x1b<i>", {NODE: (evil,), "<u>\x1b": (evil,)})
    assert main(["report", "html=r.html"]) == 0
    assert main(["show", found.id]) == 0
    out = capsys.readouterr().out
    page = Path("r.html").read_text()
    assert "<b>\\x1b[31m" in out
    assert "&lt;b&gt;\\x1b[31m" in page
    assert not [text for text in (out, page) if "\x1b" in text]
    assert not {"i", "u"} & set(Page(page).tags)


def plain(text: str) -> list[str]:
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in text
    return lines


@pytest.mark.parametrize("no_colour", [False, True])
def test_show_draws_on_eighty_columns_without_colour(
    no_colour: bool,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    made = failing("softmax", tensor(1200, 3000, worst=math.nan, code=255))
    Corpus(project / "corpus").save(made)
    keep_run(project / "corpus", "2026-03-01T00:00:00Z", {NODE: seen(math.inf)})
    assert main(["show", made.id]) == 0
    text = capsys.readouterr().out
    drawn = plain(text[text.index("y of the minimal input") :])
    (row,) = [line for line in drawn if line.split()[1:2] == [">"]]
    assert row.split()[0] == "600"
    actual, expected, error = row.split()[2:]
    assert (len(actual), len(expected), len(error)) == (16, 16, 16)
    at = actual.index("N")
    assert error[at] == "!"
    assert expected[at].isdigit()
    assert error.count("X") == 5
    (carets,) = [line for line in drawn if line.count("^") == 3]
    assert carets.index("^") == row.index("N")
    (bar,) = [line for line in drawn if "no number" in line]
    assert bar.split()[:3] == ["float16", "to", "4,096"]
    assert bar.endswith("########|############")


def test_show_prints_few_elements_as_numbers_and_old_findings_without(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = failing("softmax", tensor(2, 3, worst=-math.inf, code=255))
    Corpus(project / "corpus").save(made)
    main(["show", made.id])
    text = capsys.readouterr().out
    drawn = "\n".join(plain(text[text.index("y of the minimal input") :]))
    assert re.search(r"actual +\[-inf\] +0 +0", drawn)
    assert re.search(r"error / tolerance +\[no number\] +5e\+01", drawn)
    assert "tolerance |" not in drawn  # no run is kept
    old = replace(tensor(), worst=(), actual=(), expected=(), near="")
    bare = replace(made.failure, errors=old)
    Corpus(project / "corpus").save(replace(made, failure=bare, first_errors=None))
    assert main(["show", made.id]) == 0
    assert "y of the minimal input" not in capsys.readouterr().out


def test_letters_say_how_numbers_lie_to_the_expected_ones() -> None:
    made = panels(tensor(1, 5, worst=-9.0))
    assert made["actual"][0].count("<") == 1
    assert set(made["expected"][0]) >= {"0", "9"}
    same = replace(tensor(1, 3), expected=(1.0,) * 3, actual=(1.0, 0.0, 1.0))
    assert panels(same)["expected"] == ["999"]
    assert panels(same)["actual"] == ["909"]
    nothing = replace(same, expected=(math.nan,) * 3, actual=(math.inf, -math.inf, 0.0))
    assert panels(nothing)["actual"] == ["+-0"]
