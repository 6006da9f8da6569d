"""Reads a connection of Airflow: the site where jobs go, and its settings for all of them.

A :class:`Site` is plain data. The operator makes it from the connection once, and the trigger gets
it as an argument: neither looks up a connection again, which a signal handler could not do, and a
trigger would have to do for each task.

:meth:`Site.to_dict` leaves out the secrets among the connection's TonY keys: only a submit needs
them.
"""

from __future__ import annotations

import json
import os
import re
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from tony_airflow.logins import (
    SiteError,
    find_ticket_cache,
    read_login,
)
from tony_core.client.cluster_login import login_variables
from tony_core.hadoop.identity import PROXY_USER
from tony_core.hadoop.kerberos.login import CACHE_VARIABLE
from tony_core.hadoop.site.configuration import GIVEN
from tony_core.hadoop.site.endpoints import RM_CLIENT_PORT, RM_SCHEDULER_PORT, RM_WEB_PORT
from tony_core.job.mask import mask_value
from tony_core.job.problems import did_you_mean
from tony_core.job.spec import Hadoop
from tony_core.schedulers.local.home import home_root

CONN_TYPE = "tony"
LOCAL, YARN = "local", "yarn"

_TEXTS = ("scheduler", "hadoop_conf_dir", "name_node", "webhdfs_conn_id", "queue")
_PLACES = ("history_location", "portal_url", "home")
_LOGIN = ("principal", "keytab", "proxy_user")
_MAPPINGS = ("hadoop", "conf")
_FINAL = "proxy_user_final"
_KNOWN = (*_TEXTS, *_PLACES, *_LOGIN, _FINAL, *_MAPPINGS)
"""The keys of a connection's extra."""

_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_PREFIX")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]/:]+)(?::(\d+))?")


