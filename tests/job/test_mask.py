from __future__ import annotations

import base64
import json
import shlex
import time
from typing import List
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.loading import job, why
from tony_core.job.mask import (
    MASK,
    KnownSecrets,
    is_secret,
    mask_env,
    mask_problems,
    mask_settings,
    mask_text,
    mask_value,
    secrets_in,
    written_forms,
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
    assert time.process_time() - started < 5  # of the processor, whatever else uses it


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


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "API_KEY", "apiKey", "api.key", "WANDB_API_KEY", "PRIVATE_KEY",
        "SSH_PRIVATE_KEY", "privateKey", "SIGNING_KEY", "ENCRYPTION_KEY", "fs.azure.account.key.x",
        "fs.s3a.access.key", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "aws_session_token",
        "PASSPHRASE", "KEY_PASSPHRASE", "DB_PWD", "PWD_DB", "mysqlPwd", "DBPWD", "PASSWD",
        "MYPASSWORD", "PGPASSWORD", "DB_PASS", "SMTP_PASS", "AUTH", "NPM_AUTH", "_auth",
        "BEARER", "BEARER_TOKEN", "HF_TOKEN", "GITHUB_TOKEN", "githubtoken", "TOKEN", "TOKENS",
        "API_TOKENS", "REFRESH_TOKEN", "Authorization", "HTTP_AUTHORIZATION", "X-Amz-Signature",
        "SENTRY_DSN", "CONNECTION_STRING", "AzureConnectionString", "CONN_STR",
        "AIRFLOW_CONN_MYSQL", "SQL_ALCHEMY_CONN", "SLACK_WEBHOOK_URL", "credentials",
        "tony.execution.env.DB_PWD", "hadoop.security.credential.provider.path", "x" * 600,
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "PWD", "OLDPWD", "tony.execution.env.PWD", "INIT_CWD", "KEY", "SORT_KEY", "primary_key",
        "key_dim", "num_key_value_heads", "KEYBOARD", "MONKEY", "max_tokens", "max_new_tokens",
        "MAX_TOKENS", "n_tokens", "num-tokens", "tokens_per_batch", "token_dropout",
        "pad_token_id", "eos_token", "TOKENIZER", "tokenizer_name", "TOKENIZERS_PARALLELISM",
        "tokenisation", "AUTH_TYPE", "AUTH_METHOD", "author", "AUTHORS",
        "hadoop.security.authorization", "hadoop.security.authentication", "model_signature",
        "SIGNATURE_NAME", "num_passes", "forward_pass", "bypass", "connect_timeout", "max_conn",
        "CONNECTIONS", "DB_PASSWORD_FILE", "TOKEN_PATH", "SECRET_DIR", "KEY_LOCATION",
        "learning_rate", "tony.worker.instances", "tony.keytab.user",
    ],
)  # fmt: skip
def test_names_that_are_no_secrets(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py --max-tokens 4096 --tokenizer bpe", None),
        ("--api-key abcdef --lr 1", f"--api-key {MASK} --lr 1"),
        ("PWD=/home/ann DB_PWD=hunter2", f"PWD=/home/ann DB_PWD={MASK}"),
        ("token --password hunter2", f"token --password {MASK}"),
        ('{"api_key": "abc", "epochs": 3}', f'{{"api_key": {MASK}, "epochs": 3}}'),
        ("{'password': 'a b', 'n': 1}", f"{{'password': {MASK}, 'n': 1}}"),
        ("Authorization: Bearer abcdefgh12", f"Authorization: Bearer {MASK}"),
        ("https://x.blob/y?sv=1&sig=abc%3D&se=2", f"https://x.blob/y?sv=1&sig={MASK}&se=2"),
        ("the private key: not found", None),
    ],
)
def test_what_looks_like_a_secret_in_a_text(text: str, shown: str | None) -> None:
    assert mask_text(text) == (text if shown is None else shown)


PEM = """-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj
MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu
NMoSfm76oqFvAp8Gy0iz5sxjZmSnXyCdPEovGhLa0VzMaQ8s+CLOyS56YyCFGeJZ
-----END PRIVATE KEY-----
"""


def ways_to_print(secret: str) -> List[str]:
    encoded = base64.b64encode(secret.encode()).decode()
    return [
        secret, f"x={secret}", repr(secret), repr(secret.encode()), json.dumps({"a": secret}),
        json.dumps(json.dumps(secret))[1:-1] if "\n" not in secret else json.dumps(secret),
        quote(secret), quote(secret, safe=""), quote_plus(secret), shlex.quote(secret), encoded,
        base64.urlsafe_b64encode(secret.encode()).decode(), secret.encode().hex(),
        base64.b64encode(f"user:{secret}".encode()).decode(),
        base64.b64encode(f"me:{secret}".encode()).decode(),
        base64.b64encode(f"a:{secret}\n".encode()).decode(),
    ]  # fmt: skip


@pytest.mark.parametrize("secret", [PEM, PEM.replace("\n", "\r\n"), "p@ss w'o\"rd/é+1\\x"])
def test_a_secret_is_covered_however_it_is_written(secret: str) -> None:
    known = KnownSecrets([secret])
    lines = [line for line in secret.splitlines() if line.strip() and not line.startswith("--")]
    for text in ways_to_print(secret):
        shown = known.mask(f"before {text} after")
        assert shown.startswith("before ") and shown.endswith(" after"), shown
        assert not any(line in shown or line[:12] in shown for line in lines), shown
    for line in lines:  # a program's last lines come one by one
        assert line not in known.mask(f"key: {line}")


@given(st.text(min_size=6, max_size=60).filter(lambda text: len(text.strip()) >= 6))
def test_any_text_is_covered_in_every_form(secret: str) -> None:
    known = KnownSecrets([secret])
    assert secret not in known.mask(f"<{secret}>") or secret in MASK
    for form in written_forms(secret):
        assert form not in known.mask(f"<{form}>") or form in MASK


def test_short_values_cover_no_innocent_words() -> None:
    assert KnownSecrets(["abc", "", " ", "12345"]).mask("abc 12345") == "abc 12345"
    assert written_forms("a\nb\nc") == []
