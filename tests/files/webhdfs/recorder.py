"""Record what a real WebHDFS answers, for the fast tests to play back.

    python -m tests.files.webhdfs.recorder

brings up clusters of its own and writes recorded_webhdfs.json: by name, the server that gave
the answer, its status, the headers that matter and the body. Addresses are replaced by
``{namenode}`` and ``{datanode}``, and of a stack trace the beginning is kept.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any, Dict, Mapping, Optional
from urllib.parse import quote, urlencode, urlsplit

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.web import request

RECORDED = Path(__file__).with_name("recorded_webhdfs.json")

_HEADERS = ("content-type", "location", "transfer-encoding", "connection")
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"


class Recorder:
    """One cluster's answers."""

    def __init__(self, cluster: Hadoop, into: Dict[str, Any]) -> None:
        self.cluster = cluster
        self.into = into
        self.names = urlsplit(cluster.webhdfs_url).netloc

    def request(
        self, name: str, method: str, path: str, operation: str, body: Optional[bytes] = None,
        *, at: str = "", then: str = "", user: str = "", **more: str
    ) -> None:  # fmt: skip
        """``then`` is the name of what the DataNode answers, to which the NameNode leads."""
        query = urlencode({"op": operation, "user.name": user or self.cluster.user, **more})
        url = f"http://{at or self.names}/webhdfs/v1{quote(path)}?{query}"
        status, headers, text = request(method, url)
        self.keep(name, "namenode", status, headers, text)
        if then:
            status, headers, text = request(method, headers["Location"], body)
            self.keep(then, "datanode", status, headers, text)

    def keep(
        self, name: str, server: str, status: int, headers: Mapping[str, str], body: bytes
    ) -> None:
        if name.startswith("_"):
            return
        kept = {key: value for key, value in headers.items() if key.lower() in _HEADERS}
        text = re.sub(r"((?:\\n\\tat [^\\]*){2})(?:\\n\\tat [^\\]*)*", r"\1", body.decode())
        one = {"server": server, "status": status, "headers": kept, "body": text}
        words = json.dumps(one)
        words = words.replace(self.cluster.web("dn0"), "{datanode}")
        words = words.replace(self.names, "{namenode}")
        words = re.sub(r"namenoderpcaddress=[^&\"\\]*", "namenoderpcaddress=sandbox", words)
        self.into[name] = json.loads(words.replace(self.cluster.default_fs, "hdfs://sandbox"))
        print(status, name, text[:100])


def ordinary(record: Recorder) -> None:
    """What every client meets."""
    request, cluster = record.request, record.cluster
    request("mkdirs", "PUT", "/w/d", "MKDIRS", permission="755")
    request("create-leads", "PUT", "/w/f", "CREATE", b"0123456789", then="created",
        permission="640", createparent="false", overwrite="false")  # fmt: skip
    request("status-file", "GET", "/w/f", "GETFILESTATUS")
    request("status-folder", "GET", "/w/d", "GETFILESTATUS")
    request("status-none", "GET", "/w/none", "GETFILESTATUS")
    request("list", "GET", "/w", "LISTSTATUS_BATCH")
    request("list-old", "GET", "/w", "LISTSTATUS")
    request("list-unknown", "GET", "/w", "LISTSTATUS_BATCH2")
    request("list-empty", "GET", "/w/d", "LISTSTATUS_BATCH")
    request("list-file", "GET", "/w/f", "LISTSTATUS_BATCH")
    request("list-none", "GET", "/w/none", "LISTSTATUS_BATCH")
    request("open-leads", "GET", "/w/f", "OPEN", then="opened", offset="0")
    request("open-behind-its-end", "GET", "/w/f", "OPEN", offset="10")
    request("_", "GET", "/w/d", "OPEN", then="open-folder")
    request("open-none", "GET", "/w/none", "OPEN")
    request("checksum-leads", "GET", "/w/f", "GETFILECHECKSUM", then="checksum")
    request("summary", "GET", "/w", "GETCONTENTSUMMARY")
    request("mkdirs-over-file", "PUT", "/w/f", "MKDIRS")
    request("_", "PUT", "/w/none/f", "CREATE", b"", then="create-no-parent", createparent="false")
    request("_", "PUT", "/w/g", "CREATE", b"", then="create-denied", user="bob")
    request("denied", "PUT", "/w/g", "MKDIRS", user="bob")
    request("bad-user", "PUT", "/w/g", "MKDIRS", user="b b")
    request("bad-name", "PUT", "/w/a:b", "MKDIRS")
    request("chmod", "PUT", "/w/f", "SETPERMISSION", permission="600")
    request("_", "PUT", "/w/g", "CREATE", b"", then="_")
    request("rename-exists", "PUT", "/w/f", "RENAME", destination="/w/g", renameoptions="NONE")
    request("rename-over-folder", "PUT", "/w/f", "RENAME", destination="/w/d",
        renameoptions="OVERWRITE")  # fmt: skip
    request("rename-nowhere", "PUT", "/w/f", "RENAME", destination="/x/y", renameoptions="NONE")
    request("rename", "PUT", "/w/f", "RENAME", destination="/w/g", renameoptions="OVERWRITE")
    request("rename-none", "PUT", "/w/f", "RENAME", destination="/w/g", renameoptions="OVERWRITE")
    request("deleted", "DELETE", "/w/g", "DELETE", recursive="true")
    request("delete-none", "DELETE", "/w/g", "DELETE", recursive="true")
    for name in cluster.names("nn"):
        if cluster.web(name) != record.names:
            request("standby", "PUT", "/w/d", "MKDIRS", at=cluster.web(name))
    request("_", "PUT", "/q", "MKDIRS")
    cluster.tool(_ADMIN, "-setQuota", "1", "/q")
    request("_", "PUT", "/q/f", "CREATE", b"", then="create-quota")
    cluster.safe_mode(True)
    request("safe-mode", "PUT", "/w/e", "MKDIRS")
    request("_", "PUT", "/w/e", "CREATE", b"", then="create-safe-mode")
    cluster.safe_mode(False)


def main() -> None:
    answers: Dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        cluster = Hadoop.up(Path(folder, "1"), ["nn_ha"])
        try:
            ordinary(Recorder(cluster, answers))
        finally:
            cluster.remove()
        cluster = Hadoop.up(Path(folder, "2"), ["no_space"])
        try:
            record = Recorder(cluster, answers)
            record.request("no-data-node", "PUT", "/f", "CREATE")
            # As when the last space goes just now: the NameNode still leads to the DataNode.
            names = urlsplit(cluster.default_fs).netloc
            query = f"op=CREATE&user.name={cluster.user}&namenoderpcaddress={names}"
            url = f"http://{cluster.web('dn0')}/webhdfs/v1/f?{query}"
            record.keep("create-no-space", "datanode", *request("PUT", url, b"x"))
        finally:
            cluster.remove()
    RECORDED.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
