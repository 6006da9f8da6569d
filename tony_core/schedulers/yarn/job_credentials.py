"""The secrets that a job sends to its containers in their credentials.

A container's launch context carries credentials, which YARN writes to a file that only the
container's user may read. They hold tokens of Hadoop and *secrets* (bytes by name). A job's are:

========================  ===========================================================
``tony.secret``           the job's secret, by which master and executors authenticate each other
``tony.job``              for the master: the whole job (:class:`MasterCredentials`)
``tony.site``             for executors: how to find the next master
                          (:class:`ExecutorCredentials`)
``tony.keytab``           for the master of a job that ships its keytab: keys of its owner
                          (:class:`ShippedKeytab`)
``tony.runtime``          for the same: TonY's own code, which its next master needs no token for
                          (``client/next_master.py`` writes it)
``tony.start``            environment, command and links of the container (``node/start.py``)
========================  ===========================================================

So a submit uploads only content. The ResourceManager keeps every launch context in memory and in
its state store: a job of more than :data:`LARGEST` bytes (compressed; more, where it ships its
keytab) is sent as the file :data:`JOB_FILE` instead, readable by its owner only.

The site's properties that the nodes need travel here as well, resolved by the client; so nothing
on a node reads HADOOP_CONF_DIR. All others stay with the client.

Python 3.8, standard library only.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from typing import TYPE_CHECKING, Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.jsontext import read_object
from tony_core.schedulers.yarn.node.start import SECRET as SECRET
from tony_core.schedulers.yarn.node.start import SITE as SITE
from tony_core.schedulers.yarn.node.start import JobCredentialsError as JobCredentialsError
from tony_core.schedulers.yarn.node.start import parse_credentials as parse_credentials

if TYPE_CHECKING:
    from tony_core.hadoop.site.configuration import SiteConfiguration

JOB = "tony.job"
KEYTAB = "tony.keytab"

JOB_FILE = "tony-job.parcel"
"""The name, in the master's container, of a job that is too long for the credentials."""

LARGEST = 200 * 1024
_LARGEST_UNPACKED = 256 << 20  # larger than any job: the data is damaged


