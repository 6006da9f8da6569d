"""The features of security: Kerberos with its principals, keytabs and users, HTTPS, protection.

Services log in as nn, dn (the user hdfs), rm and nm (the user yarn), each with the name of its
host. Every web server asks for SPNEGO. Users are ``ann`` and ``bob``, equals and strangers to
each other; ``gateway`` may impersonate both; ``admin`` administers HDFS and YARN, and the handle
on the cluster acts as that one; ``eve`` can log in and call no service (service-level
authorization).
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Dict, List

from tests.cluster.hadoop import container_executor, native
from tests.cluster.hadoop.certificates import new_certificates
from tests.cluster.hadoop.jars import SandboxError
from tests.cluster.hadoop.kerberos import (
    REALM,
    RENEWABLE_FOR,
    TICKET_LIFETIME,
    Kerberos,
    check_programs,
)
from tests.cluster.hadoop.plan import LOOPBACK, Daemon, Folder, Plan, feature

USERS = ("ann", "bob")
GATEWAY = "gateway"
"""May act for the users."""

ADMIN = "admin"

EVE = "eve"

EVERYONE = (*USERS, GATEWAY, ADMIN, EVE)

FIRST_UID = 64301
"""Of the users, where they have one each; no user of a Debian system has it."""

SHORT_TICKET_S = 120
SHORT_SKEW_S = 5

TOKEN_RENEW_S = 60
TOKEN_LIFETIME_S = 150

PROXY_MARGIN_S = 5
"""How long before the end of short tokens a ResourceManager that may act for users gets others."""

BRIEF_RENEW_S = 45
BRIEF_LIFETIME_S = 60

_HTTP = f"HTTP/_HOST@{REALM}"

_GROUPS = {
    "ann": "ann,users",
    "bob": "bob,users",
    GATEWAY: GATEWAY,
    ADMIN: "admins",
    EVE: EVE,
    "hdfs": "admins",
    "yarn": "yarn",
    "HTTP": "http",
}
"""Of the users in HDFS and YARN. They need no account on this machine."""


@feature("two_nodes")
def secure(plan: Plan) -> None:
    """Kerberos with a KDC of its own, for calls and web servers; users ann and bob, gateway who may
    act for them, and admin; ACLs are on, and calls are encrypted for who asks for that."""
    kerberos = Kerberos(plan.folder)
    address = plan.address(LOOPBACK)
    settings = kerberos.settings()
    kdc = Daemon("kdc", "", rpc=address, argv=kerberos.kdc_command(), environment=settings)
    # It is there before the first daemon logs in.
    plan.daemons = {"kdc": kdc, **plan.daemons}
    plan.flags.append(f"-Djava.security.krb5.conf={kerberos.krb5_conf}")
    plan.client.update(kerberos.environment_of(USERS[0]))
    _core(plan, kerberos)
    _hdfs(plan, kerberos)
    _yarn(plan, kerberos)
    for node in plan.role("nm"):
        node.flags.append(f"-Djava.library.path={native.folder_of(plan.distribution)}")
        node.environment.update(native.environment(kerberos.folder))
    _make_folders(plan)
    plan.preparations.append(lambda: _prepare(plan, kerberos))


def _prepare(plan: Plan, kerberos: Kerberos) -> None:
    check_programs()
    native.fetch(plan.distribution)
    short = "short_tickets" in plan.features
    kerberos.write_configuration(
        plan.daemons["kdc"].rpc,
        lifetime=f"{SHORT_TICKET_S}s" if short else TICKET_LIFETIME,
        renewable=f"{2 * SHORT_TICKET_S}s" if short else RENEWABLE_FOR,
        skew_s=SHORT_SKEW_S if short else 300,
    )
    kerberos.create(_services(plan), EVERYONE)
    if "linux_executor" in plan.features:
        accounts = {user: FIRST_UID + index for index, user in enumerate(EVERYONE)}
    else:
        # Containers run as the user of the daemons: their files count as the first user's.
        accounts = {USERS[0]: os.getuid()}
    native.write_accounts(kerberos.folder, accounts)
    secret = os.open(_http_secret(kerberos), os.O_WRONLY | os.O_CREAT, 0o600)
    with open(secret, "w") as file:
        file.write(secrets.token_urlsafe())


def _services(plan: Plan) -> Dict[str, List[str]]:
    """The principals in each keytab of a service."""
    hosts = {daemon.host for daemon in plan.daemons.values()} | {"localhost"}
    nodes = {daemon.rpc.rsplit(":", 1)[0] for daemon in plan.role("nm")}
    found = {name: [f"{name}/localhost@{REALM}"] for name in ("nn", "dn", "rm")}
    found["nm"] = [f"nm/{host}@{REALM}" for host in sorted(nodes | {"localhost"})]
    found["http"] = [f"HTTP/{host}@{REALM}" for host in sorted(hosts)]
    return found


def _http_secret(kerberos: Kerberos) -> str:
    """What signs the cookies of all web servers."""
    return str(kerberos.folder / "http-secret")


def _core(plan: Plan, kerberos: Kerberos) -> None:
    core = plan.site("core-site")
    for name in ("hosts", "groups"):
        core.pop(f"hadoop.proxyuser.{plan.user}.{name}", None)
    core.update(
        {
            "hadoop.security.authentication": "kerberos",
            "hadoop.security.authorization": "true",
            "hadoop.rpc.protection": "authentication,privacy",
            "hadoop.security.auth_to_local": (
                f"RULE:[2:$1@$0]([nd]n@{REALM})s/.*/hdfs/"
                f" RULE:[2:$1@$0]([rn]m@{REALM})s/.*/yarn/"
                " DEFAULT"
            ),
            "hadoop.user.group.static.mapping.overrides": ";".join(
                f"{user}={groups}" for user, groups in _GROUPS.items()
            ),
            f"hadoop.proxyuser.{GATEWAY}.hosts": "*",
            f"hadoop.proxyuser.{GATEWAY}.users": ",".join(USERS),
            "hadoop.http.filter.initializers": (
                "org.apache.hadoop.security.AuthenticationFilterInitializer"
            ),
            "hadoop.http.authentication.type": "kerberos",
            "hadoop.http.authentication.simple.anonymous.allowed": "false",
            "hadoop.http.authentication.kerberos.principal": _HTTP,
            "hadoop.http.authentication.kerberos.keytab": str(kerberos.keytab_of("http")),
            "hadoop.http.authentication.signature.secret.file": _http_secret(kerberos),
        }
    )

    plan.site("hadoop-policy")["security.service.authorization.default.acl.blocked"] = EVE


def _hdfs(plan: Plan, kerberos: Kerberos) -> None:
    hdfs = plan.site("hdfs-site")
    hdfs.update(
        {
            "dfs.block.access.token.enable": "true",
            "dfs.permissions.superusergroup": "admins",
            "dfs.web.authentication.kerberos.principal": _HTTP,
            "dfs.web.authentication.kerberos.keytab": str(kerberos.keytab_of("http")),
            # Otherwise a DataNode wants ports below 1024, or TLS.
            "ignore.secure.ports.for.testing": "true",
        }
    )
    for role, setting in (("nn", "namenode"), ("dn", "datanode")):
        hdfs[f"dfs.{setting}.kerberos.principal"] = f"{role}/_HOST@{REALM}"
        hdfs[f"dfs.{setting}.keytab.file"] = str(kerberos.keytab_of(role))


def _yarn(plan: Plan, kerberos: Kerberos) -> None:
    yarn = plan.site("yarn-site")
    for role, setting in (("rm", "resourcemanager"), ("nm", "nodemanager")):
        yarn[f"yarn.{setting}.principal"] = f"{role}/_HOST@{REALM}"
        yarn[f"yarn.{setting}.keytab"] = str(kerberos.keytab_of(role))
        yarn[f"yarn.{setting}.webapp.spnego-principal"] = _HTTP
        yarn[f"yarn.{setting}.webapp.spnego-keytab-file"] = str(kerberos.keytab_of("http"))
    yarn["yarn.acl.enable"] = "true"
    yarn["yarn.admin.acl"] = ADMIN
    # By default everyone administers every queue, and so every application.
    plan.site("capacity-scheduler")["yarn.scheduler.capacity.root.acl_administer_queue"] = " "


def _make_folders(plan: Plan) -> None:
    """On an open cluster the user of the daemons may do everything; here only the superuser may
    make a folder at the root."""
    plan.hdfs_folders += [
        Folder("/tmp", "hdfs", "admins", "1777"),
        Folder("/app-logs", "yarn", "yarn", "1777"),
        Folder("/mapreduce", "hdfs", "admins", "1777"),
        Folder("/user", "hdfs", "admins", "755"),
        *(Folder(f"/user/{user}", user, user, "700") for user in (*USERS, GATEWAY)),
    ]


@feature("secure")
def linux_executor(plan: Plan) -> None:
    """Containers run under a uid of their user's own (LinuxContainerExecutor); for root only."""
    program = plan.folder / "bin" / "container-executor"
    executor = "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor"
    java = ["-Xmx256m", *plan.distribution.java_flags(), *plan.flags]
    java.append(f"-Djdk.net.hosts.file={plan.folder / 'hosts'}")
    plan.site("yarn-site").update(
        {
            "yarn.nodemanager.container-executor.class": executor,
            "yarn.nodemanager.linux-container-executor.path": str(program),
            "yarn.nodemanager.linux-container-executor.group": "root",
            "yarn.nodemanager.container-localizer.java.opts": " ".join(java),
        }
    )
    plan.preparations.append(lambda: _install_executor(plan, program))


