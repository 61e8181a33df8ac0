"""A fleet of Ray whose workers, nodes and drivers are killed: nothing is lost.

    python -m tests.benchmarks.fleet_calamities --kills 50 --drivers 10

Faulty kernels are searched on a cluster of three nodes on this machine, by a number of
cases each. At random moments a worker, the process of a unit, or a node is killed (a
node comes back as a new one), and some drivers are; the next one goes on with the same
corpus. At the end a driver is left alone. All that was announced is looked for in the
corpus, what the last driver found is compared with a run without Ray, and whatever a
killed driver began must have ended within `GONE_SECONDS`.

The last line has the figures; the exit code is 1 if anything is lost, told twice, left
or found by one of the two runs only. Needs Ray: pip install 'kfuzz[ray]'.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kfuzz.core.budget import Budget
from kfuzz.core.event import FindingSaved, Notice
from kfuzz.engine.config import RunConfig
from kfuzz.store.corpus import Corpus, Problem, Stored
from tests.e2e.project import HEADER

ROOT: Final = Path(__file__).resolve().parents[2]
NODES: Final = 3
GONE_SECONDS: Final = 30.0
_VICTIMS: Final = ("worker", "unit", "unit", "node")
# How processes of each kind are told from others, by their command lines.
_WORKER: Final = b"ray::Worker"
_UNIT: Final = b"kfuzz.features.fleet.process"
_CAMPAIGN: Final = b"kfuzz.cli.searching"
_CASES: Final = 30


@dataclass
class Figures:
    """What came of it.

    Attributes:
        kills: processes killed, by what they were.
        announced: findings announced, by all drivers together.
        anew: units that were done anew.
        lost: announcements that the corpus does not hold.
        twice: findings that one driver announced twice.
        left: processes that outlived their driver.
        damaged: entries of the corpus that cannot be read.
        differing: buckets that only one of the last driver and the run without Ray has.
    """

    kills: Counter[str] = field(default_factory=Counter)
    announced: int = 0
    anew: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)

    def wants(self, chosen: argparse.Namespace) -> bool:
        """Whether there are to be more kills."""
        drivers = self.kills["driver"]
        others = self.kills.total() - drivers
        return others < chosen.kills or drivers < chosen.drivers

    @property
    def faults(self) -> int:
        """How much is not as it should be."""
        every = (self.lost, self.twice, self.left, self.damaged, self.differing)
        return sum(map(len, every))


def main() -> None:
    """Kill, look, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--drivers", type=int, default=10)
    parser.add_argument("--pause", type=float, default=6.0, help="mean, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.drive is not None:
        drive(chosen.drive, here=chosen.here)
        return
    with tempfile.TemporaryDirectory() as folder:
        figures = calamities(chosen, Path(folder))
    print(json.dumps(vars(figures)))
    sys.exit(int(figures.faults > 0))


def drive(folder: Path, *, here: bool) -> None:
    """Search, and print what is announced, a line each."""
    from kfuzz.cli import run as apart
    from kfuzz.features.fleet.ray_fleet import search_on

    os.chdir(folder)
    config = RunConfig(
        ("kernels.py",), folder, folder / ("alone" if here else "corpus"), seed=7,
        device="cpu", budget=Budget(None, max_cases=_CASES),
    )  # fmt: skip
    stop = threading.Event()
    if here:
        events = apart.events(config, stop=stop)
    else:
        events = search_on("ray", config, stop=stop)
    for event in events:
        match event:
            case FindingSaved():
                print("told", event.stage, event.finding.id, flush=True)
            case Notice(message=message):
                print("notice", message, flush=True)
    print("end", flush=True)


def calamities(chosen: argparse.Namespace, folder: Path) -> Figures:
    """Run drivers on a cluster until there were kills enough, and one to its end."""
    from ray.cluster_utils import Cluster

    kernels = "".join(
        f"@kernel(ops.relu)\ndef wrong_at_{n}(x):\n"
        f"    return torch.relu(x) + (x.numel() % {n} == 1)\n\n"
        for n in range(2, 2 + chosen.kernels)
    )
    folder.joinpath("kernels.py").write_text(f"{HEADER}\n{kernels}")
    folder.joinpath("pyproject.toml").touch()
    dice, figures = random.Random(chosen.seed), Figures()
    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    head = {**node, "num_cpus": 0, "include_dashboard": False}
    os.environ["OMP_NUM_THREADS"] = "1"
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(**node) for _ in range(NODES)]
        address = str(cluster.address)
        said: list[str] = []
        while figures.wants(chosen):
            kills_driver = figures.kills["driver"] < chosen.drivers
            said = _driven(
                chosen, folder, address, dice, figures, cluster, nodes, node,
                kills_driver=kills_driver,
            )  # fmt: skip
            _look(said, folder, figures)
            print(
                f"{dict(figures.kills)}, {figures.announced} announced, "
                f"{figures.faults} faults",
                file=sys.stderr,
                flush=True,
            )
        told = _finished(folder, address)
        _look(told, folder, figures)
    finally:
        cluster.shutdown()
    alone = _finished(folder, None)
    figures.differing += sorted(set(_done(told)) ^ set(_done(alone)))
    return figures


