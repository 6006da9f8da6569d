"""A job's own variables on a real server: they reach its tasks, not the program that submits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.azkaban import shared_checks, special_characters
from tests.cluster.azkaban.fixture import GetFlows

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHOWS = special_characters.SHOWS + "import time; time.sleep(3)\n"


def test_only_the_tasks_get_them(azkaban: GetFlows) -> None:
    flows = azkaban()
    variables = {"OPENSSL_CONF": "/job/evil.cnf", "LD_AUDIT": "/job/lib", "PERL5LIB": "/job"}
    ours = {"LD_LIBRARY_PATH": "/job/lib", "JAVA_HOME": "/job/jre", "PATH": "/job/bin"}
    run = flows.one(
        f"python3 show.py {','.join([*variables, *ours])}",
        files={"src/show.py": SHOWS},
        **{f"env.{name}": text for name, text in variables.items()},
        **{f"env.{name}": text for name, text in ours.items()},
        **{"ENV.PATH": "/job/bin", "env.HOME": "/job"},
    )
    app_id = run.app_id()
    environ = Path(f"/proc/{shared_checks.of_job(flows, run)}/environ").read_text()
    assert "/job" not in environ, environ
    assert f"TONY_HOME={flows.server.tony_home}" in environ
    run.ends()
    shown = special_characters.shown(flows, app_id)
    for name, text in variables.items():
        assert str(shown[name]).startswith(text), name
    assert not [name for name in ours if "/job" in str(shown[name])]
