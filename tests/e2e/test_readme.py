"""The README's finding is what its command prints."""

import re
import shlex
import shutil

from tests.e2e.project import ROOT, Project

README = (ROOT / "README.md").read_text()


def test_the_finding_of_the_readme_is_what_its_command_prints(project: Project) -> None:
    [command] = re.findall(r"^kfuzz (run .* --seed \d+)$", README, re.MULTILINE)
    [finding] = re.findall(r"^```text\n(FAIL .*?)```$", README, re.M | re.S)
    [line] = re.findall(r"^```text\n(line of .*?)\n```$", README, re.M | re.S)
    words = shlex.split(command)
    name = words[1].partition("::")[0]
    shutil.copyfile(ROOT / name, project.write(name, ""))
    project.environment["KFUZZ_DEVICE"] = "interpret"
    project.environment["KFUZZ_LOCATE"] = "yes"
    done = project.kfuzz(*words)
    assert done.returncode == 1, done.stderr
    assert finding in done.stdout
    assert line.rpartition("\n")[0] in done.stdout
