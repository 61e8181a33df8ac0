"""Known faults of released kernels: which do the libraries' own tests show?

    python -m tests.benchmarks.known_faults.own_tests --liger LIGER_GIT --fla FLA_GIT

Wheels carry no tests; the repositories do. For each entry the tests of its function, as
they were at the faulty version, run beside the wheel of the faulty version and beside
that of the fixed one. They *show* the fault if a test fails on the faulty version that
passes on the fixed one: what a machine lacks fails on both.

The tests are taken from git once and kept in `--sources`, so that a machine without the
repositories can be given that folder. Without a GPU set TRITON_INTERPRET=1.
"""

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tests.benchmarks.known_faults import wheels
from tests.benchmarks.known_faults.entry import Entry
from tests.benchmarks.known_faults.table import ENTRIES

_LIGER: Final = "test/transformers/test_"
# Names of entries, the file that tests their function, and which of its tests.
TESTS: Final = (
    ("liger-layer-norm-*", f"{_LIGER}layer_norm.py", ""),
    ("liger-rms-norm-*", f"{_LIGER}rms_norm.py", ""),
    ("liger-rope-*", f"{_LIGER}rope.py", ""),
    ("liger-mrope-*", f"{_LIGER}qwen2vl_mrope.py", ""),
    ("liger-swiglu-*", f"{_LIGER}swiglu.py", ""),
    ("liger-geglu-*", f"{_LIGER}geglu.py", ""),
    ("liger-cross-entropy-*", f"{_LIGER}cross_entropy.py", ""),
    ("liger-fused-linear-*", f"{_LIGER}fused_linear_cross_entropy.py", ""),
    ("liger-kl-div-*", f"{_LIGER}kl_div.py", ""),
    ("fla-swish-*", "tests/modules/test_activation.py", "swish"),
    ("fla-sigmoid-*", "tests/modules/test_activation.py", "test_sigmoid"),
    ("fla-swiglu-*", "tests/modules/test_activation.py", "swiglu and not linear"),
    ("fla-l2-penalty-*", "tests/modules/test_l2warp.py", ""),
    ("fla-relu-squared-*", "tests/ops/test_rwkv7.py", "channel_mixing"),
    ("fla-token-shift-*", "tests/modules/test_token_shift.py", ""),
    ("fla-local-cumsum-*", "tests/ops/utils/test_cumsum.py", "local"),
    ("fla-global-cumsum-*", "tests/ops/utils/test_cumsum.py", "global"),
    ("fla-conv-*", "tests/modules/test_conv.py", ""),
    ("fla-rotary-*", "tests/modules/test_rotary.py", ""),
    ("fla-kda-*", "tests/ops/test_kda.py", "fused_recurrent"),
    ("fla-simple-gla-*", "tests/ops/test_simple_gla.py", "test_chunk"),
    ("fla-linear-attention-*", "tests/ops/test_linear_attn.py", "fused_recurrent"),
    ("fla-attention-decoding-wide-*", "tests/ops/test_attn_sink.py", "decod"),
    ("fla-layer-norm-*", "tests/modules/test_layernorm.py", ""),
)
# What the libraries and their tests import besides; wheels.SHARED is beside it.
NEEDED: Final = (
    "huggingface_hub==0.36.2", "safetensors==0.8.0", "regex==2026.11.19",
    "PyYAML==6.0.4", "requests==2.34.2",
    "urllib3==2.8.0", "idna==3.20", "certifi==2026.10.19.post1",
    "charset-normalizer==3.5.3", "tqdm==4.70.1", "filelock==4.3.1", "packaging==26.4",
    "fsspec==2026.9.0",
)  # fmt: skip
# Releases of before July 2025 import what later transformers have no more.
_TRANSFORMERS: Final = ("transformers==4.57.1", "tokenizers==0.22.2")
_EARLIER: Final = ("transformers==4.51.3", "tokenizers==0.21.4")
_taking: Final = threading.Lock()
_RESULT: Final = re.compile(r"^(\S.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")


@dataclass(frozen=True)
class Suite:
    """What the tests gave on one version.

    Attributes:
        results: "PASSED", "FAILED" and the like, by test.
        note: why there are none or not all of them; "" if there are.
    """

    results: dict[str, str] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        counts = Counter(self.results.values())
        said = ", ".join(f"{n} {word.lower()}" for word, n in sorted(counts.items()))
        return "; ".join(filter(None, (said, self.note))) or "none"


def tests_of(entry: Entry) -> tuple[str, str]:
    """Return the file that tests an entry's function and which of its tests.

    A pair of "" where no test calls it.
    """
    for pattern, file, which in TESTS:
        if fnmatch.fnmatch(entry.name, pattern):
            return file, which
    return "", ""


def transformers_of(entry: Entry) -> tuple[str, ...]:
    """Return the requirements of transformers that both releases of an entry import."""
    early = entry.package == "flash-linear-attention" or (
        entry.package == "liger-kernel" and int(entry.faulty.split(".")[1]) < 6
    )
    return _EARLIER if early else _TRANSFORMERS


def shown(faulty: Suite, fixed: Suite) -> list[str]:
    """Return the tests that fail on the faulty version and pass on the fixed one."""
    return [
        test
        for test, result in faulty.results.items()
        if result in ("FAILED", "ERROR") and fixed.results.get(test) == "PASSED"
    ]


