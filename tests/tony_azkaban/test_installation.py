"""The job type's folder in a server's plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

from tests.cli.conftest import Tony
from tests.cli.conftest import tony as tony
from tony_azkaban.java_properties import load


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A server's job types, of which it has some."""
    folder = tmp_path / "plugins" / "jobtypes"
    (folder / "spark").mkdir(parents=True)
    (folder / "spark" / "private.properties").write_text("jobtype.class=x.Y\n")
    (folder / "common.properties").write_text("env.A=1\n")
    return folder


def read(path: Path) -> Dict[str, str]:
    return load(path.read_bytes())


def names(folder: Path) -> List[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_new_one(plugins: Path, tony: Tony) -> None:
    done = tony("azkaban", "install", "--plugin-dir", str(plugins))
    assert done.code == 0, done.err
    made = plugins / "tony"
    assert done.out.startswith(f"installed {made} (")
    assert names(plugins) == ["common.properties", "spark", "tony"]
    assert names(plugins.parent) == ["jobtypes"]
    output = read(made / "plugin.properties")
    assert output["tony.home"] == str(made)
    assert output["command"].split()[0] == sys.executable
    # As whom a job runs, the server decides for every job type alike: commonprivate.properties.
    assert read(made / "private.properties") == {"jobtype.class": "azkaban.jobExecutor.ProcessJob"}
    assert read(made / "site.properties") == {}
    for path in [made, *made.iterdir()]:
        assert path.stat().st_mode & 0o444 == 0o444, path
    # What the server will start does start.
    ran = subprocess.run(output["command"].split(), capture_output=True, text=True, cwd="/")
    assert (ran.returncode, "JOB_PROP_FILE" in ran.stderr) == (2, True)


def test_the_administrators_options(plugins: Path, tony: Tony, tmp_path: Path) -> None:
    arguments = ["--server-url", "http://az.example:8081", "--hadoop-conf-dir", str(tmp_path)]
    assert tony("azkaban", "install", "--plugin-dir", str(plugins), *arguments).code == 0
    assert read(plugins / "tony" / "site.properties") == {
        "hadoop.conf.dir": str(tmp_path),
        "tony.scheduler": "yarn",
        "server.url": "http://az.example:8081",
    }


def test_tokens(plugins: Path, tony: Tony, tmp_path: Path) -> None:
    """The server's class, which no job can change; an upgrade keeps it, and can take it back."""
    where = ["--plugin-dir", str(plugins)]
    keytab = tmp_path / "azkaban.keytab"
    keytab.touch(mode=0o600)
    common = plugins / "commonprivate.properties"
    common.write_text(f"proxy.keytab.location={keytab}\n")
    done = tony("azkaban", "install", *where, "--tokens")
    assert done.code == 0, done.err
    assert read(plugins / "tony" / "site.properties") == {"login": "tokens"}
    private = read(plugins / "tony" / "private.properties")
    assert private.pop("jobtype.class") == "azkaban.jobtype.HadoopShell"
    assert set(private) == {
        "azkaban.should.proxy",
        "obtain.binary.token",
        "obtain.namenode.token",
        "obtain.jobtracker.token",
    }
    assert set(private.values()) == {"true"}
    output = done.out + done.err
    assert "wants hadoop.security.manager.class, proxy.user in commonprivate" in output
    assert "proxy.user.lock.down=true" in output
    assert "jobs can read the server's keytab" not in output
    common.write_text(f"proxy.keytab.location={keytab}\nexecute.as.user=false\n")
    done = tony("azkaban", "upgrade", *where)
    assert "warning: jobs can read the server's keytab" in done.out + done.err
    assert read(plugins / "tony" / "private.properties").items() >= private.items()
    common.write_text(f"proxy.keytab.location={keytab}\n")
    keytab.chmod(0o644)
    done = tony("azkaban", "upgrade", *where)
    assert "warning: jobs can read the server's keytab" in done.out + done.err
    (plugins / "tony" / "site.properties").write_text("login=ticket\n")
    assert tony("azkaban", "upgrade", *where).code == 0
    assert read(plugins / "tony" / "private.properties") == {
        "jobtype.class": "azkaban.jobExecutor.ProcessJob"
    }


def test_a_site_that_names_a_keytab_is_not_put_in_place(plugins: Path, tony: Tony) -> None:
    where = ["--plugin-dir", str(plugins)]
    assert tony("azkaban", "install", *where).code == 0
    site = plugins / "tony" / "site.properties"
    site.write_text("tony.kerberos.keytab=/etc/azkaban.keytab\n")
    done = tony("azkaban", "upgrade", *where)
    assert done.code == 1 and "every job could use this login as its own" in done.err, done.err


def test_a_path_with_a_blank_is_quoted(tmp_path: Path, tony: Tony) -> None:
    plugins = tmp_path / "my server" / "jobtypes"
    plugins.mkdir(parents=True)
    assert tony("azkaban", "install", "--plugin-dir", str(plugins)).code == 0
    command = read(plugins / "tony" / "plugin.properties")["command"]
    assert command.endswith(f' "{plugins}/tony/tony_azkaban_job.py"')


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--plugin-dir", "none"], 2, "is not a folder"),
        (["--plugin-dir", "elsewhere"], 2, "does not look like a server's job types"),
        (["--plugin-dir", "."], 2, r"plugins/jobtypes\?\)"),
        (["--plugin-dir", "plugins/jobtypes/spark"], 2, "does not look like"),
        (["--plugin-dir", "plugins/jobtypes", "--python", "python3"], 2, "absolute path"),
        (
            ["--plugin-dir", "plugins/jobtypes", "--python", "/no/python"],
            2,
            "not executable",
        ),
        (["--plugin-dir", "plugins/jobtypes", "--python", "{other}"], 1, "cannot run the job type"),
        (["--plugin-dir", "plugins/jobtypes", "--server-url", "az:80"], 1, "site.properties"),
        (["--plugin-dir", "plugins/jobtypes", "--hadoop-conf-dir", "none"], 1, "hadoop.conf.dir"),
    ],
)
def test_what_would_not_work_leaves_the_server_as_it_was(
    plugins: Path,
    tony: Tony,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: List[str],
    code: int,
    message: str,
) -> None:
    import re

    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "other"  # a program, and no Python
    other.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    other.chmod(0o755)
    done = tony("azkaban", "install", *(word.replace("{other}", str(other)) for word in arguments))
    assert done.code == code, done.err
    assert re.search(message, done.err), done.err
    assert names(plugins) == ["common.properties", "spark"]
    assert names(plugins.parent) == ["jobtypes"]


