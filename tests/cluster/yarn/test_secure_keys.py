"""Where the keys of a job lie on a cluster with Kerberos: in its token files and nowhere else.

A whole job with a checkpoint and history, which ships its owner's keytab. While it runs, and when
it has ended, every file of the cluster is searched (HDFS's blocks and the nodes' folders among
them), and what every process had on its command line and in its environment, and what TonY's
commands printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Set

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Tony, until
from tests.key_material import (
    KeySearch,
    files_with_keys,
    keys_of_credentials,
    keys_of_keytab,
)
from tony_core.schedulers.yarn.node.start import SECRET_FILE, TOKEN_FILE

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]

YARNS = re.compile(r"(container_tokens|container_\w+\.tokens)")
"""The token files that NodeManagers write."""

OURS = (SECRET_FILE, TOKEN_FILE)
HEADERS = re.compile(rb"hadoop\.auth=\S|Negotiate [A-Za-z0-9+/]{16}|delegation=[A-Za-z0-9_-]{16}")
"""What lets in who has it, in an address or a header."""

REQUESTS = re.compile(rb"(?m)^.* INFO (?:requests\.namenode|datanode\.webhdfs): .*$")
"""HDFS's log of the requests to its web servers. WebHDFS takes a token in the address only, and its
servers log addresses, of Java clients too."""

PROGRAM = """
import os, time
import tony
saved = tony.checkpoints(os.environ["PLACE"])
saved.save(1, b"weights")
print("saved", flush=True)
while not os.path.exists(os.environ["OVER"]):
    time.sleep(0.1)
