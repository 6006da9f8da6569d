from __future__ import annotations

import os
from pathlib import Path
from typing import List

import pytest

from tests.second_user import UID, needs_root
from tony_core.portal.settings import HistoryLocation, Login, Settings
from tony_core.portal.settings_checks import (
    find_problems,
    find_warnings,
    secret_file_problem,
)
from tony_core.portal.settings_file import SettingsError, parse_settings, read_settings_file

WHOLE = """
# A portal for a team.
[portal]
bind = 0.0.0.0
port = 8080
url = https://tony.example.com/
index = /var/lib/tony-portal
schedulers = yarn
admins = ann, %ops
public = yes
access-log = /var/log/tony-portal/access.log
metrics-from = 10.1.0.0/16, fd00::/8
tensorboard-idle = 5m

[history shared]
path = hdfs://nn/tony/history/
retention = 90d
retention-size = 500g
write-jhist = /var/lib/tony-history

[history old]
path = /srv/history
layout = jvm-tony

[login]
by = header
header = X-Forwarded-User
groups-header = X-Forwarded-Groups
trusted = 127.0.0.1
trusted-users = www-data
domain = example.com
"""


def problems_of(text: str) -> List[str]:
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    return caught.value.problems


def test_a_whole_file() -> None:
    found = parse_settings(WHOLE)
    assert found == Settings(
        locations=(
            HistoryLocation(
                "shared", "hdfs://nn/tony/history", 90 * 86400.0, 500 << 30, "/var/lib/tony-history"
            ),
            HistoryLocation("old", "/srv/history", kind="jvm-tony"),
        ),
        schedulers=("yarn",),
        bind="0.0.0.0",
        port=8080,
        url="https://tony.example.com",
        index_folder="/var/lib/tony-portal",
        admins=("ann", "%ops"),
        public=True,
        login=Login(
            by="header",
            header="x-forwarded-user",
            groups_header="x-forwarded-groups",
            trusted=("127.0.0.1",),
            trusted_users=("www-data",),
            domain="example.com",
        ),
        access_log="/var/log/tony-portal/access.log",
        metrics_from=("10.1.0.0/16", "fd00::/8"),
        tensorboard_idle_s=300.0,
    )
    assert find_problems(found) == []


def test_an_empty_file() -> None:
    assert parse_settings("") == Settings()


def test_all_problems_at_once_each_with_its_place() -> None:
    found = problems_of(
        "[portal]\nprot = 80\nport = 70000\nurl = tony.example.com\npublic = maybe\nindex =\n"
        "[histroy x]\npath = /a\n[history]\n[history a/b]\nretention = soon\n[login]\nby = ldap\n"
    )
    assert found == [
        "[portal] prot: there is no such key; did you mean port?",
        "[portal] port: '70000' is not a port: 0 (any free one) to 65535",
        "[portal] url: 'tony.example.com' is not a URL as https://tony.example.com",
        "[portal] public: 'maybe' is neither yes nor no",
        "[portal] index: the value is missing",
        "[histroy x]: there is no such section; did you mean history NAME?",
        "[history]: a location has a name, as in [history shared]",
        "[history a/b] retention: 'soon' is not a duration: write plain seconds, or 500ms, 30s,"
        " 10m, 2h, 1d; off means no limit",
        "[history a/b]: a name has letters, digits and -_. only",
        "[history a/b]: path is missing: a folder, or hdfs://...",
        "[login] by: 'ldap' is no way to log in: socket, header, oidc, spnego",
    ]


