"""The store under concurrent submits, collectors and sudden death."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import List

import pytest
from hypothesis import strategies as st

from tests.bundle.jobs import job
from tests.fuzzing import fuzz, mutations
from tests.second_user import as_stranger, needs_root, open_folder
from tony_core.bundle import jobfolder
from tony_core.bundle.client import planning, staging, staging_errors
from tony_core.bundle.local import garbage
from tony_core.bundle.local.leases import Owner, StoreLease, read_leases, write_lease
from tony_core.bundle.local.store import Store, StoreError, difference
from tony_core.files.durable import locked

__all__ = ["open_folder"]

CHECKOUT = Path(__file__).resolve().parents[3]
A, B = "a" * 64, "b" * 64


def start(*words: str) -> subprocess.Popen[str]:
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bundle.local.racers", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env=env,
    )


def content(text: str) -> object:
    def make(path: str) -> None:
        Path(path).write_text(text)

    return make


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "src").mkdir(parents=True)
    for number in range(40):
        (folder / "src" / f"{number}.txt").write_text(f"line {number}\n" * 50)
    with tarfile.open(folder / "data.tar.gz", "w:gz") as out:
        out.add(folder / "src", ".")
    return folder


def collect(root: Path, older_than_s: float = 0.0, dry_run: bool = False) -> List[str]:
    return list(garbage.collect(str(root), older_than_s, dry_run, settle_s=0.0))


def test_put_is_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))

    def fails(path: str) -> None:
        Path(path).write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.put(A, fails)
    assert not store.has(A) and os.listdir(os.path.join(store.path, "tmp")) == []
    assert store.put(A, content("whole"), {"name": "x", "size": 5})  # type: ignore[arg-type]
    assert Path(store.content(A)).read_text() == "whole"
    assert store.meta(A)["name"] == "x"
    assert not store.put(A, fails)


def test_two_puts_at_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    both = threading.Barrier(2, timeout=60)
    won: List[bool] = []

    def make(path: str) -> None:
        Path(path).write_text("same")
        both.wait()

    threads = [threading.Thread(target=lambda: won.append(store.put(A, make))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, True]
    assert Path(store.content(A)).read_text() == "same"
    assert os.listdir(os.path.join(store.path, "tmp")) == []


def test_what_is_leased_stays_and_what_was_used_lately_too(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.put(A, content("a"), {"name": "a", "size": 1000000})  # type: ignore[arg-type]
    store.put(B, content("b"))  # type: ignore[arg-type]
    store.take_lease("app-1", [A])
    assert collect(root, dry_run=True) == [f"object {B[:12]} (?, 0.0 MB)"]
    assert store.has(B)
    assert collect(root, older_than_s=3600) == []
    assert len(collect(root)) == 1 and not store.has(B) and store.has(A)
    store.release("app-1")
    # The processes of a job may run on for a moment after its end.
    assert list(garbage.collect(str(root), 0)) == []
    assert collect(root) == [f"object {A[:12]} (a, 1.0 MB)"]
    assert collect(root) == []


def test_a_lease_names_what_is_not_there_yet(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.take_lease("app-1", [A])
    store.put(A, content("a"))  # type: ignore[arg-type]
    assert collect(root) == [] and store.has(A)


def dead_owner() -> Owner:
    mine = Owner.mine()
    return Owner(mine.pid, mine.start + 1, mine.boot, mine.host)


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("no folder", False),
        ("job folder alone", False),
        ("SUCCEEDED", False),
        ("RUNNING", True),
        ("RUNNING long ago", False),
        ("FAILED, master lives", True),
    ],
)
def test_whose_lease_is_dead(tmp_path: Path, state: str, kept: bool) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.prepare()
    write_lease(store.leases, StoreLease("app-1", dead_owner(), (A,), time.time()))
    store.put(A, content("a"))  # type: ignore[arg-type]
    app = root / "apps" / "app-1"
    if state != "no folder":
        jobfolder.write(str(root), "app-1", {"job.json": b"{}"})
        if state != "job folder alone":
            word = state.replace(",", " ").split()[0]
            (app / "status.json").write_text(json.dumps({"state": word}))
            (app / "master.lock").write_text("")
    if state.endswith("ago"):
        for path in (app, *app.iterdir()):
            os.utime(path, (1000, 1000))
    if "master lives" in state:
        with locked(str(app / "master.lock"), True, 1):
            lines = collect(root)
    else:
        lines = collect(root)
    assert store.has(A) == kept
    assert bool(read_leases(store.leases)) == kept
    assert (app / "job").exists() == kept
    assert any("lease of app-1" in line for line in lines) != kept


def test_a_client_that_outlives_its_job_does_not_keep_its_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.put(A, content("a"))  # type: ignore[arg-type]
    store.take_lease("app-1", [A])
    app = root / "apps" / "app-1"
    app.mkdir(parents=True)
    (app / "status.json").write_text('{"state": "RUNNING"}')
    assert collect(root) == []
    (app / "status.json").write_text('{"state": "KILLED"}')
    assert len(collect(root)) == 2 and not store.has(A)
    assert (app / "status.json").exists()  # the scheduler's, not ours


def test_the_scheduler_is_asked_where_there_is_one(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.prepare()
    write_lease(store.leases, StoreLease("app-1", dead_owner(), (A,), time.time()))
    assert list(garbage.collect(str(root), 0, ended=lambda app_id: False)) == []
    assert len(list(garbage.collect(str(root), 0, ended=lambda app_id: True))) == 1


def test_a_lease_taken_again_while_judged_counts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.prepare()
    write_lease(store.leases, StoreLease("app-1", dead_owner(), (A,), 1.0))
    store.put(A, content("a"))  # type: ignore[arg-type]

    def renew(lease: StoreLease) -> bool:
        store.take_lease("app-1", [A])  # just after it was judged dead
        return True

    assert list(store.collect(renew, 0, settle_s=0)) == []
    assert store.has(A)


def test_a_lease_that_cannot_be_read_stops_a_collection(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.put(A, content("a"))  # type: ignore[arg-type]
    (Path(store.leases) / "app-1.json").write_text("{")
    folder = root / "apps" / "app-1"
    folder.mkdir(parents=True)
    (folder / "app.json").write_text("{}")
    with pytest.raises(StoreError, match=r"nothing was removed.*app-1.*Expecting"):
        collect(root)
    assert store.has(A)


def test_a_lease_that_a_power_cut_emptied_goes_with_its_application(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.put(A, content("a"))  # type: ignore[arg-type]
    (Path(store.leases) / "app-1.json").write_text("")
    assert [text.partition(" (")[0] for text in collect(root)] == [
        "lease of app-1",
        f"object {A[:12]}",
    ]


def test_a_lease_that_names_another_application_removes_only_itself(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.prepare()
    gone = Owner(1, 1, "another boot", Owner.mine().host)
    victim = root / "apps" / "victim" / "job"
    victim.mkdir(parents=True)
    write_lease(store.leases, StoreLease("liar", gone, (), time.time()))
    path = Path(store.leases, "liar.json")
    path.write_text(path.read_text().replace("liar", "victim"))
    assert collect(root) == ["lease of liar (its application is gone)"]
    assert victim.is_dir()


def test_a_collection_follows_no_links(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (outside / "job").mkdir(parents=True)
    store = Store(str(root))
    store.prepare()
    gone = Owner(1, 1, "another boot", Owner.mine().host)
    (root / "apps").mkdir()
    (root / "apps" / "app-1").symlink_to(outside)
    write_lease(store.leases, StoreLease("app-1", gone, (), 0.0))
    Path(store.path, "tmp", "1_1_x_y").symlink_to(outside)
    Path(store.path, "objects", "aa").symlink_to(outside)
    collect(root)
    assert (outside / "job").is_dir()


_ID = st.text(st.characters(), max_size=12)


@fuzz(
    name=st.one_of(_ID, st.sampled_from(["..", "a\n", "a/b", "a" * 300, "app-1"])),
    data=mutations(
        b'{"app_id":"app-1","owner":{"pid":1,"start":2,"boot":"b","host":"h"},'
        b'"digests":["aa"],"taken":1.5}'
    ),
)
def test_any_lease_is_read_as_its_names_or_as_damage(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            Path(folder, f"{name}.json").write_bytes(data)
        except (OSError, ValueError):
            return
        for lease in read_leases(folder):
            assert lease.app_id == name
            assert lease.damage or lease.owner.pid >= 0 or lease.owner.pid < 0
            lease.owner.alive(lease.taken)


def test_a_lock_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tony_core.bundle.local.store.LOCK_S", 0.1)
    store = Store(str(tmp_path / "root"))
    store.prepare()
    held = locked(os.path.join(store.path, "lock"), True, 1)
    with held, pytest.raises(StoreError, match="locked by another process"):
        store.take_lease("app-1", [])


def test_owners() -> None:
    mine = Owner.mine()
    assert mine.alive() and not dead_owner().alive()
    assert Owner.from_json(mine._asdict()) == mine
    assert Owner.from_name(mine.to_name() + "_abcdef") == mine
    assert Owner.from_name("nonsense") is None
    assert not Owner(mine.pid, mine.start, "another-boot", mine.host).alive()
    elsewhere = Owner(1, 1, "another-boot", "another-host")
    assert elsewhere.alive(time.time()) and not elsewhere.alive(time.time() - 90000)
    with subprocess.Popen(["true"]) as child:
        ended = Owner(child.pid, 0, mine.boot, mine.host)
        time.sleep(0.1)  # a zombie now
        assert not ended.alive()


def test_submits_and_a_collector_race(tmp_path: Path, source: Path) -> None:
    root = str(tmp_path / "root")
    processes = [start("submits", root, str(source), "4", f"app-{n}") for n in range(2)]
    processes.append(start("collects", root, "4"))
    outputs = [process.communicate(timeout=150) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    assert all(int(output) > 0 for output, _ in outputs), outputs  # they did meet
    collect(Path(root))
    assert Store(root).all_objects() == []
    assert os.listdir(os.path.join(root, "store", "tmp")) == []


@pytest.mark.parametrize("where", ["lease", "content", "after", "unpacking"])
def test_a_killed_submit_leaves_nothing_that_is_not_collected(
    tmp_path: Path, source: Path, where: str
) -> None:
    root = tmp_path / "root"
    process = start("stalls", str(root), str(source), where)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "stalled\n", process.stderr and process.stderr.read()
        assert (
            list(garbage.collect(str(root), 0, settle_s=0.0)) == []
        )  # it lives: not a thing is taken
    finally:
        process.kill()
        process.communicate()
    assert collect(root) != []
    left = [path for path in root.rglob("*") if not path.is_dir()]
    assert [path for path in left if path.parent.name not in ("store", "digests")] == []
    assert list((root / "apps").iterdir() if (root / "apps").exists() else []) == []
    assert list((root / "store" / "tmp").iterdir()) == []


def test_a_collection_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.prepare()
    trash = Path(store.path) / "tmp" / (dead_owner().to_name() + "_0")
    (trash / A / "content").mkdir(parents=True)
    assert len(collect(root)) == 1 and not trash.exists()


def test_the_runtime_of_a_running_job_stays(tmp_path: Path) -> None:
    root = tmp_path / "root"
    plan = planning.plan(job(), str(root))
    staging.stage(plan, str(root), "app-1", job(), b"")
    assert collect(root) == []
    jobfolder.remove(str(root), "app-1")
    assert len(collect(root)) == 1


def test_an_object_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: List[str] = []
    fsync, rename = os.fsync, os.rename

    def flushed(handle: int) -> None:
        calls.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def renamed(source: str, target: str) -> None:
        calls.append("rename")
        rename(source, target)

    def make(path: str) -> None:
        os.mkdir(path)
        Path(path, "file").write_text("x")

    store = Store(str(tmp_path))
    store.prepare()
    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "rename", renamed)
    store.put(A, make)
    before = calls[: calls.index("rename")]
    assert {"file", "meta.json", "sizes.json", "content", "object"} <= set(before)
    assert calls[calls.index("rename") :] == ["rename", A[:2]]


DAMAGE = {
    "emptied": lambda folder: write(folder / "content" / "main.py", b""),
    "longer": lambda folder: write(folder / "content" / "main.py", b"x" * 99),
    "a file is gone": lambda folder: os.unlink(folder / "content" / "main.py"),
    "all is gone": lambda folder: shutil.rmtree(folder / "content"),
    "what it is": lambda folder: write(folder / "meta.json", b""),
    "its sizes": lambda folder: write(folder / "sizes.json", b""),
    "sizes of nothing": lambda folder: write(folder / "sizes.json", b'{"main.py": "many"}'),
    "sizes that are none": lambda folder: write(folder / "sizes.json", b"[7]"),
}


def write(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(data)


@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_a_damaged_object_is_put_again_and_reported(tmp_path: Path, kind: str) -> None:
    source, root = tmp_path / "source", str(tmp_path / "root")
    source.mkdir()
    (source / "main.py").write_text("print(1)")
    what = job(source)
    staging.stage(planning.plan(what, root), root, "app-1", what, b"")
    store = Store(root)
    (digest,) = [name for name in store.all_objects() if store.meta(name)["name"] == "tony-src"]
    folder = Path(store.object_path(digest))
    DAMAGE[kind](folder)
    plan = planning.plan(what, root)
    (warning,) = [str(problem) for problem in plan.problems]
    assert "what was staged of tony-src is damaged" in warning and "staged again" in warning
    staging.stage(plan, root, "app-2", what, b"")
    assert (folder / "content" / "main.py").read_text() == "print(1)"
    assert store.damage(digest) == ""
    assert os.listdir(os.path.join(root, "store", "tmp")) == []
    assert planning.plan(what, root).problems == []


def test_bytecode_that_python_adds_is_no_damage(tmp_path: Path) -> None:
    def make(path: str) -> None:
        os.makedirs(os.path.join(path, "__pycache__"))
        Path(path, "__pycache__", "m.pyc").write_text("old")
        Path(path, "m.py").write_text("x")

    store = Store(str(tmp_path))
    store.put(A, make)
    Path(store.content(A), "__pycache__", "m.pyc").write_text("made anew")
    Path(store.content(A), "__pycache__", "n.pyc").write_text("another")
    assert store.damage(A) == ""


def test_the_runtime_is_put_again_when_its_main_is_emptied(tmp_path: Path, source: Path) -> None:
    root = str(tmp_path / "root")
    what = job(source / "src")
    artifacts = staging.stage(planning.plan(what, root), root, "app-1", what, b"")
    (runtime,) = [item for item in artifacts if item.name == "tony-runtime"]
    main = Path(runtime.uri, "__main__.py")
    good = main.read_bytes()
    write(main, b"")
    staging.stage(planning.plan(what, root), root, "app-2", what, b"")
    assert main.read_bytes() == good


def test_a_runtime_that_goes_between_plan_and_stage_is_made_whole(
    tmp_path: Path, source: Path
) -> None:
    root = str(tmp_path / "root")
    what = job(source / "src")
    artifacts = staging.stage(planning.plan(what, root), root, "app-1", what, b"")
    (runtime,) = [item for item in artifacts if item.name == "tony-runtime"]
    plan = planning.plan(what, root)
    shutil.rmtree(os.path.dirname(runtime.uri))
    staging.stage(plan, root, "app-2", what, b"")
    assert Path(runtime.uri, "__main__.py").stat().st_size > 0


@fuzz(data=mutations(b'{"main.py":8,"a/b":0}', b'{"":3}'))
def test_any_list_of_sizes_is_the_same_or_damage(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.py").write_text("print(1)")
        Path(folder, "sizes.json").write_bytes(data)
        assert isinstance(difference(folder, os.path.join(folder, "sizes.json")), str)


@needs_root
@pytest.mark.parametrize("how", ["folder", "link"])
def test_a_store_that_another_user_made_is_not_even_read(open_folder: Path, how: str) -> None:
    open_folder.chmod(0o1777)
    as_stranger(
        """
        path, how = argument
        if how == "link":
            os.mkdir(path + "/elsewhere", 0o777)
            os.symlink(path + "/elsewhere", path + "/store")
        else:
            os.makedirs(path + "/store/digests", 0o777)
        """,
        [str(open_folder), how],
    )
    with pytest.raises(
        staging_errors.StagingError, match="the store belongs to another user; set TONY_H"
    ):
        planning.plan(job(), str(open_folder))
    with pytest.raises(StoreError, match="belongs to another user"):
        Store(str(open_folder)).prepare()


@needs_root
def test_another_user_neither_reads_nor_locks_nor_replaces_what_is_stored(
    open_folder: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "main.py").write_text("print(1)")
    before = os.umask(0)
    try:
        what = job(source)
        staging.stage(planning.plan(what, str(open_folder)), str(open_folder), "app-1", what, b"s")
    finally:
        os.umask(before)
    paths = [str(path) for path in open_folder.rglob("*")]
    assert any(path.endswith("main.py") for path in paths)
    assert any(path.endswith("/lock") for path in paths)
    done = as_stranger(
        """
        result = []
        for path in argument:
            for attempt in (
                lambda: fcntl.flock(os.open(path, os.O_RDONLY | os.O_NONBLOCK), fcntl.LOCK_EX),
                lambda: os.listdir(path),
                lambda: os.chmod(path, 0o777),
                lambda: os.rename(path, path + ".mine"),
                lambda: os.symlink("/etc", path + "/planted"),
                lambda: os.link(path, "/tmp/taken"),
            ):
                try:
                    attempt()
                    result.append(path)
                except OSError:
                    pass
        """,
        paths,
    )
    assert done == []
