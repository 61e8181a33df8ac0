"""Block sizes that kernels use, and the indices at which their tiles meet."""

from functools import lru_cache
from typing import Final

# Powers of two from one tensor-core tile to the widest usual block.
TILES: Final = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@lru_cache(maxsize=4096)
def edges(n: int) -> tuple[int, ...]:
    """Return the indices of 0..n-1 at which tile handling goes wrong.

    Returns:
        First, last and middle index, both sides of the end of the first tile
        of every size, and the start of the last tile of every size; ascending,
        without repeats, empty for n == 0.
    """
    found = {0, n - 1, n // 2}
    for tile in TILES:
        found |= {tile - 1, tile, (n - 1) // tile * tile}
    return tuple(sorted(i for i in found if 0 <= i < n))
