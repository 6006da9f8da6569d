"""Lets TonY see where this program stands, should it hang: stacks to stderr, at a signal.

``import tony`` imports it in jobs with ``tony.task.stall-timeout``. It changes nothing else:
the signal is a real-time one, and a handler that the program, or a library, has set stays. What
the program sets later replaces ours.
"""

from __future__ import annotations

import os


def register() -> bool:
    """Have faulthandler write the stacks of all threads at the signal; return whether it does."""
    try:
        import faulthandler
        import signal

        number = int(os.environ["TONY_STACK_SIGNAL"])
        if not signal.SIGRTMIN <= number <= signal.SIGRTMAX:
            return False
        if signal.getsignal(number) != signal.SIG_DFL or _is_handled(number):
            return False
        # Not chained: what was there before is the default, which would end the program.
        faulthandler.register(number, file=2, all_threads=True, chain=False)
    except Exception:
        return False  # seeing a hang is worth less than the training
    return True


def _is_handled(number: int) -> bool:
    """Whether code below Python handles or ignores the signal."""
    with open("/proc/self/status", "rb") as file:
        rows = [row.split() for row in file if row.startswith((b"SigCgt", b"SigIgn"))]
    return any(int(row[1], 16) & (1 << (number - 1)) for row in rows)


register()
