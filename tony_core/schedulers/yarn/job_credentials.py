"""What a job brings its processes besides files: small, secret, and not in any file system.

A container's launch context carries credentials, which YARN hands over in a file that only the
container's user may read. They hold tokens (Hadoop's business) and *secrets*, named bytes; a
parcel is some of these:

========================  ===========================================================
``tony.secret``           the job's secret, by which master and executors trust each other
``tony.job``              for the master: the job and all it must know (:class:`MasterParcel`)
``tony.site``             for executors: how to find a next master (:class:`ExecutorParcel`)
========================  ===========================================================

So nothing but content has to be uploaded for a job. One whose description is longer than
:data:`LARGEST` bytes (packed) brings it as the file ``tony-job.parcel`` instead, readable by its
owner alone: the ResourceManager keeps every launch context in memory and in its state store.

Runs on the nodes' Python (3.8), standard library only. What every executor needs of it at its start
stands in ``secretfile.py``.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from tony_core.dataclass import dataclass, field
from tony_core.jsontext import read_object
from tony_core.schedulers.yarn.node.secretfile import SECRET as SECRET
from tony_core.schedulers.yarn.node.secretfile import SITE as SITE
from tony_core.schedulers.yarn.node.secretfile import ParcelError as ParcelError
from tony_core.schedulers.yarn.node.secretfile import read_secrets as read_secrets

JOB = "tony.job"

FILE = "tony-job.parcel"
"""The name, in the master's container, of a job that is too long for the credentials."""

LARGEST = 200 * 1024
_MOST_UNPACKED = 256 << 20  # nobody's job; only a broken one


@dataclass(frozen=True)
class MasterParcel:
    """All that a master must know, as the client found it out."""

    job: str = field(repr=False)  # job.json; masks nothing
    artifacts: Sequence[Mapping[str, Any]]  # Artifact.to_json of each
    config: str  # tony-final.xml, masked
    site: Mapping[str, str]  # what tony_core.schedulers.yarn.site picked
    user: str
    root: str  # the staging root
    history_root: str

    def encode(self) -> bytes:
        """Packed."""
        return _pack(
            {
                "job": self.job,
                "artifacts": [dict(item) for item in self.artifacts],
                "config": self.config,
                "site": dict(self.site),
                "user": self.user,
                "root": self.root,
                "history_root": self.history_root,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> MasterParcel:
        """What :meth:`encode` packed."""
        told = _unpack(data, JOB)
        try:
            return cls(
                job=_text(told, "job"),
                artifacts=_objects(told, "artifacts"),
                config=_text(told, "config"),
                site=_texts(told, "site"),
                user=_text(told, "user"),
                root=_text(told, "root"),
                history_root=_text(told, "history_root"),
            )
        except KeyError as error:
            raise ParcelError(f"the job's description lacks {error}") from None


@dataclass(frozen=True)
class ExecutorParcel:
    """How an executor finds the next master when it has lost the one it had."""

    site: Mapping[str, str]
    user: str
    state_dir: str  # where master.json stands

    def encode(self) -> bytes:
        """Packed."""
        return _pack({"site": dict(self.site), "user": self.user, "state_dir": self.state_dir})

    @classmethod
    def decode(cls, data: bytes) -> ExecutorParcel:
        """What :meth:`encode` packed."""
        told = _unpack(data, SITE)
        try:
            return cls(_texts(told, "site"), _text(told, "user"), _text(told, "state_dir"))
        except KeyError as error:
            raise ParcelError(f"the site's description lacks {error}") from None


def for_master(
    secret: bytes, parcel: MasterParcel, largest: int = LARGEST
) -> Tuple[Dict[str, bytes], Optional[bytes]]:
    """The secrets of a master's credentials, and what has to travel as :data:`FILE` instead."""
    packed = parcel.encode()
    if len(packed) > largest:
        return {SECRET: secret}, packed
    return {SECRET: secret, JOB: packed}, None


def for_executor(secret: bytes, parcel: ExecutorParcel) -> Dict[str, bytes]:
    """The secrets of an executor's credentials."""
    return {SECRET: secret, SITE: parcel.encode()}


def master_parcel(secrets: Mapping[str, bytes], folder: str = os.curdir) -> MasterParcel:
    """What this master was given, in its credentials or as a file in its container's folder."""
    packed = secrets.get(JOB)
    if packed is None:
        try:
            with open(os.path.join(folder, FILE), "rb") as stream:
                packed = stream.read()
        except FileNotFoundError:
            raise ParcelError(
                f"this container has no job: neither {JOB} in its credentials nor {FILE}"
            ) from None
    return MasterParcel.decode(packed)


def executor_parcel(secrets: Mapping[str, bytes]) -> ExecutorParcel:
    """What this executor was given."""
    if SITE not in secrets:
        raise ParcelError(f"this container's credentials hold no {SITE}")
    return ExecutorParcel.decode(secrets[SITE])


def _pack(told: Mapping[str, Any]) -> bytes:
    text = json.dumps(told, separators=(",", ":"), sort_keys=True)
    return zlib.compress(text.encode(), 6)


def _unpack(data: bytes, what: str) -> Dict[str, Any]:
    try:
        reader = zlib.decompressobj()
        return read_object(reader.decompress(data, _MOST_UNPACKED))
    except (zlib.error, ValueError) as error:
        raise ParcelError(f"{what} cannot be read: {error}") from None


def _text(told: Mapping[str, Any], name: str) -> str:
    if not isinstance(told[name], str):
        raise ParcelError(f"{name} of the description is no text")
    return str(told[name])


def _texts(told: Mapping[str, Any], name: str) -> Dict[str, str]:
    found = told[name]
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ParcelError(f"{name} of the description holds more than texts")
    return found


def _objects(told: Mapping[str, Any], name: str) -> Tuple[Mapping[str, Any], ...]:
    found = told[name]
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ParcelError(f"{name} of the description is no list of objects")
    return tuple(found)
