"""Hunts for faults in released kernels, and runs the ledger of those found.

    python -m tests.hunt --package liger-kernel==0.8.5 --device interpret --seconds 20
    python -m tests.hunt --ledger                 does each entry still show?
    python -m tests.hunt --ledger 'fla*' --since  in which releases
    python -m tests.hunt --changed                newest releases: what is new, mended
    python -m tests.hunt --write                  LEDGER.md of the scripts

Wheels are kept in ~/.cache/kfuzz/wheels, or --keep FOLDER, each in a folder of its own.
"""

import argparse
import fnmatch
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.hunt import replaying, searching, wheels
from tests.hunt.entry import MENDED, PAGE, Entry, EntryError, entries, page, table_row
from tests.hunt.searching import UNJUDGED, Bound, bound

HUNTED = (
    "kernel",
    "cases",
    "structures",
    "finding",
    "line",
    "judged",
    "release before",
)
REPLAYED = ("entry", "package", "version", "", "printed")


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--package", nargs="+", metavar="NAME[==VERSION]")
    what.add_argument("--ledger", nargs="*", metavar="GLOB")
    what.add_argument("--changed", action="store_true")
    what.add_argument("--write", action="store_true")
    add = parser.add_argument
    on_gpu = torch.cuda.is_available()
    add("--device", choices=("cuda", "interpret"),
        default="cuda" if on_gpu else "interpret")  # fmt: skip
    add("--seconds", type=float, default=60.0, help="of each kernel")
    add("--kernels", nargs="+", default=["*"], metavar="GLOB")
    add("--at-once", type=int, default=1, help="kernels or scripts side by side")
    add("--repair", action="store_true", help="look for patches of what is found, too")
    add("--since", action="store_true", help="with older releases, too")
    add("--keep", type=Path, default=wheels.cache())
    options = parser.parse_args()
    options.keep = options.keep.resolve()
    options.keep.mkdir(parents=True, exist_ok=True)
    try:
        if options.write:
            PAGE.write_text(page(entries()))
            return 0
        if options.package:
            return hunted(options)
        if options.changed:
            return changed(options)
        return ledger(options)
    except (EntryError, wheels.WheelError) as error:
        parser.error(str(error))


def ledger(options: argparse.Namespace) -> int:
    """Print which entries show; 1 if one does not where it says that it does."""
    chosen = _matching(options.ledger)
    device = _scripts_device(options)
    one = partial(_once, device=device, keep=options.keep)
    if options.since:
        one = partial(_every, kind=replaying.since, device=device, keep=options.keep)
    wrong = 0
    _head(REPLAYED)
    for runs in _side_by_side(one, chosen, options.at_once):
        for ran in runs:
            _row(_replayed(ran))
        last = next(iter(runs))
        gone = last.entry.said["state"].startswith("mended in")
        wrong += last.outcome == MENDED and not gone
    return int(bool(wrong))


def hunted(options: argparse.Namespace) -> int:
    """Search packages; 1 if a finding is to be judged, or nothing was compared."""
    known = bound()
    unjudged = 0
    for word in options.package:
        name, _, version = word.partition("==")
        if name not in known:
            raise wheels.WheelError(
                f"{name}: no bindings; there are: {', '.join(known)}"
            )
        one = known[name]
        unjudged += _searched(one, version or one.version, options)
    return int(bool(unjudged))


def changed(options: argparse.Namespace) -> int:
    """Print what the newest releases changed; 1 if anything did."""
    count = 0
    print("## The ledger, with newer releases\n")
    _head(REPLAYED)
    device = _scripts_device(options)
    one = partial(_every, kind=replaying.mended, device=device, keep=options.keep)
    for runs in _side_by_side(one, _matching([]), options.at_once):
        gone = [ran for ran in runs if ran.outcome == MENDED]
        count += bool(gone)
        for ran in runs[:1]:
            word = (
                f"mended in {gone[-1].version}"
                if gone
                else replaying.WORDS[ran.outcome]
            )
            _row((*_replayed(ran)[:3], word, ran.printed))
    for one_package in bound().values():
        newest = wheels.releases(one_package.package)[-1]
        if newest != one_package.version:
            count += _searched(one_package, newest, options)
    return int(bool(count))


def _searched(one: Bound, version: str, options: argparse.Namespace) -> int:
    """Print the table of one release; return how many findings are to be judged.

    A search that compared nothing is one, too.
    """
    wheels.install(options.keep, one.package, version)
    print(f"\n## {one.package} {version}\n")
    _head(HUNTED)
    search = partial(
        searching.search, one, version, options.device, options.seconds, options.keep,
        repair=options.repair,
    )  # fmt: skip
    unjudged = cases = 0
    names = searching.chosen(one, options.kernels)
    for found in _side_by_side(search, names, options.at_once):
        for row in searching.rows(found):
            _row(row)
        cases += found.cases
        for finding in found.findings:
            unjudged += finding["judged"] == UNJUDGED
            print(f"{found.kernel} {finding['contract']}:", *finding["input"],
                  *finding["cause"], sep="\n  ", file=sys.stderr)  # fmt: skip
    return unjudged + (not cases)


def _matching(globs: list[str]) -> list[Entry]:
    found = [
        e for e in entries() if any(fnmatch.fnmatch(e.name, g) for g in globs or "*")
    ]
    if not found:
        raise EntryError("no entry has such a name")
    return found


def _once(entry: Entry, device: str, keep: Path) -> list[replaying.Ran]:
    return [replaying.ran(entry, entry.said["last"], device, keep)]


def _every(
    entry: Entry,
    kind: Callable[[Entry, str, Path], Iterator[replaying.Ran]],
    device: str,
    keep: Path,
) -> list[replaying.Ran]:
    return list(kind(entry, device, keep))


def _scripts_device(options: argparse.Namespace) -> str:
    return "cuda" if options.device == "cuda" else "cpu"


def _replayed(ran: replaying.Ran) -> tuple[str, ...]:
    words = replaying.WORDS[ran.outcome]
    return ran.entry.name, ran.entry.package, ran.version, words, ran.printed


def _side_by_side(one: Callable[[Any], Any], over: Iterable[Any], at_once: int) -> Any:
    """Yield what comes of each, as it comes: one may take its whole time."""
    with ThreadPoolExecutor(at_once) as pool:
        for done in as_completed([pool.submit(one, each) for each in over]):
            yield done.result()


def _head(heads: Iterable[str]) -> None:
    _row(heads)
    _row("---" for _ in heads)


def _row(cells: Iterable[str]) -> None:
    print(table_row(cells), flush=True)


if __name__ == "__main__":
    sys.exit(main())
