"""A job in an image by a real podman; the image is made of this machine's own Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Dict, Iterator

import pytest

from tests.schedulers.contract import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed"),
    pytest.mark.skipif(os.getuid() != 0, reason="storage of its own needs root"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="no Python for the image"),
]

IMAGE = "localhost/tony-test:1"
SKIPPED = {"test", "tests", "__pycache__", "idlelib", "lib2to3", "ensurepip", "dist-packages"}
PROGRAM = """\
import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "by", sys.executable, flush=True)
print("etc", sorted(os.listdir("/etc")), "home", os.environ["HOME"], flush=True)
print("seen", open("/seen/word").read(), flush=True)
if len(sys.argv) > 1:
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
"""


# Without the machine's message queues, which need not be there for a mapping of users.
MAPPING = """\
#!/bin/sh
if [ "$1" = run ]; then
    shift
    for word; do
        [ "$word" = --ipc=host ] && word=--ipc=private
        set -- "$@" "$word"
        shift
    done
    set -- run --uidmap 0:100000:65536 "$@"
fi
exec {podman} "$@"
"""


def make_image(target: Path) -> None:
    """Python, a shell, and the libraries that these load; as one layer."""
    python = os.path.realpath("/usr/bin/python3")
    programs = {
        f"/bin/{name}": os.path.realpath(f"/bin/{name}") for name in ("sh", "bash", "sleep")
    }
    programs["/usr/bin/python3"] = python
    library = Path("/usr/lib") / Path(python).name
    binary = [*programs.values(), *map(str, (library / "lib-dynload").glob("*.so"))]
    words_of = subprocess.run(
        ["ldd", *binary], stdout=subprocess.PIPE, text=True, timeout=300
    ).stdout
    files = {**programs, **{path: path for path in re.findall(r"(/\S+) \(0x", words_of)}}
    for folder, below, names in os.walk(library):
        below[:] = [name for name in below if name not in SKIPPED and "config-" not in name]
        files.update({os.path.join(folder, name): os.path.join(folder, name) for name in names})
    with tarfile.open(target, "w") as tar:
        made = {"/"}

        def folder_of(path: str) -> None:
            if path not in made:
                folder_of(os.path.dirname(path))
                made.add(path)
                info = tarfile.TarInfo(path.strip("/"))
                info.type, info.mode = tarfile.DIRTYPE, 0o1777 if path == "/tmp" else 0o755
                tar.addfile(info)

        for path in ("/tmp", "/proc", "/sys", "/dev", "/etc", "/run"):
            folder_of(path)
        for path, source in sorted(files.items()):
            real = os.path.realpath(source)
            if os.path.isfile(real):
                folder_of(os.path.dirname(path))
                info = tarfile.TarInfo(path.strip("/"))
                info.size, info.mode = os.path.getsize(real), 0o755
                with open(real, "rb") as stream:
                    tar.addfile(info, stream)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dict[str, str]]:
    """podman's settings: a storage of the test's own, with the image in it."""
    folder = tmp_path_factory.mktemp("podman")
    runtime = next(name for name in ("runc", "crun") if shutil.which(name))
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
    )
    (folder / "containers.conf").write_text(
        f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\n'
    )
    env = {
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
    }
    make_image(folder / "image.tar")
    podman(env, "import", str(folder / "image.tar"), IMAGE)
    yield env
    podman(env, "rm", "-f", "-a")
    podman(env, "rmi", "-f", IMAGE)
    shutil.rmtree(folder, ignore_errors=True)


def podman(env: Dict[str, str], *words: str) -> str:
    done = subprocess.run(
        ["podman", *words],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


class Jobs:
    """``tony`` beside that podman, and a job of two workers."""

    def __init__(self, folder: Path, home: Path, settings: Dict[str, str]) -> None:
        self.settings = settings
        # Of the two engines podman is to be found, whatever else is installed.
        (folder / "bin").mkdir()
        (folder / "bin" / "docker").symlink_to(shutil.which("podman") or "")
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self._env = {**os.environ, **settings, "TONY_HOME": str(home), "PATH": path}
        self._folder = folder
        (folder / "src").mkdir()
        (folder / "src" / "program.py").write_text(PROGRAM)
        (folder / "seen").mkdir()
        (folder / "seen" / "word").write_text("through the mount")

    def tony(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tony_core.cli.main", *words],
            env=self._env,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )

    def submit(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        conf = {
            "tony.application.framework": "pytorch",
            "tony.worker.instances": "2",
            "tony.worker.memory": "200m",
            "tony.docker.enabled": "true",
            "tony.docker.containers.image": IMAGE,
            "tony.docker.containers.mount": f"{self._folder / 'seen'}:/seen:ro",
        }
        words_of = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        return self.tony("submit", "--executes", command, "--src_dir", "src", *words_of, *words)

    def left(self) -> str:
        return podman(self.settings, "ps", "-a", "-q")


@pytest.fixture
def jobs(tmp_path: Path, tony_home: Path, storage: Dict[str, str]) -> Jobs:
    return Jobs(tmp_path, tony_home, storage)


def test_two_workers_run_in_the_image_and_leave_nothing(jobs: Jobs) -> None:
    done = jobs.submit("python3 program.py")
    assert done.returncode == 0, done.stdout + done.stderr
    output = jobs.tony("logs", "--no-prefix").stdout
    assert "rank 0 of 2 by /usr/bin/python3" in output
    assert "rank 1 of 2 by /usr/bin/python3" in output
    assert output.count("seen through the mount") == 2
    assert "shadow" not in output  # the image's /etc, not this machine's
    assert jobs.left() == ""


def test_an_engine_that_maps_users_is_refused(jobs: Jobs, tony_home: Path) -> None:
    """As a rootless docker does, or one with ``userns-remap``."""
    program = tony_home.parent / "bin" / "docker"
    program.unlink()
    program.write_text(MAPPING.format(podman=shutil.which("podman")))
    program.chmod(0o755)
    done = jobs.submit("python3 program.py")
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"{program} will not do: " in done.stderr
    assert "maps users (rootless, userns-remap)" in done.stderr
    assert jobs.left() == ""


def test_a_job_in_an_image_is_killed_and_leaves_nothing(jobs: Jobs) -> None:
    done = jobs.submit("python3 program.py wait", "--detach")
    assert done.returncode == 0, done.stdout + done.stderr
    app_id = done.stdout.strip()

    def begun() -> bool:
        return jobs.tony("logs", app_id, "--no-prefix").stdout.count("seen through") == 2

    for _ in range(10):  # each wait has its own deadline; an image takes its time to start
        try:
            until(begun, "both programs")
            break
        except AssertionError:
            continue
    killed = jobs.tony("kill", app_id)
    assert killed.returncode == 0, killed.stderr
    status = json.loads(jobs.tony("status", app_id, "--json").stdout)
    assert "KILLED" in json.dumps(status)
    assert jobs.left() == ""
