"""The environment in which a finding was made; nothing that names a person or host."""

import platform
from dataclasses import dataclass, fields
from importlib import metadata


@dataclass(frozen=True)
class Fingerprint:
    """Versions and hardware, as far as they bear on a result.

    Attributes:
        python, kfuzz, torch, triton, numpy: versions, "" where absent.
        system: operating system and machine, e.g. "Linux x86_64".
        device: name of the device the kernel ran on.
        driver: GPU driver or runtime version, "" on the CPU.
    """

    python: str = ""
    kfuzz: str = ""
    torch: str = ""
    triton: str = ""
    numpy: str = ""
    system: str = ""
    device: str = ""
    driver: str = ""

    def differences(self, other: "Fingerprint") -> list[str]:
        """Return one line per field in which the two differ."""
        pairs = (
            (f.name, getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)
        )
        return [
            f"{name}: {a or 'none'} -> {b or 'none'}" for name, a, b in pairs if a != b
        ]


def host_fingerprint(*, device: str = "", driver: str = "") -> Fingerprint:
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
