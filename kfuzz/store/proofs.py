"""The last proof of each kernel, kept beside the findings of a corpus."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError
from kfuzz.core.finding import short_hash
from kfuzz.core.proof import KernelProof
from kfuzz.store import strict_json
from kfuzz.store.plain_file import read_plain

# Folders whose names begin with a dot hold no findings.
_FOLDER: Final = ".proofs"
_FORMAT: Final = 1
# A property takes some hundred bytes.
_MOST_BYTES: Final = 1 << 20


def keep_proof(corpus: Path, proof: KernelProof) -> None:
    """Keep what is proved of a kernel, in place of what was before.

    Nothing where the folder cannot be written to: a proof can be made again.
    """
    with suppress(OSError):
        place = _place(corpus, proof.kernel)
        place.parent.mkdir(parents=True, exist_ok=True)
        document = {"format": _FORMAT, "proof": encode(proof)}
        fresh = place.with_suffix(".new")
        fresh.write_text(json.dumps(document) + "\n", encoding="utf-8")
        fresh.replace(place)


def kept_proof(corpus: Path, kernel: str) -> KernelProof | None:
    """Return what was proved of a kernel last, None where nothing is kept."""
    try:
        text = read_plain(_place(corpus, kernel), _MOST_BYTES)
        kept = strict_json.document(strict_json.loads(text), _FORMAT)
        return decode(KernelProof, kept.get("proof"))
    except DecodeError:
        return None


def _place(corpus: Path, kernel: str) -> Path:
    return corpus / _FOLDER / f"{short_hash(kernel)}.json"
