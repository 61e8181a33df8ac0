"""The last proof of each kernel, kept beside the findings of a corpus."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError
from kfuzz.core.finding import short_hash
from kfuzz.core.proof import KernelProof

# Folders whose names begin with a dot hold no findings.
_FOLDER: Final = ".proofs"
_FORMAT: Final = 1


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
        document = json.loads(_place(corpus, kernel).read_text(encoding="utf-8"))
        if document["format"] != _FORMAT:
            return None
        return decode(KernelProof, document["proof"])
    except (OSError, ValueError, KeyError, TypeError, DecodeError):
        return None


def _place(corpus: Path, kernel: str) -> Path:
    return corpus / _FOLDER / f"{short_hash(kernel)}.json"
