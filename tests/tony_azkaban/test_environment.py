"""The environment of the program that submits."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest

from tests.second_user import as_stranger, needs_root
from tests.tony_azkaban.jobs import PATHS, Job
from tony_azkaban import environment
from tony_azkaban.program import set_environment
from tony_azkaban.site import Site
from tony_core.client.errors import UsageError

SERVER = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/var/az",
    "TONY_HOME": "/var/az/tony",
    "LANG": "C.UTF-8",
}
OF_JOB = {"JOB_NAME": "train", "JOB_PROP_FILE": "/x/props", "JOB_OUTPUT_PROP_FILE": "/x/out"}
CHILD = f"""
import sys; sys.path[:0] = {PATHS!r}
from tony_azkaban.environment import restore
restore()
import json, os
with open("/proc/self/environ") as file:
    began = file.read()
print(json.dumps([dict(os.environ), began, sorted(set(sys.modules) & {{"ssl", "hashlib"}})]))
"""
PARENT = """
import json, os, subprocess, sys
job, before, child = json.load(sys.stdin)
words = [*before, sys.executable, "-I", "-c", child]
subprocess.run(words, env={**os.environ, **job}, check=True)
"""


def started(job: Dict[str, str], *before: str) -> tuple[Dict[str, str], str]:
    """The program's environment, as a server with SERVER starts it; and what it began with."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", PARENT],
        input=json.dumps([job, before, CHILD]),
        env=SERVER,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found, began, modules = json.loads(done.stdout)
    assert not modules, "imported before the environment was restored"
    return found, began


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"PATH": "/job/bin", "PYTHONPATH": "/job", "HOME": "/job", "TONY_HOME": "/job"},
        {"HADOOP_USER_NAME": "hdfs", "OPENSSL_CONF": "/job/evil.cnf", "TONY_DEBUG": "1"},
        {"LD_LIBRARY_PATH": "/job/lib", "OPENSSL_CONF": "/job/evil.cnf"},
        {"LD_PRELOAD": "/job/none.so", "GLIBC_TUNABLES": "glibc.malloc.check=3"},
    ],
)
def test_it_is_the_servers(job: Dict[str, str]) -> None:
    found, began = started({**OF_JOB, **job})
    assert found == {**SERVER, **OF_JOB}
    if any(name.startswith("LD_") for name in job):
        assert "/job" not in began  # a process that never had it


def test_the_servers_own_libraries_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no reason to start again and again."""
    monkeypatch.setitem(SERVER, "LD_LIBRARY_PATH", "/opt/az/lib")
    assert started({**OF_JOB, "A": "b"})[0] == {**SERVER, **OF_JOB}
    assert started({**OF_JOB, "LD_LIBRARY_PATH": "/job"})[0] == {**SERVER, **OF_JOB}


@needs_root
def test_as_another_user_than_the_servers() -> None:
    """The server's is not to be read then: its home would be of no use either."""
    code = """
    class Names:  # its annotations are never looked at
        Dict = Mapping = Optional = None

    sys.modules["typing"] = Names
    space = {}
    exec(argument["source"], space)
    os.environ.clear()
    os.environ.update(argument["environment"])
    space["restore"]()
    result = dict(os.environ)
    """
    theirs = {**SERVER, **OF_JOB, "OPENSSL_CONF": "/job/evil.cnf", "HADOOP_USER_NAME": "hdfs"}
    found = as_stranger(code, {"source": inspect.getsource(environment), "environment": theirs})
    assert found == {**OF_JOB, "LANG": "C.UTF-8", "PATH": os.defpath}


def test_a_jobs_variables_are_set_in_its_tasks(tmp_path: Path) -> None:
    """Those that are about the machine that submits do not: a node has other folders."""
    shown = tmp_path / "shown.json"
    output = {"OPENSSL_CONF": "/job/evil.cnf", "LD_AUDIT": "", "PYTHONPATH": "/job"}
    ours = ("PATH", "JAVA_HOME", "LD_LIBRARY_PATH", "HADOOP_HOME")
    job = Job(tmp_path, f"show {shown}").set({f"env.{name}": text for name, text in output.items()})
    job.set({**{f"env.{name}": "/job/of-the-server" for name in ours}, "jvm.args": "-Da"})
    log = job.run()
    assert "of no effect here, since no JVM is started: jvm.args\n" in log
    assert all(f"env.{name}" in log for name in ours)
    env = json.loads(shown.read_text())["env"]
    for name, text in output.items():
        assert text in env[name].split(os.pathsep), name
    for name in ours:
        assert "/job/of-the-server" not in env.get(name, ""), name


@pytest.mark.parametrize("text", ["/a\ud800b", "/a\0b"])
def test_a_value_that_no_variable_can_have_is_refused_with_its_property(text: str) -> None:
    """Azkaban lets both through; the second when the job names a file of properties itself."""
    with pytest.raises(UsageError, match=r"^env\.TONY_HOME: "):
        set_environment({"env.TONY_HOME": text}, Site())


def test_the_job_decides_where_to_submit(tmp_path: Path) -> None:
    """Unless the administrator says it."""
    job = Job(tmp_path / "job", "show /dev/null").set({"env.TONY_HOME": str(tmp_path / "theirs")})
    job.run()
    assert (tmp_path / "theirs" / "apps").is_dir()
    job.home = tmp_path / "home"
    job.home.mkdir()
    (job.home / "site.properties").write_text(f"env.TONY_HOME={tmp_path}/sites\n")
    job.run()
    assert (tmp_path / "sites" / "apps").is_dir()


# ------------------------------------------------------------------ libraries of a job's

LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    FILE *file = fopen(getenv("LOADED_BY"), "a");
    if (file && length > 0) { path[length] = 0; fprintf(file, "%s\n", path); fclose(file); }
}
"""
#: What ``busybox env -u LD_PRELOAD`` does, as it does it: linked statically.
STATIC = r"""
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    unsetenv("LD_PRELOAD");
    return execv(words[1], words + 1);
}
"""


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    (folder / f"{name}.c").write_text(source)
    made = folder / name
    words = ["gcc", *flags, "-o", str(made), f"{name}.c"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"gcc cannot make {name}: {done.stderr}")
    return made


@pytest.mark.skipif(shutil.which("gcc") is None, reason="a library of the job's is made by gcc")
@pytest.mark.parametrize("starts_static", [False, True])
def test_a_library_that_means_harm(tmp_path: Path, starts_static: bool) -> None:
    """It runs in the first start, before any Python, and no more; behind a static start never."""
    library = compiled(tmp_path, "evil.so", LIBRARY, "-shared", "-fPIC")
    seen = tmp_path / "loaded"
    seen.touch()
    job = {**OF_JOB, "LD_PRELOAD": str(library), "LOADED_BY": str(seen)}
    before = [str(compiled(tmp_path, "start", STATIC, "-static"))] if starts_static else []
    found, _ = started(job, *before)
    assert found == {**SERVER, **OF_JOB}
    assert len(seen.read_text().splitlines()) == (0 if starts_static else 1)