def test_what_is_there_stays(plugins: Path, tony: Tony) -> None:
    (plugins / "tony").mkdir()
    (plugins / "tony" / "private.properties").write_text("jobtype.class=com.example.TonyJob\n")
    for verb in ("install", "upgrade", "remove"):
        done = tony("azkaban", verb, "--plugin-dir", str(plugins))
        assert done.code == 2
        assert "by tony azkaban install" in done.err
    assert names(plugins / "tony") == ["private.properties"]


def test_an_upgrade_keeps_what_the_administrator_has_changed(plugins: Path, tony: Tony) -> None:
    tony("azkaban", "install", "--plugin-dir", str(plugins))
    home = plugins / "tony"
    site = "# ours\nqueues=ml\n"
    (home / "site.properties").write_text(site)
    (home / "conf").mkdir()
    (home / "conf" / "tony-site.xml").write_text("<configuration/>")
    plugin = home / "plugin.properties"
    before = read(plugin)
    plugin.write_text(
        plugin.read_text().replace(" -I ", " -I -q ") + "# more\nnotify.emails=a@b.example\n"
    )
    (home / "tony_azkaban_job.py").write_text("# of an older version\n")
    for _ in range(2):
        done = tony("azkaban", "upgrade", "--plugin-dir", str(plugins))
        assert done.code == 0, done.err
        assert "kept your value: command in plugin.properties" in done.err
        assert (home / "site.properties").read_text() == site
        assert (home / "conf" / "tony-site.xml").exists()
        after = read(plugin)
        assert after["command"] == before["command"].replace(" -I ", " -I -q ")
        assert after["notify.emails"] == "a@b.example"
        assert "# more" in plugin.read_text()
        assert "older" not in (home / "tony_azkaban_job.py").read_text()
    assert tony("azkaban", "install", "--plugin-dir", str(plugins)).code == 2


