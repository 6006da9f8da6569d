"""The archive of classes from which a version's daemons start in about half the time.

Java can keep classes as it has read and checked them (class data sharing). One archive serves
all daemons and tools of a version; it lies beside the jars as ``KEY.classes-STATE-SIZE.jsa``,
where STATE stands for the very jars and the very Java it was made of: after a change to either
no daemon finds it. What Java makes of an archive that it cannot use is a start as without one.

Java wants the class path of an archive to be the beginning of the one that it is given, with no
folder in it: so the jars come first, and what a cluster adds to them comes after. No jar
of Hadoop has a file that a cluster's configuration folder has.

It is made by a cluster that is brought up once and says what it loads.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Iterable, List, Optional

from tests.cluster.hadoop.jars import (
    Distribution,
    SandboxError,
    archive_name,
    archive_of,
    locked,
    run,
)
from tests.cluster.hadoop.web import WebError

if TYPE_CHECKING:
    from tests.cluster.hadoop.cluster import Hadoop

UP_S = 60.0
"""What the cluster that is watched gets to come up."""

STOP_S = 30.0
"""What its daemons get to end, all together."""

DUMP_S = 120.0
"""What Java gets to write the archive."""

LOOK_S = 30.0
"""What it gets to say whether it takes one."""

WATCHED = ("rm_ha", "nm_recovery", "log_aggregation")
"""Features of the cluster that is watched: those with the most code of their own."""


def share(distribution: Distribution) -> Path:
    """The archive, made unless a good one is there. A SandboxError says why there is none."""
    if archive_name(distribution) is None:
        raise SandboxError("Java 17 or newer keeps classes, and this one is older")
    folder = distribution.folder
    try:
        found = _good(distribution)
        if found is None:
            with locked(folder.with_name(f"{folder.name}.lock")):
                found = _good(distribution) or _make(distribution)
    except (OSError, WebError) as error:
        raise SandboxError(str(error)) from None
    return found


def merge(lists: Iterable[str]) -> str:
    """One list of classes of several, each line once."""
    seen: Dict[str, None] = {}
    for text in lists:
        # Who was killed may have left half a line.
        for line in text.rpartition("\n")[0].splitlines():
            if line and not line.startswith("#"):
                seen[line] = None
    return "".join(f"{line}\n" for line in seen)


def _good(distribution: Distribution) -> Optional[Path]:
    """The one that is there, if Java takes it."""
    archive = archive_of(distribution)
    if archive is not None:
        command = _look(distribution, archive)
        try:
            run(command, LOOK_S, "use the archive", archive.parent, dict(os.environ))
        except SandboxError:
            return None
    return archive


def _make(distribution: Distribution) -> Path:
    parent = distribution.folder.parent
    prefix = f"{distribution.folder.name}.classes-new-"
    for left in parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed: we hold the lock
    for old in parent.glob(f"{distribution.folder.name}.classes-*.jsa"):
        old.unlink()  # of other jars, of another Java, or damaged
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        classes = scratch / "classes"
        classes.write_text(merge(_watch(distribution, scratch)))
        made = scratch / "archive"
        for command, limit in (
            (_dump(distribution, classes, made), DUMP_S),
            (_look(distribution, made), LOOK_S),
        ):
            run(command, limit, "keep the classes", scratch, dict(os.environ))
        made.chmod(0o644)
        with made.open("rb+") as file:
            os.fsync(file.fileno())
        size = made.stat().st_size
        return made.rename(parent / f"{archive_name(distribution)}-{size}.jsa")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _watch(distribution: Distribution, scratch: Path) -> List[str]:
    """What each daemon of a cluster loads until it has run an application."""
    from tests.cluster.hadoop.cluster import Hadoop

    lists = scratch / "lists"
    lists.mkdir()
    flags = (f"-XX:DumpLoadedClassList={lists}/%p",)
    watched = dataclasses.replace(distribution, flags=flags)
    with Hadoop.up(scratch / "cluster", WATCHED, jars=watched, limit=UP_S) as cluster:
        _use(cluster)
        for name in cluster.daemons():
            cluster.call("signal", daemon=name, signal=int(signal.SIGTERM))
        # They write the end of their lists when they end.
        deadline = time.monotonic() + STOP_S
        while any(one["exit"] is None for one in cluster.daemons().values()):
            if time.monotonic() >= deadline:
                break
            time.sleep(0.1)
    return [path.read_text(errors="replace") for path in lists.iterdir()]


def _use(cluster: Hadoop) -> None:
    cluster.hdfs.put("/watched/file", b"x")
    cluster.hdfs.get("/watched/file")
    cluster.hdfs.delete("/watched")
    app = cluster.submit(
        application_name="watched",
        am_container_spec={"commands": {"command": "true"}},
        max_app_attempts=1,
        resource={"memory": 64, "vCores": 1},
    )
    cluster.wait_for(app)


def _dump(distribution: Distribution, classes: Path, made: Path) -> List[str]:
    # No more than the jars: a folder on the class path would not be taken.
    command = distribution.java([], "", heap_mb=1024, flags=("-Xshare:dump",))[:-1]
    return [
        *command,
        f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={made}",
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
    ]


def _look(distribution: Distribution, made: Path) -> List[str]:
    command = distribution.java([], "", heap_mb=256, flags=("-Xshare:on",))[:-1]
    return [*command, f"-XX:SharedArchiveFile={made}", "-version"]
