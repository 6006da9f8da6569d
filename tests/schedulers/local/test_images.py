"""Containers in images, by an engine of the tests' own: its arguments, and what is left.

The engine is a program named ``podman`` on the PATH. It looks closely at its words, starts what
its arguments name on this machine as a real one does in an image (detached from the program in the
foreground, with nothing of its environment), and keeps a note of every container until ``rm``.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from tests.schedulers.contract import Master, ended, until
from tests.schedulers.local.fixtures import LocalHarness
from tony_core.exit_causes import ExitCause
from tony_core.job.spec import Docker, Job, Local, MasterSpec, Resources, Role
from tony_core.schedulers.container_pool import Container, Launch
from tony_core.schedulers.local import engine, home, images
from tony_core.schedulers.local.images import Engine, Images
from tony_core.schedulers.port import SchedulerError

ENGINE = """\
import json, os, signal, sys, time
notes = {notes!r}
note = lambda name: os.path.join(notes, name + ".json")
verb, words = sys.argv[1], sys.argv[2:]
with open(os.path.join(notes, "calls"), "a") as stream:
    stream.write(json.dumps(sys.argv[1:]) + "\\n")
if verb == "version":
    print("Client: {kind} Engine")
elif verb == "image":
    sys.exit(0 if words[1] in ("here:1", "old:1", "no-python:1") else 1)
elif verb == "pull":
    if words[0] != "remote:1":
        sys.exit("Error: initializing source docker://%s: manifest unknown" % words[0])
elif verb == "rm":
    assert words[0] == "-f"
    if not os.path.exists(note(words[1])):
        sys.exit("Error: no such container " + words[1])
    pid = json.load(open(note(words[1])))["pid"]
    os.unlink(note(words[1]))
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
elif verb == "inspect":
    print("true" if os.path.exists(os.path.join(notes, "oom")) else "false")
elif verb == "run":
    options, flags, env = {{}}, ("--pull", "--network", "--pid", "--ipc", "--uts", "--rm"), {{}}
    while words[0].startswith("-"):
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not equals and name != "--rm":
            value = words.pop(0)
        options.setdefault(name, []).append(value)
    image, entry = words.pop(0), options["--entrypoint"][0]
    if "--rm" in options:
        if image == "no-python:1":
            sys.stderr.write("Error: executable file `%s` not found in $PATH" % entry)
            sys.exit(127)
        print("tony-python 2 7" if image == "old:1" else "tony-python 3 11", flush=True)
        (mount,) = options["--volume"]
        there = lambda name: os.path.exists(os.path.join(notes, name))
        assert words[-1].startswith(mount.split(":")[0] + "/"), (mount, words)
        if there("denied"):
            sys.exit("Traceback:\\nPermissionError: [Errno 13] Permission denied")
        if not there("elsewhere"):
            open(words[-1], "x").close()
        if there("mapped"):
            os.chown(words[-1], 100000, 100000)
        sys.exit(0)
    if os.path.exists(os.path.join(notes, "broken")):
        sys.stderr.write("Error: crun: creating cgroup: no room\\n")
        sys.exit(125)
    name = options["--name"][0]
    env = dict(line.rstrip("\\n").split("=", 1) for line in open(options["--env-file"][0]))
    for one in options.get("--env", ()):
        env[one] = os.environ[one]
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    done, tells = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(done)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.close(tells)
            os.chdir(options["--workdir"][0])
            os.execve({python!r}, [entry, *words], env)
        json.dump({{"pid": pid, "words": options, "image": image}}, open(note(name) + "~", "w"))
        os.rename(note(name) + "~", note(name))
        status = os.waitpid(pid, 0)[1]
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        os.write(tells, str(code).encode())
        os._exit(0)
    os.close(tells)
    def proxy(number, _):
        if os.path.exists(note(name)):
            os.kill(json.load(open(note(name)))["pid"], number)
    signal.signal(signal.SIGTERM, proxy)
    sys.exit(int(os.read(done, 9) or b"137"))
"""


@pytest.fixture
def notes(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the engine keeps them; from here on it is the only one on the PATH."""
    return make_engine(tmp_path, monkeypatch, getattr(request, "param", "podman"))


@pytest.fixture
def harness(notes: Path, tony_home: Path, tmp_path: Path) -> Iterator[LocalHarness]:
    """The embedded scheduler, which finds that engine."""
    found = LocalHarness(tony_home, tmp_path)
    yield found
    found.close()


