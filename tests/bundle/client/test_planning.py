"""What a job brings, found without writing."""

from __future__ import annotations

import os
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import List, Optional

import pytest

from tests.bundle.conftest import Site
from tests.bundle.jobs import job, messages_of, ref, snapshot
from tony_core.bundle.client import planning, staging
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.job.problems import Severity
from tony_core.job.spec import Setting


def named(plan: planning.Plan, name: str) -> Artifact:
    [found] = [item for item in plan.artifacts if item.name == name]
    return found


@pytest.fixture
def src(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "empty").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    return folder


def test_planning_writes_nothing(tmp_path: Path, src: Path) -> None:
    before = snapshot(src)
    root = tmp_path / "root"
    plan = planning.plan(job(src, files=(ref(src / "train.py"),)), str(root))
    assert plan.problems == []
    assert not root.exists()
    assert snapshot(src) == before
    assert all(not upload.present for upload in plan.uploads)
    assert plan.upload_bytes > 0


def test_artifacts(tmp_path: Path, src: Path) -> None:
    tool = tmp_path / "tool.sh"
    tool.write_text("#!/bin/sh")
    tool.chmod(0o755)
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as out:
        out.writestr("x", "x")
    plan = planning.plan(
        job(
            src,
            files=(ref(tool),),
            am=(ref(tool, "am-tool"),),
            worker=(ref(tmp_path / "d.zip", "data", archive=True), ref(tmp_path / "d.zip")),
            ps=(ref(tmp_path / "d.zip"), ref(src, "copy")),
        ),
        str(tmp_path / "root"),
    )
    assert plan.problems == []
    runtime = named(plan, "tony-runtime")
    assert (runtime.use, runtime.kind, runtime.roles) == (Use.RUNTIME, Kind.FOLDER, ())
    source = named(plan, "tony-src")
    assert (source.use, source.kind, source.roles) == (Use.SOURCE, Kind.FOLDER, ())
    assert named(plan, "tool.sh").kind is Kind.FILE
    assert named(plan, "am-tool").roles == ("am",)
    assert named(plan, "am-tool").digest == named(plan, "tool.sh").digest
    assert (named(plan, "data").kind, named(plan, "data").roles) == (Kind.ARCHIVE, ("worker",))
    # The same thing for two roles is one artifact.
    assert named(plan, "d.zip").roles == ("worker", "ps")
    assert named(plan, "d.zip").kind is Kind.FILE
    assert named(plan, "copy").kind is Kind.FOLDER
    assert len({upload.digest for upload in plan.uploads}) == len(plan.uploads)


def test_everything_wrong_at_once(tmp_path: Path, src: Path) -> None:
    (tmp_path / "bad.zip").write_text("no zip")
    with tarfile.open(tmp_path / "climb.tar", "w") as out:
        out.addfile(tarfile.TarInfo("../x"))
    os.mkfifo(src / "pipe")
    wrong = job(
        src,
        venv=tmp_path / "no-venv",
        files=(
            ref(tmp_path / "gone.txt"),
            ref(src / "train.py", "venv"),
            ref(src / "train.py", "session-3"),
            ref("gopher://host/x"),
            ref("hdfs://nn/x.zip"),
        ),
        am=(ref(tmp_path / "bad.zip", "bad", archive=True),),
        worker=(ref(tmp_path / "climb.tar", "climb", archive=True),),
    ).replace(
        settings=(
            Setting("tony.worker.resources", "climb", "/jobs/tony.xml:12"),
            Setting("tony.containers.resources", "x", "--conf"),
        )
    )
    plan = planning.plan(wrong, str(tmp_path / "root"))
    text = "\n".join(messages_of(plan))
    for part in (
        f"tony.client.src-dir: {src}: pipe: is a named pipe",
        f"tony.client.python-venv: {tmp_path}/no-venv does not exist",
        f"--conf: tony.containers.resources: {tmp_path}/gone.txt does not exist",
        "the name venv is reserved",
        "the name session-3 is reserved",
        "gopher://host/x: nothing here knows",
        "hdfs://nn/x.zip: HDFS is reached by the cluster",
        f"tony.am.resources: {tmp_path}/bad.zip: is not an archive",
        f"/jobs/tony.xml:12: tony.worker.resources: {tmp_path}/climb.tar: ../x: holds '..'",
    ):
        assert part in text
    assert len(messages_of(plan)) == 9
    assert not (tmp_path / "root").exists()


