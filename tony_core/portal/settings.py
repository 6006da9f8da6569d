"""The portal's settings: what its command line and its file hold."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple


class HistoryLocation(NamedTuple):
    """A place with histories of jobs."""

    name: str
    root: str  # a folder or a URL
    retention_s: Optional[float] = None  # None: the portal removes nothing by age
    retention_bytes: Optional[int] = None
    write_jhist: str = ""  # where the JVM TonY's files of its jobs are written, for other tools
    kind: str = "tony"  # the layout below it: "tony", or "jvm-tony"


class Login(NamedTuple):
    """How the portal learns who asks."""

    by: str = "socket"  # socket, header, oidc, spnego
    header: str = ""
    groups_header: str = ""
    trusted: Tuple[str, ...] = ()  # addresses and networks of proxies
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_secret_file: str = ""
    oidc_user_claim: str = "preferred_username"
    oidc_groups_claim: str = "groups"
    spnego_principal: str = ""
    spnego_keytab: str = ""


class Settings(NamedTuple):
    """All of it."""

    locations: Tuple[HistoryLocation, ...] = ()
    schedulers: Tuple[str, ...] = ()  # "local", "yarn"
    bind: str = "127.0.0.1"
    port: int = 19886
    url: str = ""  # as browsers reach it
    index_folder: str = ""
    admins: Tuple[str, ...] = ()  # users, and groups as "%name"
    public: bool = False  # every viewer may see every job
    login: Login = Login()
    access_log: str = ""  # a file; empty: standard error
    tensorboard_idle_s: float = 600.0
