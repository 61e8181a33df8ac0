"""The HTML report in a browser, where there is one: its script runs and is content."""

import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kfuzz.report.kinds import html
from tests.helpers.events import campaign, finished
from tests.helpers.pictures import failing, seen, tensor
from tests.helpers.reported import gathered, mixed

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), "")

pytestmark = pytest.mark.skipif(
    not BROWSER, reason=f"no browser on PATH is one of {', '.join(BROWSERS)}"
)

# Of modes: Chromium's number, the page, what is worst, and what misses by less.
MODES = {
    "light": (1, (255, 255, 255), (140, 45, 4), (230, 97, 1)),
    "dark": (0, (14, 17, 22), (255, 184, 119), (224, 112, 26)),
}


def shown(page: Path, *words: str, at: str = "") -> str:
    """Show a page, and return its document; it must not write to the console."""
    made = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu",
            "--hide-scrollbars", "--disable-background-networking",
            "--enable-logging=stderr", "--v=0",
            f"--user-data-dir={page.parent / 'own'}", *words, f"{page.as_uri()}{at}",
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert not [line for line in made.stderr.splitlines() if ":CONSOLE" in line]
    return made.stdout


def test_the_page_runs_in_a_browser_without_a_word(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html.document(gathered(mixed())))
    other = gathered(mixed()).findings[-1].finding.id
    text = shown(page, "--dump-dom", at=f"#{other}")
    # What a link names is opened, which takes the script that the policy admits.
    opened = re.findall(r'<details class="finding" id="([^"]*)"[^>]* open', text)
    assert opened[-1] == other
    assert 'class="copy script" hidden' not in text


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [390, 1200])
def test_the_worst_element_is_on_the_screen(
    mode: str, width: int, tmp_path: Path
) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "page.png"
    events = campaign(failing("softmax", tensor()))
    events[-2] = finished(failing("softmax", tensor()), errors=seen(602.0))
    page.write_text(html.document(gathered(events)))
    number, paper, worst, less = MODES[mode]
    height = 1_800 if width < 1_000 else 1_000  # as much as the finding takes
    shown(
        page, f"--blink-settings=preferredColorScheme={number}",
        f"--window-size={width},{height}", f"--screenshot={picture}",
    )  # fmt: skip
    pixels = decoded(picture.read_bytes())
    assert pixels.shape[1] == width
    assert tuple(pixels[2, 2]) == paper

    def places(colour: tuple[int, int, int]) -> NDArray[np.intp]:
        return np.argwhere((pixels == colour).all(-1))

    # One element, and the cell of the whole output that it is in, are worst.
    assert 20 < len(places(worst)) < 2_000
    assert len(places(less)) > len(places(worst))
    # Nothing is cut off on the right: the last columns are paper.
    assert (pixels[:, -4:] == paper).all()


def decoded(png: bytes) -> NDArray[np.uint8]:
    """Return the colours of a PNG of 8 bits without interlace (W3C PNG, 9)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, dict[bytes, bytes]()
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4]), png[at + 4 : at + 8]
        parts[kind] = parts.get(kind, b"") + png[at + 8 : at + 8 + size]
        at += size + 12
    wide, high = (int.from_bytes(parts[b"IHDR"][i : i + 4]) for i in (0, 4))
    depth, colours, *_, interlace = parts[b"IHDR"][8:]
    assert (depth, interlace) == (8, 0)
    step = {2: 3, 6: 4}[colours]
    raw = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8)
    lines = raw.reshape(high, wide * step + 1)
    above = np.zeros((wide, step), np.int64)
    made = np.empty((high, wide, step), np.uint8)
    for row, line in enumerate(lines):
        above = _line(line[0], line[1:].reshape(wide, step).astype(np.int64), above)
        made[row] = above
    return made[..., :3]


def _line(
    kind: int, line: NDArray[np.int64], above: NDArray[np.int64]
) -> NDArray[np.int64]:
    if kind in (0, 2):
        return (line + (above if kind else 0)) % 256
    if kind == 1:
        return np.cumsum(line, axis=0) % 256
    left = corner = np.zeros(line.shape[1], np.int64)
    for x, up in enumerate(above):
        if kind == 3:
            guess = (left + up) // 2
        else:
            far = [abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)]
            nearest = np.argmin(far, axis=0)
            guess = np.choose(nearest, [left, up, corner])
        corner, left = up, (line[x] + guess) % 256
        line[x] = left
    return line