PROBLEMS = (
    ("port = 1", "no section headers"),
    ("[portal]\nport = 1\nport = 2", "option 'port' in section 'portal' already exists"),
    ("[portal]\n[portal]", "section 'portal' already exists"),
    ("[portal]\nnonsense", "contains parsing errors"),
    ("[DEFAULT]\nport = 1", "[DEFAULT]: there is no such section"),
    ("[history a]\npath = relative", "'relative' is not an absolute path"),
    ("[history a]\npath = /a\nlayout = hive", "'hive' is no layout of history: tony, jvm-tony"),
    ("[portal]\nmetrics-from = example.com", "is no address and no network"),
    ("[portal]\nmetrics-from = 10.1.2.3/8", "is no address and no network"),
    ("[portal]\nurl = https://u:p@x/", "is not a URL"),
    ("[portal]\nurl = https://x/tony", "has a path"),
    ("[portal]\nurl = https://x:99999", "invalid host or port"),
    ("[portal]\ntensorboard-idle = off", "is no limit"),
    ("[login]\nby = header", "header is missing: by = header needs it"),
    ("[login]\nby = header\nheader = a b\ntrusted = 127.0.0.1", "is no header's name"),
    ("[login]\nkeytab = /k", "keytab: by = socket does not use it"),
    ("[login]\nby = oidc\nissuer = http://idp.example.com", "is not an https URL"),
    ("[login]\nby = oidc\nclient-secret = x", "a secret has no place in this file"),
    ("[login]\nby = spnego", "keytab is missing"),
)


def test_problems() -> None:
    for text, words in PROBLEMS:
        assert words in "\n".join(problems_of(text)), text


def test_a_secret_in_the_file_is_not_repeated() -> None:
    assert "hunter2" not in str(problems_of("[login]\nby = oidc\nclient-secret = hunter2"))


class TestWhatDoesNotGoTogether:
    def test_by_socket_for_other_machines(self) -> None:
        found = find_problems(Settings(bind="0.0.0.0"))
        assert any("knows the users of this machine only" in one for one in found)
        assert any("url is missing" in one for one in found)

    def test_for_many_without_a_shared_location(self) -> None:
        login = Login(by="header", header="x", trusted=("127.0.0.1",))
        (found,) = find_problems(Settings(login=login))
        assert "shared on purpose" in found

    def test_two_locations_of_one_name(self) -> None:
        twice = (HistoryLocation("a", "/a"), HistoryLocation("a", "/b"))
        assert find_problems(Settings(locations=twice)) == ["two locations have the name a"]

    def test_names_in_clear_on_a_network(self) -> None:
        login = Login(by="header", header="x", trusted=("10.0.0.1",))
        many = Settings(bind="0.0.0.0", url="http://tony.example.com", login=login)
        assert "without TLS" in find_warnings(many)[0]
        assert find_warnings(many._replace(url="https://tony.example.com")) == []
        assert find_warnings(Settings()) == []
        assert "sees every job" in find_warnings(Settings(public=True))[0]


class TestFiles:
    def test_one_that_all_users_can_write(self, tmp_path: Path) -> None:
        path = tmp_path / "portal.ini"
        path.write_text("[portal]\n")
        path.chmod(0o646)
        with pytest.raises(SettingsError, match="every user can write it"):
            read_settings_file(str(path))

    @needs_root
    def test_one_of_another_user(self, tmp_path: Path) -> None:
        path = tmp_path / "portal.ini"
        path.write_text("[portal]\n")
        os.chown(path, UID, UID)
        with pytest.raises(SettingsError, match="could make himself admin"):
            read_settings_file(str(path))

    def test_none(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="no such file"):
            read_settings_file(str(tmp_path / "none.ini"))
        (tmp_path / "binary").write_bytes(b"\xff\xfe")
        with pytest.raises(SettingsError, match="UTF-8"):
            read_settings_file(str(tmp_path / "binary"))

    @pytest.mark.parametrize(
        ("mode", "is_good"),
        [(0o600, True), (0o640, True), (0o644, False), (0o602, False), (0o660, False)],
    )
    def test_secrets(self, tmp_path: Path, mode: int, is_good: bool) -> None:
        path = tmp_path / "secret"
        path.write_text("s")
        path.chmod(mode)
        assert (secret_file_problem(str(path)) == "") is is_good
        login = Login(by="spnego", spnego_keytab=str(path))
        settings = Settings(login=login, locations=(HistoryLocation("a", "/a"),))
        assert (find_problems(settings) == []) is is_good

    def test_secrets_that_are_none(self, tmp_path: Path) -> None:
        assert "no such file" in secret_file_problem(str(tmp_path / "none"))
        assert "no plain file" in secret_file_problem(str(tmp_path))