def _install_executor(plan: Plan, program: Path) -> None:
    if os.getuid() != 0:
        raise SandboxError("the feature linux_executor becomes other users: it needs root")
    for folder in (plan.folder, *plan.folder.parents):
        if not folder.stat().st_mode & 0o001:
            raise SandboxError(
                f"with the feature linux_executor other users work in {plan.folder}, and {folder}"
                " is closed to them; name another folder"
            )
    program.parent.mkdir()
    text = Path(container_executor.__file__).read_text()
    program.write_text(f"#!{sys.executable} -IS\n{text}")
    program.chmod(0o700)


@feature()
def https(plan: Plan) -> None:
    """Web servers speak HTTPS only, with certificates of an authority of the cluster's own."""
    certificates = new_certificates(plan.folder)
    hdfs, yarn = plan.site("hdfs-site"), plan.site("yarn-site")
    hdfs["dfs.http.policy"] = yarn["yarn.http.policy"] = "HTTPS_ONLY"
    sites = [hdfs, yarn, *(site for one in plan.daemons.values() for site in one.own.values())]
    for site in sites:
        for name in list(site):
            for plain, safe in _HTTPS.items():
                if plain in name:
                    site[name.replace(plain, safe)] = site.pop(name)
    if "secure" in plan.features:
        # A DataNode with TLS needs no port below 1024 once data is protected by SASL.
        hdfs.pop("ignore.secure.ports.for.testing")
        hdfs["dfs.data.transfer.protection"] = "authentication"
    plan.sites["ssl-client"] = certificates.client_site()
    for daemon in plan.daemons.values():
        if daemon.main:
            daemon.own["ssl-server"] = certificates.server_site()
    plan.client.update(certificates.environment())
    hosts = {"localhost", *(daemon.host for daemon in plan.daemons.values())}

    def prepare() -> None:
        certificates.create(sorted(hosts), plan.distribution.java_home)
        for site in plan.folder.glob("conf.d/*/ssl-server.xml"):
            site.chmod(0o600)  # the stores' password is in it

    plan.preparations.append(prepare)


