"""What an executor costs, which a gang's size multiplies: its imports and its memory.

``ctypes`` is not among the heavy modules: only it reaches ``prctl``, by which the executor becomes
a subreaper.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

from tests.executor.standin import CHECKOUT, SECRET, Executor, Master, make_runtime
from tony_core.hadoop.credentials import Credentials
from tony_core.protocol.job_secret import executor_key
from tony_core.protocol.messages import (
    Ended,
    Measured,
    Register,
    Shutdown,
)
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.node import start

HEAVY = {
    "asyncio", "concurrent.futures", "copy", "dataclasses", "datetime", "email", "glob", "hashlib",
    "http", "importlib.util", "inspect", "logging", "pathlib", "random", "runpy", "shutil", "ssl",
    "string", "subprocess", "tempfile", "threading", "traceback", "urllib.parse", "weakref",
    "tony_core.hadoop", "tony_core.job", "tony_core.files.port", "tony_core.files.registry",
    "tony_core.files.webhdfs.client", "tony_core.protocol.resolver",
    "tony_core.protocol.tls", "tony_core.schedulers.yarn.job_credentials",
    "tony_executor.network.pmi_relay",
}  # fmt: skip


def test_no_heavy_module_is_imported(tmp_path: Path, master: Master) -> None:
    """In a whole run as YARN starts it: guard, registration, folder, program, sweep, end."""
    runtime = make_runtime(tmp_path / "tony-runtime")
    shutil.copy(CHECKOUT / "tony_core/bundle/client/runtime_main.py", runtime / "__main__.py")
    site = job_credentials.ExecutorCredentials(
        {"fs.defaultFS": "hdfs://lake"}, "ada", "hdfs://lake/a"
    )
    key = executor_key(SECRET, "container_1700000000000_0042_01_000003")
    secrets = {
        job_credentials.SECRET: key,
        job_credentials.SITE: site.encode(),
        start.ALIAS: start.pack({}),
    }
    Credentials({}, secrets).write(str(tmp_path / "tokens"))
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "CONTAINER_ID": "container_1700000000000_0042_01_000003",
        "NM_HOST": "127.0.0.1",
        "LOG_DIRS": str(tmp_path),
        "HADOOP_TOKEN_FILE_LOCATION": str(tmp_path / "tokens"),
    }
    words = [sys.executable, "-X", "importtime", "-I", "-S", "tony-runtime/__main__.py"]
    words += ["yarn-start", "executor", "--master", master.address]
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr, subprocess.Popen(
        words, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
    ) as process:  # fmt: skip
        master.prepare()
        master.start("exit 0")
        assert master.expect(Ended).exit_code == 0
        master.send(Shutdown(0.2, "the test is over"))
        assert master.until(lambda: [process.poll()] if process.poll() is not None else []) == [0]
    lines = errors.read_text().splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.count("|") == 2}
    assert "tony_executor.shell" in imported, lines
    assert imported & HEAVY == set()


class TestCost:
    def statistics(self, pid: int) -> List[float]:
        """[RSS in MB, CPU seconds]"""
        status = Path(f"/proc/{pid}/status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return [int(rss.split()[1]) / 1024, (int(fields[11]) + int(fields[12])) / 100]

    def test_memory(self, master: Master, executor: Executor) -> None:
        master.prepare()
        master.start("sleep 300")
        master.until(lambda: len(master.received(Measured)) > 3)
        (register,) = master.received(Register)
        rss, _ = self.statistics(register.pid)
        assert rss < 16
        guard, _ = self.statistics(executor.pid)
        assert guard < rss

    def test_what_it_imports(self) -> None:
        code = (
            f"import sys; sys.path[:0] = [{str(CHECKOUT)!r}, {str(CHECKOUT / 'executor')!r}]\n"
            "import tony_executor.main, tony_executor.shell\nprint(' '.join(sys.modules))"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
        )
        loaded = set(done.stdout.split())
        heavy = {"dataclasses", "inspect", "asyncio", "hashlib", "_hashlib", "ssl", "hmac"}
        heavy |= {"logging", "argparse", "subprocess", "tempfile", "shutil"}
        assert loaded & heavy == set()
