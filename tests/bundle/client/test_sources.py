"""What of a job's Hadoop travels, and under which names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundle.jobs import job, ref
from tony_core.bundle.client import planning
from tony_core.bundle.client.sources import HADOOP_CONF_PREFIX, HADOOP_NAME
from tony_core.files.artifact import Kind, Use
from tony_core.job.spec import Hadoop
from tony_executor.launch import hadoop_classpath, working_folder


def test_the_jobs_own_hadoop_stands_where_executors_look(tmp_path: Path) -> None:
    (tmp_path / "hadoop" / "bin").mkdir(parents=True)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "yarn-site.xml").write_text("<configuration/>")
    (tmp_path / "hdfs.xml").write_text("<configuration/>")
    hadoop = Hadoop(
        location=str(tmp_path / "hadoop"),
        hdfs_conf=str(tmp_path / "hdfs.xml"),
        yarn_conf=str(tmp_path / "conf"),
    )
    plan = planning.plan(job().replace(hadoop=hadoop), str(tmp_path / "root"))
    assert plan.problems == []
    found = {item.name: (item.kind, item.use) for item in plan.artifacts}
    assert found.pop("tony-runtime")
    assert found == {
        ".tony-hadoop": (Kind.FOLDER, Use.RESOURCE),
        ".tony-conf-hdfs": (Kind.FILE, Use.RESOURCE),
        ".tony-conf-yarn": (Kind.FOLDER, Use.RESOURCE),
    }
    assert (HADOOP_NAME, HADOOP_CONF_PREFIX) == (
        hadoop_classpath.ARCHIVE,
        hadoop_classpath.CONF_PREFIX,
    )
    assert all(name.startswith(working_folder.OWN_PREFIXES) for name in found)


@pytest.mark.parametrize("name", [".tony-hadoop", ".tony-secret", "session-1"])
def test_names_of_ours_are_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / "f").write_text("")
    plan = planning.plan(job(files=(ref(tmp_path / "f", name),)), str(tmp_path / "root"))
    assert "is reserved by TonY" in str(plan.problems)