OLDER = """\
# The job type "tony", written by: tony azkaban install
# Azkaban's own job type for programs runs ours; without this class the server does not start.
jobtype.class=azkaban.jobExecutor.ProcessJob
# Later servers (3.x) want to know; older ones do not ask.
execute.as.user={}
# The administrator's.
memCheck.enabled=false
"""


@pytest.mark.parametrize("now", ["false", "true"])
def test_an_upgrade_leaves_it_to_the_server_as_whom_jobs_run(
    plugins: Path, tony: Tony, now: str
) -> None:
    """An older version forced the server's own user, unless the administrator changed that."""
    tony("azkaban", "install", "--plugin-dir", str(plugins))
    mark = json.loads((plugins / "tony" / "installed.json").read_text())
    mark["written"]["private.properties"]["execute.as.user"] = "false"
    (plugins / "tony" / "installed.json").write_text(json.dumps(mark))
    private = plugins / "tony" / "private.properties"
    private.write_text(OLDER.format(now))
    assert tony("azkaban", "upgrade", "--plugin-dir", str(plugins)).code == 0
    if now == "true":
        assert private.read_text() == OLDER.format(now)
    else:
        assert "execute.as.user" not in private.read_text()
        assert "Later servers" not in private.read_text()
        assert "# The administrator's.\nmemCheck.enabled=false\n" in private.read_text()


@pytest.mark.parametrize(
    ("common", "message"),
    [
        ("", "servers of 3.x run jobs, as those with type=command, as the users who submit"),
        ("execute.as.user=true\n", "as the users who submit"),
        ("execute.as.user=false\n", "jobs run as the server's own user"),
        ("a=\\u1\n", "as the users who submit"),
    ],
)
def test_it_reports_as_whom_jobs_will_run(
    plugins: Path, tony: Tony, common: str, message: str
) -> None:
    if common:
        (plugins / "commonprivate.properties").write_text(common)
    assert message in tony("azkaban", "install", "--plugin-dir", str(plugins)).err
    assert message in tony("azkaban", "upgrade", "--plugin-dir", str(plugins)).err


def test_an_upgrade_that_fails_changes_nothing(plugins: Path, tony: Tony) -> None:
    tony("azkaban", "install", "--plugin-dir", str(plugins))
    home = plugins / "tony"
    (home / "site.properties").write_text("quues=ml\n")
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    done = tony("azkaban", "upgrade", "--plugin-dir", str(plugins))
    assert done.code == 1
    assert f"{home}/site.properties:1: quues" in done.err
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before
    assert names(plugins.parent) == ["jobtypes"]


def test_removed(plugins: Path, tony: Tony) -> None:
    tony("azkaban", "install", "--plugin-dir", str(plugins))
    assert tony("azkaban", "remove", "--plugin-dir", str(plugins)).code == 0
    assert names(plugins) == ["common.properties", "spark"]
    assert names(plugins.parent) == ["jobtypes"]
    assert "is not there" in tony("azkaban", "remove", "--plugin-dir", str(plugins)).err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")
def test_root_tries_it_as_the_plugins_owner(plugins: Path, tony: Tony, tmp_path: Path) -> None:
    """An interpreter in a user's home, that the server's user cannot reach."""
    hidden = tmp_path / "private" / "python"
    hidden.parent.mkdir(mode=0o700)
    hidden.symlink_to(sys.executable)
    for path in (plugins, plugins.parent):
        os.chown(path, 65534, 65534)
    done = tony("azkaban", "install", "--plugin-dir", str(plugins), "--python", str(hidden))
    assert done.code == 1
    assert "cannot run the job type's program" in done.err
    assert names(plugins) == ["common.properties", "spark"]
