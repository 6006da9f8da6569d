"""The ledger as a file that processes share, some of which die."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Callable, List

import pytest

from tony_core.schedulers.local import home, ledger, processes
from tony_core.schedulers.local.allocation import Capacity, Demand, RequestGroup, RoleRequest
from tony_core.schedulers.local.ledger import Ledger, LedgerState, PendingRequest, Reservation
from tony_core.schedulers.local.processes import ProcessIdentity
from tony_core.schedulers.port import SchedulerError

CHECKOUT = Path(__file__).resolve().parents[3]
MACHINE = Capacity(1000, ("GPU-a",))


def pending(
    app: str, memory: int, count: int, owner: ProcessIdentity, since: float = 0.0
) -> PendingRequest:
    groups = (RequestGroup(True, (RoleRequest("worker", 3, count, Demand(memory, 0, 1)),)),)
    return PendingRequest(app, app, owner, since, MACHINE, groups, f"c_{app}_", 1)


def put(item: PendingRequest) -> Callable[[LedgerState], None]:
    def change(ledger_file: LedgerState) -> None:
        ledger_file.queue[item.app] = item

    return change


@pytest.fixture
def ledger_file(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path / "ledger"))


def test_a_grant_is_claimed_once_and_names_go_on(ledger_file: Ledger) -> None:
    me = ProcessIdentity.mine()
    claimed, rest, reason = ledger_file.update("a", put(pending("a", 100, 2, me)))
    assert [item.container_id for item in claimed] == ["c_a_000001", "c_a_000002"]
    assert (claimed[0].role, claimed[0].session) == ("worker", 3)
    assert rest is not None
    assert (rest.groups, rest.next, reason) == ((), 3, "")
    assert ledger_file.update("a")[0] == []


def test_what_one_gives_back_the_other_finds(ledger_file: Ledger) -> None:
    me = ProcessIdentity.mine()
    (held, _, _) = ledger_file.update("a", put(pending("a", 600, 1, me)))
    claimed, _, reason = ledger_file.update("b", put(pending("b", 600, 1, me)))
    assert claimed == []
    assert "application a (a) holds 600 MB" in reason
    before = ledger_file.version()
    ledger_file.free([item.container_id for item in held])
    assert ledger_file.version() != before
    assert [item.app for item in ledger_file.update("b")[0]] == ["b"]


def test_what_is_spare_is_so_in_the_file_too(ledger_file: Ledger) -> None:
    me = ProcessIdentity.mine()
    wants = (RoleRequest("worker", 3, 4, Demand(300, 0, 1)),)
    elastic = pending("a", 1, 1, me)._replace(groups=(RequestGroup(False, wants, optional=True),))
    claimed, rest, _ = ledger_file.update("a", put(elastic))
    assert len(claimed) == 3 and rest is not None and rest.groups[0].optional
    ledger_file.update("b", put(pending("b", 600, 1, me, since=99.0)))
    ledger_file.free([claimed[0].container_id])  # it is kept for who needs it, and not enough yet
    assert (ledger_file.update("a")[0], ledger_file.update("b")[0]) == ([], [])
    ledger_file.free([claimed[1].container_id])
    assert [item.app for item in ledger_file.update("b")[0]] == ["b"]


def test_nothing_is_written_when_nothing_changes(ledger_file: Ledger) -> None:
    me = ProcessIdentity.mine()
    ledger_file.update("a", put(pending("a", 600, 1, me)))
    ledger_file.update("b", put(pending("b", 600, 1, me)))
    before = ledger_file.version()
    for _ in range(3):
        ledger_file.update("b")
        ledger_file.free(["unknown"])
    assert ledger_file.version() == before


def test_the_share_of_the_dead_is_free_at_once(ledger_file: Ledger) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = ProcessIdentity.of(child.pid)
    assert owner is not None
    assert ledger_file.update("dead", put(pending("dead", 900, 1, owner)))[0]
    me = ProcessIdentity.mine()
    assert not ledger_file.update("b", put(pending("b", 600, 1, me)))[0]
    child.kill()
    # Not waited for yet: a zombie holds nothing either.
    while owner.alive():
        time.sleep(0.001)
    assert ledger_file.update("b")[0]
    child.communicate()


def test_nothing_of_before_a_reboot_counts(ledger_file: Ledger) -> None:
    me = ProcessIdentity.mine()
    before = me._replace(boot="another boot")
    ledger_file.reserve([Reservation("c1", "old", "old", before, 900, 1, ())])
    assert ledger_file.update("a", put(pending("a", 1000, 1, me)))[0]


def test_a_reused_pid_is_another_process(ledger_file: Ledger) -> None:
    me = ProcessIdentity.mine()
    ledger_file.reserve(
        [Reservation("c1", "old", "old", me._replace(start=me.start - 1), 900, 1, ())]
    )
    assert ledger_file.update("a", put(pending("a", 1000, 1, me)))[0]


def test_what_was_granted_to_one_who_died_before_it_looked_is_free(ledger_file: Ledger) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = ProcessIdentity.of(child.pid)
    assert owner is not None
    ledger_file.change(put(pending("dead", 900, 1, owner)))  # granted, not claimed
    child.kill()
    child.communicate()
    assert ledger_file.update("a", put(pending("a", 1000, 1, ProcessIdentity.mine())))[0]


def test_a_lock_that_is_never_given_back_is_an_error(
    ledger_file: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LOCK_S", 0.05)
    with ledger_file._locked(), pytest.raises(SchedulerError, match="another process holds it"):
        ledger_file.free([])


def test_an_unreadable_ledger_has_a_remedy(ledger_file: Ledger, tmp_path: Path) -> None:
    ledger_file.free([])
    path = tmp_path / "ledger" / f"{processes.host()}.json"
    home.write_json(str(path), {"held": [{"from": "another version"}]})
    with pytest.raises(SchedulerError, match="remove it"):
        ledger_file.free([])


RACER = textwrap.dedent(
    """
    import sys, time
    from tony_core.schedulers.local.allocation import *
    from tony_core.schedulers.local.ledger import *
    from tony_core.schedulers.local.processes import ProcessIdentity
    folder, app = sys.argv[1:]
    ledger_file = Ledger(folder)
    group = RequestGroup(True, (RoleRequest("worker", 0, 2, Demand(300, 0, 1)),))
    for turn in range(8):
        ask = PendingRequest(app, app, ProcessIdentity.mine(), time.monotonic(), Capacity(1000),
                             (group,), "c_%s_%d_" % (app, turn), 1)
        claimed, _, _ = ledger_file.update(app, lambda b: b.queue.__setitem__(app, ask))
        while not claimed:
            time.sleep(0.002)
            claimed, _, _ = ledger_file.update(app)
        assert len(claimed) == 2, claimed
        print(turn, flush=True)
        if app == "killed" and turn == 3:
            time.sleep(60)
        ledger_file.free([item.container_id for item in claimed])
    """
)


def test_processes_that_race_each_get_their_gangs(ledger_file: Ledger, tmp_path: Path) -> None:
    """Each wants more than half, eight times; one is killed while it holds its share."""
    folder = str(tmp_path / "ledger")
    racers: List[subprocess.Popen[str]] = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, folder, app],
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )
        for app in ("killed", "b", "c")
    ]
    killed = racers[0]
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.strip() == "3":
            killed.kill()
    killed.wait()
    killed.stdout.close()
    for racer in racers[1:]:
        out, _ = racer.communicate(timeout=60)
        assert racer.returncode == 0
        assert out.split() == [str(turn) for turn in range(8)]
    state = ledger_file.change()
    assert state.held == {}
    assert state.queue == {}
