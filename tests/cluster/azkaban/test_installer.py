"""``tony azkaban install`` on a real server, which starts whatever becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Dict

import pytest

from tests.cluster.azkaban.fixture import Servers
from tests.cluster.azkaban.flows import Flows
from tests.cluster.azkaban.installing import tony_azkaban, tony_words
from tests.cluster.azkaban.server import Azkaban

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def files_in(folder: Path) -> Dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_install_upgrade_remove(azkaban_servers: Servers, tmp_path: Path) -> None:
    with Azkaban.up(tmp_path / "server", jars=azkaban_servers.jars) as server:
        flows = Flows(server, tmp_path / "flows")
        where = ("--plugin-dir", str(server.plugins))
        other = server.plugins / "other"  # another job type, which stays as it is
        other.mkdir()
        (other / "private.properties").write_text("jobtype.class=azkaban.jobExecutor.ProcessJob\n")
        before = files_in(server.plugins)

        # What cannot work is refused, and nothing has changed.
        for wrong in ("/nonexistent/python", "/bin/false"):
            refused = tony_words("azkaban", "install", *where, "--python", wrong)
            assert refused.returncode == 2 or refused.returncode == 1, refused
            assert wrong in refused.stderr and "Traceback" not in refused.stderr
            assert files_in(server.plugins) == before

        tony_azkaban("install", *where)
        server.restart()
        flows.client = server.client()
        assert flows.one("true").ends().app_id().startswith("local_")

        # The administrator says something; it stays over an upgrade, and counts.
        site = server.plugins / "tony" / "site.properties"
        site.write_text(site.read_text() + "final.tony.worker.vcores=1\nqueues=default\n")
        tony_azkaban("upgrade", *where)
        assert "queues=default" in site.read_text()
        server.restart()
        flows.client = server.client()
        project = flows.upload(
            {
                "queue.job": flows.job("true", **{"tony.yarn.queue": "secret"}),
                "cores.job": flows.job("true", **{"tony.worker.vcores": 2}),
                "good.job": flows.job("true"),
                "all.job": {"type": "noop", "dependencies": "queue,cores,good"},
            }
        )
        run = flows.run(project, "all").ends("FAILED")
        states = run.jobs()
        assert (states["queue"], states["cores"]) == ("FAILED", "FAILED")
        assert states["good"] == "SUCCEEDED", run.story()
        assert "secret" in run.log("queue") and "final" in run.log("cores")

        # A broken upgrade changes nothing; a second removal says that there is nothing.
        installed = files_in(server.plugins)
        refused = tony_words("azkaban", "upgrade", *where, "--python", "/bin/false")
        assert refused.returncode and files_in(server.plugins) == installed
        tony_azkaban("remove", *where)
        assert files_in(server.plugins) == before
        assert tony_words("azkaban", "remove", *where).returncode == 2
        server.restart()
        flows.client = server.client()
        run = flows.one("true").ends("FAILED")
        assert "tony" in run.log()
        assert flows.start({"a.job": {"type": "command", "command": "true"}}, "a").ends()
