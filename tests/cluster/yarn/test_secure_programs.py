"""Java and Spark in a container of a cluster with Kerberos: they read HDFS by the job's tokens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Dict

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony
from tony_core.hadoop.credentials import LOCATION

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]

HADOOP_FS = f"""
set -eu
echo by-java | $HADOOP_HOME/bin/hadoop fs -put -f - $1/java
$HADOOP_HOME/bin/hadoop fs -cat $1/java
if env -u {LOCATION} $HADOOP_HOME/bin/hadoop fs -cat $1/java; then
    echo "it is not the tokens that let it in"
    exit 9
fi
"""

SPARK = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").getOrCreate()
frame = session.createDataFrame([("by-spark",)], ["word"])
frame.write.mode("overwrite").text(sys.argv[1] + "/spark")
print(session.read.text(sys.argv[1] + "/spark").collect()[0].value)
session.stop()
"""


def run(one: Tony, words: str, variables: Dict[str, str], *more: str) -> str:
    """A job of one worker to its end, and what it printed."""
    shell = [word for item in variables.items() for word in ("--shell_env", "=".join(item))]
    job = one.submit(
        *("--src_dir", str(one.folder / "src"), "--executes", words, *shell, *more),
        conf={"tony.worker.instances": 1, "tony.worker.memory": "1g"},
    )
    job.ends(0, 200)
    return str(one("logs", job.app_id, "-t", "worker:0").stdout)


def in_container(cluster: Hadoop) -> Dict[str, str]:
    """What Hadoop's and Spark's programs want; neither a ticket nor a keytab."""
    names = ("HADOOP_HOME", "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR")
    known = {**os.environ, **cluster.client_environment}
    found = {name: known[name] for name in names if name in known}
    return {**found, "HADOOP_CONF_DIR": str(cluster.conf_dir), "KRB5CCNAME": os.devnull}


def test_hadoop_fs(hadoop: GetHadoop, tony_on: Callable[..., Tony]) -> None:
    cluster = hadoop("secure", "mapreduce")
    one = tony_on(cluster)
    (one.folder / "src").mkdir()
    (one.folder / "src" / "fs.sh").write_text(HADOOP_FS)
    place = f"hdfs:///user/{cluster.user}"
    assert "by-java" in run(one, f"bash fs.sh {place}", in_container(cluster))
    assert cluster.hdfs.get(f"/user/{cluster.user}/java") == b"by-java\n"


@pytest.mark.frameworks
def test_spark(
    hadoop: GetHadoop,
    tony_on: Callable[..., Tony],
    environment: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = environment("spark")
    spark = next(found.glob("lib/python3*/site-packages/pyspark"))
    monkeypatch.setenv("SPARK_HOME", str(spark))
    cluster = hadoop("secure", "spark")
    one = tony_on(cluster)
    (one.folder / "src").mkdir()
    (one.folder / "src" / "read.py").write_text(SPARK)
    words = f"{found / 'bin' / 'python'} read.py hdfs:///user/{cluster.user}"
    assert "by-spark" in run(one, words, in_container(cluster))
    assert "_SUCCESS" in cluster.hdfs.list(f"/user/{cluster.user}/spark")
