"""Into how many parts cuBLAS splits a sum of 16-bit products, stored as such.

    python -m tests.benchmarks.split_k

A row of the left matrix holds 2^p at its first place, -2^p at its last and a 1 at some
place j, p the precision of the format. Where sums stay in float32 the result is 1. A
part that holds the first place and j is 2^p + 1, which is stored as 2^p: the result is
0. Where parts are added to the stored result, it is 0 for all j outside the last part.
Either way the lesser share of the places j is one part's.

Needs a GPU; contracts/platform/CLAIMS.md declares the greatest number found.
"""

from typing import Final

import torch

BITS: Final = {torch.float16: 11, torch.bfloat16: 8}
ROWS: Final = (1, 4, 16, 64, 256)
COLUMNS: Final = (1, 2, 8, 64, 512)
INNER: Final = (64, 256, 1025, 4096, 16384, 65536, 131043, 262144)
# Places of the 1 that are tried for each shape.
PLACES: Final = 512


def parts(m: int, n: int, k: int, dtype: torch.dtype, *, transposed: bool) -> int:
    """Return the number of stored parts of the product of [m, k] and [k, n]."""
    big = float(1 << BITS[dtype])
    places = torch.linspace(1, k - 2, min(PLACES, k - 2), device="cuda").long().unique()
    right = torch.ones((n, k), device="cuda", dtype=dtype).T if transposed else (
        torch.ones((k, n), device="cuda", dtype=dtype)
    )  # fmt: skip
    lost = 0
    for start in range(0, len(places), m):
        chosen = places[start : start + m]
        left = torch.zeros((m, k), device="cuda", dtype=dtype)
        left[:, 0], left[:, -1] = big, -big
        left[torch.arange(len(chosen)), chosen] = 1
        lost += int((torch.matmul(left, right)[: len(chosen), 0] == 0).sum())
    if not 0 < lost < len(places):
        return 1
    return round(len(places) / min(lost, len(places) - lost))


def main() -> None:
    """Print the number of parts of each shape that is split, and the greatest."""
    if not torch.cuda.is_available():
        raise SystemExit("it needs a GPU")
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    greatest = 1
    for dtype in BITS:
        for m in ROWS:
            for n in COLUMNS:
                for k in INNER:
                    for transposed in (False, True):
                        found = parts(m, n, k, dtype, transposed=transposed)
                        greatest = max(greatest, found)
                        if found > 1:
                            turned = "transposed" if transposed else ""
                            print(f"{dtype} {m} x {k} x {n} {turned}: {found}")
    print("greatest:", greatest)


if __name__ == "__main__":
    main()
