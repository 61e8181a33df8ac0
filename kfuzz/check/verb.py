"""kfuzz check: whether a binding can be judged, before it is searched."""

import shlex

from kfuzz.cli.exit_codes import ExitCode, code_of_search
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import DeviceOption, FormatOption, TargetsArgument
from kfuzz.cli.standard_streams import report_stream, stopping
from kfuzz.engine.workers import zygotes


def check(
    targets: TargetsArgument = None,
    device: DeviceOption = "auto",
    format: FormatOption = "text",
) -> int:
    """Check in seconds that kernels can be judged; nothing is searched or stored.

    The binding and the oracle are tried on small cases. Then one case of ordinary data
    is judged for each data type and layout. The output lists which contracts these
    cases decide, which a search decides, and which do not bind the kernel.

    Exit codes: 0 all cases hold, 1 a case violates a contract, 2 usage, or an oracle
    that can judge nothing, 3 internal error, 4 no kernel, or no value of some kernel
    was compared, 5 device missing, or a kernel needs a GPU and there is none, 130
    interrupted.
    """
    project = open_project(None)
    wanted = project.targets(targets)
    zygotes.expect(device)  # it imports torch while this process does

    from kfuzz.check.checking import Answer, CheckedKernel, check_all
    from kfuzz.check.rendering import document, lines_of
    from kfuzz.report import json_report

    made: list[CheckedKernel] = []
    with report_stream() as out, stopping() as stop:
        as_json = format == "json"
        for kernel in check_all(wanted, root=project.root, device=device, stop=stop):
            if not as_json:
                gap = "\n" if made else ""
                print(gap + "\n".join(lines_of(kernel)), file=out, flush=True)
            made.append(kernel)
        if made and not as_json:
            words = shlex.join(["kfuzz", "run", *wanted])
            print(f"\nNothing was searched; {words} does that", file=out)
        if as_json:
            json_report.write(document(made, interrupted=stop.is_set()), out)
        interrupted = stop.is_set()
    return ExitCode(
        code_of_search(
            interrupted=interrupted,
            violated=any(k.has(Answer.VIOLATES) for k in made),
            failed=any(k.has(Answer.ERROR) for k in made),
            ran=bool(made) and not any(k.uncompared for k in made),
            lacking=any(k.needs_gpu for k in made),
        )
    )
