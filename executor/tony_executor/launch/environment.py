"""The program's environment. Pure.

From the weakest: a small base of the container's own variables, ours for the program (report
file, the folder of ``tony.py``), then what the master sends, with shared texts put in. The
executor's private variables never reach the program, whatever sets them.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Dict, List, Mapping, Optional, Sequence

from tony_core.protocol.messages import WORKING_FOLDER, Start, shared_reference

#: At this one Python writes its stacks, once faulthandler has it (monitoring/stacks.py).
STACK_SIGNAL = int(signal.SIGRTMIN) + 10

_BASE = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HOSTNAME",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR", "KRB5CCNAME", "KRB5_CONFIG",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    # what a Hadoop client on the node needs
    "JAVA_HOME", "CLASSPATH", "CONTAINER_ID", "LOCAL_DIRS", "LOG_DIRS",
    "TONY_HDFS",
}  # fmt: skip
_BASE_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "ROCR_", "HIP_", "HADOOP_", "YARN_", "NM_")

# The executor's own: a secret's place, how to start a master, where one is.
PRIVATE = {
    "TONY_SECRET_FILE", "TONY_SUCCESSOR", "TONY_MASTER_FILE", "TONY_LOG_DIR", "TONY_NODE",
    "TONY_CONTAINER_ID", "TONY_APP_ID", "TONY_SHIM",
    "TONY_GPU_LOCKS", "TONY_TOKEN_FILE",
}  # fmt: skip
_TOKENS = "HADOOP_TOKEN_FILE_LOCATION"
_PATH = "/usr/local/bin:/usr/bin:/bin"


def base_environment(container: Mapping[str, str]) -> Dict[str, str]:
    """The variables of the container that a program gets."""
    kept = {
        name: value
        for name, value in container.items()
        if (name in _BASE or name.startswith(_BASE_PREFIXES)) and name not in PRIVATE
    }
    kept.setdefault("PATH", _PATH)
    if "TONY_TOKEN_FILE" in container:
        # A container's credentials also hold its secrets; a program gets its tokens only.
        kept.pop(_TOKENS, None)
        if container["TONY_TOKEN_FILE"]:
            kept[_TOKENS] = container["TONY_TOKEN_FILE"]
    return kept


def build_environment(
    container: Mapping[str, str],
    start: Start,
    *,
    cwd: str,
    program: str,  # the folder of tony.py
    report_file: str,
    notice_base: str = "",  # of the notices of preemptions
    files_dir: Optional[str] = None,
    venv: Optional[str] = None,
    cache_dir: Optional[str] = None,
) -> Dict[str, str]:
    """Build the program's whole environment."""
    env = base_environment(container)
    env["PYTHONUNBUFFERED"] = "1"
    shared = {**start.shared, WORKING_FOLDER: cwd}
    env.update(
        (name, _resolve_shared(value, shared))
        for name, value in start.env.items()
        if name not in PRIVATE
    )
    for name in ("MALLOC_ARENA_MAX", *start.unset):
        if name not in start.env:
            env.pop(name, None)
    # Where it runs may be elsewhere than where its variables were made.
    env["PWD"] = cwd
    env.pop("OLDPWD", None)
    env["TONY_REPORT_FILE"] = report_file
    env["TONY_PREEMPTION_FILE"] = notice_base
    if start.stall_timeout_s is not None:
        env["TONY_STACK_SIGNAL"] = str(STACK_SIGNAL)
    if cache_dir is not None:
        env["TONY_CACHE_DIR"] = cache_dir
    if files_dir is not None:
        env["TONY_FILES_DIR"] = files_dir
    theirs = env.get("PYTHONPATH", "")
    env["PYTHONPATH"] = program + (os.pathsep + theirs if theirs else "")
    if venv is not None:
        env["VIRTUAL_ENV"] = venv
        env["PATH"] = os.path.join(venv, "bin") + os.pathsep + env["PATH"]
        env.pop("PYTHONHOME", None)
    return env


def reachable_ports(start: Start, names: Sequence[str]) -> List[str]:
    """The ports of a task at which other tasks may call.

    Not TensorBoard's: the master checks who listens there. None for the only task of a job.
    """
    try:
        spec = json.loads(start.shared.get("CLUSTER_SPEC", ""))
        is_only_task = sum(len(addresses) for addresses in spec.values()) == 1
    except (ValueError, TypeError, AttributeError):
        is_only_task = False  # too long to be sent
    return [] if is_only_task else [name for name in names if name != "tensorboard"]


def _resolve_shared(value: str, shared: Mapping[str, str]) -> str:
    """Replace references to shared texts."""
    if "\x00" not in value:
        return value
    for name, text in shared.items():
        value = value.replace(shared_reference(name), text)
    return value
