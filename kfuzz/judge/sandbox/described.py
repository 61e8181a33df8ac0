"""What contains a child, in words; and what does not."""

from kfuzz.core.untrusted import Containment, Measure
from kfuzz.judge.sandbox.contain import Facts
from kfuzz.judge.sandbox.limits import MIB, Limits

_LANDLOCK_TCP = 4
_LANDLOCK_SCOPES = 6


def describe(facts: Facts, limits: Limits, *, gpu: bool) -> Containment:
    """Return what is in force and what is open, subject by subject.

    Args:
        facts: what the child found to hold.
        limits: what it may take.
        gpu: whether it uses a GPU.
    """
    return Containment(
        (
            _memory(facts, limits, gpu=gpu),
            Measure(
                "time",
                True,
                f"a call may take {limits.wall_seconds:g} s, or longer where longer is "
                f"expected, and {limits.cpu_seconds:g} s of processor time; then the "
                "child is killed",
            ),
            _processes(facts, limits),
            _disk(facts, limits),
            Measure(
                "output",
                True,
                f"what it prints is read and dropped; past {_mib(limits.output_bytes)} "
                "it is killed",
            ),
            _files(facts),
            _network(facts),
            _others(facts),
            _privileges(facts),
            Measure(
                "environment",
                True,
                "it inherits a short list of variables that compilers and drivers need",
            ),
            Measure(
                "reading",
                False,
                "it can read every file that the user who runs kfuzz can read, the "
                "reference and unix sockets by path included",
            ),
            *(
                (
                    Measure(
                        "device",
                        False,
                        "torch gives it at most "
                        f"{limits.device_share:.0%} of the GPU's memory; calls of the "
                        "driver are not limited, and a fault of the driver or the "
                        "device itself reaches every process on that GPU",
                    ),
                )
                if gpu
                else ()
            ),
        )
    )


def _memory(facts: Facts, limits: Limits, *, gpu: bool) -> Measure:
    room = _mib(limits.memory) if limits.memory else "half of what is free"
    watched = f"its processes are watched and killed beyond {room}"
    if "address space" in facts.limits:
        text = f"address space is limited, so that allocating fails; {watched}"
        return Measure("memory", True, text)
    why = " (on a GPU address space cannot be limited)" if gpu else ""
    return Measure("memory", True, f"{watched}{why}")


def _processes(facts: Facts, limits: Limits) -> Measure:
    text = f"counted, and all killed beyond {limits.processes}"
    if facts.pids:
        return Measure("processes", True, f"{text}; none outlives the child")
    return Measure(
        "processes", True, f"{text}; one that forks faster than it is looked for wins"
    )


def _disk(facts: Facts, limits: Limits) -> Measure:
    room = _mib(limits.scratch_bytes)
    if facts.quota:
        text = f"a file system in memory of {room}; builds go to a folder that is "
        return Measure("disk", True, f"{text}measured, and it is killed beyond {room}")
    return Measure(
        "disk",
        True,
        f"its folders are measured several times a second, and it is killed beyond "
        f"{room}",
    )


def _files(facts: Facts) -> Measure:
    landlock = f"Landlock {facts.landlock} refuses to write outside its folders"
    if facts.read_only:
        text = "all but its folders is mounted read-only"
        if facts.landlock:
            return Measure("files", True, f"{text}; {landlock}")
        if facts.own_devices:
            return Measure("files", True, f"{text}, and it has no devices but its own")
        open_devices = f"{text}, but it can write to devices that the user can open"
        return Measure("files", False, open_devices)
    if facts.landlock:
        return Measure("files", True, landlock)
    return Measure(
        "files",
        False,
        "it can write wherever the user who runs kfuzz can" + _why(facts),
    )


def _network(facts: Facts) -> Measure:
    if facts.network:
        return Measure("network", True, "it has no network interface")
    if facts.landlock >= _LANDLOCK_TCP:
        return Measure(
            "network", True, "TCP is refused; UDP and other protocols are not"
        )
    return Measure("network", False, "it can use the network" + _why(facts))


def _others(facts: Facts) -> Measure:
    if facts.pids or facts.landlock >= _LANDLOCK_SCOPES:
        return Measure("other processes", True, "it cannot signal or trace them")
    if facts.landlock:
        return Measure(
            "other processes",
            False,
            "it cannot trace them or read their memory, but can kill those of the "
            "same user",
        )
    return Measure(
        "other processes",
        False,
        "it can kill those of the same user; kfuzz's own cannot be traced",
    )


def _privileges(facts: Facts) -> Measure:
    if facts.capabilities_dropped and facts.no_new_privileges:
        return Measure("privileges", True, "it has none and can gain none")
    return Measure("privileges", False, "it keeps those of the user who runs kfuzz")


def _why(facts: Facts) -> str:
    for name in ("user namespace", "mount namespace", "network namespace"):
        if name in facts.refused:
            return f" ({name}: {facts.refused[name].lower()})"
    return ""


def _mib(size: int) -> str:
    return f"{size // MIB} MiB"
