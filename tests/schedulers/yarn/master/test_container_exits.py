"""How containers ended: YARN's numbers and what they mean."""

from __future__ import annotations

import pytest

from tony_core.exit_causes import ExitCause
from tony_core.schedulers.yarn.master.container_exits import clean_diagnostics, describe_exit

NODE_DIAGNOSTICS = """\
[2026-11-21 14:01:03.400]Exception from container-launch.
Container id: container_1_0045_01_000001
Exit code: 3

[2026-11-21 14:01:03.403]Container exited with a non-zero exit code 3. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of executor.stderr :
Traceback: no
such thing


[2026-11-21 14:01:03.403]Container exited with a non-zero exit code 3. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of executor.stderr :
Traceback: no
such thing

"""

TOO_MUCH = """\
[2026-11-21 14:05:00.100]Container [pid=77,containerID=container_1_0045_01_000001] is running \
25567232B beyond the 'PHYSICAL' memory limit. Current usage: 152.4 MB of 128 MB physical memory \
used; 1.2 GB of 268.8 MB virtual memory used. Killing container.
Dump of the process-tree for container_1_0045_01_000001 :
\t|- PID PPID PGRPID SESSID CMD_NAME USER_MODE_TIME(MILLIS)
\t|- 77 75 77 77 (bash) 0 0 4534272 1024 /bin/bash -c python

[2026-11-21 14:05:00.200]Container killed on request. Exit code is 143
[2026-11-21 14:05:00.300]Container exited with a non-zero exit code 143.
"""


@pytest.mark.parametrize(
    ("status", "requested", "code", "cause"),
    [
        (0, False, 0, ExitCause.EXITED),
        (3, False, 3, ExitCause.EXITED),
        (137, False, 137, ExitCause.EXITED),
        (143, False, 143, ExitCause.EXITED),
        (143, True, 143, ExitCause.RELEASED),
        (0, True, 0, ExitCause.RELEASED),
        (-100, False, 137, ExitCause.LOST),
        (-100, True, 137, ExitCause.RELEASED),
        (-101, False, 137, ExitCause.DISKS),
        (-101, True, 137, ExitCause.DISKS),
        (-102, False, 137, ExitCause.PREEMPTED),
        (-103, False, 137, ExitCause.MEMORY),
        (-104, False, 137, ExitCause.MEMORY),
        (-104, True, 137, ExitCause.MEMORY),
        (-105, False, 137, ExitCause.RELEASED),
        (-106, False, 137, ExitCause.KILLED),
        (-107, False, 137, ExitCause.KILLED),
        (-108, False, 137, ExitCause.PREEMPTED),
        (-109, False, 137, ExitCause.KILLED),
        (-1000, False, 127, ExitCause.LAUNCH),
        (-1, False, 127, ExitCause.LAUNCH),
        (-4711, False, -4711, ExitCause.UNKNOWN),
        (-4711, True, 137, ExitCause.RELEASED),
    ],
)
def test_codes(status: int, requested: bool, code: int, cause: ExitCause) -> None:
    assert describe_exit(status, requested, "")[:2] == (code, cause)


def test_the_nodes_diagnostics_without_their_frame() -> None:
    assert clean_diagnostics(NODE_DIAGNOSTICS) == "its last output:\nTraceback: no\nsuch thing"
    assert describe_exit(3, False, NODE_DIAGNOSTICS) == (
        3,
        ExitCause.EXITED,
        clean_diagnostics(NODE_DIAGNOSTICS),
    )


def test_too_much_memory_is_reported_with_the_numbers() -> None:
    words = describe_exit(-104, False, TOO_MUCH)[2]
    assert words.startswith("over its memory limit: ")
    assert "152.4 MB of 128 MB physical memory" in words
    assert "process-tree" not in words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("Container released by application", "Container released by application"),
        ("[2026-11-21 14:05:00.100]one\n[2026-11-21 14:05:00.200]one\ntwo", "one\ntwo"),
    ],
)
def test_other_words_stay(text: str, expected: str) -> None:
    assert clean_diagnostics(text) == expected
