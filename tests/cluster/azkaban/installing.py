"""The command line beside a server: the job type into its folder, and questions about jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Optional

from tests.cluster.azkaban.server import Azkaban
from tests.cluster.hadoop.jars import SandboxError

CHECKOUT = Path(__file__).resolve().parents[3]
PATHS = os.pathsep.join(
    str(CHECKOUT / part) for part in (".", "executor", "plugins/azkaban", "program")
)

COMMAND_S = 120
"""What it gets on a machine with much else to do."""


def tony_words(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line, by this interpreter and of this checkout."""
    return subprocess.run(
        [sys.executable, "-m", "tony_core.cli.main", *words],
        env={**os.environ, "PYTHONPATH": PATHS, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )


def tony_azkaban(*words: str, **environment: str) -> str:
    """``tony azkaban WORDS``, which must go well; what it says."""
    done = tony_words("azkaban", *words, **environment)
    if done.returncode:
        raise SandboxError(f"tony azkaban {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def installer(hadoop_conf: Optional[Path] = None) -> Callable[[Azkaban], None]:
    """What installs the job type for a cluster, or else for the embedded scheduler."""

    def install(server: Azkaban) -> None:
        words = ["--plugin-dir", str(server.plugins), "--server-url", server.url]
        if hadoop_conf:
            words += ["--hadoop-conf-dir", str(hadoop_conf)]
        tony_azkaban("install", *words)

    return install
