"""Each finding of the examination, in both directions: what is broken here is broken for real."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

from tests.schedulers.contract import SMALL, Master
from tests.schedulers.local.fixtures import LocalHarness
from tony_core.client.doctor import examine as whole
from tony_core.client.doctor import site
from tony_core.job.spec import Job, Local, Network, Runtime
from tony_core.schedulers.local import doctor, home, host_checks
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.local.ledger import Ledger
from tony_core.schedulers.port import CheckResult, Finding

OK, NOTE, WRONG, SKIPPED = CheckResult.OK, CheckResult.NOTE, CheckResult.WRONG, CheckResult.SKIPPED


def text_of(finding: Finding) -> str:
    """All of it; whatever is wrong or noted says what to do."""
    assert finding.advice or finding.verdict in (OK, SKIPPED), finding
    return f"{finding.verdict.value}: {finding.detail}; {finding.advice}"


def examine(job: Job = Job("j", ()), **env: str) -> Dict[str, Finding]:
    """What an examination that only asks finds."""
    scheduler = LocalScheduler({**os.environ, **env})
    return {one.what: one for one in scheduler.examine(job)}


def runs_from(folder: Path) -> None:
    """A test that runs what it writes there asks first."""
    if noexec(folder):
        pytest.skip(f"{folder} is mounted noexec: no program in it can be run")


def noexec(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def program(folder: Path, name: str, text: str) -> str:
    runs_from(folder)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


# ---------------------------------------------------------------------- the interpreter


def test_the_interpreter(tmp_path: Path) -> None:
    def look(python: str) -> str:
        return text_of(doctor._python(Job("j", (), runtime=Runtime(python))))

    assert look(sys.executable).startswith("ok: ")
    assert "wrong: there is no /no/python" in look("/no/python")
    old = program(tmp_path, "old", "#!/bin/sh\necho 3.6.8\n")
    assert "is 3.6.8; 3.9 or newer is needed" in look(old)
    broken = program(tmp_path, "broken", "#!/no/such/interpreter\n")
    assert "does not run" in look(broken)


# ---------------------------------------------------------------------- the environment


def test_nothing_in_the_environment_is_wrong() -> None:
    (found,) = host_checks.check_environment({"PATH": "/bin", "LANG": "C.UTF-8"})
    assert found.verdict is OK
    proxied = {"http_proxy": "http://p:3128", "no_proxy": "localhost, 127.0.0.1,.site"}
    assert host_checks.check_environment(proxied)[0].verdict is OK
    assert host_checks.check_environment({**proxied, "no_proxy": "*"})[0].verdict is OK


@pytest.mark.parametrize(
    ("env", "verdict", "words"),
    [
        ({"PYTHONHOME": "/opt/py"}, NOTE, "--shell_env"),
        ({"PYTHONDONTWRITEBYTECODE": "1"}, NOTE, "unset it"),
        ({"http_proxy": "http://p:3128"}, WRONG, "export no_proxy=localhost,127.0.0.1"),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "localhost"}, WRONG, "no_proxy"),
        ({"LANG": "en_US.ISO-8859-1"}, NOTE, "C.UTF-8"),
    ],
)
def test_a_variable_that_breaks_things(
    env: Dict[str, str], verdict: CheckResult, words: str
) -> None:
    (found,) = host_checks.check_environment(env)
    assert found.verdict is verdict
    assert words in text_of(found)


def test_limits() -> None:
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)\n"
        "from tony_core.schedulers.local import host_checks; print(host_checks.check_limits())"
    )
    checkout = str(Path(host_checks.__file__).parents[3])

    def look(files: int) -> str:
        argv = [sys.executable, "-c", code, checkout, str(files)]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    assert "CheckResult.WRONG" in look(256)
    assert "ulimit -n 1024 (it is 256)" in look(256)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most == resource.RLIM_INFINITY or most >= 2048:
        assert "ulimit -n" not in look(2048)


# ---------------------------------------------------------------------- folders


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs_from(tmp_path)
    monkeypatch.setattr(host_checks, "LITTLE_MB", 0)
    assert host_checks.check_folder("F", str(tmp_path / "to" / "come"), "x").verdict is OK
    file = tmp_path / "file"
    file.touch()
    assert "is no folder" in text_of(
        host_checks.check_folder("F", str(file / "below"), "elsewhere")
    )


@pytest.mark.parametrize("path", ["/proc/nothing", "/proc/sys/kernel/nothing"])
def test_a_folder_that_is_not_writable(path: str) -> None:
    """Not root either, whatever the modes say."""
    found = host_checks.check_folder("F", path, "elsewhere")
    assert (found.verdict, "cannot be written (" in found.detail) == (WRONG, True)


def test_a_folder_from_which_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = os.statvfs(tmp_path)
    mounted = os.statvfs_result((*about[:8], about.f_flag | os.ST_NOEXEC, *about[9:]))
    monkeypatch.setattr(os, "statvfs", lambda path: mounted)
    found = host_checks.check_folder("F", str(tmp_path), "elsewhere")
    assert (found.verdict, "mounted noexec" in found.detail) == (WRONG, True)
    assert host_checks.check_tmpdir({"TMPDIR": str(tmp_path)}).verdict is NOTE


def test_a_folder_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs_from(tmp_path)
    monkeypatch.setattr(host_checks, "LITTLE_MB", 1 << 50)
    found = host_checks.check_folder("F", str(tmp_path), "elsewhere")
    assert (found.verdict, " MB left; make room" in text_of(found)) == (NOTE, True)
    about = os.statvfs(tmp_path)
    for free_mb, verdict in ((host_checks.NEEDED_MB - 1, WRONG), (host_checks.NEEDED_MB, NOTE)):
        blocks = (free_mb << 20) // about.f_frsize
        full = os.statvfs_result((*about[:3], blocks, blocks, *about[5:]))
        monkeypatch.setattr(os, "statvfs", lambda path, full=full: full)
        assert host_checks.check_folder("F", str(tmp_path), "elsewhere").verdict is verdict
    # What lies there for a moment needs less.
    assert host_checks.check_tmpdir({"TMPDIR": str(tmp_path)}).verdict is NOTE
    full = os.statvfs_result((*about[:3], 0, 0, *about[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert host_checks.check_tmpdir({"TMPDIR": str(tmp_path)}).verdict is WRONG
    # A file system that keeps no account is not a full one.
    untold = os.statvfs_result((*about[:2], 0, 0, 0, *about[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: untold)
    assert "free space" in text_of(host_checks.check_folder("F", str(tmp_path), "elsewhere"))


def test_where_temporary_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "LITTLE_MB", 0)
    wanted = NOTE if noexec(tmp_path) else OK
    assert host_checks.check_tmpdir({"TMPDIR": str(tmp_path)}).verdict is wanted
    assert host_checks.check_tmpdir({}).verdict in (OK, NOTE)
    assert "there is no folder /no/where" in text_of(
        host_checks.check_tmpdir({"TMPDIR": "/no/where"})
    )


def test_staging(tmp_path: Path) -> None:
    runs_from(tmp_path)
    assert host_checks.try_files(str(tmp_path)).verdict is OK
    assert os.listdir(tmp_path) == []
    assert host_checks.try_files(str(tmp_path / "gone")).verdict is WRONG
    assert host_checks.try_files("/proc").verdict is WRONG
    assert "does not run" in host_checks._not_run(program(tmp_path, "p", "#!/no/sh\n"))
    assert "ends with 3" in host_checks._not_run(program(tmp_path, "p", "#!/bin/sh\nexit 3\n"))


# ---------------------------------------------------------------------- the network


def test_ports() -> None:
    def look(span: tuple[int, int]) -> Finding:
        return host_checks.check_ports(Job("j", (), network=Network(port_range=span)))

    low, _ = host_checks.ephemeral()
    assert host_checks.check_ports(Job("j", ())).verdict is OK or low <= 1536
    assert look((low, low + 20)).verdict is NOTE
    assert f"below {low}" in text_of(look((low, low + 20)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "every one of them is taken" in text_of(look((port, port)))
    below = range(2000, low - 5, 10)
    busy = host_checks._listening()
    quiet = [first for first in below if not any(first <= port < first + 5 for port in busy)]
    for first in quiet[:1]:
        assert look((first, first + 4)).verdict is OK


def test_ports_of_a_machine_that_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(host_checks, "EPHEMERAL", str(tmp_path / "range"))
    assert "set tony.task.port-range" in text_of(host_checks.check_ports(Job("j", ())))


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "RESOLVE_S", 30.0)
    assert host_checks.check_host_names("localhost").verdict is OK
    nonlocal_bind = Path("/proc/sys/net/ipv4/ip_nonlocal_bind")
    if not nonlocal_bind.exists() or nonlocal_bind.read_text().strip() == "0":
        assert "is 192.0.2.7, which is not this machine" in text_of(
            host_checks.check_host_names("192.0.2.7")
        )
    assert "cannot be resolved" in text_of(host_checks.check_host_names("no..name"))
    assert host_checks.check_host_names("localhost", localhost="192.0.2.7").verdict is WRONG


# ---------------------------------------------------------------------- what is handed out


def test_names_that_no_server_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "_addresses", lambda host: None)
    found = host_checks.check_host_names("localhost")
    assert (found.verdict, "not known within" in text_of(found)) == (NOTE, True)


def test_memory(harness: LocalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.capacity, "machine_memory_mb", lambda: 8000)
    root = harness.home.root
    job = harness.job()
    assert text_of(doctor._memory(job, root)) == "ok: 3000 MB of memory; "
    master: Master = harness.master()
    master.get(resources=SMALL)
    assert "64 MB held by jobs now" in text_of(doctor._memory(job, root))
    much = job.replace(local=Local(memory_mb=1 << 40))
    assert doctor._memory(much, root).verdict is WRONG


def test_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._gpus(Job("j", ())).verdict in (OK, NOTE)
    text = (
        '#!/bin/sh\ncase $1 in\n--query-gpu*) echo GPU-a; echo GPU-b;;\n*) echo "$BUSY";;\nesac\n'
    )
    program(tmp_path, "nvidia-smi", text)
    monkeypatch.setenv("BUSY", "GPU-elsewhere, 3")
    assert text_of(doctor._gpus(Job("j", ()))) == "ok: 2; "
    monkeypatch.setenv("BUSY", "GPU-b, 4711")
    assert "processes run on them already: 4711" in text_of(doctor._gpus(Job("j", ())))
    three = Job("j", (), local=Local(gpus=3))
    assert "is 3, and nvidia-smi shows 2" in text_of(doctor._gpus(three))
    program(tmp_path, "nvidia-smi", "#!/no/such/interpreter\n")
    assert "cannot be run" in text_of(doctor._gpus(Job("j", ())))


# ---------------------------------------------------------------------- beside them


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"PATH": str(tmp_path)}
    monkeypatch.setattr(doctor, "TENSORBOARD_S", 30.0)
    assert "there is none on the PATH" in text_of(doctor._tensorboard(env))

    def look(python: str) -> str:
        program(tmp_path, "python3", f"#!/bin/sh\n{python}\n")
        program(tmp_path, "tensorboard", "#!/usr/bin/env python3\n")
        return text_of(doctor._tensorboard(env))

    assert look("echo without; echo 2.19.0").startswith(f"ok: {tmp_path}/tensorboard 2.19.0")
    assert "with TensorFlow, which it loads" in look("echo with; echo 2.19.0")
    assert "cannot be imported: No module" in look("echo No module; exit 1")
    monkeypatch.setattr(doctor, "TENSORBOARD_S", 0.1)
    assert "slow to import" in look("exec /bin/sleep 60")
    program(tmp_path, "tensorboard", "#!/no/such/python\n")
    assert "has no interpreter" in text_of(doctor._tensorboard(env))
    program(tmp_path, "tensorboard", "#!/bin/sh\nexec python3 -m tensorboard.main\n")
    assert text_of(doctor._tensorboard(env)).startswith("note: ")
    assert "cannot be looked into" in text_of(doctor._tensorboard(env))
    (tmp_path / "tensorboard").chmod(0o311)
    if not os.access(tmp_path / "tensorboard", os.R_OK):
        assert "Permission denied" in text_of(doctor._tensorboard(env))


def test_images(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)}
    assert "note: neither docker nor podman is on the PATH" in text_of(doctor._engine(env))
    program(tmp_path, "podman", "#!/bin/sh\necho Podman Engine\n")
    assert text_of(doctor._engine(env)) == f"ok: by {tmp_path}/podman; "


def xml(*properties: str) -> str:
    return f"<configuration>{''.join(properties)}</configuration>"


FINAL = "<property><name>tony.local.memory</name><value>4g</value><final>true</final></property>"


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        (xml(FINAL), OK, "1 keys, 1 of them final (tony.local.memory)"),
        (xml("\n", FINAL.replace("4g", "lots")), WRONG, "tony-site.xml:2: tony.local.memory"),
        ("<configuration>\n<property>", WRONG, "tony-site.xml:2"),
        (None, NOTE, "there is no "),
    ],
)
def test_the_sites_file(tmp_path: Path, text: str | None, verdict: CheckResult, words: str) -> None:
    if text is not None:
        (tmp_path / "tony-site.xml").write_text(text)
    found = site({"TONY_CONF_DIR": str(tmp_path), "PATH": "/bin"})
    assert found.verdict is verdict, found
    assert words in text_of(found)
    assert "no command" not in text_of(found), "which no caller can give there"
    assert site({}).verdict is OK


# ---------------------------------------------------------------------- the whole of it


@pytest.fixture
def without_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of this machine's own docker, podman and TensorBoard."""
    for name in ("_engine", "_tensorboard"):
        monkeypatch.setattr(doctor, name, lambda env, name=name: Finding(name, OK, "not asked"))
    monkeypatch.setattr(doctor, "PROBE_S", 40.0)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("without_jobs")
