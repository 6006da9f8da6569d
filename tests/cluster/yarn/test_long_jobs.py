"""Jobs that run longer than a token lives: with a keytab, without one, with a child in Java."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.security import BRIEF_LIFETIME_S, TOKEN_LIFETIME_S
from tests.cluster.yarn.jobs import Running, Tony, until
from tests.cluster.yarn.test_kerberos import Saving
from tests.cluster.yarn.training import masters
from tony_core.hadoop.tokens import shortest_lifetime

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WRITES = """
import java.nio.file.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

public class Writes {
    public static void main(String[] words) throws Exception {
        Path steps = Paths.get(words[0], "steps"), over = Paths.get(words[0], "over");
        String session = System.getenv("SESSION_ID");
        FileSystem files = FileSystem.get(new Configuration());
        for (int step = 0; !Files.exists(over); step++) {
            org.apache.hadoop.fs.Path place = new org.apache.hadoop.fs.Path(words[1] + step % 5);
            try (var out = files.create(place, true)) {
                out.writeInt(step);
            }
            String line = session + " " + step + "\\n";
            Files.writeString(steps, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            Thread.sleep(200);
        }
    }
}
"""
"""Saves to HDFS by Hadoop's own client, as libhdfs does: it reads its tokens once, at its start."""


def with_keytab(cluster: Hadoop, **more: Any) -> Dict[str, Any]:
    """The keys of a job that ships its owner's keytab."""
    return {
        "tony.kerberos.principal": f"{cluster.user}@{REALM}",
        "tony.kerberos.keytab": str(cluster.keytab_of(cluster.user)),
        "tony.kerberos.ship-keytab": "true",
        "tony.worker.instances": 1,
        **more,
    }


def texts_of(job: Running, kind: str) -> List[str]:
    return [event["text"] for event in job.events() if event["kind"] == kind]


def is_undisturbed(saving: Saving) -> bool:
    """Whether each worker saved every step, in one process of one session."""
    return all(
        len({(line[0], line[1]) for line in lines}) == 1
        and [int(line[2]) for line in lines] == list(range(len(lines)))
        for lines in saving.lines().values()
        if lines
    )


def end_of(saving: Saving) -> float:
    """When the first tokens of a job end for good."""
    found = shortest_lifetime(saving.tokens().tokens.values())
    assert found is not None
    return found.ends_s


def rss_kb(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def saves_one(saving: Saving) -> bool:
    return bool(saving.lines()["worker-0"])


def steps_of(saving: Saving, session: str) -> List[int]:
    return [int(line[2]) for line in saving.lines()["worker-0"] if line[0] == session]


def grows(saving: Saving) -> Callable[[], bool]:
    before = len(saving.lines()["worker-0"])
    return lambda: len(saving.lines()["worker-0"]) > before + 3


class JavaJob:
    """A job whose program saves by Hadoop's own client."""

    def __init__(self, tony: Tony, **conf: Any) -> None:
        cluster = tony.cluster
        assert cluster is not None
        self.folder = tony.folder / "java"
        self.folder.mkdir()
        (self.folder / "Writes.java").write_text(WRITES)
        jars = f"{cluster.jar('hadoop-common').parent}/*"
        words = ["javac", "-cp", jars, "-d", str(self.folder), str(self.folder / "Writes.java")]
        subprocess.run(words, check=True, timeout=120, capture_output=True)
        place = f"{cluster.default_fs}/user/{cluster.user}/java-{time.time_ns()}-"
        java = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java += [f"-Djava.security.krb5.conf={cluster.kerberos.krb5_conf}"]
        java += ["-cp", f"{self.folder}:{cluster.conf_dir}:'{jars}'", "Writes"]
        command = " ".join([*java, str(self.folder), place])
        settings = with_keytab(cluster, **{"tony.worker.memory": "512m", **conf})
        self.job = tony.submit("--executes", command, conf=settings)

    def lines(self) -> List[List[str]]:
        path = self.folder / "steps"
        text = path.read_text() if path.exists() else ""
        return [line.split() for line in text.splitlines(True) if line.endswith("\n")]

    def sessions(self) -> List[str]:
        return list(dict.fromkeys(line[0] for line in self.lines()))


def test_with_a_keytab_a_job_goes_on_and_without_one_it_ends_with_its_reason(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    """The long job's master is killed after its first tokens' end; it carries its code. Another
    job's programs read their tokens once, and start anew."""
    cluster = hadoop("secure", "brief_tokens", "node_kerberos")
    long = Saving(tony_on(cluster), **with_keytab(cluster))
    once = Saving(tony_on(cluster), **with_keytab(cluster, **{"tony.kerberos.refresh": "restart"}))
    short = Saving(tony_on(cluster), **{"tony.worker.instances": 1})
    short.job.until(lambda: "can run until" in short.job.output_text, "how long it can live")
    assert "its tokens end then" in short.job.output_text
    short.job.until(lambda: saves_one(short), "its first step")
    output = short.job.ends(1)
    assert "end of their maximum lifetime" in output and "Submit it again" in output
    (cause,) = texts_of(short.job, "ending")
    assert cause.startswith("FAILED"), cause
    (warning,) = texts_of(short.job, "tokens")
    assert "ships no keytab" in warning

    assert "can run until" not in long.job.output_text
    ends = end_of(long)
    assert ends - time.time() <= BRIEF_LIFETIME_S
    long.job.until(lambda: time.time() > ends + 1, "the first tokens' end")
    long.job.until(grows(long), "it saves by others")
    (first,) = masters(long.job.app_id)
    os.kill(first, signal.SIGKILL)
    long.job.until(lambda: masters(long.job.app_id) not in ([], [first]), "the next master")
    long.job.until(grows(long), "it saves on")
    once.job.until(lambda: steps_of(once, "1"), "its next session")
    # From its checkpoint; the last one may have been saved and not written down.
    assert 1 <= steps_of(once, "1")[0] - steps_of(once, "0")[-1] <= 2
    tony, app_id = long.job.tony, long.job.app_id
    long.job.until(lambda: tony.json("status", app_id)["attempt"] == 2, "the next master's page")
    for saving in (long, once):
        saving.tell("over")
        saving.job.ends(0)
        assert "root-cause" not in {event["kind"] for event in saving.job.events()}
    assert is_undisturbed(long), long.job.events()
    until(tony_on(cluster).nothing_runs, "no process is left")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_three_lifetimes_a_killed_master_and_programs_that_read_tokens_once(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("secure", "short_tokens", "node_kerberos")
    published = publish_runtime(tony_on(cluster))
    long = Saving(tony_on(cluster), **with_keytab(cluster), **published)
    short = Saving(tony_on(cluster), **{"tony.worker.instances": 1})
    once = JavaJob(tony_on(cluster), **{"tony.kerberos.refresh": "restart"})
    for one in (long, short):
        one.job.until(lambda one=one: saves_one(one), "its first step")
    ends = end_of(long)
    (first,) = masters(long.job.app_id)
    before = rss_kb(first)

    assert "end of their maximum lifetime" in short.job.ends(1, TOKEN_LIFETIME_S + 60)

    # The first master has fetched tokens at three quarters of the lifetime.
    long.job.until(lambda: time.time() > ends, "the first tokens' end", TOKEN_LIFETIME_S)
    long.job.until(grows(long), "it saves by others")
    assert rss_kb(first) - before < 4096, (before, rss_kb(first))
    os.kill(first, signal.SIGKILL)
    long.job.until(lambda: masters(long.job.app_id) not in ([], [first]), "the next master")
    last = ends + 2 * TOKEN_LIFETIME_S
    long.job.until(lambda: time.time() > last + 5, "three lifetimes", 3 * TOKEN_LIFETIME_S)
    long.job.until(grows(long), "it saves after three lifetimes")
    assert long.job.tony.json("status", long.job.app_id)["attempt"] == 2
    once.job.until(lambda: len(once.sessions()) > 2, "two restarts", TOKEN_LIFETIME_S)
    long.tell("over")
    (once.folder / "over").touch()
    for job in (long.job, once.job):
        job.ends(0)
        assert "root-cause" not in {event["kind"] for event in job.events()}, job.events()
    assert is_undisturbed(long), long.job.events()
    assert any("has fresh tokens" in event["text"] for event in once.job.events())
    until(tony_on(cluster).nothing_runs, "no process is left")


def publish_runtime(tony: Tony) -> Dict[str, Any]:
    """The key of a runtime that nodes localize by themselves, without a token of the job's."""
    cluster = tony.cluster
    assert cluster is not None
    cluster.hdfs.make_folder("/apps")
    cluster.hdfs.give("/apps", cluster.user, cluster.user, "755")
    place = f"{cluster.default_fs}/apps/runtime.tar"
    command = [*tony.command, "runtime", "publish", place]
    subprocess.run(command, env=tony.env, check=True, timeout=60, capture_output=True)
    return {"tony.runtime.location": place}
