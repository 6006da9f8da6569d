"""The NameNodes that a job names beside the site's own: whether it can have a token for each.

Tokens are obtained last, when everything is staged. So each of these NameNodes is asked a small
question before that, and a problem names the key.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Tuple

from tony_core.hadoop.errors import (
    AuthenticationError,
    ConfigurationError,
    HadoopError,
    KdcUnreachable,
    Unreachable,
)
from tony_core.hadoop.hdfs.namenode_client import ask_name_node
from tony_core.hadoop.identity import ClusterIdentity, hdfs_token_service
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import NameService
from tony_core.job.spec import Job
from tony_core.job.validate import named_sources
from tony_core.schedulers.port import SchedulerError
from tony_core.schedulers.yarn.client.delegation_tokens import is_hdfs, job_name_services

NAMENODES = "tony.other.namenodes"
Ask = Callable[[SiteConfiguration, ClusterIdentity, NameService], object]


def find_name_node_problems(
    conf: SiteConfiguration, identity: ClusterIdentity, job: Job, ask: Ask = ask_name_node
) -> List[str]:
    """Why the job cannot have a token for a NameNode that it names.

    Raises :class:`SchedulerError` where a NameNode, or the KDC, may answer later.
    """
    problems: List[str] = []
    try:
        own = job_name_services(conf, Job(job.name, ()), (), ())
    except ConfigurationError as error:
        raise SchedulerError(str(error)) from None
    done = {one.rpc.addresses for one in own}  # staging meets these first
    for key, url in dict.fromkeys(_named_places(job)):
        try:
            found = endpoints.name_service(conf, url)
            hdfs_token_service(conf, found)
            if found.rpc.addresses in done:
                continue
            done.add(found.rpc.addresses)
            if not found.rpc.principals:
                problems.append(
                    f"{key} names {url}, and dfs.namenode.kerberos.principal, which says who that"
                    f" NameNode has to be, is not set. {conf.where()}"
                )
                continue
            ask(conf, identity, found)
        except KdcUnreachable as error:
            raise SchedulerError(str(error)) from None
        except AuthenticationError as error:
            raise SchedulerError(
                f"{key} names {url}, whose server has not proved to be a NameNode: {error}"
            ) from None
        except Unreachable as error:
            raise SchedulerError(f"{key} names {url}: {error}") from None
        except HadoopError as error:
            problems.append(f"{key} names {url}: {error}")
    return problems


def _named_places(job: Job) -> Iterator[Tuple[str, str]]:
    """(key, URL) of the file systems that the job's configuration names."""
    for text in job.hadoop.namenodes:
        yield NAMENODES, text if "://" in text else f"hdfs://{text}"
    others = [
        ("tony.history.location", job.history.location or ""),
        ("tony.yarn.staging-dir", job.yarn.staging_dir or ""),
        *named_sources(job),
    ]
    yield from ((key, url) for key, url in others if is_hdfs(url))
