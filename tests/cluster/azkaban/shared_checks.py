"""What holds on either scheduler, the embedded one and YARN: the steps of tests of both."""

from __future__ import annotations

import socket
import time
from typing import Dict, List, Tuple

from tests.cluster.azkaban import special_characters
from tests.cluster.azkaban.flows import APPLICATION, LASTS, Content, Flows, Run, command_of, until
from tests.cluster.hadoop import supervisor


def of_job(flows: Flows, run: Run) -> int:
    """The process that the server has started for the job."""

    def find() -> int:
        below = supervisor.descendants(flows.server.running_pid())
        inside = supervisor.processes_in(run.folder) & below
        found = [pid for pid in inside if "tony_azkaban" in command_of(pid)]
        return found[0] if found else 0

    return int(until(find, "the job's process"))


def cancelled_while_it_submits(flows: Flows) -> None:
    """Nothing of it ever is an application. It waits for a server that takes calls and never
    answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/data"
        for _ in range(3):
            run = flows.one("true", {"tony.containers.resources": address, **LASTS})
            of_job(flows, run)
            time.sleep(1)  # to be where it waits; cancelled sooner it must do as well
            run.cancel()
            run.ends("KILLED")
            if not run.killed_hard():
                break
        assert not run.killed_hard(), run.story()
        flows.nothing_runs()
        assert run.apps() == []


def check_precedence(flows: Flows) -> None:
    """The job file's word counts more than a run's, and that more than a shared property's."""
    files: Dict[str, Content] = {
        "src/show.py": special_characters.SHOWS,
        "shared.properties": {"worker_env.A": "shared", "worker_env.B": "shared", "word": "shared"},
    }

    def run() -> Run:
        return flows.one(
            "python3 show.py A,B,C ${word}",
            files=files,
            settings={"word": "run", "worker_env.B": "run", "worker_env.C": "run"},
            **{"worker_env.C": "job", "conf_file": "own.xml", "tony.worker.memory": "80m"},
        )

    assert "own.xml" in run().ends("FAILED").log()
    xml = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in {
            "tony.worker.instances": "3",
            "tony.worker.memory": "70m",
            "tony.application.name": "of-the-file",
        }.items()
    )
    files["own.xml"] = f"<configuration>{xml}</configuration>"
    app_id = run().ends().app_id()
    output = special_characters.shown(flows, app_id)
    assert [output[name] for name in "ABC"] == ["shared", "run", "job"]
    assert output["argv"] == ["A,B,C", "run"]
    status = flows.status(app_id)
    assert status["name"] == "of-the-file"
    assert [task["task"] for task in status["tasks"]] == ["worker:0"]  # the job's one, not three


BAD: Dict[str, Tuple[Dict[str, object], List[str]]] = {
    "key": ({"tony.worker.instancs": 2}, ["tony.worker.instancs", "tony.worker.instances"]),
    "value": ({"tony.worker.memory": "much"}, ["tony.worker.memory", "much"]),
    "folder": ({"src_dir": "nowhere"}, ["src_dir", "nowhere"]),
    "name": ({"worker_env.A B": "x"}, ["A B"]),
}
"""By the job's name: what is wrong with it, and what the line about it must say."""


def bad_properties(flows: Flows) -> None:
    """One clear line, a failed job, and a server that goes on as before."""
    files: Dict[str, Content] = {
        f"{name}.job": flows.job("true", conf) for name, (conf, _) in BAD.items()
    }
    files["all.job"] = {"type": "noop", "dependencies": ",".join(BAD)}
    run = flows.start(files, "all").ends("FAILED")
    for name, (_, words) in BAD.items():
        log = "\n".join(run.log_lines(name))
        reasons = [line for line in run.log_lines(name) if all(word in line for word in words)]
        assert len(reasons) == 1, log
        assert "Traceback" not in log and not APPLICATION.search(run.log(name))
    assert run.apps() == []
    flows.one("true").ends()