def _started(folder: Path, address: str | None) -> "subprocess.Popen[str]":
    words = ["--drive", str(folder), *(["--here"] if address is None else [])]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.fleet_calamities", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "RAY_ADDRESS": address or ""},
    )


def _finished(folder: Path, address: str | None) -> list[str]:
    """Return what a driver announces that nothing hinders."""
    out, _ = _started(folder, address).communicate()
    lines = out.splitlines()
    assert lines[-1:] == ["end"], lines[-5:]
    return lines


def _driven(
    chosen: argparse.Namespace, folder: Path, address: str, dice: random.Random,
    figures: Figures, cluster: Any, nodes: list[Any], node: dict[str, Any], *,
    kills_driver: bool,
) -> list[str]:  # fmt: skip
    """Kill what belongs to a driver, and it in the end; return what it announced."""
    process = _started(folder, address)
    said: list[str] = []
    assert process.stdout is not None
    lines = process.stdout
    reader = threading.Thread(target=lambda: said.extend(x.rstrip() for x in lines))
    reader.start()
    each = max(round(chosen.kills / max(chosen.drivers, 1)), 1)
    for _ in range(each):
        if _ended(process, dice.expovariate(1 / chosen.pause)):
            break
        victim = dice.choice(_VICTIMS)
        if victim == "node":
            cluster.remove_node(nodes.pop(0), allow_graceful=False)
            nodes.append(cluster.add_node(**node))
        elif not _kill(dice, _WORKER if victim == "worker" else _UNIT):
            continue
        figures.kills[victim] += 1
    if kills_driver and not _ended(process, dice.expovariate(1 / chosen.pause)):
        process.send_signal(signal.SIGKILL)
        figures.kills["driver"] += 1
        process.wait()
        until = time.monotonic() + GONE_SECONDS
        while (left := _left()) and time.monotonic() < until:
            time.sleep(0.5)
        figures.left += left
    else:
        process.wait()
    reader.join()
    return said


def _ended(process: "subprocess.Popen[str]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _look(said: list[str], folder: Path, figures: Figures) -> None:
    """Look for what a driver announced in the corpus."""
    figures.announced += sum(line.startswith("told") for line in said)
    figures.anew += sum("done anew" in line for line in said)
    counts = Counter(line for line in said if line.startswith("told"))
    figures.twice += [line for line, n in counts.items() if n > 1]
    entries = list(Corpus(folder / "corpus").entries())
    figures.damaged += [e.what for e in entries if isinstance(e, Problem)]
    stored = [e.finding for e in entries if isinstance(e, Stored)]
    ids = {i for f in stored for i in (f.id, *f.former)}
    figures.lost += [i for i in _done(said) if i not in ids]
    kernels = {f.signature.kernel for f in stored}
    # What was found and not yet reduced has another id once it is.
    begun = [line.split()[2] for line in said if line.startswith("told found")]
    figures.lost += [i for i in begun if i not in ids and _kernel(i) not in kernels]


def _done(said: list[str]) -> list[str]:
    return [line.split()[2] for line in said if line.startswith("told done")]


def _kernel(id: str) -> str:
    return id.split("-")[0]


def _kill(dice: random.Random, mark: bytes) -> bool:
    """Kill a process of this user's whose command line has a mark, if there is one."""
    found = [pid for pid, line in _processes() if mark in line]
    if not found:
        return False
    os.kill(dice.choice(found), signal.SIGKILL)
    return True


def _left() -> list[str]:
    """Return the processes of units that still run."""
    return [
        f"{pid} {line.replace(bytes(1), b' ').decode(errors='replace'):.80}"
        for pid, line in _processes()
        if _UNIT in line or _CAMPAIGN in line
    ]


def _processes() -> list[tuple[int, bytes]]:
    """Return this benchmark's own processes, with their command lines.

    Ray's workers write their titles over their environments: theirs is that of what
    began them.
    """
    lines: dict[int, bytes] = {}
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            pid = int(entry.name)
            lines[pid] = entry.joinpath("cmdline").read_bytes()
            status = entry.joinpath("stat").read_text().rpartition(") ")[2]
            parents[pid] = int(status.split()[1])
            if _MARK in entry.joinpath("environ").read_bytes():
                marked.add(pid)
        except OSError:
            continue
    return [
        (pid, line)
        for pid, line in lines.items()
        if pid in marked or parents.get(pid) in marked
    ]


# In the environment of all that this process begins, so that others' are left alone.
_VARIABLE: Final = "KFUZZ_CALAMITIES"
_MARK: Final = (
    f"{_VARIABLE}={os.environ.setdefault(_VARIABLE, str(os.getpid()))}".encode()
)


if __name__ == "__main__":
    main()
