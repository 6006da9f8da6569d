"""Jobs on clusters whose web servers speak HTTPS only, with certificates of the site's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Callable, Tuple

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony
from tony_core.hadoop.site.certificates import CA_FILE

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]

READS = """
import os, sys
import tony
assert "SSL_CERT_FILE" not in os.environ
kept = tony.checkpoints(sys.argv[1])
kept.save(1, b"over TLS")
print("kept", kept.latest()[0])
"""


def trust(tony: Tony, cluster: Hadoop) -> None:
    """Its commands trust the cluster by the site's configuration, and by nothing else."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        tony.env.pop(name, None)
    properties = {CA_FILE: str(cluster.authority)}
    tony.env["TONY_HADOOP"] = json.dumps({"properties": properties, "source": "the test"})


@pytest.mark.parametrize("features", [("https",), ("secure", "https")], ids=["open", "secure"])
def test_a_job_and_its_logs(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], features: Tuple[str, ...], tmp_path: Path
) -> None:
    cluster = hadoop(*features)
    one = tony_on(cluster)
    trust(one, cluster)
    src = tmp_path / "src"
    src.mkdir()
    (src / "reads.py").write_text(READS)
    where = f"hdfs:///user/{cluster.user}/kept-{os.getpid()}"
    conf = {"tony.worker.instances": 1, "tony.worker.memory": "128m"}
    job = one.submit("--src_dir", str(src), "--executes", f"python3 reads.py {where}", conf=conf)
    output = job.ends(0)
    assert "kept 1" in one("logs", job.app_id).stdout, output
    assert one.json("status", job.app_id)["state"] == "SUCCEEDED"


@pytest.mark.parametrize("features", [("secure", "https")], ids=["secure"])
def test_the_page_while_it_runs(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], features: Tuple[str, ...], tmp_path: Path
) -> None:
    cluster = hadoop(*features)
    one = tony_on(cluster)
    trust(one, cluster)
    conf = {"tony.worker.instances": 1, "tony.worker.memory": "128m"}
    job = one.submit("--executes", "echo begun; sleep 300", conf=conf)
    job.until(lambda: "begun" in one("logs", job.app_id, check=False).stdout, "the first line")
    shown = one.json("status", job.app_id)
    assert shown["source"] == "page", shown
    one("kill", job.app_id)


def test_without_the_authorities_an_error_names_the_key(
    hadoop: GetHadoop, tony_on: Callable[..., Tony]
) -> None:
    cluster = hadoop("secure", "https")
    one = tony_on(cluster)
    trust(one, cluster)
    del one.env["TONY_HADOOP"]
    done = one("submit", "--executes", "true", check=False)
    assert done.returncode != 0
    assert f"its certificate is not trusted here; SSL_CERT_FILE, or {CA_FILE}" in done.stderr
