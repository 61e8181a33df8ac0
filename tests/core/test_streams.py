"""Named random streams, and what a case says besides its values."""

import itertools
from collections import Counter

from kfuzz.core.codec import decode, encode
from kfuzz.core.declaration import Declaration
from kfuzz.core.finding import short_hash
from kfuzz.core.random_streams import Purpose, hashed, is_sampled, stream
from kfuzz.core.recipe import (
    NOWHERE,
    Case,
    Edge,
    Fill,
    Poison,
    TensorSpec,
    settled,
    with_surroundings,
)
from kfuzz.strategies.values import SEED_BITS

OUT = Declaration(out=("y",))


def case(seed: int) -> Case:
    return Case({"x": TensorSpec((2,), ("n",), "float32", fill=Fill("randn", seed))})


def test_a_stream_means_the_same_for_ever() -> None:
    assert stream(7, Purpose.POISON) == 0x6BB2C2FB060F392E
    assert stream(8, Purpose.POISON) != stream(7, Purpose.POISON)
    assert len({stream(7, purpose) for purpose in Purpose}) == len(Purpose)


def test_purposes_know_nothing_of_one_another() -> None:
    drawn = [with_surroundings(case(seed), OUT) for seed in range(4000)]
    kinds = {(c.poison, c.edge, c.config % 3, c.layout) for c in drawn}  # type: ignore[operator]
    assert len(kinds) == 2 * 3 * 3 * 5
    together = [is_sampled(s, Purpose.PROBES, 0.25) for s in range(4000)]
    beside = [is_sampled(s, Purpose.BASELINES, 0.25) for s in range(4000)]
    both = sum(a and b for a, b in zip(together, beside, strict=True))
    assert 200 < both < 300


def test_no_stream_goes_with_another() -> None:
    # Seeds of a case's first two arguments, whose streams are apart as well.
    seeds = (*range(1500), *(seed | 1 << SEED_BITS for seed in range(1500)))
    drawn = {purpose: [stream(seed, purpose) for seed in seeds] for purpose in Purpose}
    for one, other in itertools.combinations(Purpose, 2):
        pairs = Counter(
            (a % 3, b % 3) for a, b in zip(drawn[one], drawn[other], strict=True)
        )
        expected = len(seeds) / 9
        off = sum((pairs[a, b] - expected) ** 2 for a in range(3) for b in range(3))
        assert off / expected < 45, (one, other)  # 8 on average


def test_a_drawn_case_leaves_nothing_open() -> None:
    drawn = with_surroundings(case(3), OUT)
    assert settled(drawn, OUT) == drawn
    assert decode(Case, encode(drawn)) == drawn
    assert with_surroundings(case(3), Declaration()).layout is None


def test_recipes_of_earlier_versions_mean_what_they_meant() -> None:
    layouts = ["contiguous"] * 4 + ["padded", "transposed", "stepped", "offset"]
    sides = (Edge("start"), Edge("end"), NOWHERE)
    for seed in (*range(24), 15120 * 5 + 1, 15120 * 7, 123_456_789):
        made = settled(case(seed), OUT)
        assert made.poison == (Poison.FINITE if seed % 2 else Poison.NAN)
        assert made.edge == sides[seed // 2 % 3]
        assert made.config == seed // 6 % 2520
        assert made.layout == layouts[seed // 15120 % 8]
    pinned = Case({"x": TensorSpec((1,), ("n",), "float32", values=bytes(4))})
    made = settled(pinned, OUT)
    assert (made.poison, made.edge, made.config) == ("nan", None, 0)
    assert made.layout == "contiguous"


def test_names_that_no_encoding_has_are_told_apart() -> None:
    """Those of files whose names are no UTF-8, and what a stranger's file says."""
    odd = ("k.py", "k\udcff.py", "k\udcfe.py", "k\ud800.py", "k\ud800\udcff.py")
    for hash_of in (hashed, short_hash):
        assert len({hash_of(name) for name in odd}) == len(odd)