class Site(NamedTuple):
    """The scheduler where jobs go, and its settings for all of them."""

    scheduler: str = LOCAL
    name: str = ""  # the connection's id; empty without one
    hadoop_conf_dir: Optional[str] = None
    resource_managers: Tuple[str, ...] = ()  # host:port of each of them, for clients
    name_node: Optional[str] = None  # fs.defaultFS
    hadoop: Mapping[str, str] = MappingProxyType({})  # any other property of the cluster
    webhdfs_conn_id: Optional[str] = None
    queue: Optional[str] = None
    history_location: Optional[str] = None
    portal_url: Optional[str] = None
    user: Optional[str] = None  # as whom jobs run
    home: Optional[str] = None  # of the embedded scheduler (TONY_HOME)
    conf: Mapping[str, str] = MappingProxyType({})  # any other TonY key
    principal: Optional[str] = None  # the login on a cluster with Kerberos ...
    keytab: Optional[str] = None  # ... by this file of each worker and triggerer
    proxy_user: Optional[str] = None  # for whom the login acts
    proxy_user_final: bool = False  # whether a task can name no other

    @property
    def label(self) -> str:
        """The site's name in messages."""
        return f"the connection {self.name}" if self.name else f"the scheduler {self.scheduler}"

    def to_dict(self) -> Dict[str, Any]:
        """Plain JSON without empty values and secrets: a trigger's argument."""
        found = {name: value for name, value in self._asdict().items() if value}
        if self.resource_managers:
            found["resource_managers"] = list(self.resource_managers)
        for name in _MAPPINGS:
            held: Mapping[str, str] = getattr(self, name)
            shown = {key: text for key, text in held.items() if mask_value(key, text) == text}
            found.pop(name, None)
            if shown:
                found[name] = shown
        return found

    def for_trigger(self) -> Dict[str, Any]:
        """:meth:`to_dict`, with the embedded scheduler's folder by its full name."""
        data = self.to_dict()
        if self.scheduler == LOCAL and not self.home:
            data["home"] = home_root(self.env())
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Site:
        """The site that :meth:`to_dict` wrote, without keys of a newer version."""
        values = {name: value for name, value in data.items() if name in cls._fields}
        values["resource_managers"] = tuple(values.get("resource_managers", ()))
        keys = dict(values.get("conf", {}))
        values.update(read_login(values, keys, []))  # an older version had it among the keys
        return cls(**{**values, "conf": keys})

    def acting_for(self, user: Optional[str]) -> Site:
        """The site for a task that asks for a user (None: for none); SiteError if it may not."""
        if user is None or user == self.proxy_user:
            return self
        if self.proxy_user_final:
            own = f"{self.proxy_user}'s" if self.proxy_user else "those of its own login"
            raise SiteError(
                f"{self.label} lets no task choose the user, its jobs are {own}: remove the task's"
                f" proxy_user or run_as_owner ({user}), or ask for a connection of that user's"
            )
        return self._replace(proxy_user=user)

    def conf_below(self) -> Dict[str, str]:
        """The TonY keys for all jobs of the site, which a job file may change."""
        named = {
            "tony.yarn.queue": self.queue,
            "tony.history.location": self.history_location,
            "tony.portal.url": self.portal_url,
        }
        return {**self.conf, **{key: text for key, text in named.items() if text}}

    def env(self, base: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
        """The environment for TonY's client: this process's, and over it the connection's."""
        env = dict(os.environ if base is None else base)
        if self.home:
            env["TONY_HOME"] = self.home
        if self.user:
            env["HADOOP_USER_NAME"] = self.user
        if self.hadoop_conf_dir:
            for name in _FOLDERS:
                env.pop(name, None)
            env["HADOOP_CONF_DIR"] = env["YARN_CONF_DIR"] = self.hadoop_conf_dir
        env.update(login_variables(Hadoop(principal=self.principal, keytab=self.keytab)))
        cache = "" if self.keytab else find_ticket_cache(env)
        if cache:
            env[CACHE_VARIABLE] = cache
        if self.proxy_user:
            env[PROXY_USER] = self.proxy_user
        given = self._properties()
        if given:
            # With addresses and without a folder, the files on this machine are another site's.
            ignores_files = bool(self.resource_managers) and not self.hadoop_conf_dir
            env[GIVEN] = json.dumps(
                {"source": self.label, "properties": given, "alone": ignores_files}
            )
        return env

    def _properties(self) -> Dict[str, str]:
        found: Dict[str, str] = {}
        if self.name_node:
            found["fs.defaultFS"] = self.name_node
        found.update(_resource_managers(self.resource_managers))
        return {**found, **self.hadoop}


def site_of(connection: Any) -> Site:
    """The site of a connection of the type ``tony``; SiteError names all that is wrong with it."""
    wrong: List[str] = []
    if connection.conn_type and connection.conn_type != CONN_TYPE:
        raise SiteError(
            f"the connection {connection.conn_id} is of the type {connection.conn_type}, and jobs"
            f" need one of the type {CONN_TYPE}"
        )
    extra = _extra(connection, wrong)
    for key in extra:
        if key not in _KNOWN:
            guess = did_you_mean(key, _KNOWN) or f"; expected one of {', '.join(_KNOWN)}"
            wrong.append(f"its extra has an unknown key {key}{guess}")
    texts = {name: _text(extra, name, wrong) for name in (*_TEXTS, *_PLACES)}
    conf = _pairs(extra, "conf", wrong)
    login = read_login({name: _text(extra, name, wrong) for name in _LOGIN}, conf, wrong)
    managers = _addresses(connection.host, connection.port, wrong)
    scheduler = texts.pop("scheduler") or (
        YARN if managers or texts["hadoop_conf_dir"] or extra.get("hadoop") else LOCAL
    )
    if scheduler == LOCAL and managers:
        wrong.append("the scheduler local takes no host: choose yarn, or clear the host")
    if scheduler == LOCAL and login:
        wrong.append(
            f"the scheduler local takes no {' or '.join(login)}, since it runs jobs as Airflow's"
            " own user: choose yarn, or clear that"
        )
    folder = texts["hadoop_conf_dir"]
    if folder and not os.path.isabs(folder):
        wrong.append(f"its Hadoop configuration folder {folder} is not an absolute path")
    name_node = texts.pop("name_node")
    if name_node and "://" not in name_node:
        name_node = f"hdfs://{name_node}"
    site = Site(
        scheduler=scheduler,
        name=connection.conn_id or "",
        resource_managers=managers,
        name_node=name_node.rstrip("/") if name_node else None,
        hadoop=_pairs(extra, "hadoop", wrong),
        conf=conf,
        user=connection.login or None,
        proxy_user_final=_flag(extra, _FINAL, wrong),
        **login,
        **{name: text for name, text in texts.items() if text},
    )
    if managers and not folder and not site.name_node and "fs.defaultFS" not in site.hadoop:
        wrong.append(
            "it names a ResourceManager and no file system: jobs are staged on HDFS, so name its"
            " NameNode too (name_node), or a Hadoop configuration folder that does"
        )
    if wrong:
        raise SiteError(f"the connection {connection.conn_id} cannot be used: {'; '.join(wrong)}")
    return site


def _extra(connection: Any, wrong: List[str]) -> Mapping[str, Any]:
    if not connection.extra:
        return {}
    try:
        found = json.loads(connection.extra)
    except ValueError:
        wrong.append("its extra is not JSON")
        return {}
    if not isinstance(found, dict):
        wrong.append("its extra is not a JSON object")
        return {}
    connection.extra_dejson  # noqa: B018 - Airflow masks what looks like a secret as it is read
    return {key: value for key, value in found.items() if value not in (None, "")}


def _text(extra: Mapping[str, Any], name: str, wrong: List[str]) -> Optional[str]:
    value = extra.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        wrong.append(f"its {name} is {value!r}, which is not a text")
        return None
    return value.strip() or None


def _flag(extra: Mapping[str, Any], name: str, wrong: List[str]) -> bool:
    value = str(extra.get(name, False)).strip().lower()
    if value not in ("true", "false"):
        wrong.append(f"its {name} is {extra[name]!r}, which is neither true nor false")
    return value == "true"


def _pairs(extra: Mapping[str, Any], name: str, wrong: List[str]) -> Dict[str, str]:
    """Properties: a JSON object, or the text of one, as a field of the form has it."""
    value = extra.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = name  # not an object
    if value is None:
        return {}
    if not isinstance(value, dict):
        wrong.append(f'its {name} is not a JSON object like {{"key": "value"}}')
        return {}
    found: Dict[str, str] = {}
    for key, text in value.items():
        if isinstance(text, bool):
            found[key] = "true" if text else "false"
        elif isinstance(text, (str, int, float)):
            found[key] = str(text)
        else:
            wrong.append(f"the value of {key} in its {name} is neither a text nor a number")
    return found


def _addresses(host: Optional[str], port: Optional[int], wrong: List[str]) -> Tuple[str, ...]:
    """The addresses in ``rm1,rm2:8033``, with ``port`` for those without one."""
    found: List[str] = []
    for word in (host or "").split(","):
        word = word.strip()
        if not word:
            continue
        match = _ADDRESS.fullmatch(word)
        if match is None or int(match[1] or 0) > 0xFFFF:
            wrong.append(f"its host {word!r} is not an address of the form HOST or HOST:PORT")
        else:
            found.append(word if match[1] else f"{word}:{port or RM_CLIENT_PORT}")
    return tuple(found)


def _resource_managers(addresses: Tuple[str, ...]) -> Dict[str, str]:
    """Their properties as in a yarn-site.xml, with the default ports for their other services."""
    prefix = "yarn.resourcemanager"
    if not addresses:
        return {}
    if len(addresses) == 1:
        return {f"{prefix}.ha.enabled": "false", **_one_manager(addresses[0], "")}
    found = {f"{prefix}.ha.enabled": "true"}
    ids = [f"rm{number}" for number in range(1, len(addresses) + 1)]
    found[f"{prefix}.ha.rm-ids"] = ",".join(ids)
    for name, address in zip(ids, addresses, strict=True):
        found.update(_one_manager(address, f".{name}"))
    return found


def _one_manager(address: str, tail: str) -> Dict[str, str]:
    prefix = "yarn.resourcemanager"
    host = address.rpartition(":")[0]
    return {
        f"{prefix}.hostname{tail}": host,
        f"{prefix}.address{tail}": address,
        f"{prefix}.scheduler.address{tail}": f"{host}:{RM_SCHEDULER_PORT}",
        f"{prefix}.webapp.address{tail}": f"{host}:{RM_WEB_PORT}",
    }