def make_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Path:
    folder = tmp_path / "engine"
    (folder / "notes").mkdir(parents=True)
    inner = folder / "notes" / "engine.py"
    text = ENGINE.format(python=sys.executable, notes=str(folder / "notes"), kind=name.title())
    inner.write_text(text)
    make_program(folder / name, f'exec {shlex.join([sys.executable, "-IS", str(inner)])} "$@"')
    monkeypatch.setenv("PATH", str(folder))
    return folder / "notes"


def make_program(path: Path, text: str) -> None:
    """By a shell: after ``#!`` no path may be long or have a space in it."""
    if os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
        pytest.skip(f"{path.parent} is mounted noexec: no program in it can be run")
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def engine_calls(notes: Path) -> List[List[str]]:
    path = notes / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kept(notes: Path) -> List[str]:
    """The containers that the engine knows."""
    return sorted(path.stem for path in notes.glob("*.json"))


def worker(**changes: Any) -> Role:
    given = {"docker": Docker("here:1"), "resources": Resources(memory_mb=64), **changes}
    return Role("worker", 1, command="true", **given)


def run(master: Master, code: str, memory_mb: int = 200, **env: str) -> Container:
    (container,) = master.get(resources=Resources(memory_mb=memory_mb))
    launch = Launch(("/no/such/python", "-I", "-S", "-c", code), env, (), b"not for everybody")
    master.pool.launch(container, launch)
    return container


@pytest.fixture
def master(harness: LocalHarness, notes: Path) -> Master:
    return harness.master(roles=(worker(),))


def pid_in(path: str) -> int:
    """Of the process that the file names, as soon as it does."""
    return int(until(lambda: home.read_json(path), path)["pid"])


# ---------------------------------------------------------------------- the life of one


@pytest.mark.parametrize("notes", ["docker", "podman"], indirect=True)
def test_it_runs_in_the_image_and_its_exit_code_is_its_own(master: Master, notes: Path) -> None:
    code = "import os, sys; print(os.environ['A'], flush=True); sys.exit(7)"
    container = run(master, code, A="1 = 'one'\nand \"two\"")
    end = master.end_of(container)
    assert (end.exit_code, end.cause) == (7, ExitCause.EXITED)
    assert 'and "two"' in end.diagnostics
    assert kept(notes) == []
    assert engine.list_pids(container.id) == []