_HTTPS = {
    "dfs.namenode.http-address": "dfs.namenode.https-address",
    "dfs.datanode.http.address": "dfs.datanode.https.address",
    "yarn.resourcemanager.webapp.address": "yarn.resourcemanager.webapp.https.address",
    "yarn.nodemanager.webapp.address": "yarn.nodemanager.webapp.https.address",
}


@feature("secure")
def simple_web(plan: Plan) -> None:
    """Web servers are left at Hadoop's defaults (hadoop.http.authentication.type=simple), as on
    many sites: they believe a name or ask for none, WebHDFS among them."""
    core = plan.site("core-site")
    for name in list(core):
        if name.startswith(("hadoop.http.authentication.", "hadoop.http.filter.")):
            del core[name]


@feature("secure")
def short_tickets(plan: Plan) -> None:
    """Kerberos tickets end after two minutes and can be renewed for four."""
    # The KDC's part is in its configuration; daemons log in again as soon as they need to.
    plan.site("core-site")["hadoop.kerberos.min.seconds.before.relogin"] = "1"


@feature("secure")
def short_tokens(plan: Plan) -> None:
    """Delegation tokens are to be renewed within a minute and end after two and a half."""
    _limit_tokens(plan, TOKEN_RENEW_S, TOKEN_LIFETIME_S)


