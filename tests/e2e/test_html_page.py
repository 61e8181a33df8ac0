"""The HTML report in a browser, where there is one: its script runs and is content."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kfuzz.report.kinds import html
from tests.helpers.findings import finding
from tests.helpers.reported import gathered, mixed

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), "")


@pytest.mark.skipif(not BROWSER, reason="there is no Chromium here")
def test_the_page_runs_in_a_browser_without_a_word(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html.document(gathered(mixed())))
    made = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu",
            "--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'own'}",
            "--dump-dom", f"{page.as_uri()}#{finding().id}",
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    said = [line for line in made.stderr.splitlines() if ":CONSOLE" in line]
    assert not said
    # What a link names is opened, which takes the script that the policy admits.
    opened = re.findall(r'<details class="finding" id="([^"]*)"[^>]* open', made.stdout)
    assert opened == [finding().id]
    assert 'class="copy script" hidden' not in made.stdout
