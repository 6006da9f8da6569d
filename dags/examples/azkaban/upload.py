#!/usr/bin/env python3
"""Zips a folder of job files, uploads it to an Azkaban server and, if asked, runs a flow of it.

    export AZKABAN_PASSWORD=...
    python upload.py first --server http://localhost:8081 --user me --run first-training
    python upload.py retraining --with ../retraining/programs --project retraining

It creates the project if there is none of that name. It needs the standard library only, and
nothing of TonY; other programs may use :class:`Server`.
"""

from __future__ import annotations

import argparse
import getpass
import io
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

ENDED = ("SUCCEEDED", "FAILED", "KILLED")
"""The final states of an execution."""

ANSWER_S = 60
"""The seconds that the server has for an answer."""


class AzkabanError(Exception):
    """The server refused, or did not answer."""


class Server:
    """One server's API, as one of its users."""

    def __init__(self, url: str, user: str, password: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise AzkabanError(f"{url!r} is not a server's address: expected http://HOST:PORT")
        self.url = url.rstrip("/")
        self._session = ""
        answer = self._request("/", action="login", username=user, password=password)
        self._session = str(answer["session.id"])

    def create(self, project: str, description: str = "by upload.py") -> bool:
        """Create a project; False if there is one of this name."""
        try:
            self._request("/manager", action="create", name=project, description=description)
        except AzkabanError as error:
            if "exists" in str(error):
                return False
            raise
        return True

    def upload(self, project: str, archive: bytes) -> None:
        """Upload the project's next version: a zip of all its files."""
        border = uuid.uuid4().hex
        parts = []
        for name, value in {
            "session.id": self._session,
            "ajax": "upload",
            "project": project,
        }.items():
            head = f'Content-Disposition: form-data; name="{name}"'
            parts.append(f"--{border}\r\n{head}\r\n\r\n{value}\r\n".encode())
        head = 'Content-Disposition: form-data; name="file"; filename="project.zip"'
        head += "\r\nContent-Type: application/zip"
        parts += [f"--{border}\r\n{head}\r\n\r\n".encode(), archive, b"\r\n"]
        parts.append(f"--{border}--\r\n".encode())
        self._send("/manager", b"".join(parts), f"multipart/form-data; boundary={border}")

    def flows(self, project: str) -> List[str]:
        """The names of a project's flows."""
        answer = self._request("/manager", get=True, ajax="fetchprojectflows", project=project)
        return sorted(flow["flowId"] for flow in answer["flows"])

    def run(self, project: str, flow: str, settings: Optional[Mapping[str, str]] = None) -> int:
        """Start a flow; the execution's number. ``settings`` override shared properties."""
        over = {f"flowOverride[{key}]": value for key, value in (settings or {}).items()}
        more = {"concurrentOption": "ignore", **over}
        answer = self._request("/executor", ajax="executeFlow", project=project, flow=flow, **more)
        return int(answer["execid"])

    def execution(self, execid: int) -> Dict[str, Any]:
        """The flow and its jobs (``nodes``), each with ``id`` and ``status``."""
        return self._request("/executor", get=True, ajax="fetchexecflow", execid=str(execid))

    def state(self, execid: int) -> str:
        """The state of the whole flow."""
        return str(self.execution(execid)["status"])

    def job_states(self, execid: int) -> Dict[str, str]:
        """The state of each job."""
        return {node["id"]: node["status"] for node in self.execution(execid)["nodes"]}

    def log(self, execid: int, job: str, attempt: int = 0) -> str:
        """The log of a job so far."""
        text, offset = "", 0
        while True:
            answer = self._request(
                "/executor",
                get=True,
                ajax="fetchExecJobLogs",
                execid=str(execid),
                jobId=job,
                offset=str(offset),
                length="50000",
                attempt=str(attempt),
            )
            if not answer.get("length"):
                return text
            text += answer["data"]
            offset = int(answer["offset"]) + int(answer["length"])

    def cancel(self, execid: int) -> None:
        """End a running flow."""
        self._request("/executor", get=True, ajax="cancelFlow", execid=str(execid))

    def job_page(self, execid: int, job: str) -> str:
        """The address where a browser shows the job's log."""
        return f"{self.url}/executor?{urllib.parse.urlencode({'execid': execid, 'job': job})}"

    # ------------------------------------------------------------------ requests

    def _request(self, path: str, get: bool = False, **parameters: str) -> Dict[str, Any]:
        if self._session:
            parameters["session.id"] = self._session
        text = urllib.parse.urlencode(parameters)
        if get:
            return self._send(f"{path}?{text}")
        return self._send(path, text.encode(), "application/x-www-form-urlencoded")

    def _send(self, path: str, body: Optional[bytes] = None, kind: str = "") -> Dict[str, Any]:
        request = urllib.request.Request(self.url + path, data=body)  # noqa: S310
        request.add_header("X-Requested-With", "XMLHttpRequest")
        if kind:
            request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as response:  # noqa: S310
                text = response.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            with error:
                raise AzkabanError(f"{self.url} answered {error.code} {error.reason}") from None
        except OSError as error:
            raise AzkabanError(f"{self.url} does not answer: {error}") from None
        try:
            answer = json.loads(text) if text.strip() else {}
        except ValueError:
            raise AzkabanError(f"{self.url} is not an Azkaban server: {text[:200]!r}") from None
        wrong = answer.get("error") or (answer.get("status") == "error" and answer.get("message"))
        if wrong:
            raise AzkabanError(str(wrong))
        return dict(answer)


def pack(folders: Iterable[Path]) -> bytes:
    """A zip of the folders' contents; of two files with one name, the last folder's counts."""
    files: Dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise AzkabanError(f"{folder} is not a folder")
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and "__pycache__" not in name.parts:
                files[name.as_posix()] = path
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            archive.write(path, name)
    return content.getvalue()


def main(arguments: Optional[List[str]] = None) -> int:
    """The exit code: 0 for success, else 1."""
    options = _parser().parse_args(arguments)
    try:
        return _upload(options)
    except AzkabanError as error:
        print(f"upload: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder with the flow's files")
    parser.add_argument(
        "--with",
        dest="more",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="another folder whose files to add",
    )
    parser.add_argument("--server", default="http://localhost:8081", help="(default: %(default)s)")
    parser.add_argument("--user", default=getpass.getuser(), help="(default: %(default)s)")
    parser.add_argument("--project", help="its name on the server (default: the folder's)")
    parser.add_argument("--run", metavar="FLOW", help="start this flow")
    parser.add_argument(
        "--set",
        dest="settings",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property for that run, over the shared ones",
    )
    parser.add_argument("--wait", action="store_true", help="wait for the end of the flow")
    return parser


def _setting(text: str) -> Tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key and separator):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _password() -> str:
    """The password, which is no option, since all users of the machine see a command line."""
    password = os.environ.get("AZKABAN_PASSWORD")
    if password:
        return password
    if not sys.stdin.isatty():
        # Without a terminal getpass would read standard input, and show the password.
        raise AzkabanError("no password: export AZKABAN_PASSWORD, or run this in a terminal")
    try:
        return getpass.getpass("Password: ")
    except EOFError:
        raise AzkabanError("the password is empty") from None


def _upload(options: argparse.Namespace) -> int:
    archive = pack([options.folder, *options.more])
    server = Server(options.server, options.user, _password())
    project = options.project or options.folder.resolve().name
    server.create(project)
    server.upload(project, archive)
    print(f"{server.url}/manager?{urllib.parse.urlencode({'project': project})}")
    if not options.run:
        return 0
    execid = server.run(project, options.run, dict(options.settings))
    print(f"{server.url}/executor?execid={execid}")
    if not options.wait:
        return 0
    while server.state(execid) not in ENDED:
        time.sleep(1)
    for job, state in server.job_states(execid).items():
        print(f"{job}: {state}")
    return 0 if server.state(execid) == "SUCCEEDED" else 1


if __name__ == "__main__":
    sys.exit(main())