def _limit_tokens(plan: Plan, renew_s: int, lifetime_s: int) -> None:
    for file, prefix in (
        ("hdfs-site", "dfs.namenode.delegation"),
        ("yarn-site", "yarn.resourcemanager.delegation"),
    ):
        plan.site(file).update(
            {
                f"{prefix}.token.max-lifetime": str(lifetime_s * 1000),
                f"{prefix}.token.renew-interval": str(renew_s * 1000),
                f"{prefix}.key.update-interval": str(lifetime_s * 1000),
            }
        )


@feature("secure")
def proxy_privileges(plan: Plan) -> None:
    """The ResourceManager obtains HDFS tokens for applications whose own are about to end
    (yarn.resourcemanager.proxy-user-privileges.enabled), and gives them to the NodeManagers."""
    yarn = plan.site("yarn-site")
    yarn["yarn.resourcemanager.proxy-user-privileges.enabled"] = "true"
    if {"short_tokens", "brief_tokens"} & set(plan.features):
        # By default three hours: longer than these tokens live, so none would ever be renewed.
        margin = "yarn.resourcemanager.system-credentials.valid-time-remaining"
        yarn[margin] = str(PROXY_MARGIN_S * 1000)
    core = plan.site("core-site")
    core["hadoop.proxyuser.yarn.hosts"] = "*"
    core["hadoop.proxyuser.yarn.users"] = ",".join(USERS)


@feature("secure")
def brief_tokens(plan: Plan) -> None:
    """Delegation tokens are to be renewed within 45 seconds and end after a minute."""
    _limit_tokens(plan, BRIEF_RENEW_S, BRIEF_LIFETIME_S)


@feature("secure")
def node_kerberos(plan: Plan) -> None:
    """Containers find a krb5.conf, as on nodes that have one in /etc."""
    conf = Kerberos(plan.folder).krb5_conf
    plan.site("yarn-site")["yarn.nodemanager.admin-env"] = f"KRB5_CONFIG={conf}"


@feature("secure")
def host_tokens(plan: Plan) -> None:
    """Tokens name their service HOST:PORT (hadoop.security.token.service.use_ip=false)."""
    plan.site("core-site")["hadoop.security.token.service.use_ip"] = "false"


@feature()
def integrity(plan: Plan) -> None:
    """Calls are signed (hadoop.rpc.protection=integrity)."""
    plan.site("core-site")["hadoop.rpc.protection"] = "integrity"


@feature()
def privacy(plan: Plan) -> None:
    """Calls are encrypted (hadoop.rpc.protection=privacy)."""
    plan.site("core-site")["hadoop.rpc.protection"] = "privacy"
