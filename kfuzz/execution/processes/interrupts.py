"""Who handles Ctrl-C: the campaign, and no process that it began."""

import signal

_ignored = False


def ignore_interrupts() -> None:
    """Have this process, and those that it forks, ignore Ctrl-C."""
    global _ignored
    _ignored = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_child() -> bool:
    """Whether Ctrl-C cannot reach this process: children ignore it.

    One that is judged looks as if it handled it.
    """
    return _ignored or signal.getsignal(signal.SIGINT) is signal.SIG_IGN
