"""What earlier runs learnt, on the command line: used, named, dropped."""

import re
import shlex

from tests.e2e.project import HEADER, RIGHT, Project

LEARNT = re.compile(r"with what earlier runs learnt \(([0-9a-f]{12})\)")


def test_a_run_says_what_it_began_with(project: Project) -> None:
    project.write("kernels.py", HEADER + RIGHT)
    words = ("run", "kernels.py", "--device", "cpu", "--max-cases", "5")
    assert not LEARNT.search(project.kfuzz(*words).stdout)
    out = project.kfuzz(*words).stdout
    told = LEARNT.search(out)
    assert told, out
    # The line that repeats it names it; a seed without it begins with nothing.
    line = next(x for x in out.splitlines() if x.startswith("repeat: kfuzz "))
    again = shlex.split(line.removeprefix("repeat: kfuzz "))
    assert again[-4:-1] == ["--learnt", told[1], "--seed"]
    project.write("kernels.py", HEADER + RIGHT + "\n# changed\n")
    out = project.kfuzz(*again).stdout
    assert told[1] in out
    assert "of kernels.py::right is dropped: the kernel's source has changed" in out
    unknown = project.kfuzz(*words, "--learnt", "0123456789ab")
    assert unknown.returncode == 2
    assert "what that run began with is not kept here" in unknown.stderr