class MasterCredentials(NamedTuple):
    """The job and its site, for the master."""

    job: str  # job.json, unmasked
    artifacts: Sequence[Mapping[str, Any]]  # Artifact.to_json of each
    config: str  # tony-final.xml, masked
    site: Mapping[str, str]  # select_master_properties
    user: str
    root: str  # the staging root
    history_root: str

    def __repr__(self) -> str:  # the job may hold secrets
        return f"MasterCredentials(user={self.user!r}, root={self.root!r})"

    def encode(self) -> bytes:
        """Compress for the credentials."""
        return _compress(
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
    def decode(cls, data: bytes) -> MasterCredentials:
        """Undo :meth:`encode`; raises :class:`JobCredentialsError`."""
        values = _decompress(data, JOB)
        try:
            return cls(
                job=_text(values, "job"),
                artifacts=_objects(values, "artifacts"),
                config=_text(values, "config"),
                site=_texts(values, "site"),
                user=_text(values, "user"),
                root=_text(values, "root"),
                history_root=_text(values, "history_root"),
            )
        except KeyError as error:
            raise JobCredentialsError(f"the job's description lacks {error}") from None


class ShippedKeytab(NamedTuple):
    """The keys by which a master fetches fresh tokens, and what for. In no file but credentials."""

    principal: str  # in full
    keytab: bytes  # its entries alone
    file_systems: Tuple[str, ...]  # a location of each for which the job has a token

    def __repr__(self) -> str:  # without the keys
        return f"ShippedKeytab(principal={self.principal!r}, file_systems={self.file_systems!r})"

    def encode(self) -> bytes:
        """Compress for the credentials."""
        keytab = base64.b64encode(self.keytab).decode("ascii")
        return _compress({**self._asdict(), "keytab": keytab})

    @classmethod
    def decode(cls, data: bytes) -> ShippedKeytab:
        """Undo :meth:`encode`; raises :class:`JobCredentialsError`."""
        values = _decompress(data, KEYTAB)
        try:
            found = values["file_systems"]
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise JobCredentialsError("file_systems of the keytab is not a list of texts")
            keytab = base64.b64decode(_text(values, "keytab"), validate=True)
            return cls(_text(values, "principal"), keytab, tuple(found))
        except KeyError as error:
            raise JobCredentialsError(f"the keytab's description lacks {error}") from None
        except ValueError as error:
            raise JobCredentialsError(f"the keytab cannot be read: {error}") from None


class ExecutorCredentials(NamedTuple):
    """The site and state folder by which an executor finds the next master."""

    site: Mapping[str, str]
    user: str
    state_dir: str  # holds master.json

    def encode(self) -> bytes:
        """Compress for the credentials."""
        return _compress({"site": dict(self.site), "user": self.user, "state_dir": self.state_dir})

    @classmethod
    def decode(cls, data: bytes) -> ExecutorCredentials:
        """Undo :meth:`encode`; raises :class:`JobCredentialsError`."""
        values = _decompress(data, SITE)
        try:
            return cls(_texts(values, "site"), _text(values, "user"), _text(values, "state_dir"))
        except KeyError as error:
            raise JobCredentialsError(f"the site's description lacks {error}") from None


def master_secrets(
    secret: bytes, credentials: MasterCredentials, largest: int = LARGEST
) -> Tuple[Dict[str, bytes], Optional[bytes]]:
    """The secrets of a master's credentials, and :data:`JOB_FILE`'s content if it is needed."""
    packed = credentials.encode()
    if len(packed) > largest:
        return {SECRET: secret}, packed
    return {SECRET: secret, JOB: packed}, None


def read_master_credentials(
    secrets: Mapping[str, bytes], folder: str = os.curdir
) -> MasterCredentials:
    """This master's job, from its credentials or from :data:`JOB_FILE` in its folder."""
    packed = secrets.get(JOB)
    if packed is None:
        try:
            with open(os.path.join(folder, JOB_FILE), "rb") as stream:
                packed = stream.read()
        except FileNotFoundError:
            raise JobCredentialsError(
                f"this container has no job: neither {JOB} in its credentials nor a file {JOB_FILE}"
            ) from None
    return MasterCredentials.decode(packed)


def read_shipped_keytab(secrets: Mapping[str, bytes]) -> Optional[ShippedKeytab]:
    """The keytab in a master's credentials; None for a job that ships none."""
    data = secrets.get(KEYTAB)
    return None if data is None else ShippedKeytab.decode(data)


def read_executor_credentials(secrets: Mapping[str, bytes]) -> ExecutorCredentials:
    """This executor's site properties and state folder."""
    if SITE not in secrets:
        raise JobCredentialsError(f"this container's credentials hold no {SITE}")
    return ExecutorCredentials.decode(secrets[SITE])


def _compress(values: Mapping[str, Any]) -> bytes:
    text = json.dumps(values, separators=(",", ":"), sort_keys=True)
    return zlib.compress(text.encode(), 6)


def _decompress(data: bytes, what: str) -> Dict[str, Any]:
    try:
        reader = zlib.decompressobj()
        return read_object(reader.decompress(data, _LARGEST_UNPACKED))
    except (zlib.error, ValueError) as error:
        raise JobCredentialsError(f"{what} cannot be read: {error}") from None


def _text(values: Mapping[str, Any], name: str) -> str:
    if not isinstance(values[name], str):
        raise JobCredentialsError(f"{name} of the description is not a text")
    return str(values[name])


def _texts(values: Mapping[str, Any], name: str) -> Dict[str, str]:
    found = values[name]
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise JobCredentialsError(f"{name} of the description holds a value that is not a text")
    return found


def _objects(values: Mapping[str, Any], name: str) -> Tuple[Mapping[str, Any], ...]:
    found = values[name]
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise JobCredentialsError(f"{name} of the description is not a list of objects")
    return tuple(found)


_HDFS_PROPERTIES = (
    r"fs\.defaultFS",
    r"fs\.viewfs\.mounttable\..+",
    r"fs\.permissions\.umask-mode",
    r"hadoop\.security\.(authentication|token\.service\.use_ip)",
    r"dfs\.nameservices",
    r"dfs\.ha\.namenodes\..+",
    r"dfs\.namenode\.(rpc|http|https)-address(\..+)?",
    r"dfs\.http\.policy",
    r"dfs\.client\.use\.datanode\.hostname",
    r"dfs\.blocksize",
    r"dfs\.replication",
    r"tony\.https\.ca-pem",
)
"""Properties of HDFS, for the master and for executors."""

_YARN_PROPERTIES = (
    r"hadoop\.rpc\.protection",
    r"yarn\.resourcemanager\.(ha\.enabled|ha\.rm-ids|cluster-id)",
    r"yarn\.resourcemanager\.hostname(\..+)?",
    r"yarn\.resourcemanager\.(scheduler\.)?address(\..+)?",
    r"yarn\.resourcemanager\.webapp\.(https\.)?address(\..+)?",
    r"yarn\.resourcemanager\.am\.max-attempts",
    r"yarn\.web-proxy\.address",
    r"yarn\.(acl\.enable|admin\.acl)",
    r"hadoop\.http\.(filter\.initializers|staticuser\.user)",
    r"hadoop\.http\.authentication\.(type|simple\.anonymous\.allowed)",
    r"yarn\.http\.policy",
    r"yarn\.scheduler\.include-port-in-node-name",
    r"yarn\.am\.liveness-monitor\.expiry-interval-ms",
    r"yarn\.resourcemanager\.scheduler\.class",
    r"yarn\.resourcemanager\.monitor\.capacity\.preemption\.max_wait_before_kill",
    r"yarn\.resourcemanager\.monitor\.capacity\.preemption\.monitoring_interval",
    r"yarn\.scheduler\.fair\.waitTimeBeforeKill",
)
"""Properties of YARN, for the master only."""

_LOGIN_PROPERTIES = (
    r"hadoop\.security\.auth_to_local",
    r"dfs\.namenode\.kerberos\.principal",
    r"yarn\.resourcemanager\.principal",
)
"""Properties of Kerberos, for the master of a job that ships its keytab: no other logs in."""

_FOR_EXECUTORS = re.compile("|".join(_HDFS_PROPERTIES))
_FOR_MASTER = re.compile("|".join(_HDFS_PROPERTIES + _YARN_PROPERTIES))
_FOR_LOGIN = re.compile("|".join(_HDFS_PROPERTIES + _YARN_PROPERTIES + _LOGIN_PROPERTIES))


def select_master_properties(conf: SiteConfiguration, logs_in: bool = False) -> Dict[str, str]:
    """The master's properties, resolved; ``SiteConfiguration.of`` reads them on the node.

    ``logs_in``: whether the job ships a keytab, by which its master logs in.
    """
    from tony_core.hadoop.site.certificates import CA_PEM, read_authorities

    wanted = _FOR_LOGIN if logs_in else _FOR_MASTER
    return _select({**conf.to_json(), CA_PEM: read_authorities(conf)}, wanted)


def select_executor_properties(site: Mapping[str, str]) -> Dict[str, str]:
    """The executors' properties, out of the master's: where files are."""
    return _select(site, _FOR_EXECUTORS)


def _select(values: Mapping[str, str], wanted: re.Pattern[str]) -> Dict[str, str]:
    return {name: value for name, value in values.items() if value and wanted.fullmatch(name)}