def test_what_is_inside_and_what_is_not(
    master: Master, notes: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    code = f"import json, os; json.dump(dict(os.environ), open({str(out)!r}, 'w'))"
    container = run(master, code, TOKEN="s3cr3t", LD_PRELOAD="")
    master.end_of(container)
    inside = json.loads(out.read_text())
    assert inside["TOKEN"] == "s3cr3t"
    assert inside["HOME"].endswith("/work")
    assert inside["TONY_CONTAINER_ID"] == container.id
    assert json.loads(inside["TONY_SUCCESSOR"])[0] == "python3"
    assert inside["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert str(notes.parent) not in inside["PATH"]  # the image's, not the shell's
    assert not any("s3cr3t" in word for words in engine_calls(notes) for word in words)


@pytest.mark.parametrize("notes", ["docker", "podman"], indirect=True)
def test_stopping_it_leaves_nothing(master: Master, notes: Path, tmp_path: Path) -> None:
    began = tmp_path / "began"
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(60)\n  os._exit(0)\n"
        f"open({str(began)!r}, 'w').close()\ntime.sleep(60)"
    )
    container = run(master, code)
    until(began.exists, "its beginning")
    assert len(engine.list_pids(container.id)) >= 2
    master.pool.stop(container.id)
    assert master.end_of(container).cause is ExitCause.RELEASED
    assert kept(notes) == []
    assert engine.list_pids(container.id) == []


def test_the_end_of_its_shim_leaves_nothing_either(
    master: Master, harness: LocalHarness, notes: Path
) -> None:
    container = run(master, "import time; time.sleep(60)")
    until(lambda: kept(notes), "the container")
    os.kill(pid_in(harness.folder(master).container(container.id).shim), signal.SIGKILL)
    assert master.end_of(container).cause is ExitCause.KILLED
    assert kept(notes) == []
    assert engine.list_pids(container.id) == []


def test_nor_that_of_the_engines_own_program(
    master: Master, harness: LocalHarness, notes: Path
) -> None:
    container = run(master, "import time; time.sleep(60)")
    until(lambda: kept(notes), "the container")
    os.kill(pid_in(harness.folder(master).container(container.id).process), signal.SIGKILL)
    assert master.end_of(container).exit_code == 137
    assert kept(notes) == []
    assert engine.list_pids(container.id) == []


def test_the_next_master_finds_it_and_can_stop_it(
    master: Master, harness: LocalHarness, notes: Path
) -> None:
    container = run(master, "import time; time.sleep(60)")
    until(lambda: kept(notes), "the container")
    master.close()
    following = harness.next_master(master)
    following.pool.stop(container.id)
    assert following.end_of(container).cause is ExitCause.RELEASED
    assert kept(notes) == []
    following.close()


def test_over_its_limit_it_ends_for_memory(master: Master, notes: Path) -> None:
    code = "waste = bytearray(180 << 20)\nimport time; time.sleep(60)"
    end = master.end_of(run(master, code, memory_mb=64))
    assert end.cause is ExitCause.MEMORY
    assert "MB used of 64 MB" in end.diagnostics
    assert kept(notes) == []


def test_an_end_for_memory_is_reported_as_such(master: Master, notes: Path) -> None:
    (notes / "oom").touch()
    end = master.end_of(run(master, "import os; os.kill(os.getpid(), 9)"))
    assert (end.exit_code, end.cause) == (137, ExitCause.MEMORY)
    assert "control group" in end.diagnostics


def test_an_engine_that_cannot_start_it_reports_why(master: Master, notes: Path) -> None:
    (notes / "broken").touch()
    end = master.end_of(run(master, ""))
    assert end.cause is ExitCause.LAUNCH
    assert "creating cgroup: no room" in end.diagnostics


def test_a_job_without_an_end_is_ended_with_its_containers(
    harness: LocalHarness, notes: Path
) -> None:
    job = {"roles": (worker(),)}
    words = ["/no/such/python", "-c", "import time; time.sleep(60)"]
    app_id = harness.submit(
        requests=[["worker", 2, 64]], argv=words, then="wait", job=job, attempts=1, gang=True
    )
    until(lambda: len(kept(notes)) == 2, "both containers")
    for container_id in harness.home.app(app_id).container_ids():
        shim = pid_in(harness.home.app(app_id).container(container_id).shim)
        os.kill(shim, signal.SIGSTOP)
    harness.kill_master(app_id)
    harness.scheduler.kill(app_id, "enough")
    assert ended(harness, app_id).state.ended
    assert kept(notes) == []
    list(harness.scheduler.cleaner.collect_garbage(0.0))
    assert harness.home.app_ids() == []


# ---------------------------------------------------------------------- before it starts


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("nowhere:1", r"no image nowhere:1 here, and .+ pull failed \(1\): .*manifest unknown"),
        ("no-python:1", r"cannot run a task: it has no python3 .*needs Python 3\.8 or newer in it"),
        ("old:1", r"its python3 is 2\.7"),
    ],
)
def test_an_image_that_will_not_do_is_refused_before_anything_starts(
    harness: LocalHarness, notes: Path, image: str, why: str
) -> None:
    with pytest.raises(SchedulerError, match=why):
        harness.submit(requests=[], argv=[], job={"roles": (worker(docker=Docker(image)),)})
    assert harness.scheduler.list() == []


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("denied", r"cannot write in a folder of yours \(PermissionError.*denied\)"),
        ("elsewhere", r"what a container writes in a folder of yours does not come here"),
        pytest.param(
            "mapped",
            r"what a container writes in a folder of yours is user 100000's, not user 0's",
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away"),
        ),
    ],
)
def test_an_engine_that_maps_users_or_is_elsewhere_is_refused(
    harness: LocalHarness, notes: Path, how: str, why: str
) -> None:
    (notes / how).touch()
    with pytest.raises(SchedulerError, match=why) as refused:
        harness.submit(requests=[], argv=[], job={"roles": (worker(),)})
    assert "podman cannot be used: " in str(refused.value)
    assert "(rootless, userns-remap), or runs on another machine" in str(refused.value)
    assert harness.scheduler.list() == []
    assert not [name for name in os.listdir(harness.home.root) if name.startswith(".")]


def test_an_image_that_is_not_here_is_fetched(notes: Path, tmp_path: Path) -> None:
    found = Images.of(job(worker(docker=Docker("remote:1"))), os.environ)
    assert found is not None
    found.prepare(str(tmp_path))
    assert [words[0] for words in engine_calls(notes)] == ["version", "image", "pull", "run"]
    assert Images.from_json(json.loads(json.dumps(found.to_json()))) == found


def job(*roles: Role, **changes: Any) -> Job:
    return Job(name="j", user="u", roles=roles, **changes)


def test_without_an_engine_one_message_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = images.find_problems(job(worker()), os.environ, "/home/tony")
    assert len(found) == 1
    assert "(worker): neither docker nor podman is on the PATH" in found[0]


