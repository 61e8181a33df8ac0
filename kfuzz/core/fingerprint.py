"""The environment in which a finding was made; nothing that names a person or host."""

import platform
from dataclasses import dataclass, fields
from importlib import metadata
from typing import ClassVar


@dataclass(frozen=True)
class Fingerprint:
    """Versions and hardware, as far as they bear on a result.

    Attributes:
        python, kfuzz, torch, triton, numpy: versions, "" where absent.
        system: operating system and machine, e.g. "Linux x86_64".
        device: name of the device the kernel ran on.
        driver: versions of the GPU's driver and runtime, "" on the CPU.
        flags: settings of torch and of the environment that change what kernels
            compute, each as "name=value".
    """

    UNSAID: ClassVar = ("flags",)

    python: str = ""
    kfuzz: str = ""
    torch: str = ""
    triton: str = ""
    numpy: str = ""
    system: str = ""
    device: str = ""
    driver: str = ""
    flags: tuple[str, ...] = ()

    def differences(self, other: "Fingerprint") -> list[str]:
        """Return one line per field, and per flag, in which the two differ."""
        then, now = self._facts(), other._facts()
        return [
            f"{name}: {then.get(name) or 'none'} -> {now.get(name) or 'none'}"
            for name in dict.fromkeys((*then, *now))
            if then.get(name, "") != now.get(name, "")
        ]

    def _facts(self) -> dict[str, str]:
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        flags = (flag.partition("=") for flag in facts.pop("flags"))
        return facts | {name: value for name, _, value in flags}


def host_fingerprint(
    *, device: str = "", driver: str = "", flags: tuple[str, ...] = ()
) -> Fingerprint:
    """Return the fingerprint of this process without importing torch."""
    return Fingerprint(
        python=platform.python_version(),
        kfuzz=version_of("kfuzz"),
        torch=version_of("torch"),
        triton=version_of("triton"),
        numpy=version_of("numpy"),
        system=f"{platform.system()} {platform.machine()}",
        device=device,
        driver=driver,
        flags=flags,
    )


def version_of(distribution: str) -> str:
    """Return an installed distribution's version, "" where it is absent."""
    if distribution == "kfuzz":
        from kfuzz import __version__

        return __version__
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
