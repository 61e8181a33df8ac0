"""Who heeds Ctrl-C: the campaign, and no process that it began."""

import signal


def ignore_interrupts() -> None:
    """Have this process, and those that it forks, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_child() -> bool:
    """Whether Ctrl-C cannot reach this process: children ignore it."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
