"""An Azkaban server on a cluster with Kerberos, which obtains tokens for each job's user by a class
of ours that stands in for Azkaban's (HadoopShell.java).

The server's login is ``gateway``'s, who may act for ``ann`` and ``bob``. Where the tests run as
root, the server runs each job under its user's own uid, as ``execute-as-user`` does; else all jobs
run as the server's user, and its site accepts that they can read its keytab.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Optional

from tests.cluster.azkaban.installing import PATHS, tony_azkaban
from tests.cluster.azkaban.jars import ServerJars
from tests.cluster.azkaban.server import Azkaban
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.jars import Distribution, run
from tests.cluster.hadoop.kerberos import REALM
from tests.cluster.hadoop.security import FIRST_UID, GATEWAY, USERS
from tests.cluster.hadoop.site import write_site

CLASS = Path(__file__).with_name("HadoopShell.java")
COMPILE_S = 120.0


def find_python() -> Optional[str]:
    """An interpreter that the users can run with this checkout; None where there is none."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    modules = "tony_azkaban.program, tony_azkaban.attempt, tony_core.client.submission"
    code = f"import sys; sys.path[:0] = {PATHS.split(os.pathsep)!r}; import {modules}"
    for python in (sys.executable, "/usr/bin/python3"):
        words = ["setpriv", f"--reuid={FIRST_UID}", f"--regid={FIRST_UID}", "--clear-groups"]
        words += [python, "-I", "-c", code]
        if subprocess.run(words, capture_output=True, cwd="/").returncode == 0:
            return python
    return None


class SecureServer:
    """The server, and what it may read and its jobs may not."""

    def __init__(self, cluster: Hadoop, jars: ServerJars, hadoop: Distribution) -> None:
        # Other users work in it, and pytest's own folder is closed to them.
        self._folder = Path(tempfile.mkdtemp(prefix="azkaban-"))
        self._folder.chmod(0o711)
        self.cluster = cluster
        self._python = find_python()
        numbers = {user: FIRST_UID + index for index, user in enumerate(USERS)}
        self.uids: Dict[str, int] = numbers if self._python else {}
        self.keytab = cluster.keytab_of(GATEWAY)
        self.homes = self._folder / "homes"
        self.conf = self._folder / "hadoop-conf"
        try:
            self.azkaban = self._start(jars, hadoop)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _start(self, jars: ServerJars, hadoop: Distribution) -> Azkaban:
        self.homes.mkdir()
        self.homes.chmod(0o1777)
        shutil.copytree(self.cluster.conf_dir, self.conf)
        write_site(self.conf / "mapred-site.xml", {"mapreduce.framework.name": "yarn"})
        classes = self._folder / "classes"
        _compile(classes, jars, hadoop)
        return Azkaban.up(
            self._folder / "server",
            self._install,
            jars=jars,
            environment={"KRB5_CONFIG": self.cluster.environment_of(GATEWAY)["KRB5_CONFIG"]},
            users=USERS,
            # As on real sites, Hadoop's own jars and configuration are the server's.
            classpath=[str(self.conf), str(classes), f"{hadoop.lib}/*"],
            flags=[f"-Djava.security.krb5.conf={self.cluster.kerberos.krb5_conf}"],
        )

    def _install(self, server: Azkaban) -> None:
        common = {
            "proxy.user": f"{GATEWAY}@{REALM}",
            "proxy.keytab.location": str(self.keytab),
            "hadoop.security.manager.class": "azkaban.security.HadoopSecurityManager_H_2_0",
            "execute.as.user": "true" if self.uids else "false",
            **{f"test.uid.{user}": str(uid) for user, uid in self.uids.items()},
        }
        text = "".join(f"{key}={value}\n" for key, value in common.items())
        (server.plugins / "commonprivate.properties").write_text(text)
        words = ["--plugin-dir", str(server.plugins), "--server-url", server.url, "--tokens"]
        words += ["--python", self._python] if self._python else []
        tony_azkaban("install", *words, "--hadoop-conf-dir", str(self.conf))
        if not self.uids:
            with (server.plugins / "tony" / "site.properties").open("a") as site:
                site.write("readable.keytab=accept\n")
        with (server.home / "conf" / "azkaban.properties").open("a") as settings:
            settings.write("proxy.user.lock.down=true\n")

    def token_files(self) -> List[Path]:
        """What the server has handed to jobs."""
        return sorted((self.azkaban.home / "temp").glob("mr-azkaban*.token"))

    def searched(self) -> List[Path]:
        """Where no key of anybody may lie, but in the token files."""
        return [self._folder]

    def close(self) -> None:
        """Down, and everything away."""
        try:
            self.azkaban.remove()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def _compile(target: Path, jars: ServerJars, hadoop: Distribution) -> None:
    target.mkdir()
    paths = f"{hadoop.lib}/*:{jars.lib}/*"
    words = [str(jars.java_home / "bin" / "javac"), "-nowarn", "-d", str(target), "-cp", paths]
    run([*words, str(CLASS)], COMPILE_S, "compile the job type", target, dict(os.environ))
