"""CLASSPATH and HADOOP_CONF_DIR for a program that reads HDFS through libhdfs.

``libhdfs`` (pyarrow, TensorFlow I/O) starts a JVM in the program's process and wants every jar
by name in CLASSPATH. What those are only Hadoop's own script knows: ``hadoop classpath --glob``
is run once per executor, beside the waiting for the rest of the gang, so that the second it
takes is nobody's. Nothing of this is needed for :mod:`tony`'s checkpoints and data sets.
"""

from __future__ import annotations

import glob
import os
from typing import Callable, Dict, List, Optional

from tony_core.protocol.messages import Prepare
from tony_core.protocol.reactor import Reactor
from tony_executor.asking import Answer, Question
from tony_executor.site import Site

PATIENCE_S = 20.0
ARCHIVE = ".tony-hadoop"  # tony.application.hadoop.location, unpacked
CONF_PREFIX = ".tony-conf-"  # tony.application.{hdfs,yarn,mapred}-conf-path
CONF = ".tony-hadoop-conf"
SKIP = "SKIP_HADOOP_PATH"


class HadoopPath:
    """One executor's. ``warn`` tells the job's story, ``log`` the executor's own log."""

    def __init__(
        self,
        reactor: Reactor,
        site: Site,
        warn: Callable[[str], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._site = site
        self._warn = warn
        self._log = log
        self._begun = False
        self._question: Optional[Question] = None
        self._waiting: Optional[Callable[[], None]] = None
        self._jars = ""
        self.variables: Dict[str, str] = {}  # beside CLASSPATH

    def begin(self, prepare: Prepare) -> None:
        """Find out, unless that is known or not wanted."""
        if self._begun or prepare.skip_hadoop or wanted_not(self._site.environment.get(SKIP)):
            return
        self._begun = True
        try:
            conf = self._configuration()
            homes = _homes(self._site.work)
        except OSError as error:
            self._warn(f"the job's Hadoop cannot be used: {error}")
            return
        if conf:
            self.variables["HADOOP_CONF_DIR"] = conf
        if homes and prepare.hadoop_classpath:
            found = [expanded(prepare.hadoop_classpath, home, conf) for home in homes]
            self._jars = max(found, key=len)
            self.variables["HADOOP_HOME"] = homes[found.index(self._jars)]
            return
        home = next((each for each in homes if os.path.exists(f"{each}/bin/hadoop")), None)
        if home:
            self.variables["HADOOP_HOME"] = home
        env = {**self._site.environment, **self.variables}
        program = _hadoop(env, self._site.path)
        if program is None:
            if homes:
                self._warn("tony.application.hadoop.location holds no bin/hadoop: no CLASSPATH")
            return

        def answered(answer: Answer) -> None:
            self._question = None
            if answer.error:
                text = f"CLASSPATH lacks Hadoop's jars: {answer.error}; see hadoop.log"
                (self._warn if homes else self._log)(text)
            else:
                # The script may say other things before it.
                self._jars = answer.text.strip().rpartition("\n")[2].strip()
            waiting, self._waiting = self._waiting, None
            if waiting is not None:
                waiting()

        argv = [program, "classpath", "--glob"]
        self._question = Question(
            self._reactor, argv, env, PATIENCE_S, answered, self._site.log("hadoop.log")
        )

    def when_known(self, then: Callable[[], None]) -> bool:
        """Whether all is known already; else ``then`` is called when it is."""
        if self._question is None:
            return True
        self._waiting = then
        return False

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits for the answer."""
        return self._waiting is not None

    def add_to(self, env: Dict[str, str]) -> None:
        """Behind what the program's CLASSPATH holds already; SKIP_HADOOP_PATH does without."""
        if self._jars and not wanted_not(env.get(SKIP)):
            theirs = env.get("CLASSPATH", "").rstrip(":")
            env["CLASSPATH"] = f"{theirs}:{self._jars}" if theirs else self._jars

    def reaped(self, pid: int, exit_code: int) -> bool:
        """A child ended; whether it was ours."""
        return self._question is not None and self._question.reaped(pid, exit_code)

    def cancel(self) -> None:
        """A sweep comes: it is asked again by the next session."""
        self._waiting = None
        if self._question is not None:
            self._question.cancel()
            self._question = None
            self._begun = False

    def _configuration(self) -> Optional[str]:
        """One folder of the files that the job brings; None when it brings none."""
        work = self._site.work
        brought = sorted(name for name in os.listdir(work) if name.startswith(CONF_PREFIX))
        folder = os.path.join(work, CONF)
        if not brought or os.path.isdir(folder):
            return folder if brought else None
        making = folder + ".making"
        os.makedirs(making, exist_ok=True)
        for name in brought:
            path = os.path.join(work, name)
            files = [path]
            if os.path.isdir(path):
                files = [os.path.join(path, each) for each in sorted(os.listdir(path))]
            for file in files:
                base = os.path.basename(file)
                if file == path:
                    base = f"{name[len(CONF_PREFIX) :]}-site.xml"
                if not os.path.lexists(os.path.join(making, base)):
                    os.symlink(file, os.path.join(making, base))
        os.rename(making, folder)
        return folder


def wanted_not(value: Optional[str]) -> bool:
    """Whether SKIP_HADOOP_PATH is set to something that means yes."""
    return (value or "").strip().lower() not in ("", "0", "false", "no")


def expanded(classpath: str, home: str, conf: Optional[str]) -> str:
    """``tony.application.hadoop.classpath`` inside the archive, each jar by its name."""
    found: List[str] = [conf] if conf else []
    for part in classpath.replace(",", ":").split(":"):
        path = os.path.join(home, part.strip())
        if part.strip().endswith("*"):
            found += sorted(glob.glob(path + ".jar"))
        elif part.strip():
            found += sorted(glob.glob(path))
    return ":".join(found)


def _homes(work: str) -> List[str]:
    """Where the job's own Hadoop may begin: archives hold one folder with its version."""
    archive = os.path.join(work, ARCHIVE)
    if not os.path.isdir(archive):
        return []
    inside = [os.path.join(archive, name) for name in sorted(os.listdir(archive))]
    return [archive, *(folder for folder in inside if os.path.isdir(folder))]


def _hadoop(env: Dict[str, str], path: str) -> Optional[str]:
    homes = [env[name] for name in ("HADOOP_HOME", "HADOOP_COMMON_HOME") if env.get(name)]
    for folder in [*(os.path.join(home, "bin") for home in homes), *path.split(os.pathsep)]:
        candidate = os.path.join(folder, "hadoop")
        if folder.startswith("/") and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    return None
