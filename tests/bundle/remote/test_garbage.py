"""What goes from a cluster's store, and what never does."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import BinaryIO, Callable, List, Optional

import pytest

from tests.bundle.fakecluster import ROOT, FakeCluster, fresh
from tony_core.bundle import jobfolder
from tony_core.bundle.local import garbage
from tony_core.bundle.remote.garbage import remove_damaged
from tony_core.bundle.remote.store import RemoteStore, Staged

A, B, C = "a" * 64, "b" * 64, "c" * 64
DAY = 86400.0


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    return fresh(tmp_path / "hdfs")


@pytest.fixture
def store(cluster: FakeCluster) -> RemoteStore:
    found = RemoteStore(ROOT)
    found.prepare()
    return found


def content(text: str) -> Callable[[BinaryIO], object]:
    return lambda stream: stream.write(text.encode())


def collect(
    older: float = 0.0, ended: Optional[bool] = True, dry_run: bool = False, settle: float = 0.0
) -> List[str]:
    return list(garbage.collect(ROOT, older, dry_run, ended=lambda app_id: ended, settle_s=settle))


def aged(cluster: FakeCluster, below: str, seconds: float) -> None:
    """As if all of it had been made so long ago."""
    top = Path(cluster.path(f"{ROOT}/{below}"))
    then = time.time() - seconds
    for path in sorted([top, *top.rglob("*")], reverse=True):
        os.utime(path, (then, then))


def test_nothing_below_a_root_that_is_not_there(tmp_path: Path) -> None:
    cluster = fresh(tmp_path / "hdfs")
    assert collect() == [] and cluster.names() == []


def test_what_a_lease_names_stays(store: RemoteStore, cluster: FakeCluster) -> None:
    store.take_lease("application_1_1", [A])
    store.put(A, "content", content("a"))
    store.put(B, "content", content("b"))
    assert collect(ended=False) == [f"object {B[:12]} (0.0 MB)"]
    assert store.look(A, "content") is not None and store.look(B, "content") is None
    assert cluster.names("store/trash") == [] and cluster.names("store/tmp") == []


def test_an_ended_application(store: RemoteStore, cluster: FakeCluster) -> None:
    store.take_lease("application_1_1", [A])
    store.put(A, "content", content("a"))
    (Path(cluster.path(f"{ROOT}/apps/application_1_1"))).mkdir(parents=True)
    before = cluster.names()
    would = collect(dry_run=True)
    assert cluster.names() == before
    assert would == ["job folder and lease of application_1_1 (it has ended)"]
    assert collect() == [*would, f"object {A[:12]} (0.0 MB)"]
    assert cluster.names("apps") == cluster.names("store/objects") == []


def test_an_unknown_application_may_be_a_submission(
    store: RemoteStore, cluster: FakeCluster
) -> None:
    store.take_lease("application_1_1", [A])
    assert collect(ended=None) == []
    aged(cluster, "store/leases", 0.9 * DAY)
    assert collect(ended=None) == []
    aged(cluster, "store/leases", 1.1 * DAY)
    assert collect(ended=False) == []
    assert len(collect(ended=None)) == 1


def test_an_object_is_kept_for_so_long_after_its_last_use(
    store: RemoteStore, cluster: FakeCluster
) -> None:
    store.take_lease("application_1_1", [A])
    store.put(A, "content", content("a"))
    store.put(B, "content", content("b"))
    aged(cluster, "store/objects", 10 * DAY)
    jobfolder.remove(ROOT, "application_1_1")
    assert collect(older=7 * DAY) == [f"object {B[:12]} (0.0 MB)"]
    [mark] = [name for name in cluster.names("store/used") if "/" not in name]
    old = Path(cluster.path(f"{ROOT}/store/used"))
    (old / mark).rename(old / f"{int(time.time() - 8 * DAY)}.application_1_1")
    assert collect(older=7 * DAY) == [f"object {A[:12]} (0.0 MB)"]
    assert cluster.names("store/used") == []


@pytest.mark.parametrize("name", ["\u00b2.x", "9" * 200 + ".x", "1e999.x", "nan.x", ".x", "x"])
def test_a_mark_of_another_name_goes(store: RemoteStore, cluster: FakeCluster, name: str) -> None:
    store.put(A, "content", content("a"))
    Path(cluster.path(f"{ROOT}/store/used/{name}")).mkdir(parents=True)
    aged(cluster, "store/objects", 10 * DAY)
    assert collect(older=7 * DAY) == [f"object {A[:12]} (0.0 MB)"]
    assert not name.isascii() or cluster.names("store/used") == []  # the fake quotes no name


def test_what_settles_stays_a_while(store: RemoteStore) -> None:
    store.put(A, "content", content("a"))
    assert collect(settle=60.0) == []
    assert len(collect()) == 1


def test_uploads_of_the_dead(store: RemoteStore, cluster: FakeCluster) -> None:
    half = Path(cluster.path(f"{store.tmp}/0123"))
    half.mkdir(parents=True)
    (half / ".put-x").write_bytes(b"half")
    assert collect() == []
    aged(cluster, "store/tmp", 2 * DAY)
    (half / ".put-x").write_bytes(b"half, and going on")
    assert collect() == []
    aged(cluster, "store/tmp", 2 * DAY)
    assert collect() == ["unfinished upload (0.0 MB)"]
    assert cluster.names("store/tmp") == []


def test_a_lease_that_comes_while_its_object_is_taken_away(
    store: RemoteStore, cluster: FakeCluster
) -> None:
    store.put(A, "content", content("a"))
    before = store.look(A, "content")

    def submit(location: str) -> None:
        del cluster.before["rename"]
        store.take_lease("application_1_1", [A])
        assert store.look(A, "content") == before  # it is there; the collector goes on

    cluster.before["rename"] = submit
    assert collect(ended=False) == []
    assert store.look(A, "content") == before


def test_a_submit_that_finds_it_away_takes_the_same_one_back(
    store: RemoteStore, cluster: FakeCluster
) -> None:
    before = store.put(A, "content", content("a"))
    cluster.mkdir(store.trash, 0o700)
    cluster.rename(store.object_path(A), f"{store.trash}/{A}.x")
    store.take_lease("application_1_1", [A])
    assert store.look(A, "content") is None
    cluster.took()
    assert store.put(A, "content", content("not written")) == before
    assert "write" not in cluster.took()


def test_a_collection_that_died_is_finished_by_the_next(
    store: RemoteStore, cluster: FakeCluster
) -> None:
    for digest in (A, B):
        store.put(digest, "content", content("x"))
        cluster.mkdir(store.trash, 0o700)
        cluster.rename(store.object_path(digest), f"{store.trash}/{digest}.x")
    store.take_lease("application_1_1", [A])
    assert collect(older=7 * DAY, ended=False) == [f"object {B[:12]} (0.0 MB)"]
    assert store.look(A, "content") is not None


def overwritten(cluster: FakeCluster, store: RemoteStore, digest: str) -> None:
    os.utime(cluster.path(store.content(digest, "content")), (1, 1))


def test_what_is_damaged_goes_unless_a_lease_names_it(
    store: RemoteStore, cluster: FakeCluster
) -> None:
    store.take_lease("application_1_1", [A])
    for digest in (A, B, C):
        store.put(digest, "content", content(digest))
    for digest in (A, B):
        overwritten(cluster, store, digest)
    damaged = store.verify_all()
    assert sorted(damaged) == [A, B]
    kept = remove_damaged(store, damaged, ended=lambda app_id: False)
    assert kept == {A: ["application_1_1"]}
    assert cluster.names("store/trash") == []
    assert sorted(store.names(store.objects)) == [A, C]
    # An ended application's lease keeps nothing, though it was never released.
    assert remove_damaged(store, store.verify_all(), ended=lambda app_id: True) == {}
    assert store.names(store.objects) == [C]


def test_a_lease_that_comes_while_a_damaged_object_is_taken_away(
    store: RemoteStore, cluster: FakeCluster
) -> None:
    store.put(A, "content", content("a"))
    overwritten(cluster, store, A)
    damaged = store.verify_all()

    def submit(location: str) -> None:
        del cluster.before["rename"]
        store.take_lease("application_1_1", [A])

    cluster.before["rename"] = submit
    assert remove_damaged(store, damaged, lambda app_id: None) == {A: ["application_1_1"]}
    assert store.names(store.objects) == [A] and cluster.names("store/trash") == []


def test_two_submits_of_the_same_object(store: RemoteStore, cluster: FakeCluster) -> None:
    first: List[Staged] = []

    def other(location: str) -> None:
        del cluster.before["write"]
        first.append(store.put(A, "content", content("the first")))

    cluster.before["write"] = other
    assert store.put(A, "content", content("the second")) == first[0]
    assert Path(cluster.path(store.content(A, "content"))).read_text() == "the first"
    assert cluster.names("store/tmp") == []


def test_submits_and_collectors_race(store: RemoteStore, cluster: FakeCluster) -> None:
    """With real threads: while a job "runs", what was announced of its files stays true."""
    wrong: List[str] = []
    running = set()
    stop = threading.Event()
    rounds = {"submits": 0, "collects": 0}

    def submits(name: str) -> None:
        for number in range(40):
            app_id = f"application_{name}_{number}"
            running.add(app_id)
            store.prepare()
            store.take_lease(app_id, [A, B])
            found = store.look_all({A: "content", B: "content"})
            announced = {
                digest: there or store.put(digest, "content", content(digest))
                for digest, there in found.items()
            }
            for _ in range(3):
                for digest, staged in announced.items():
                    # What is away for a moment is no harm: nodes ask some time later.
                    deadline = time.monotonic() + 20
                    while (now := store.look(digest, "content")) is None:
                        if time.monotonic() > deadline:
                            break
                    if now != staged:
                        wrong.append(f"{app_id}: {digest[:1]} was {staged}, is {now}")
            running.discard(app_id)
            jobfolder.remove(ROOT, app_id)
            rounds["submits"] += 1

    def collects() -> None:
        over = False
        while not over:
            over = stop.is_set()  # a last time when all have ended: then there is something
            for line in garbage.collect(
                ROOT, 0, ended=lambda app_id: app_id not in running, settle_s=0.0
            ):
                rounds["collects"] += line.startswith("object")

    def safely(work: Callable[..., None], *words: str) -> None:
        try:
            work(*words)
        except BaseException as error:
            wrong.append(repr(error))
            stop.set()

    clients = [threading.Thread(target=safely, args=(submits, str(n))) for n in range(3)]
    collectors = [threading.Thread(target=safely, args=(collects,)) for _ in range(2)]
    for thread in (*clients, *collectors):
        thread.start()
    for thread in clients:
        thread.join(60)
    stop.set()
    for thread in collectors:
        thread.join(60)
    assert wrong == []
    assert rounds["submits"] == 120 and rounds["collects"] > 0
    collect()
    assert cluster.names("store/objects") == cluster.names("store/trash") == []
    assert cluster.names("store/leases") == cluster.names("store/tmp") == []