def test_two_things_of_one_name(tmp_path: Path, src: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text("another")
    one, two = ref(src / "train.py"), ref(other / "train.py")
    root = str(tmp_path / "root")
    assert messages_of(planning.plan(job(worker=(one,), ps=(two,)), root)) == []
    [problem] = messages_of(planning.plan(job(files=(one,), worker=(two,)), root))
    assert "tony.worker.resources" in problem and "add ::name" in problem
    assert str(src) in problem and str(other) in problem
    # The same file twice is no clash.
    assert messages_of(planning.plan(job(files=(one,), worker=(one,)), root)) == []


def test_a_source_archive(tmp_path: Path, src: Path) -> None:
    with tarfile.open(tmp_path / "src.tgz", "w:gz") as out:
        out.add(src, ".")
    plan = planning.plan(job(tmp_path / "src.tgz"), str(tmp_path / "root"))
    assert messages_of(plan) == []
    assert named(plan, "tony-src").kind is Kind.ARCHIVE
    plan = planning.plan(job(src / "train.py"), str(tmp_path / "root"))
    assert "train.py: is not an archive" in messages_of(plan)[0]


def test_a_missing_classpath_entry_is_a_warning(tmp_path: Path, src: Path) -> None:
    for name in ("lib/a.jar", "lib/b.jar", "more/a.jar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    paths = (str(tmp_path / "lib" / "*.jar"), str(tmp_path / "none"), str(tmp_path / "more/a.jar"))
    plan = planning.plan(job(src, classpath=paths), str(tmp_path / "root"))
    assert messages_of(plan) == []
    assert messages_of(plan, Severity.WARNING) == [
        f"tony.client.hdfs-classpath: {tmp_path}/none does not exist and is left out"
    ]
    names = [item.name for item in plan.artifacts if item.use is Use.CLASSPATH]
    assert names == ["a.jar", "b.jar", "2-a.jar"]


def test_doubts_are_warnings(tmp_path: Path, src: Path) -> None:
    (src / "data").symlink_to("/data/imagenet")
    (src / ".env" / "bin").mkdir(parents=True)
    (src / ".env" / "pyvenv.cfg").write_text("")
    plan = planning.plan(job(src), str(tmp_path / "root"))
    doubts = "\n".join(messages_of(plan, Severity.WARNING))
    assert "data -> /data/imagenet" in doubts and "(.env)" in doubts
    assert messages_of(plan) == []


def test_venvs(tmp_path: Path, src: Path) -> None:
    home = tmp_path / "env"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(sys.executable)
    root = str(tmp_path / "root")

    def doubts(**more: object) -> str:
        plan = planning.plan(job(src, **more), root)  # type: ignore[arg-type]
        assert messages_of(plan) == []
        return "\n".join(messages_of(plan, Severity.WARNING))

    assert doubts(venv=home) == ""  # its absolute link is no doubt
    assert doubts(venv=home, python="/usr/bin/python3") == ""
    assert doubts(venv=home, python="venv/bin/python") == ""
    assert doubts(venv=home, python="python3.99") == ""  # on the PATH, not in there

    def wrong(**more: object) -> str:
        plan = planning.plan(job(src, **more), root)  # type: ignore[arg-type]
        return "\n".join(messages_of(plan))

    refused = f"tony.client.python-binary-path: {home} has no bin/python3.99, which"
    assert refused in wrong(venv=home, python="venv/bin/python3.99")
    assert "but it has bin/python: give" in wrong(venv=home, python="venv/python")
    (home / "bin" / "python").unlink()
    (home / "bin" / "python").symlink_to("/no/python3.7")
    assert "link to /no/python3.7, which does not exist" in doubts(venv=home)


@pytest.mark.parametrize("top", ["env", "venv"])
def test_an_archive_of_a_venvs_folder(tmp_path: Path, src: Path, top: str) -> None:
    """``zip -r venv.zip venv``, as the JVM TonY's examples make it."""
    home = tmp_path / "somewhere"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(sys.executable)
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as out:
        out.add(home, top)
    with tarfile.open(tmp_path / "two.tar.gz", "w:gz") as out:
        out.add(home, top)
        out.add(home, "other")

    def words(archive: str, python: Optional[str]) -> List[str]:
        made = job(src, venv=tmp_path / archive, python=python)
        plan = planning.plan(made, str(tmp_path / "root"))
        return [*messages_of(plan), *messages_of(plan, Severity.WARNING)]

    for python in (None, "bin/python", "venv/bin/python", f"venv/{top}/bin/python"):
        assert words("env.tar.gz", python) == [], python
    for python in ("venv/bin/python3.99", "venv/lib/python"):
        assert "which --python_binary_path names" in words("env.tar.gz", python)[0]
    assert "give --python_binary_path" in words("two.tar.gz", "venv/bin/python")[0]


def test_remote_files_are_used_where_they_are(tmp_path: Path, src: Path, web: Site) -> None:
    web.put("one.zip", b"1234567", mtime=5)
    url = f"http://me:pw@{web.address}/one.zip"
    plan = planning.plan(
        job(src, venv=url, files=(ref(f"http://me:pw@{web.address}/none"),)),
        str(tmp_path / "root"),
    )
    venv = named(plan, "venv")
    assert (venv.uri, venv.source) == (url, f"http://****@{web.address}/one.zip")
    assert (venv.digest, venv.size, venv.mtime_ms, venv.kind) == ("", 7, 5000, Kind.ARCHIVE)
    [problem] = messages_of(plan)
    assert f"@{web.address}/none does not exist" in problem and "pw" not in problem
    [problem] = messages_of(
        planning.plan(job(src, venv="https://host/venv"), str(tmp_path / "root"))
    )
    assert "must be an archive" in problem


def test_the_nodes_python(tmp_path: Path, src: Path) -> None:
    def plan(python: str) -> str:
        base = job(src)
        changed = base.replace(runtime=type(base.runtime)(python=python))
        return "\n".join(messages_of(planning.plan(changed, str(tmp_path / "root"))))

    assert "no-such-python is no Python" in plan("no-such-python")
    assert "/bin/true is no Python" in plan("/bin/true")
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\necho 3 7 cpython-37\n")
    old.chmod(0o755)
    assert "is Python 3.7; 3.9 or newer is needed" in plan(str(old))


def test_the_store_below_the_source_is_not_entered(tmp_path: Path) -> None:
    src = tmp_path / "home"
    (src / "store" / "objects").mkdir(parents=True)
    (src / "store" / "objects" / "x").write_text("x")
    (src / "a.py").write_text("x")
    single = tmp_path / "alone"
    single.mkdir()
    (single / "a.py").write_text("x")
    one = named(planning.plan(job(src), str(src)), "tony-src")
    other = named(planning.plan(job(single), str(src)), "tony-src")
    assert one.digest == other.digest


def test_urls_that_are_none(tmp_path: Path, src: Path) -> None:
    bad = "http://[me:pw@host/x.zip"
    wrong = job(src, venv=bad, files=(ref(bad, "x"), ref("file://host/x", "y")), classpath=(bad,))
    problems = messages_of(planning.plan(wrong, str(tmp_path / "root")))
    assert len(problems) == 4
    assert "three slashes" in "".join(problems) and "pw" not in "".join(problems)


@pytest.mark.slow
@pytest.mark.nightly
def test_twenty_thousand_files_are_planned_again_in_a_second(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    for number in range(200):
        (folder / str(number)).mkdir(parents=True)
        for inner in range(100):
            (folder / str(number) / f"{inner}.py").write_text(f"{number} {inner}")
    time.sleep(2.1)
    root = str(tmp_path / "root")
    one = planning.plan(job(folder), root)
    staging.stage(one, root, "app-1", job(folder), b"")
    start = time.process_time()
    two = planning.plan(job(folder), root)
    assert time.process_time() - start < 4  # hashing all of it takes more
    assert all(upload.present for upload in two.uploads)
