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
from tony_core.master.tracking.http_sender import HttpSender, authorization
from tony_core.master.tracking.mlflow_api import Answer, Request, find_experiment

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


def test_whose_credentials_are_sent() -> None:
    assert authorization(Mlflow("http://h")) == {}
    assert authorization(Mlflow("http://h", token="t")) == {"Authorization": "Bearer t"}
    both = Mlflow("http://h", username="ann", password="pw", token="t")
    assert authorization(both) == {"Authorization": "Basic YW5uOnB3"}, "as MLflow's own client"