assert saved.latest()[0] == 1
"""


class Watch:
    """Collects the keys of all containers, and what every process shows of itself."""

    def __init__(self, cluster: Hadoop, folder: Path) -> None:
        self._nodes = cluster.folder / "data"
        self._folders = (os.fsencode(cluster.folder), os.fsencode(folder))
        self.keys: Dict[str, bytes] = {}
        self.shown: Dict[bytes, str] = {}
        self.modes: Dict[str, Set[str]] = {}
        self.shipped: Set[str] = set()  # the containers that have the keytab
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.1):
            for node in self._nodes.glob("nm*/local"):
                for parent, _, names in os.walk(node):  # which goes on where a folder is removed
                    for name in names:
                        with contextlib.suppress(OSError):
                            self._collect_keys(Path(parent, name))
            for process in Path("/proc").iterdir():
                if process.name.isdigit() and int(process.name) != os.getpid():
                    with contextlib.suppress(OSError):
                        self._collect_texts(process)

    def _collect_keys(self, path: Path) -> None:
        if path.name in OURS or YARNS.fullmatch(path.name):
            mode = oct(stat.S_IMODE(path.stat().st_mode))
            self.modes.setdefault(YARNS.sub("YARN's", path.name), set()).add(mode)
            found = keys_of_credentials(path.read_bytes())
            self.keys.update(found)
            if any("keytab" in name for name in found):
                self.shipped.update(re.findall(r"container_\d+_\d+_\d\d_\d{6}", str(path)))

    def _collect_texts(self, process: Path) -> None:
        words = (process / "cmdline").read_bytes()
        variables = (process / "environ").read_bytes()
        if any(folder in words + variables for folder in self._folders):
            first = words[:200].replace(b"\0", b" ").decode(errors="replace")
            self.shown.setdefault(words, f"the command line of {first}")
            self.shown.setdefault(variables, f"the environment of {first}")


def may_have_keys(keytabs: Path) -> Callable[[Path, int], bool]:
    """Whether a file, by its path and mode, is one that holds keys."""

    def may(path: Path, mode: int) -> bool:
        ours = path.name in OURS or path.parent == keytabs
        return bool(YARNS.fullmatch(path.name)) or (ours and mode == 0o600)

    return may


def modes_below(cluster: Hadoop, path: str) -> Mapping[str, str]:
    """Type and permission of everything below a folder of HDFS, as its superuser sees it."""
    found = {}
    for name, one in cluster.hdfs.list(path).items():
        found[f"{path}/{name}"] = f"{one['type'][0]}{one['permission']}"
        if one["type"] == "DIRECTORY":
            found.update(modes_below(cluster, f"{path}/{name}"))
    return found


def test_keys_are_in_token_files_only(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    cluster = hadoop("secure", "log_aggregation", "node_kerberos")
    one = tony_on(cluster)
    one.env.update(cluster.environment_of("ann"))
    one.command.append("--debug")
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM)
    over = tmp_path / "over"
    place = "hdfs:///user/ann/keys/checkpoints"
    words = ("--executes", "python3 train.py", "--src_dir", str(source))
    settings: Mapping[str, Any] = {
        "tony.application.framework": "mpi",
        "tony.worker.instances": "2",
        "tony.execution.env.PLACE": place,
        "tony.execution.env.OVER": str(over),
        "tony.kerberos.principal": "ann@SANDBOX.EXAMPLE",
        "tony.kerberos.keytab": str(cluster.keytab_of("ann")),
        "tony.kerberos.ship-keytab": "true",
    }
    spelt = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    printed = [
        one("submit", "--dry-run", *spelt, *words),
        one("submit", "--dry-run", "--json", *spelt, *words),
    ]
    with Watch(cluster, tmp_path) as watch:
        job = one.submit(*words, conf=settings)
        job.until(lambda: "keys" in cluster.hdfs_of("ann").list("/user/ann"), "a checkpoint")
        job.until(lambda: "running" in one("status", job.app_id).stdout, "its status")
        state = modes_below(cluster, "/user/ann/.tony")
        for verb in ("status", "describe", "list", "logs"):
            which = () if verb == "list" else (job.app_id,)
            printed.append(one(verb, *which, check=False))
            if verb != "logs":
                printed.append(one(verb, "--json", *which))
        keytabs = cluster.kerberos.folder / "keytabs"
        may = may_have_keys(keytabs)
        for path in keytabs.iterdir():
            watch.keys.update(keys_of_keytab(path.read_bytes()))
        running = list(files_with_keys(KeySearch(dict(watch.keys)), [cluster.folder]))
        over.touch()
        job.ends(0)
    for verb in ("logs", "history show", "status", "describe"):
        printed.append(one(verb, job.app_id, check=False))
    printed.append(one("history show", "--config", job.app_id))
    printed.append(one("history show", "--json", job.app_id))
    until(one.nothing_runs, "no process is left on any node")
    until(lambda: modes_below(cluster, "/app-logs/ann"), "the aggregated logs")

    # The search knows of the keys that it has to find.
    assert {"key", "password", "the"} == {name.split()[0] for name in watch.keys}
    assert any("HDFS_DELEGATION_TOKEN" in name for name in watch.keys), sorted(watch.keys)
    shown = " ".join(watch.shown.values())
    assert "yarn-start master" in shown and "yarn-start executor" in shown and "train.py" in shown
    assert any("TLS key" in name for name in watch.keys), sorted(watch.keys)
    assert any("keytab" in name for name in watch.keys), sorted(watch.keys)
    masters = {name for name in watch.shipped if name.endswith("_000001")}
    assert masters == watch.shipped and len(masters) == 1, watch.shipped
    assert {YARNS.sub("YARN's", file.path.name) for file in running} >= {"YARN's", *OURS}
    assert watch.modes[SECRET_FILE] == watch.modes[TOKEN_FILE] == {"0o600"}, watch.modes

    search = KeySearch(watch.keys)
    ended = files_with_keys(search, [cluster.folder, tmp_path])
    for when, found in (("while it ran", running), ("at its end", ended)):
        wrong = [
            file
            for file in found
            if not may(file.path, file.mode)
            and search.find(REQUESTS.sub(b"", file.path.read_bytes()))
        ]
        assert not wrong, (when, wrong)
    for text, where in watch.shown.items():
        assert search.find(text) == [], where
        assert not HEADERS.search(text), where
    for done in (*printed, job.output_text):
        text = (done if isinstance(done, str) else done.stdout + done.stderr).encode()
        assert search.find(text) == [], text
        assert not HEADERS.search(text), text

    # All of it is behind a folder of its owner's.
    folder = cluster.hdfs.status("/user/ann/.tony")
    assert (folder["permission"], folder["owner"]) == ("700", "ann"), folder
    files = {path.rsplit("/", 1)[1]: mode for path, mode in state.items()}
    assert files["master.json"] == "F600", state
    assert {mode for path, mode in state.items() if "/apps/" in path} <= {"F600", "D700"}, state
    history = modes_below(cluster, "/user/ann/.tony/history")
    assert history and set(history.values()) <= {"F600", "D700"}, history
