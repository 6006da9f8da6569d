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
    trusted_users: Tuple[str, ...] = ()  # of this machine, whose processes are the proxy
    domain: str = ""  # ann@DOMAIN is ann
    session_s: float = 8 * 3600.0  # after it the login is asked for again
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_secret_file: str = ""
    oidc_scopes: Tuple[str, ...] = ("openid", "profile", "email")
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
    metrics_from: Tuple[str, ...] = ()  # addresses and networks that may read /metrics
    tensorboard_idle_s: float = 600.0
    tensorboard_port: int = 0  # another origin than the portal's own; 0: any free port
    tensorboard_url: str = ""  # that port, as browsers reach it
    tensorboard_python: str = ""  # has TensorBoard; empty: the portal's own Python

    @property
    def is_for_many(self) -> bool:
        """Whether others than the portal's own user log in."""
        return self.login.by != "socket"

    @property
    def uses_https(self) -> bool:
        """Whether browsers reach it by TLS."""
        return self.url.startswith("https://")