def test_what_only_asks_writes_nothing(tony_home: Path) -> None:
    found = examine()
    assert found["staging"].verdict is found["a container"].verdict is SKIPPED
    assert not tony_home.exists()


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("without_jobs")
@pytest.mark.parametrize("name", ["make_folder", "Ledger.reservations", "host_checks.check_folder"])
def test_what_cannot_be_looked_at_is_one_finding_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def broken(*words: object, **more: object) -> None:
        raise OSError(5, "Input/output error", "/broken")

    of, _, last = name.rpartition(".")
    owner = {"": home, "Ledger": Ledger, "host_checks": host_checks}[of]
    monkeypatch.setattr(owner, last, broken)
    found = {one.what: one for one in whole(LocalScheduler(), Job("j", ()))}
    wrong = [one for one in found.values() if one.verdict is WRONG]
    assert wrong
    assert all(text_of(one).startswith("wrong: /broken: Input/output error") for one in wrong)
    assert len(found) >= 13
    if name != "Ledger.reservations":
        assert found["a container"].verdict is SKIPPED


def test_an_error_that_names_no_file_is_reported_without_one() -> None:
    def broken() -> Finding:
        raise OSError(24, "Too many open files")

    assert text_of(doctor._checked("F", "less", broken)) == "wrong: Too many open files; less"


def probed(job: Job) -> List[Finding]:
    return [one for one in whole(LocalScheduler(), job) if one.what in ("staging", "a container")]


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("without_jobs")
def test_a_container_goes_the_whole_way_and_leaves_nothing(tony_home: Path) -> None:
    runs_from(tony_home.parent)
    staging, container = probed(Job("j", ()))
    assert (staging.verdict, container.verdict) == (OK, OK), container
    assert os.listdir(tony_home / "apps") == []
    assert os.listdir(tony_home / "history") == []


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("without_jobs")
def test_an_unavailable_container_has_a_reason(tmp_path: Path) -> None:
    runs_from(tmp_path)
    small = Job("j", (), local=Local(memory_mb=64))
    (_, container) = probed(small)
    assert container.verdict is WRONG
    assert "one container never fits" in text_of(container)
    # A Python that answers the question, and then runs nothing.
    text = f"#!/bin/sh\ncase $3 in -c) exec {shutil.which('echo')} 3.11.0;; *) exit 9;; esac\n"
    broken = program(tmp_path, "python", text)
    (_, container) = probed(Job("j", (), runtime=Runtime(broken)))
    assert container.verdict is WRONG
    assert "is no Python that runs" in text_of(container)
