"""How requests reach a server: by TLS with a checked certificate, in order, until it is closed."""

from __future__ import annotations

import queue
import ssl
import subprocess
import time
from pathlib import Path
from typing import Iterator, Tuple

import pytest

from tests.master.tracking.fake_mlflow import FakeMlflow, Handler
from tony_core.job.spec import Mlflow
from tony_core.master.tracking import http_sender
from tony_core.master.tracking.http_sender import HttpSender, authorization
from tony_core.master.tracking.mlflow_api import (
    Answer,
    Batch,
    Request,
    create_run,
    find_experiment,
    log_batch,
)

Answers = queue.Queue[Tuple[int, Answer]]


@pytest.fixture
def answers() -> Answers:
    return queue.Queue()


@pytest.fixture
def mlflow() -> Iterator[FakeMlflow]:
    with FakeMlflow() as made:
        made.experiments["exp"] = "7"
        yield made


def ask(server: Mlflow, answers: Answers, request: Request = find_experiment("exp")) -> Answer:
    sender = HttpSender(server, lambda number, answer: answers.put((number, answer)))
    try:
        sender.send(1, request)
        return answers.get(timeout=60)[1]
    finally:
        sender.close()


def test_a_certificate_is_checked(mlflow: FakeMlflow, answers: Answers, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    mlflow.wrap(context)
    uri = mlflow.uri.replace("http://", "https://")
    refused = ask(Mlflow(uri, token="kept-secret"), answers)
    assert "certificate" in refused.problem.lower() and not mlflow.requests
    trusted = Mlflow(uri, ca_pem=certificate.read_text())
    assert ask(trusted, answers).body == {"experiment": {"experiment_id": "7"}}
    broken = ask(trusted._replace(ca_pem="-----BEGIN CERTIFICATE-----\nMIIB\n"), answers)
    assert broken.problem


def test_a_path_before_the_api(mlflow: FakeMlflow, answers: Answers) -> None:
    assert ask(Mlflow(f"{mlflow.uri}/team%20a/"), answers).is_ok


def test_a_request_that_is_replaced_ends(mlflow: FakeMlflow, answers: Answers) -> None:
    def silent(handler: Handler) -> bool:
        if len(mlflow.requests) > 1:
            return False
        handler.rfile.read(1)  # until the client goes
        return True

    mlflow.misbehave = silent
    sender = HttpSender(Mlflow(mlflow.uri), lambda number, answer: answers.put((number, answer)))
    try:
        sender.send(1, find_experiment("exp"))
        end = time.monotonic() + 60
        while not mlflow.requests:
            assert time.monotonic() < end
            time.sleep(0.01)
        sender.send(2, find_experiment("exp"))
        found = dict(answers.get(timeout=60) for _ in range(2))
        assert found[1].problem and found[2].is_ok
    finally:
        sender.close()


CREATE = create_run("7", "train", "ann", 1, [("tony/run_key", "k")])
LOG = log_batch("run0", Batch(tags=(("a", "b"),)))


def ask_kept(mlflow: FakeMlflow, answers: Answers, request: Request) -> Answer:
    """The answer to a request that follows another one on the same connection."""
    sender = HttpSender(Mlflow(mlflow.uri), lambda number, answer: answers.put((number, answer)))
    try:
        sender.send(1, find_experiment("exp"))
        assert answers.get(timeout=60)[1].is_ok
        sender.send(2, request)
        return answers.get(timeout=60)[1]
    finally:
        sender.close()


@pytest.mark.parametrize("request_", [find_experiment("exp"), LOG, CREATE])
def test_a_late_answer_is_not_asked_for_again(
    mlflow: FakeMlflow, answers: Answers, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sender, "READ_S", 0.3)

    def late(handler: Handler) -> bool:
        if len(mlflow.requests) > 1:
            time.sleep(1)
            handler.close_connection = True
        return len(mlflow.requests) > 1

    mlflow.misbehave = late
    answer = ask_kept(mlflow, answers, request_)
    assert answer.problem and answer.is_late
    assert len(mlflow.requests) == 2


@pytest.mark.parametrize(("request_", "sent"), [(find_experiment("exp"), 2), (LOG, 2), (CREATE, 1)])
def test_what_makes_something_is_sent_once(
    mlflow: FakeMlflow, answers: Answers, request_: Request, sent: int
) -> None:
    """It was read, and perhaps carried out; there was no answer."""
    mlflow.runs["run0"] = {"metrics": [], "params": {}, "tags": {}}

    def closed(handler: Handler) -> bool:
        handler.close_connection = len(mlflow.requests) == 2
        return handler.close_connection

    mlflow.misbehave = closed
    answer = ask_kept(mlflow, answers, request_)
    assert len(mlflow.requests) == 1 + sent and not answer.is_late
    assert answer.is_ok is (sent == 2)


def test_a_connection_that_was_closed_while_idle_costs_no_run(
    mlflow: FakeMlflow, answers: Answers
) -> None:
    def closing(handler: Handler) -> bool:
        handler.close_connection = True  # without saying so
        return False

    mlflow.misbehave = closing
    assert ask_kept(mlflow, answers, CREATE).is_ok
    assert len(mlflow.runs) == 1


def test_a_request_that_is_replaced_is_not_sent_again(mlflow: FakeMlflow, answers: Answers) -> None:
    """On a connection that was open before."""

    def silent(handler: Handler) -> bool:
        if len(mlflow.requests) == 2:
            handler.rfile.read(1)  # until the client goes
        return len(mlflow.requests) == 2

    mlflow.misbehave = silent
    sender = HttpSender(Mlflow(mlflow.uri), lambda number, answer: answers.put((number, answer)))
    try:
        sender.send(1, find_experiment("exp"))
        assert answers.get(timeout=60)[1].is_ok
        sender.send(2, find_experiment("one"))
        end = time.monotonic() + 60
        while len(mlflow.requests) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        sender.send(3, find_experiment("exp"))
        found = dict(answers.get(timeout=60) for _ in range(2))
        assert found[2].problem and found[3].is_ok
        assert [body["experiment_name"] for _, body, _ in mlflow.requests] == ["exp", "one", "exp"]
    finally:
        sender.close()


def test_whose_credentials_are_sent() -> None:
    assert authorization(Mlflow("http://h")) == {}
    assert authorization(Mlflow("http://h", token="t")) == {"Authorization": "Bearer t"}
    both = Mlflow("http://h", username="ann", password="pw", token="t")
    assert authorization(both) == {"Authorization": "Basic YW5uOnB3"}, "as MLflow's own client"
