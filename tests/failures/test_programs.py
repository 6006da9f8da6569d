"""What a program, or the room it runs in, can fail of: real jobs, each with its cause named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from tests.failures.wreck import Wreck, one_role, script, until, with_role
from tony_core.job.spec import Job, Resources, Role, Tracking
from tony_core.schedulers.port import AppState

pytestmark = pytest.mark.timeout(300)

FAILS = "echo the reason >&2; exit 9"
ON = "sleep 300"
UNTRACKED: Dict[str, Any] = {"tracking": Tracking.UNTRACKED}

DAEMONS = (
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "for _ in range(3):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork():\n"
    "            os._exit(0)\n"
    "        while True:\n"  # and more of them while they are being ended
    "            if os.fork() == 0:\n"
    "                os.setsid()\n"
    "                time.sleep(300)\n"
    "            time.sleep(0.3)\n"
    "print('begun', flush=True)\n"
)

slow = pytest.mark.slow
by_night = (pytest.mark.slow, pytest.mark.nightly)  # looked at by the executor's tests, too


def both(command: str, **more: Any) -> Job:
    """Two workers, of which the first fails while the other does this."""
    return one_role(f"[ $TASK_INDEX = 0 ] && {{ {command}; }}; {ON}", 2, **more)


CASES = [
    pytest.param(both(FAILS), ["worker:0", "exit code 9", "the reason"], id="worker"),
    pytest.param(with_role("chief", FAILS, ON), ["chief:0", "exit code 9"], id="chief", marks=slow),
    pytest.param(
        with_role("ps", FAILS, ON, stop_on_failure=True, **UNTRACKED),
        ["ps:0", "exit code 9"],
        id="ps",
        marks=slow,
    ),
    pytest.param(
        with_role("reader", FAILS, ON, **UNTRACKED),
        ["reader:0", "exit code 9"],
        id="untracked",
        marks=slow,
    ),
    pytest.param(both("kill -SEGV $$"), ["worker:0", "signal 11"], id="segv", marks=by_night),
    pytest.param(
        both("kill -KILL $$"), ["worker:0", "signal 9", "TonY did not send"], id="kill", marks=slow
    ),
    pytest.param(
        both("exec no-such-program"), ["not-found", "no-such-program"], id="program", marks=by_night
    ),
    pytest.param(
        both("printf '#!/no/such/python\\n' > run; chmod +x run; exec ./run"),
        ["worker:0", "not-found", "./run"],
        id="interpreter",
        marks=by_night,
    ),
    pytest.param(
        both("echo x > /dev/full || exit 1"),
        ["disk-full", "free some space"],
        id="disk",
        marks=by_night,
    ),
]


@pytest.mark.parametrize(("job", "words"), CASES)
def test_its_cause_is_named_and_nothing_is_left(
    tony_home: Path, job: Job, words: List[str]
) -> None:
    Wreck(tony_home, job).ends(AppState.FAILED, *words)


@pytest.mark.slow
def test_a_sidecar_fails_and_the_job_does_not(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    worker = f"until [ -e {go} ]; do sleep 0.05; done"
    job = with_role("board", FAILS, worker, tracking=Tracking.SIDECAR, max_restarts=0)
    wreck = Wreck(tony_home, job)
    kinds = lambda: [x["kind"] for x in (wreck.get("api/events") or {"events": []})["events"]]  # noqa: E731
    until(lambda: "sidecar-given-up" in kinds(), "the sidecar to be given up")
    go.touch()
    wreck.ends(AppState.SUCCEEDED, "board:0", "exit code 9", "tony.board.max-restarts")


@pytest.mark.slow
def test_daemons_that_ignore_term_and_fork_while_they_are_ended(
    tony_home: Path, tmp_path: Path
) -> None:
    program = script(tmp_path, DAEMONS + "time.sleep(1)\nraise SystemExit(3)\n")
    wreck = Wreck(tony_home, one_role(f"{sys.executable} {program}"))
    wreck.ends(AppState.FAILED, "worker:0", "exit code 3")


@pytest.mark.slow
def test_a_flood_of_output_costs_no_memory(tony_home: Path, tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import os, sys\n"
        "def peak():\n"
        "    with open(f'/proc/{os.getppid()}/status') as lines:\n"
        "        return next(int(x.split()[1]) for x in lines if x.startswith('VmHWM'))\n"
        "line = b'x' * 999 + b'\\n'\n"
        "before = peak()\n"
        "for _ in range(1000):\n"
        "    os.write(1, line * 50)\n"
        "    os.write(2, line * 50)\n"
        "print(f'\\nKB: {before} {peak()}')\n",
    )
    wreck = Wreck(tony_home, one_role(f"{sys.executable} {program}"))
    wreck.ends(AppState.SUCCEEDED)
    (log,) = wreck.logs()
    assert len(log) > 50_000_000, "nothing of it is lost"
    before, after = map(int, log.rsplit("KB: ", 1)[1].split())
    assert after - before < 4096, f"{before} and {after} KB"


@pytest.mark.slow
def test_over_its_memory(tony_home: Path, tmp_path: Path) -> None:
    text = (
        "import time\nx = bytearray(400 << 20)\nx[::4096] = b'1' * (100 << 10)\ntime.sleep(300)\n"
    )
    wreck = Wreck(tony_home, one_role(f"{sys.executable} {script(tmp_path, text)}"))
    wreck.ends(AppState.FAILED, "worker:0", "over the memory limit", "200 MB")


@pytest.mark.slow
def test_two_jobs_that_each_want_more_than_half(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def job(command: str) -> Job:
        made = one_role(command)
        return made.replace(roles=(Role("worker", 1, Resources(memory_mb=2500), command),))

    first = Wreck(tony_home, job(f"until [ -e {go} ]; do sleep 0.05; done"))
    first.running(1)
    second = Wreck(tony_home, job("true"))
    waiting: Tuple[str, ...] = (first.app_id, "2500 MB")
    until(
        lambda: all(word in str(second.get("api/job")) for word in waiting),
        "the second to say what it waits for",
    )
    go.touch()
    first.ends(AppState.SUCCEEDED)
    second.ends(AppState.SUCCEEDED, "waits for 2500 MB")
