"""The program on the embedded scheduler, as a server starts it."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.tony_azkaban.jobs import Job
from tony_core.client import Client

ODD = "grüße \"double\" 'single' \\back $HOME `tick` %s ~ 漢字 🦆"


def test_a_job_from_its_start_to_its_end(tmp_path: Path) -> None:
    job = Job(tmp_path, "report").set(
        {
            "azkaban.url": "http://az.example:8081",
            "tony.application.tags": "nightly,vision",
        }
    )
    log = job.run()
    first = log.splitlines()[0]
    assert re.fullmatch(r"application local_\w+", first)
    app_id = first.split()[1]
    assert "azkaban: http://az.example:8081/executor?execid=12\n" in log
    assert "log of worker:0: " in log
    assert "\nRUNNING in queue default\n" in log
    assert "\nlast lines of worker:0 (stdout):\n  | worker 0 does report\n" in log
    assert log.splitlines()[-1].startswith(f"SUCCEEDED train ({app_id})")
    output = job.outputs
    assert output["tony_result.application_id"] == app_id
    assert output["tony_result.outcome"] == "SUCCEEDED"
    assert output["tony_result.metrics.loss"] == "0.125"
    assert output["tony_result.train.metrics.accuracy"] == "0.5"
    assert Path(output["tony_result.history_url"]).is_dir()
    assert not [name for name in output if name.startswith("tony.")]
    with Client("local") as client:
        run = client.attach(app_id)
        assert run.status().tags[:2] == ("nightly", "vision")
        assert "azkaban.flow.execid:12" in run.status().tags
        assert run.view().links["azkaban"] == "http://az.example:8081/executor?execid=12"


def test_where_the_site_has_a_portal_log_and_outputs_lead_there(tmp_path: Path) -> None:
    job = Job(tmp_path, "report").set({"tony.portal.url": "http://portal/"})
    log = job.run()
    page = f"http://portal/jobs/{job.outputs['tony_result.application_id']}"
    assert f"\n  portal: {page}\n" in log[log.index("last lines of") :]
    assert "history: " not in log
    assert job.outputs["tony_result.history_url"] == page


def test_the_log_ends_with_the_failing_task(tmp_path: Path) -> None:
    log = Job(tmp_path, "fail").run(1)
    tail = log[log.index("FAILED train (") :]
    assert "exit code 7" in tail
    assert "    | ValueError: no such data set\n" in tail
    assert len(tail.splitlines()) < 10


@pytest.mark.parametrize("code", [0, 7])
def test_the_log_has_the_advice_whatever_the_outcome(tmp_path: Path, code: int) -> None:
    job = Job(tmp_path, f"fill {code}").set({"tony.worker.memory": "256m"})
    log = job.run(1 if code else 0)
    advice = f"\nadvice: 1: tony advise {job.outputs['tony_result.application_id']}\n"
    assert advice in log, log
    assert "tony.worker.memory: 256m -> 2g" in log[log.index(advice) :]
    assert log.index(advice) < log.index(f"\n{'FAILED' if code else 'SUCCEEDED'} train (")


def test_what_the_tasks_see(tmp_path: Path) -> None:
    shown = tmp_path / "shown.json"
    job = Job(
        tmp_path,
        f"show {shown}",
        task_params='\'one word\' "two words" grüße \\"q\\"',
    ).set(
        {
            "worker_env.ODD": ODD,
            "worker_env.BOTH": "worker",
            "env.BOTH": "env",
            "env.OWN": "of the job",
            "azkaban.input.dataset": "hdfs:///a,hdfs:///b",
            "azkaban.output.dataset": "hdfs:///c",
            "srcdir": "a property of the flow, or a slip",
        }
    )
    (tmp_path / "src" / "data.txt").symlink_to("/dev/null")
    log = job.run()
    assert "(did you mean src_dir?)" in log
    assert "warning: src_dir: " in log and "--src_dir" not in log  # the author's own word
    seen = json.loads(shown.read_text())
    assert seen["argv"] == ["one word", "two words", "grüße", '"q"']
    env = seen["env"]
    assert env["ODD"] == ODD
    assert env["BOTH"] == "worker"
    assert env["OWN"] == "of the job"
    assert env["AZKABAN_INPUT_DATASET"] == "hdfs:///a;hdfs:///b"
    assert env["AZKABAN_OUTPUT_DATASET"] == "hdfs:///c"


def test_no_secret_is_in_the_log(tmp_path: Path) -> None:
    job = Job(tmp_path, "fail --token hush-hush-1").set(
        {
            "worker_env.API_TOKEN": "hush-hush-2",
            "tony.containers.envs": "PASSWORD=hush-hush-3",
            "tony.worker.memroy": "hush-hush-4 password=hush-hush-5",
        }
    )
    assert "hush" not in job.run(2).replace("hush-hush-4", "")
    del job.props["tony.worker.memroy"]
    job.props["executes"] = "python3 train.py fail; echo it is $API_TOKEN; exit 7"
    log = job.run(1)
    assert "hush" not in log and "  | it is ********\n" in log
    assert "hush" not in job.outputs_file.read_text()


@pytest.mark.parametrize("answers", [404, 200])
def test_no_secret_of_a_job_files_address_is_in_the_log(tmp_path: Path, answers: int) -> None:
    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<configuration><property><name>tony.worker.memory</name><value>much</value>"
            body += b"</property></configuration>"
            self.send_response(answers)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            base = f"http://127.0.0.1:{server.server_address[1]}"
            arguments = {"conf_file": f"{base}/job.xml?sig=hush-hush#part"}
            job = Job(tmp_path, "show").set(arguments)
            del job.props["tony.worker.memory"]
            log = job.run(2)
        finally:
            server.shutdown()
            thread.join()
    assert "hush" not in log
    assert f"{base}/job.xml" in log


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tony.worker.instancs": "2"}, ["job properties", "tony.worker.instances?"]),
        ({"tony.worker.memory": "much"}, ["tony.worker.memory", "much"]),
        ({"src_dir": "nowhere"}, ["src_dir", "nowhere does not exist"]),
        ({"conf_file": "own.xml"}, ["own.xml", "cannot be read"]),
        ({"worker_env.A B": "x"}, ["worker_env.A B", "no"]),
        ({"executes": ""}, ["command"]),
        ({"tony_azkaban.retry": "maybe", "azkaban.job.attempt": "1"}, ["maybe", "attach"]),
        ({"tony_azkaban.retry": "atach"}, ["atach", "attach"]),
        ({"tony_azkaban.last_lines": "many"}, ["tony_azkaban.last_lines", "0 to 200"]),
        ({"tony_azkaban.retyr": "attach"}, ["tony_azkaban.retyr", "tony_azkaban.retry?"]),
    ],
)
def test_bad_properties_are_one_clear_line(
    tmp_path: Path, tony_home: Path, settings: dict[str, str], message: list[str]
) -> None:
    log = Job(tmp_path, "show").set(settings).run(2)
    (line,) = log.splitlines()
    assert line.startswith("tony: ")
    assert all(word in line for word in message), line
    assert not list(tony_home.glob("apps/*"))


def test_properties_that_are_none(tmp_path: Path) -> None:
    job = Job(tmp_path, "show")
    job.env["JOB_PROP_FILE"] = str(tmp_path / "broken.properties")
    (tmp_path / "broken.properties").write_text("a=1\nb=\\u12\n")
    assert "broken.properties:2: " in job.run(2)
    job.env["JOB_PROP_FILE"] = ""
    assert "tony submit" in job.run(2)


def test_a_job_file_beside_the_properties(tmp_path: Path) -> None:
    (tmp_path / "tony.xml").write_text(
        "<configuration>"
        "<property><name>tony.application.name</name><value>of-the-file</value></property>"
        "<property><name>tony.worker.instances</name><value>3</value></property>"
        "</configuration>"
    )
    log = Job(tmp_path, "show /dev/null").run()
    assert "SUCCEEDED of-the-file (" in log
    assert "worker:1" not in log
