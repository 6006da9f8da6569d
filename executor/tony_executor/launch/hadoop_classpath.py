"""CLASSPATH and HADOOP_CONF_DIR for a program that reads HDFS through libhdfs.

``libhdfs`` (pyarrow, TensorFlow I/O) starts a JVM in the program's process and wants every jar by
name in CLASSPATH. Only Hadoop's own script knows their names: the executor runs ``hadoop classpath
--glob`` once, while it waits for the rest of the gang. :mod:`tony`'s checkpoints and data sets need
nothing of this.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Optional

from tony_core.protocol.messages import Prepare
from tony_core.protocol.reactor import Reactor
from tony_executor.context import ContainerContext
from tony_executor.launch.spawn import CommandResult, CommandRun

ANSWER_S = 20.0
ARCHIVE = ".tony-hadoop"  # tony.application.hadoop.location, unpacked
CONF_PREFIX = ".tony-conf-"  # tony.application.{hdfs,yarn,mapred}-conf-path
CONF = ".tony-hadoop-conf"
SKIP = "SKIP_HADOOP_PATH"


class HadoopClasspath:
    """Determines the variables; ``warn`` writes into the job's story, ``log`` into our own log."""

    def __init__(
        self,
        reactor: Reactor,
        context: ContainerContext,
        warn: Callable[[str], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._warn = warn
        self._log = log
        self._begun = False
        self._run: Optional[CommandRun] = None
        self._waiting: Optional[Callable[[], None]] = None
        self._jars = ""
        self.variables: Dict[str, str] = {}  # beside CLASSPATH

    def determine(self, prepare: Prepare) -> None:
        """Start to determine it, unless it is known or the job does without."""
        if self._begun or prepare.skip_hadoop or is_skipped(self._context.environment.get(SKIP)):
            return
        self._begun = True
        try:
            conf = self._configuration()
            homes = _homes(self._context.work)
        except OSError as error:
            self._warn(f"the job's Hadoop cannot be used: {error}")
            return
        if conf:
            self.variables["HADOOP_CONF_DIR"] = conf
        if homes and prepare.hadoop_classpath:
            found = [expand_classpath(prepare.hadoop_classpath, home, conf) for home in homes]
            self._jars = max(found, key=len)
            self.variables["HADOOP_HOME"] = homes[found.index(self._jars)]
            return
        home = next((each for each in homes if os.path.exists(f"{each}/bin/hadoop")), None)
        if home:
            self.variables["HADOOP_HOME"] = home
        env = {**self._context.environment, **self.variables}
        program = _hadoop(env, self._context.path)
        if program is None:
            if homes:
                self._warn("tony.application.hadoop.location holds no bin/hadoop: no CLASSPATH")
            return

        def answered(result: CommandResult) -> None:
            self._run = None
            if result.error:
                text = f"CLASSPATH lacks Hadoop's jars: {result.error}; see hadoop.log"
                (self._warn if homes else self._log)(text)
            else:
                # The script may say other things before it.
                self._jars = result.output.strip().rpartition("\n")[2].strip()
            waiting, self._waiting = self._waiting, None
            if waiting is not None:
                waiting()

        argv = [program, "classpath", "--glob"]
        self._run = CommandRun(
            self._reactor, argv, env, ANSWER_S, answered, self._context.log("hadoop.log")
        )

    def when_known(self, then: Callable[[], None]) -> bool:
        """Whether all is known; if not, ``then`` is called when it is."""
        if self._run is None:
            return True
        self._waiting = then
        return False

    @property
    def is_waited_for(self) -> bool:
        """Whether a start waits for the answer."""
        return self._waiting is not None

    def add_to(self, env: Dict[str, str]) -> None:
        """Append it to the program's CLASSPATH, unless SKIP_HADOOP_PATH is set there."""
        if self._jars and not is_skipped(env.get(SKIP)):
            theirs = env.get("CLASSPATH", "").rstrip(":")
            env["CLASSPATH"] = f"{theirs}:{self._jars}" if theirs else self._jars

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was ours."""
        return self._run is not None and self._run.reaped(pid, exit_code)

    def cancel(self) -> None:
        """Stop for a sweep; the next session asks again."""
        self._waiting = None
        if self._run is not None:
            self._run.cancel()
            self._run = None
            self._begun = False

    def _configuration(self) -> Optional[str]:
        """The folder with links to the job's own configuration files; None when it has none."""
        work = self._context.work
        shipped = sorted(name for name in os.listdir(work) if name.startswith(CONF_PREFIX))
        folder = os.path.join(work, CONF)
        if not shipped or os.path.isdir(folder):
            return folder if shipped else None
        unfinished = folder + ".unfinished"
        os.makedirs(unfinished, exist_ok=True)
        for name in shipped:
            path = os.path.join(work, name)
            files = [path]
            if os.path.isdir(path):
                files = [os.path.join(path, each) for each in sorted(os.listdir(path))]
            for file in files:
                base = os.path.basename(file)
                if file == path:
                    base = f"{name[len(CONF_PREFIX) :]}-site.xml"
                if not os.path.lexists(os.path.join(unfinished, base)):
                    os.symlink(file, os.path.join(unfinished, base))
        os.rename(unfinished, folder)
        return folder


def is_skipped(value: Optional[str]) -> bool:
    """Whether this value of SKIP_HADOOP_PATH means yes."""
    return (value or "").strip().lower() not in ("", "0", "false", "no")


def expand_classpath(classpath: str, home: str, conf: Optional[str]) -> str:
    """Expand ``tony.application.hadoop.classpath`` inside the archive, jar by jar."""
    import glob  # only for jobs that bring their own Hadoop

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
