"""The inputs that reached something, kept between runs and merged.

They are the bytes that cases are drawn from: short, of no use to another version of
Hypothesis or of the strategies than that they are drawn from all the same, and so no
part of the corpus of findings. They lie beside it, in a folder that git ignores.

    <corpus>/.inputs/<kernel>-<8 hex of its place and the backend>/<SHA-1 of the bytes>
"""

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from kfuzz.core.finding import safe_name, short_hash
from kfuzz.fuzz.changes import MOST_BYTES

FOLDER: Final = ".inputs"
# Inputs kept of one kernel: more cost every run as many cases before the first new one.
MOST_KEPT: Final = 512
_NAME: Final = re.compile(r"[0-9a-f]{40}")


def inputs_in(*folders: Path) -> dict[str, bytes]:
    """Return the inputs in some folders by the name that libFuzzer gives them."""
    found = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            for path in sorted(folder.iterdir()):
                with contextlib.suppress(OSError):
                    data = path.read_bytes()
                    found[hashlib.sha1(data, usedforsecurity=False).hexdigest()] = data
    return found


def inputs_worth(features: Path) -> list[str]:
    """Return the names of the inputs that libFuzzer has written features of."""
    with contextlib.suppress(OSError):  # what cleans /tmp may have taken it
        return sorted(os.listdir(features))
    return []


class KeptInputs:
    """The inputs of one kernel on one backend.

    Args:
        corpus: the folder of findings.
        kernel: the kernel's name.
        place: its node id.
        backend: "cpu", "interpret" or "cuda": sizes, and so cases, differ.
    """

    def __init__(self, corpus: Path, kernel: str, place: str, backend: str) -> None:
        name = f"{safe_name(kernel)}-{short_hash(f'{place} {backend}')}"
        self.folder = corpus / FOLDER / name

    def shortest(self, most: int | None) -> list[bytes]:
        """Return the inputs, the shortest first, at most so many of them."""
        kept = self._read()
        names = sorted(kept, key=lambda name: (len(kept[name]), name))
        return [kept[name] for name in names[:most]]

    def merge(self, ran: Mapping[str, bytes], worth: Collection[str]) -> None:
        """Keep of the inputs that were run those that reach what no other one does.

        Inputs that were not run stay.

        Args:
            ran: those that a run began with or came upon, by name.
            worth: names of those worth keeping.
        """
        kept = self._read()
        for name in ran:
            if name not in worth and name in kept:
                with contextlib.suppress(OSError):
                    (self.folder / name).unlink()
                del kept[name]
        for name in sorted(worth, key=lambda name: (len(ran.get(name, b"")), name)):
            if name in ran and name not in kept and len(kept) < MOST_KEPT:
                self._write(name, ran[name])
                kept[name] = ran[name]

    def _read(self) -> dict[str, bytes]:
        found = inputs_in(self.folder)
        # A name that is not that of the bytes is a stranger's, or cut short.
        return {
            name: data
            for name, data in found.items()
            if len(data) <= MOST_BYTES and (self.folder / name).is_file()
        }

    def _write(self, name: str, data: bytes) -> None:
        assert _NAME.fullmatch(name)
        # What cannot be kept is found again.
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            ignored = self.folder.parent / ".gitignore"
            if not ignored.exists():
                ignored.write_text("*\n")
            unfinished = self.folder / f".tmp-{secrets.token_hex(4)}"
            unfinished.write_bytes(data)
            os.replace(unfinished, self.folder / name)