def verdict(faulty: Suite, fixed: Suite) -> str:
    """Return what the tests came to, in words."""
    told = shown(faulty, fixed)
    if told:
        return f"shown by {len(told)}"
    if faulty.note and "PASSED" in faulty.results.values():
        return "unfinished"
    judged = [t for t, r in fixed.results.items() if r == "PASSED"]
    if not any(faulty.results.get(test) == "PASSED" for test in judged):
        return "not runnable"
    return "silent"


def main() -> None:
    """Measure what the command line asks for and print the table."""
    options = _options()
    chosen = [
        e for e in ENTRIES if any(fnmatch.fnmatch(e.name, p) for p in options.only)
    ]
    tested = [entry for entry in chosen if tests_of(entry)[0]]
    keys = {(*tests_of(e), e.faulty, e.fixed): e for e in tested}
    said = []
    print("| entry | tests | faulty version | fixed version | fault |")
    print("|---|---|---|---|---|")
    for entry in chosen:
        if entry not in tested:
            print(f"| {entry.name} | no test calls it | – | – | – |", flush=True)

    def both(entry: Entry) -> tuple[Suite, Suite]:
        return _run(entry, entry.faulty, options), _run(entry, entry.fixed, options)

    with ThreadPoolExecutor(options.at_once) as pool:
        asked = {pool.submit(both, entry): key for key, entry in keys.items()}
        for made in as_completed(asked):
            faulty, fixed = made.result()
            file, which = asked[made][:2]
            name = file.rpartition("/")[2] + (f" -k '{which}'" if which else "")
            for entry in tested:
                if (*tests_of(entry), entry.faulty, entry.fixed) != asked[made]:
                    continue
                cells = (entry.name, name, str(faulty), str(fixed))
                print(f"| {' | '.join(cells)} | {verdict(faulty, fixed)} |", flush=True)
                said.append(
                    {"entry": entry.name, "shown": shown(faulty, fixed)}
                    | {"faulty": asdict(faulty), "fixed": asdict(fixed)}
                )
            if options.json:
                Path(options.json).write_text(json.dumps(said, indent=1) + "\n")


def _run(entry: Entry, version: str, options: argparse.Namespace) -> Suite:
    """Run the tests of the faulty version beside the wheel of a version."""
    file, which = tests_of(entry)
    folder = Path(options.wheels)
    wanted = transformers_of(entry)
    try:
        source = _sources(entry, options)
        path = [
            wheels.install(folder, entry.package_of(version), version),
            wheels.shared(folder),
            wheels.needed(folder, wanted[0].replace("==", "-"), *wanted),
            wheels.needed(folder, "needed", *NEEDED),
        ]
    except (wheels.WheelError, subprocess.CalledProcessError) as error:
        return Suite(note=str(error))
    if not (source / file).is_file():
        return Suite(note=f"no {file}")
    places = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-m", "pytest", "-v", "--tb=no", "--color=no"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    command += ["-W", "ignore", file, *(["-k", which] if which else [])]
    with tempfile.TemporaryFile("w+") as out:
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=source, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            process.wait(timeout=options.seconds)
            note = ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            note = f"time up after {time.monotonic() - began:.0f} s"
        out.seek(0)
        lines = out.read().splitlines()
    found = [made for line in lines if (made := _RESULT.match(line))]
    results = {made[1]: made[2] for made in found if "::" in made[1]}
    if not results and not note:
        errors = [line for line in lines if line.startswith(("E  ", "ERROR"))]
        note = (errors or lines or ["no output"])[-1].strip()[:160].replace("|", "/")
    return Suite(results, note)


def _sources(entry: Entry, options: argparse.Namespace) -> Path:
    """Return the folder of the tests at an entry's faulty version, taken from git."""
    library = entry.name.partition("-")[0]
    version = entry.faulty + ".0" * (2 - entry.faulty.count("."))
    target: Path = Path(options.sources) / f"{library}-{version}"
    with _taking:  # suites side by side share versions
        return target if target.is_dir() else _taken(target, library, version, options)


def _taken(
    target: Path, library: str, version: str, options: argparse.Namespace
) -> Path:
    """Take the tests of a version from git."""
    repository = getattr(options, library)
    if not repository:
        sys.exit(f"{target} is not there; --{library} names the repository")
    git = ["git", "-C", repository]
    top = ["test", "tests"]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", f"v{version}", *top],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    # Data files are large, and may be left out of a copy.
    files = [name for name in listed if name.endswith(".py")]
    archive = subprocess.run(
        [*git, "archive", f"v{version}", "--", *files], capture_output=True, check=True
    ).stdout
    unfinished = target.with_name(f"{target.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(unfinished)], input=archive, check=True)
    for name in top:  # `test` is a package of Python's own too
        if (unfinished / name).is_dir():
            (unfinished / name / "__init__.py").touch()
    unfinished.rename(target)
    return target


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--liger", metavar="FOLDER", help="a git directory of Liger-Kernel")
    add("--fla", metavar="FOLDER", help="one of flash-linear-attention")
    add("--sources", default=str(wheels.cache() / "tests"), help="where tests are kept")
    add("--wheels", default=str(wheels.cache()), help="folder of installed wheels")
    add("--seconds", type=float, default=300.0, help="for the tests on one version")
    add("--at-once", type=int, default=1, help="suites run side by side")
    add("--only", nargs="+", default=["*"], metavar="PATTERN", help="names of entries")
    add("--json", metavar="FILE", help="write the result of each test")
    return parser.parse_args()


if __name__ == "__main__":
    main()
