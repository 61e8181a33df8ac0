"""The HTML page: it shows what was found, loads nothing, and escapes everything."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

from kfuzz.core.event import Event
from kfuzz.report.kinds import html
from tests.helpers.events import LARGEST, SEARCHED, campaign, finished, saved
from tests.helpers.findings import finding
from tests.helpers.reported import COMMAND, HOSTILE, gathered, hostile, mixed

VOID = {"meta", "link", "br", "img", "input", "line", "polyline"}


class Page(HTMLParser):
    """Reads a page strictly: every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, n, value in self.attributes if n == name]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page(events: list[Event], options: str = "") -> Page:
    return Page(html.document(gathered(events), options=options))


def test_a_run_is_shown_from_grades_to_notes() -> None:
    shown = page(mixed(), " --corpus found")
    for text in (
        "1 violation", "1 known", "1 not confirmed", COMMAND, "off by 3",
        f"kfuzz replay {finding().id} --corpus found", "n = 4 passes",
        "a size that is no multiple of the block",
        "known: by design", "slow", "note: reads twice",
        "postcondition",
    ):  # fmt: skip
        assert text in shown.words
    assert any(
        label.startswith("C-PRC-01: computes in")
        and label.endswith("violates (40 decided, 2 undecided)")
        for label in shown.values("aria-label")
    )
    assert "Not applicable to any kernel: C-ORD-03: overlapping calls" in shown.words


def test_each_class_of_sizes_has_a_bar() -> None:
    shown = page([finished(searched=SEARCHED, largest=LARGEST)])
    bars = [
        value for tag, n, value in shown.attributes if (tag, n) == ("meter", "value")
    ]
    assert bars == ["2.04", "2.0", "0.0", "0.0"]
    for text in (
        "to 256 2.0 211 40",
        "to 65,536 0.0 0 no time was left",
        "above 65,536 0.0 0 the limit on the CPU",
        "largest M 65, N 4,096",
    ):
        assert text in shown.words


def test_links_lead_somewhere_and_ids_are_unique() -> None:
    twice = [saved(finding(), "done"), replace(saved(finding(), "done"), kernel="b")]
    shown = page([*mixed(), *twice])
    ids = shown.values("id")
    assert len(set(ids)) == len(ids)
    targets = [href[1:] for href in shown.values("href") if href.startswith("#")]
    assert set(targets) <= set(ids)
    assert finding().id in targets
    assert set(shown.values("data-from")) <= set(ids)
    assert set(shown.values("aria-labelledby")) <= set(ids)


def test_nothing_is_loaded_and_nothing_but_the_page_itself_may_run() -> None:
    text = html.document(gathered(mixed()))
    shown = Page(text)
    loaded = shown.values("src") + shown.values("href")
    assert all(url.startswith(("#", "data:")) for url in loaded)
    assert not re.search(r"url\(|@import|https?://", text)
    assert not shown.values("style")
    assert not [n for _, n, _ in shown.attributes if n.startswith("on")]
    (policy,) = [v for v in shown.values("content") if "default-src" in v]
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_hostile_texts_are_shown_as_text() -> None:
    told = [*campaign(hostile()), *mixed()[-2:]]
    tame = finding(failure=replace(finding().failure, trace="no markup"))
    shown, plain = page(told), page([*campaign(tame), *mixed()[-2:]])
    assert shown.tags["script"] == plain.tags["script"] == 1
    assert set(shown.tags) == set(plain.tags)
    assert HOSTILE.replace("\x1b", "\\x1b") in shown.words
    assert "\x1b" not in html.document(gathered(told))
