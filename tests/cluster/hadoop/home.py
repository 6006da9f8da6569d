"""What an installation of Hadoop has below HADOOP_HOME, as far as pipelines ask for it.

The jars of a cluster come from Maven, where there are no scripts. ``bin/hadoop`` here knows the
verbs by which jobs are started and files looked at (``jar``, ``fs``, ``classpath``), and the jar
of Hadoop streaming lies where every distribution has it: a command line that runs on the
cluster of a company runs here unchanged.
"""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Dict, Sequence

from tests.cluster.hadoop.jars import Distribution, SandboxError
from tests.cluster.hadoop.site import Properties

CLIENT_HEAP_MB = 256

_TOOL = """\
#!/usr/bin/env bash
# {name} {verbs}, on the jars of this cluster.
set -euo pipefail
conf=${{HADOOP_CONF_DIR:-{conf}}}
verb=${{1:-}}
shift || true
case $verb in
{cases}
    *) echo "{name}: only these are here: {verbs}" >&2; exit 2 ;;
esac
exec {java} -classpath {jars}:"$conf" "${{main[@]}}" "$@"
"""

_TOOLS = {
    "hadoop": {
        "jar": "org.apache.hadoop.util.RunJar",
        "fs": "org.apache.hadoop.fs.FsShell",
        "classpath": "org.apache.hadoop.util.Classpath",
    },
    "yarn": {
        # It wants to hear its own name again.
        "application": "org.apache.hadoop.yarn.client.cli.ApplicationCLI application",
        "logs": "org.apache.hadoop.yarn.client.cli.LogsCLI",
    },
}


def programs(distribution: Distribution, folder: Path, more_flags: Sequence[str]) -> Dict[str, str]:
    """Those of a cluster in a folder, by their path below HADOOP_HOME."""
    flags = [f"-Djdk.net.hosts.file={folder / 'hosts'}", *more_flags]
    start = distribution.java([], "", heap_mb=CLIENT_HEAP_MB, flags=flags)
    words = start[: start.index("-classpath")]
    return {
        f"bin/{name}": _TOOL.format(
            name=name,
            verbs=", ".join(tool),
            conf=quote(str(folder / "conf")),
            cases="\n".join(f"    {verb}) main=({main}) ;;" for verb, main in tool.items()),
            java=" ".join(map(quote, words)),
            jars=quote(f"{distribution.lib}/*"),
        )
        for name, tool in _TOOLS.items()
    }


def links(distribution: Distribution) -> Dict[str, Path]:
    """Jars at the places where an installation has them."""
    streaming = distribution.jar("hadoop-streaming")
    if not streaming.is_file():  # of the newest version only, see pom.xml
        return {}
    return {f"share/hadoop/tools/lib/{streaming.name}": streaming}


def find_spark() -> Path:
    """SPARK_HOME, looked at: of a download of Spark, or of pip's pyspark."""
    text = os.environ.get("SPARK_HOME", "")
    home = Path(text).absolute()
    if not text or not (home / "bin" / "spark-submit").is_file():
        found = f"{text} has no bin/spark-submit" if text else "it is not set"
        raise SandboxError(
            f"the feature spark needs SPARK_HOME; {found}. A Spark for it: pip install"
            " 'pyspark>=4.0,<4.1', then export SPARK_HOME=$(python3 -c"
            " 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')"
        )
    return home


def spark_defaults(home: Path, options: str) -> Properties:
    """spark-defaults.conf: small, and with the jars where they lie, so that none is sent."""
    settings = {
        "spark.master": "yarn",
        "spark.yarn.jars": f"local:{home}/jars/*",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "1",
        "spark.sql.shuffle.partitions": "2",
        # What makes large queries fast makes small ones slow.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        # The driver gets ready while its executors start.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.eventLog.enabled": "false",
    }
    for who in ("driver", "executor"):
        settings[f"spark.{who}.extraJavaOptions"] = options
    return settings


def as_spark_reads(settings: Properties) -> str:
    """One setting a line."""
    return "".join(f"{name} {value}\n" for name, value in sorted(settings.items()))
