"""The delegation tokens with which a job reaches a secure cluster's services as its user.

A job gets a token for each file system that it touches (:func:`job_name_services`) and one for the
ResourceManager, whose node reports its master reads. Nodes localize its files, and store its logs,
with the same tokens. Tokens that TonY obtained are the job's: the ResourceManager renews them and
cancels them when the job has ended. A submit that fails leaves them; they expire a day later, since
no server renews them.

A caller with tokens only (HADOOP_TOKEN_FILE_LOCATION) cannot obtain others by them: the job gets
all of the caller's tokens, as a Java client's would, for its program may need those of Hive, HBase
or a KMS; only what makes a process a master or a node's client stays behind. They are not
cancelled.
"""

from __future__ import annotations

import time
from typing import Dict, Iterable, List, Optional, Protocol, Sequence
from urllib.parse import urlsplit

from tony_core.durations import describe_duration
from tony_core.files.artifact import Artifact
from tony_core.hadoop.credentials import LOCATION, Credentials
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.hdfs.namenode_client import obtain_token
from tony_core.hadoop.identity import ClusterIdentity, hdfs_token_service, rm_token_service
from tony_core.hadoop.rpc.connection import Address
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import NameService
from tony_core.hadoop.tokens import (
    AM_RM,
    CONTAINER,
    HDFS_DELEGATION,
    LOCALIZER,
    NM,
    RM_DELEGATION,
    Token,
    shortest_lifetime,
)
from tony_core.job.spec import Job
from tony_core.schedulers.port import LifetimeLimit

_CALLERS_OWN = (AM_RM, NM, CONTAINER, LOCALIZER)
_NAMENODES = "tony.other.namenodes"
_PRINCIPAL = "yarn.resourcemanager.principal"


class TokenIssuer(Protocol):
    """The ResourceManager, as far as a job's tokens need it."""

    def delegation_token(self, renewer: str) -> Token:
        """A new token of the caller; its service is empty."""


def job_name_services(
    conf: SiteConfiguration, job: Job, places: Iterable[str], artifacts: Sequence[Artifact]
) -> List[NameService]:
    """The file systems that a job touches, each once; ``places`` are its folders.

    ``fs.defaultFS`` is always among them, since nodes store the job's logs there.
    """
    urls = [*places, *(one.uri for one in artifacts if one.uri), *_default_file_systems(conf)]
    found = [endpoints.name_service(conf, url) for url in urls if is_hdfs(url)]
    found += [named_service(conf, text) for text in job.hadoop.namenodes]
    once: Dict[Sequence[Address], NameService] = {}
    for one in found:
        once.setdefault(one.rpc.addresses or one.web.addresses, one)
    return list(once.values())


def _default_file_systems(conf: SiteConfiguration) -> List[str]:
    default = conf.text("fs.defaultFS")
    return (
        sorted(endpoints.viewfs_mounts(conf).values())
        if default.startswith("viewfs:")
        else [default]
    )


def is_hdfs(url: str) -> bool:
    """Whether a location names a file system for which a job needs a token."""
    parts = urlsplit(url)
    return parts.scheme in ("hdfs", "webhdfs", "swebhdfs") and bool(parts.netloc)


def named_service(conf: SiteConfiguration, text: str) -> NameService:
    """The file system that an entry of ``tony.other.namenodes`` names."""
    try:
        return endpoints.name_service(conf, text if "://" in text else f"hdfs://{text}")
    except ConfigurationError as error:
        raise ConfigurationError(f"{_NAMENODES}: {error}") from None


def planned_tokens(conf: SiteConfiguration, services: Sequence[NameService]) -> List[str]:
    """Kinds and services of a job's tokens, for a dry run."""
    names = [f"{HDFS_DELEGATION} for {hdfs_token_service(conf, one)}" for one in services]
    return [*names, f"{RM_DELEGATION} for {rm_token_service(conf)}"]


def service_location(service: NameService) -> str:
    """A location on a file system for which a job has a token, as its master names it."""
    if service.highly_available:
        return f"hdfs://{service.name}"
    address = service.rpc.addresses[0]
    return f"hdfs://{address.host}:{address.port}"


def job_tokens(
    conf: SiteConfiguration,
    identity: ClusterIdentity,
    rm: TokenIssuer,
    services: Sequence[NameService],
) -> Dict[str, Token]:
    """A job's tokens: new ones with a login, else the caller's.

    New ones have the names that Java clients give them. Raises :class:`HadoopError`.
    """
    if identity.login is None:
        held = [identity.token(hdfs_token_service(conf, one), one.rpc.service) for one in services]
        held.append(identity.token(rm_token_service(conf), "the ResourceManager"))
        return _with_callers(held, identity.tokens or Credentials())
    renewer = renewer_of(conf)
    held = [obtain_token(conf, identity, one, renewer) for one in services]
    held.append(rm.delegation_token(renewer)._replace(service=rm_token_service(conf)))
    return {token.service: token for token in held}


def _with_callers(needed: Sequence[Token], caller: Credentials) -> Dict[str, Token]:
    """The needed tokens by their services, and the caller's others by the names they have."""
    found = {token.service: token for token in needed}
    for alias, token in caller.tokens.items():
        if token.kind not in _CALLERS_OWN and token not in needed:
            name = alias if alias not in found else f"{alias} {token.kind} {len(found)}"
            found[name] = token
    return found


def find_lifetime_limit(
    job: Job, identity: ClusterIdentity, tokens: Iterable[Token], now: float
) -> Optional[LifetimeLimit]:
    """Until when a job can live on its tokens; None where that ends nothing.

    A caller's may end earlier: a token that the ResourceManager does not renew does not say when.
    """
    found = shortest_lifetime(tokens)
    timeout = job.timeouts.application_s
    if found is None or job.hadoop.ship_keytab:
        return None
    if timeout is not None and now + timeout <= found.ends_s:
        return None
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.ends_s))
    left = found.ends_s - now
    if left > 600:  # a week, not a week less the second since the tokens were made
        left = 60 * round(left / 60)
    until = f"can run until {date} ({describe_duration(left)})"
    if identity.login is None:
        until += f" at the latest: the tokens of {LOCATION} end then, or before"
        remedy = "For longer, submit by your own keytab, with tony.kerberos.ship-keytab=true"
    elif identity.real_user:
        until += ": its tokens end then"
        remedy = f"Submitted again by {identity.real_user}, it goes on from its checkpoint"
    else:
        until += ": its tokens end then"
        remedy = "For longer, submit by your own keytab, with tony.kerberos.ship-keytab=true"
    return LifetimeLimit(found.ends_s, f"{until}. {remedy}")


def renewer_of(conf: SiteConfiguration) -> str:
    """The principal that renews a job's tokens: the ResourceManager's; of a pair, the first's.

    Servers map it to a user, which is the same for both of a pair.
    """
    principals = endpoints.rm_client(conf).principals
    if not principals:
        raise ConfigurationError(
            f"{_PRINCIPAL} is not set, and it names who renews a job's tokens. {conf.where()}"
        )
    return principals[0]
