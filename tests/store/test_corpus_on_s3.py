"""A corpus on S3: writers at once, writers killed, and a server that fails at times."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kfuzz.core.finding import Finding
from tests.helpers.findings import finding

ROOT = Path(__file__).parents[2]
BUCKET = "s3://team"
EACH = 20
# Of the findings of one writer the other one has as many, too.
COMMON = 8

# Saves findings, and announces each as it is stored.
WRITER = """
import sys
from kfuzz.store import mirror
from kfuzz.store.corpus import Corpus
from tests.store.test_corpus_on_s3 import BUCKET, found_by
corpus = Corpus(mirror.opened(BUCKET + "/corpus"))
for each in found_by(sys.argv[1]):
    corpus.save(each)
    print(each.id, flush=True)
mirror.finish()
"""

# Prints the ids of all findings; fails if anything there cannot be read.
READER = """
from kfuzz.store import mirror
from kfuzz.store.corpus import Corpus, Stored
from tests.store.test_corpus_on_s3 import BUCKET
corpus = Corpus(mirror.opened(BUCKET + "/corpus"))
assert corpus.check() == []
for entry in corpus.entries():
    assert isinstance(entry, Stored)
    print(entry.finding.id)
"""

pytestmark = pytest.mark.slow


def found_by(writer: str) -> list[Finding]:
    common = [finding(kernel=f"common{number}") for number in range(COMMON)]
    own = [finding(kernel=f"{writer}{number}") for number in range(EACH - COMMON)]
    return [each for pair in zip(own, common, strict=False) for each in pair] + own[
        COMMON:
    ]


@contextmanager
def server(tmp_path: Path, *words: str) -> Iterator[dict[str, str]]:
    """Yield the environment of those that are to use it."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    command = [sys.executable, "-m", "tests.helpers.s3_server", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port.isdigit()
            environment = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "one",
                "AWS_SECRET_ACCESS_KEY": "two",
                "AWS_DEFAULT_REGION": "us-east-1",
                "OMP_NUM_THREADS": "1",
            }
            make = f"import s3fs; s3fs.S3FileSystem().mkdir({BUCKET!r})"
            with begin(environment, make, tmp_path) as made:
                assert made.communicate()[1] == ""
            yield environment
        finally:
            process.kill()


def begin(
    environment: dict[str, str], code: str, cache: Path, *words: str
) -> "subprocess.Popen[str]":
    more = {"PYTHONPATH": str(ROOT), "KFUZZ_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env={**os.environ, **environment, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held(environment: dict[str, str], cache: Path) -> list[str]:
    """Return the ids of what somebody who was never there before finds."""
    with begin(environment, READER, cache) as reader:
        out, err = reader.communicate()
    assert reader.returncode == 0, err
    return out.split()


def test_writers_that_are_killed_lose_nothing_that_they_announced(
    tmp_path: Path,
) -> None:
    drawn = random.Random(28)
    with server(tmp_path, "--share", "0.1") as environment:
        announced: set[str] = set()
        for kill in range(20):
            # Half of them go on where a killed one was.
            folder = tmp_path / ("same" if kill % 2 else f"machine{kill}")
            with begin(environment, WRITER, folder, f"w{kill}x") as writer:
                assert writer.stdout is not None
                announced.add(writer.stdout.readline().strip())
                time.sleep(drawn.uniform(0, 1.5))
                writer.kill()
                announced |= set(writer.stdout.read().split("\n")[:-1])
        found = held(environment, tmp_path / "reader")
    assert len(found) == len(set(found))
    assert announced <= set(found)
