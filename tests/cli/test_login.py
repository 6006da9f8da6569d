"""Who a verb logs in as: --principal and --keytab, else the site's."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Sequence

import pytest

from tests.job.loading import write_xml
from tony_core.cli import options
from tony_core.cli.verbs import VERBS, parser_of
from tony_core.client.errors import UsageError
from tony_core.hadoop.identity import KEYTAB, PRINCIPAL, PROXY_USER

SITE = {"tony.kerberos.principal": "site@EXAMPLE", "tony.kerberos.keytab": "/etc/site.keytab"}


def parsed(*words: str) -> argparse.Namespace:
    return parser_of("list").parse_args(list(words))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_xml(tmp_path / "tony-site.xml", SITE)
    monkeypatch.setenv("TONY_CONF_DIR", str(tmp_path))


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this process are as before when a test ends."""
    for name in (PRINCIPAL, KEYTAB):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv(PROXY_USER, "env")


def used() -> Sequence[str]:
    return os.environ[PRINCIPAL], os.environ[KEYTAB]


def test_the_options(site: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options.use_login(parsed("--principal", "ann@EXAMPLE", "--keytab", "ann.keytab"))
    assert used() == ("ann@EXAMPLE", str(tmp_path / "ann.keytab"))


def test_the_site(site: None) -> None:
    options.use_login(parsed())
    assert used() == ("site@EXAMPLE", "/etc/site.keytab")


def test_neither() -> None:
    options.use_login(parsed())
    assert used() == ("", "")


@pytest.mark.parametrize(("one", "other"), [("principal", "keytab"), ("keytab", "principal")])
def test_one_without_the_other(one: str, other: str) -> None:
    with pytest.raises(UsageError, match=f"--{one} needs --{other}"):
        options.use_login(parsed(f"--{one}", "x"))


def test_a_proxy_user() -> None:
    options.use_login(parsed())
    assert os.environ[PROXY_USER] == "env"
    options.use_login(parsed("--proxy-user", "ann"))
    assert os.environ[PROXY_USER] == "ann"


@pytest.mark.parametrize("name", ["", "ann@EXAMPLE"])
def test_a_proxy_user_that_is_none(name: str) -> None:
    with pytest.raises(UsageError, match="--proxy-user is "):
        options.use_login(parsed("--proxy-user", name))
    assert os.environ[PROXY_USER] == "env"


def test_a_proxy_user_on_the_embedded_scheduler() -> None:
    with pytest.raises(UsageError, match="runs every job as you"):
        options.scheduler_of(parsed("--proxy-user", "ann"))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_opens_a_scheduler_takes_them(verb: str) -> None:
    """Wherever --scheduler is an option, these are, too."""
    found = [parser_of(verb)]
    for parser in found:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found.extend(action.choices.values())
        known = parser._option_string_actions
        assert ("--keytab" in known) >= ("--scheduler" in known), parser.prog
        assert ("--keytab" in known) == ("--principal" in known)
        # The portal acts for whom it shows a page to.
        assert ("--proxy-user" in known) == ("--keytab" in known and verb != "portal")
