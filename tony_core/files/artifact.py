"""Artifacts: files, folders and archives that travel to the containers, named by their content."""

from __future__ import annotations

from enum import Enum
from typing import Any, Dict, Mapping, NamedTuple, Optional


class Kind(str, Enum):
    """The form of an artifact in the container's folder."""

    FILE = "file"
    FOLDER = "folder"  # staged as a tree of its own, with exec bits, symlinks, empty folders
    ARCHIVE = "archive"  # unpacked into a folder of the artifact's name


class Use(str, Enum):
    """The purpose of an artifact; it decides where a task finds it."""

    RUNTIME = "runtime"  # our own code
    SOURCE = "source"  # its content becomes the program's working folder
    VENV = "venv"
    RESOURCE = "resource"  # stands under its name in the working folder
    CLASSPATH = "classpath"
    JOB = "job"  # job.json and what else the master alone reads


class Artifact(NamedTuple):
    """A file, folder or archive: its source, its URI once staged, and what it is for.

    ``digest`` is empty for a remote file that is used where it is. ``roles`` empty means
    every task; ``am`` stands for the master.
    """

    name: str
    use: Use
    kind: Kind
    source: str  # the user's path or URL
    uri: str  # where containers get it
    digest: str = ""
    size: int = 0
    mtime_ms: int = 0
    roles: tuple[str, ...] = ()

    def wanted_by(self, role: str) -> bool:
        """Whether a task of that role gets it."""
        return not self.roles or role in self.roles

    def to_json(self) -> Dict[str, Any]:
        plain = {"use": self.use.value, "kind": self.kind.value, "roles": list(self.roles)}
        return {**self._asdict(), **plain}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Artifact:
        return cls(
            name=data["name"],
            use=Use(data["use"]),
            kind=Kind(data["kind"]),
            source=data["source"],
            uri=data["uri"],
            digest=data.get("digest", ""),
            size=int(data.get("size", 0)),
            mtime_ms=int(data.get("mtime_ms", 0)),
            roles=tuple(data.get("roles", ())),
        )


def find(artifacts: tuple[Artifact, ...], use: Use) -> Optional[Artifact]:
    return next((item for item in artifacts if item.use is use), None)