def test_an_engine_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path / "docker", "echo cannot connect to the daemon >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(SchedulerError, match=r"version failed \(1\): cannot connect"):
        Engine.find({"PATH": str(tmp_path)})
    # What it knows of itself is no reason.
    warning = (
        "Client:\n Version:           28.2.2\n OS/Arch:           linux/amd64\n Context:  default"
    )
    why = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"
    for text in (f"{warning}\n{why}", f"{why}\n{warning}"):
        make_program(tmp_path / "docker", f"echo {shlex.quote(text)}; exit 1")
        with pytest.raises(SchedulerError) as refused:
            Engine.find({"PATH": str(tmp_path)})
        assert str(refused.value).startswith(
            f"{tmp_path}/docker version failed (1): {why} (start its "
        )
    make_program(tmp_path / "docker", f"echo {shlex.quote(warning)}; exit 1")
    with pytest.raises(SchedulerError, match="Context"):  # better than nothing
        Engine.find({"PATH": str(tmp_path)})


def test_what_can_never_run_is_reported(notes: Path, tmp_path: Path) -> None:
    roles = (worker(docker=Docker("-v/:/host", ("/no/where:/x",))),)
    found = " ".join(images.find_problems(job(*roles), os.environ, "/a:b"))
    assert "'-v/:/host' is not the name of an image" in found
    assert "there is no /no/where on this machine" in found
    assert "a colon in it" in found
    assert images.find_problems(job(worker()), os.environ, str(tmp_path)) == []
    own = MasterSpec(docker=Docker("here:1"), preprocess="make")
    assert "in no image" in images.find_problems(job(worker(), master=own), os.environ, "/a")[0]


# ---------------------------------------------------------------------- the exact command


@pytest.mark.parametrize("notes", ["docker", "podman"], indirect=True)
def test_the_exact_command(notes: Path, harness: LocalHarness) -> None:
    (program,) = (path for path in notes.parent.iterdir() if path.is_file())
    name = program.name
    role = worker(
        docker=Docker("here:1", ("/bin:/data", "/tmp:/scratch:ro")),
        resources=Resources(memory_mb=2048, vcores=3, gpus=2),
    )
    wanted = job(role, local=Local(memory_mb=9000, gpus=2, vcores=4))
    app_id = harness.scheduler.new_app_id(wanted)
    details = harness.scheduler.dry_run(app_id, wanted, harness.artifacts()).details
    argv = details["images"]["worker"]
    line = " ".join(argv)
    folder = harness.home.app(app_id)
    for words in (
        f"{program} run --pull=never --network=host --pid=host --ipc=host --uts=host"
        " --security-opt=no-new-privileges",
        f"--user={os.getuid()}:{os.getgid()}",
        "--memory 2048m --memory-swap 2048m --cpus 3",
        f"--volume {folder.path}:{folder.path}:rw",
        f"--volume {harness.runtime}:{harness.runtime}:ro",
        "--volume /bin:/data:rw --volume /tmp:/scratch:ro --entrypoint python3 here:1 -I -S",
        '--gpus "device=GPU-0,GPU-1"' if name == "docker" else "--device nvidia.com/gpu=GPU-1",
    ):
        assert words in line
    assert not any(word.startswith("--privileged") or word == "--init" for word in argv)


def test_cores_are_limited_only_where_they_are_handed_out(
    notes: Path, harness: LocalHarness
) -> None:
    wanted = job(worker(), local=Local(memory_mb=9000))
    app_id = harness.scheduler.new_app_id(wanted)
    details = harness.scheduler.dry_run(app_id, wanted, harness.artifacts()).details
    assert "--cpus" not in details["images"]["worker"]
    assert "images" not in harness.scheduler.dry_run(app_id, job(), harness.artifacts()).details


def test_what_no_file_can_hold_goes_by_name(tmp_path: Path) -> None:
    text, rest = images.write_env({"A": "1=2 #3", "B": "x\ny", "C": "z" * 70000})
    assert (text, rest) == (b"A=1=2 #3\n", ["B", "C"])
    long = {"D": "\u00e4" * (images.LONGEST_LINE // 2), "E": "\u00e4" * images.LONGEST_LINE}
    assert images.write_env(long)[1] == ["E"]


def test_an_engine_that_hangs_is_not_waited_for_forever() -> None:
    code, words = engine.run(["/bin/sleep", "600"], {}, 0.1)
    assert (code, words) == (124, "/bin/sleep 600 did not answer within 0.1 s")
    assert engine.run(["/no/such", "x"], {}, 1.0)[0] == 127


def test_what_an_engine_leaves_running_is_not_waited_for() -> None:
    words = "/bin/sleep 600 & echo $!; exit 3"  # which keeps the pipe open
    code, answer = engine.run(["/bin/sh", "-c", words], {}, 500.0)
    os.kill(int(answer), signal.SIGKILL)
    assert code == 3
