"""Named random streams: each random choice has its own, derived from a seed by purpose.

Two choices that follow from one seed know nothing of one another, and a new purpose
changes no draw of the others.
"""

import hashlib
import random
from enum import Enum
from typing import Final

_MASK64: Final = (1 << 64) - 1


def hashed(text: str) -> int:
    """Return 64 bits that depend on a text alone."""
    content = text.encode(errors="surrogatepass")  # of a path that is no UTF-8
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())


class Purpose(Enum):
    """What a stream is for; the names are part of what a seed means."""

    POISON = "which bits memory holds that carries no data"
    EDGE = "on which side the arguments touch a page that faults, if any"
    CONFIGURATION = "which of the kernel's configurations runs"
    OUTPUT_LAYOUT = "the layout of outputs whose memory the kernel is given"
    INPUT_LAYOUT = "the details of an argument's layout: axis, width, order"
    PLANTS = "which special values are planted in an argument, and where"
    ENDS = "whether several arguments hold an end of their intervals, and where"
    IGNORED = "which indices hold the value that is to be ignored"
    OPTIONAL = "which optional tensors a case is without"
    REPAIR = "how sizes are changed until they satisfy the shape class"
    STRETCHED = "whether a case with one large size takes a case's place, and which"
    GROUPS = "the value families of the groups of a batch"
    ITEMS = "the seeds that a fill has in the further items of a batch"
    DELAYS = "what else a GPU does while a call is repeated, and for how long"
    PROBES = "whether a case gets the sampled probes"
    CHANGED_PART = "which part of its arguments a further call changes"
    FORM = "which changed form of a case is run: its cut, permutation or scale"
    BASELINES = "whether trivial baselines are tried on a case"
    OWN_VALUES = "whether a judged case has its file's own values"
    INTEGER_ENDS = "which ends of their range a judged case's integers take"
    ROWS = "which rows of a case too large to be judged whole are compared"
    CASES = "the cases of a round"
    BATCHES = "the batches of a round"
    COVERAGE = "the first inputs of a search guided by coverage"

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        self.key = hashed(self.name)


def splitmix64(state: int) -> int:
    """Return one output of SplitMix64 (Steele, Lea, Flood 2014)."""
    z = (state + 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)


def stream(seed: int, purpose: Purpose) -> int:
    """Return the 64 bits that a seed gives a purpose."""
    return splitmix64(splitmix64(seed & _MASK64) ^ purpose.key)


def is_sampled(seed: int, purpose: Purpose, share: float) -> bool:
    """Whether a seed is among the share that a purpose takes.

    A larger share takes what a smaller one does, and more.
    """
    return stream(seed, purpose) < share * (1 << 64)


def generator(seed: int | str, purpose: Purpose) -> random.Random:
    """Return a generator for a choice of many draws.

    Args:
        seed: a number, or a text that stands for everything drawn before.
        purpose: of the choice.
    """
    number = hashed(seed) if isinstance(seed, str) else seed
    return random.Random(stream(number, purpose))
