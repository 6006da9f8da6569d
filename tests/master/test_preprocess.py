"""``tony.am.command``, run for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from tests.master.reactors import Running
from tests.master.shell import until
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.job.spec import Job, Program, Resources, Role
from tony_core.master import preprocess
from tony_core.master.preprocess import Preprocess
from tony_core.master.preprocess_child import MAX_PARAMETERS, encode_request, parameters

Outcome = Tuple[int, Optional[str], Sequence[str]]


def a_job(**program: Any) -> Job:
    return Job("j", (Role("worker", 2, Resources(), "x"),), program=Program(**program))


def describe(folder: Path, command: str, job: Job, artifacts: Sequence[Artifact] = ()) -> bytes:
    return encode_request(
        preprocess.command_line(job, command),
        preprocess.environment(job, "app_1"),
        str(folder),
        str(folder),
        [item.to_json() for item in preprocess.select_artifacts(artifacts)],
        0.3,
    )


def run(folder: Path, command: str, job: Optional[Job] = None, *artifacts: Artifact) -> Outcome:
    found: List[Outcome] = []
    with Running() as running:
        words = describe(folder, command, job or a_job(), artifacts)
        running.do(
            lambda: Preprocess(running.reactor, words, lambda *outcome: found.append(outcome))
        )
        until(lambda: found, "the preprocess to end")
    return found[0]


def test_the_parameters_file_wins_over_the_last_line(tmp_path: Path) -> None:
    command = "printf 'lr=0.1\\n' > $TONY_PARAMETERS_FILE; echo Model parameters: no"
    assert run(tmp_path, command) == (0, "lr=0.1", [])


def test_the_last_line_of_stdout_counts(tmp_path: Path) -> None:
    assert run(tmp_path, "echo Model parameters: a; echo 'Model parameters: b c'")[1] == "b c"
    assert run(tmp_path, "echo Model parameters: a; echo more")[1] is None


def test_parameters() -> None:
    assert parameters("", "") is None
    assert parameters("x\n", "") == "x"
    assert parameters("", "Model parameters: y\n\n") == "y"
    assert parameters("", "Model parameters: \n") == ""
    for bad in ("a\0b", "x" * (MAX_PARAMETERS + 1)):
        with pytest.raises(ValueError, match=r"tony\.am\.command"):
            parameters(bad, "")


def test_its_home_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "echo here > $HOME/seen && cat $HOME/seen > $TONY_PARAMETERS_FILE"
    monkeypatch.setenv("HOME", "/nowhere/")  # nodes say /home/, which only root can write
    assert run(tmp_path, command)[1] == "here"
    monkeypatch.delenv("HOME")
    assert run(tmp_path, command)[1] == "here"
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "own"))
    assert run(tmp_path, command)[1] == "here"
    assert (tmp_path / "own" / "seen").exists()


def test_a_failure_brings_its_code_and_last_words(tmp_path: Path) -> None:
    code, _, tail = run(tmp_path, "seq 30 >&2; exit 7")
    assert code == 7
    assert list(tail) == [str(number) for number in range(11, 31)]
    assert (tmp_path / "preprocess.stderr").read_text().startswith("1\n")


def test_a_signal_is_an_exit_code_as_in_a_shell(tmp_path: Path) -> None:
    assert run(tmp_path, "kill -9 $$")[0] == 137


def test_what_it_sees(tmp_path: Path) -> None:
    job = a_job(shell_env=(("MINE", "1"),), checkpoint_dir="/ckpt")
    run(tmp_path, "env", job)
    lines = (tmp_path / "preprocess.stdout").read_text().splitlines()
    assert {"PREPROCESS=true", "MINE=1", "APP_ID=app_1", "JOB_ID=app_1"} <= set(lines)
    assert "TONY_CHECKPOINT_DIR=/ckpt" in lines


def test_its_working_folder_is_a_tasks(tmp_path: Path) -> None:
    src = tmp_path / "src"
    src.mkdir()
    (src / "prepare.sh").write_text("echo Model parameters: $(cat data.txt/part)\n")
    (src / "prepare.sh").chmod(0o444)
    data = tmp_path / "data"
    data.mkdir()
    (data / "part").write_text("42")
    artifacts = (
        Artifact("tony-src", Use.SOURCE, Kind.FOLDER, str(src), str(src)),
        Artifact("data.txt", Use.RESOURCE, Kind.FOLDER, str(data), str(data), roles=("am",)),
        Artifact("other", Use.RESOURCE, Kind.FOLDER, str(data), str(data), roles=("worker",)),
        Artifact("tony-runtime", Use.RUNTIME, Kind.FOLDER, str(data), str(data)),
    )
    command = "ls; echo more >> prepare.sh; sh prepare.sh | head -1"
    outcome = run(tmp_path, command, None, *artifacts)
    assert outcome == (0, "42", [])
    listed = (tmp_path / "preprocess.stdout").read_text().splitlines()[:2]
    assert listed == ["data.txt", "prepare.sh"]
    assert "more" not in (src / "prepare.sh").read_text(), "the shared source is not touched"


def test_files_that_the_scheduler_localized_are_used_in_place(tmp_path: Path) -> None:
    container, logs = tmp_path / "container", tmp_path / "logs"
    (container / "tony-src").mkdir(parents=True)
    logs.mkdir()
    (container / "tony-src" / "prepare.sh").write_text("echo Model parameters: $(cat data.txt)\n")
    (container / "data.txt").write_text("42")
    artifacts = [
        Artifact("tony-src", Use.SOURCE, Kind.ARCHIVE, "src", "far://away/content.tar"),
        Artifact("data.txt", Use.RESOURCE, Kind.FILE, "data.txt", "far://away/content"),
    ]
    listed = [item.to_json() for item in artifacts]
    words = encode_request("sh prepare.sh", {}, str(logs), "", listed, 1.0, str(container))
    found: List[Outcome] = []
    with Running() as running:
        running.do(
            lambda: Preprocess(running.reactor, words, lambda *outcome: found.append(outcome))
        )
        until(lambda: found, "the preprocess to end")
    assert found == [(0, "42", [])]
    assert sorted(path.name for path in logs.iterdir()) == [
        "preprocess.stderr",
        "preprocess.stdout",
    ]


def test_a_file_that_cannot_be_localized_is_reported(tmp_path: Path) -> None:
    gone = Artifact("x", Use.RESOURCE, Kind.FILE, "/not/there", str(tmp_path / "not-there"))
    code, _, tail = run(tmp_path, "true", None, gone)
    assert code == 1
    assert "not-there" in tail[0]


def test_nothing_of_it_is_left_when_it_ends(tmp_path: Path) -> None:
    command = f"setsid sleep 77 & echo $! > {tmp_path}/pid; exit 0"
    assert run(tmp_path, command)[0] == 0
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


STUBBORN = "trap '' TERM; setsid bash -c \"trap '' TERM; echo \\$\\$ > {0}/pid; sleep 77\" & wait"


def test_it_can_be_ended_whatever_it_traps(tmp_path: Path) -> None:
    with Running() as running:
        words = describe(tmp_path, STUBBORN.format(tmp_path), a_job())
        made = running.do(lambda: Preprocess(running.reactor, words, lambda *outcome: None))
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        running.do(made.end)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_command_gets_its_whole_grace(tmp_path: Path) -> None:
    save = f"trap 'sleep 0.2; sleep 0.1 && echo saved > {tmp_path}/saved; exit' TERM"
    command = f"{save}; touch {tmp_path}/on; while :; do sleep 0.02; done"
    with Running() as running:
        description = json.loads(describe(tmp_path, command, a_job()))
        description["grace_s"] = 600.0
        words = json.dumps(description).encode()
        made = running.do(lambda: Preprocess(running.reactor, words, lambda *outcome: None))
        until((tmp_path / "on").exists)
        running.do(made.end)
    assert (tmp_path / "saved").exists(), "what its handler starts is not stopped"


def test_a_stopped_process_is_ended_within_the_grace(tmp_path: Path) -> None:
    command = f"sleep 77 & kill -STOP $!; echo $! > {tmp_path}/pid; wait"
    with Running() as running:
        description = json.loads(describe(tmp_path, command, a_job()))
        description["grace_s"] = 600.0
        words = json.dumps(description).encode()
        made = running.do(lambda: Preprocess(running.reactor, words, lambda *outcome: None))
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        running.do(made.end)  # which wakes it
    assert not alive(int((tmp_path / "pid").read_text()))


MASTER = """
import sys
sys.path.insert(0, sys.argv[1])
from tony_core.protocol.reactor import Reactor
from tony_core.master.preprocess import Preprocess
reactor = Reactor()
Preprocess(reactor, sys.stdin.buffer.readline().strip(), lambda *outcome: None)
reactor.run()
"""


def test_it_goes_with_a_master_that_is_killed(tmp_path: Path) -> None:
    root = Path(preprocess.__file__).parent.parent.parent
    words = describe(tmp_path, STUBBORN.format(tmp_path), a_job())
    env: Dict[str, str] = {**os.environ}
    with subprocess.Popen(
        [sys.executable, "-c", MASTER, str(root)], stdin=subprocess.PIPE, env=env
    ) as master:
        assert master.stdin is not None
        master.stdin.write(words + b"\n")
        master.stdin.flush()
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        master.send_signal(signal.SIGKILL)
        master.wait()
    until(lambda: not alive(pid), "the preprocess to go")


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def test_the_environment_travels_by_no_command_line(tmp_path: Path) -> None:
    job = a_job(shell_env=(("API_TOKEN", "tok-123456"),))
    with Running() as running:
        words = describe(tmp_path, f"touch {tmp_path}/on; sleep 77", job)
        assert json.loads(words)["env"]["API_TOKEN"] == "tok-123456"
        made = running.do(lambda: Preprocess(running.reactor, words, lambda *outcome: None))
        until((tmp_path / "on").exists)
        time.sleep(0.05)
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert b"tok-123456" not in path.read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
        running.do(made.end)
