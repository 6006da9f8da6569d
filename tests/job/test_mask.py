from __future__ import annotations

import time
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.loading import job, why
from tony_core.job.mask import (
    MASK,
    mask_env,
    mask_problems,
    mask_settings,
    mask_text,
    mask_value,
    secrets_in,
)
from tony_core.job.problems import Problem
from tony_core.job.xmlfile import job_to_xml


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("tony.https.keystore.password", "hunter2", MASK),
        ("tony.secret.key", "x", MASK),
        ("fs.s3a.access.key", "AKIA", MASK),
        ("my.api.token", "abc", MASK),
        ("hadoop.security.credential.provider.path", "jceks://x", MASK),
        ("tony.execution.envs", "A=1,B=x\\,y,rest", f"A={MASK},B={MASK},{MASK}"),
        ("tony.containers.env.A", "1", MASK),
        ("tony.yarn.queue", "ml", "ml"),
        ("tony.secret.key", "", ""),
        ("tony.containers.resources", "hdfs://me:pw@nn/x,/y@z", f"hdfs://{MASK}@nn/x,/y@z"),
        ("tony.history.location", "https://tok@h/p?a=b@c", f"https://{MASK}@h/p?a=b@c"),
    ],
)
def test_values(key: str, text: str, shown: str) -> None:
    assert mask_value(key, text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python t.py --password hunter2 --n 3", f"python t.py --password {MASK} --n 3"),
        ("API_TOKEN=abc python t.py", f"API_TOKEN={MASK} python t.py"),
        ("--db-password='a b' x", f"--db-password={MASK} x"),
        ("curl http://u:p@ss@host/x", f"curl http://{MASK}@host/x"),
        ("the token expired", "the token expired"),
        ("mail me@example.org", "mail me@example.org"),
    ],
)
def test_text(text: str, shown: str) -> None:
    assert mask_text(text) == shown


@given(
    st.from_regex(r"[A-Za-z0-9]{8,20}", fullmatch=True).map(lambda text: f"Zq{text}"),
    st.sampled_from(["execution", "containers"]),
)
def test_no_value_of_an_environment_is_ever_shown(secret: str, where: str) -> None:
    made = job(
        {f"tony.{where}.envs": f"A={secret},B={secret}"},
        shell_env=[f"C={secret}"],
        container_env=[f"D={secret}"],
    )
    shown = job_to_xml(made) + str(mask_settings(made.settings))
    assert secret not in shown
    assert secret in job_to_xml(made, masked=False)


def test_the_same_for_urls_and_secret_keys() -> None:
    made = job({"my.secret": "hush", "tony.history.location": "http://u:hush@h/"}, src_dir="/x")
    assert "hush" not in job_to_xml(made)
    assert mask_env({"A": "1"}) == (("A", MASK),)
    assert mask_problems([Problem("http://u:p@h is bad", "k")]) == [f"k: http://{MASK}@h is bad"]


@given(st.text(alphabet="ab.:/@=token ", max_size=200))
def test_masking_twice_is_masking_once(text: str) -> None:
    once = mask_text(text)
    assert mask_text(once) == once


@pytest.mark.parametrize("piece", ["a.", "a://", "http://a@", "token", "@", "password ", "a"])
def test_masking_long_text_takes_no_time(piece: str) -> None:
    started = time.process_time()
    mask_text(piece * (20_000 // len(piece)))
    assert time.process_time() - started < 5  # of the processor, whoever else uses it


def test_a_printed_problem_is_masked() -> None:
    assert "hush" not in why({"tony.history.location": "http://me:hush@[x/"})


@pytest.mark.parametrize(
    ("key", "text", "hidden"),
    [
        ("tony.secret.key", "abc", ["abc"]),
        ("tony.secret.key", " ", []),
        ("tony.yarn.queue", "ml", []),
        ("tony.execution.env.GREETING", "hello", []),
        ("tony.execution.env.DB_PASSWORD", "x y", ["x y"]),
        ("tony.containers.envs", "A=1,API_TOKEN=x\\,y,STORE=s3://k:v@h/", ["x,y", "v"]),
        ("tony.client.task-params", "--token abc --password='x y' the token is", ["abc", "x y"]),
        ("tony.history.location", "https://user@host/", []),
    ],
)
def test_what_another_mask_has_to_hide(key: str, text: str, hidden: List[str]) -> None:
    assert secrets_in(key, text) == hidden
    shown = mask_value(key, text)
    assert not any(secret in shown for secret in hidden)
