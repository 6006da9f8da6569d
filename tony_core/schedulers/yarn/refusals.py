"""Why a cluster refused an application, in one clear message each.

:mod:`checks` reports what is known before a submit. The rest only the ResourceManager can tell (a
race, a setting of the server), some of it late: it ends an application that it had accepted before
that could begin, or refuses what a master requests.
"""

from __future__ import annotations

import re
from typing import Callable, List, Match, Optional, Pattern, Tuple, Type

from tony_core.hadoop.errors import (
    ApplicationNotFound,
    ConfigurationError,
    HadoopError,
    LoginError,
    RemoteError,
    Unreachable,
)
from tony_core.hadoop.yarn.ids import ApplicationId
from tony_core.schedulers.port import LastingRefusal, NoSuchApplication, SchedulerError

_Words = Callable[[Match[str]], str]

_CLASS = re.compile(r"^(?:[a-z][\w]*\.)+[A-Z]\w*(?:Exception|Error): ")


def _explain_no_constraints(keys: str) -> str:
    return (
        "the cluster takes no placement constraints: its administrator can set"
        f" yarn.resourcemanager.placement-constraints.handler, or the job leaves out {keys}"
    )


def explain_no_view(user: str, app_id: str) -> str:
    """Why a user sees nothing of an application, and who does."""
    return (
        f"{user} may not look at {app_id}, which belongs to another user. Its owner may, the users"
        " and groups of its tony.yarn.acl.view, and the administrators of the queue and the cluster"
    )


_REFUSALS: List[Tuple[Pattern[str], _Words]] = [
    (
        re.compile(r"non empty SchedulingRequest (?:in|of) AllocateRequest"),
        lambda m: _explain_no_constraints(
            "tony.<role>.placement-spec, tony.containers.placement-spec and"
            " tony.<role>.allocation-tags"
        ),
    ),
    (
        re.compile(r"non empty placement constraints map in RegisterApplicationMasterRequest"),
        lambda m: _explain_no_constraints("tony.application.placement-spec"),
    ),
    (
        re.compile(r"User (\S+) cannot perform operation MODIFY_APP on (application_\w+)"),
        lambda m: (
            f"{m[1]} may not end {m[2]}, which belongs to another user. Its owner may, the users"
            " and groups of its tony.yarn.acl.modify, and the administrators of the queue and the"
            " cluster"
        ),
    ),
    (
        re.compile(r"User (\S+) cannot perform operation VIEW_APP on (application_\w+)"),
        lambda m: explain_no_view(m[1], m[2]),
    ),
    (
        re.compile(r"User: (([^\s/@]+)\S*) is not allowed to impersonate (\S+)"),
        lambda m: (
            f"{m[1]} is not allowed to act for {m[3]} (HADOOP_PROXY_USER, --proxy-user): an"
            f" administrator can allow it by hadoop.proxyuser.{m[2]}.{{hosts,groups,users}} in the"
            " servers' core-site.xml"
        ),
    ),
    (
        re.compile(
            r"Unauthorized connection for super-user: (([^\s/@]+)\S*) from IP (?:\S*/)?(\S+)"
        ),
        lambda m: (
            f"{m[1]} is not allowed to act for others from {m[3]} (HADOOP_PROXY_USER,"
            f" --proxy-user): an administrator can allow it by hadoop.proxyuser.{m[2]}.hosts in"
            " the servers' core-site.xml"
        ),
    ),
    (
        re.compile(r"SIMPLE authentication is not enabled"),
        lambda m: (
            "the cluster asks for Kerberos, and the configuration read here does not: name the"
            " cluster's own by HADOOP_CONF_DIR, or set hadoop.security.authentication to kerberos"
            " in its core-site.xml"
        ),
    ),
    (
        re.compile(r"User (\S+).* is not authorized for protocol interface (?:[\w$]+\.)*(\w+)"),
        lambda m: (
            f"{m[1]} may not call the cluster at all: ask its administrator for the right"
            f" (hadoop-policy.xml, the list for {m[2]})"
        ),
    ),
    (
        re.compile(r"Failed to renew token: Kind: (\w+), Service: (\S+?),.*?\brenewer=([^\s,)]*)"),
        lambda m: (
            f"it cannot renew the {m[1]} for {m[2]}, whose renewer is {m[3] or 'unknown'}. Obtain"
            " one whose renewer is the ResourceManager (yarn.resourcemanager.principal), or one"
            " without a renewer"
        ),
    ),
    (
        re.compile(r"unknown queue:?\s*(\S+)|queue (\S+) does(?:n't| not) exist", re.I),
        lambda m: f"there is no queue {(m[1] or m[2]).strip('.')}; name one by tony.yarn.queue",
    ),
    (
        re.compile(r"non-leaf queue\s*:?\s*(\S+)", re.I),
        lambda m: (
            f"{m[1].strip('.')} is not a leaf queue; name one of its children (tony.yarn.queue)"
        ),
    ),
    (
        re.compile(r"Queue (\S+) is (STOPPED|DRAINING)", re.I),
        lambda m: f"the queue {m[1]} is {m[2].lower()} and takes no applications",
    ),
    (
        re.compile(r"Queue (\S+) already has (\d+) applications from user (\S+)", re.I),
        lambda m: (
            f"{m[3]} has {m[2]} applications in the queue {m[1]} already, and may have no more;"
            " submit again when one has ended"
        ),
    ),
    (
        re.compile(r"Queue (\S+) already has (\d+) applications", re.I),
        lambda m: (
            f"the queue {m[1]} holds {m[2]} applications already, and takes no more;"
            " submit again when one has ended"
        ),
    ),
    (
        re.compile(
            r"User (\S+) (?:cannot|does not have permission to) submit(?: applications?)?"
            r"[^.]*?\bto (?:queue )?(\S+)",
            re.I,
        ),
        lambda m: (
            f"{m[1]} may not submit to the queue {m[2].strip('.,')} (its ACL does not allow it)"
        ),
    ),
    (
        re.compile(
            r"[Ll]abel expression[^.]*?= ?\[?([\w-]+)\]?"
            r".*?(?:doesn't have permission|cannot access)"
        ),
        lambda m: f"the node label {m[1]} may not be used in this queue",
    ),
    (
        re.compile(r"queue=(\S+?) doesn't have permission to access all labels.*?=\s*([\w-]+)"),
        lambda m: f"the queue {m[1]} may not use the node label {m[2]}",
    ),
    (
        re.compile(
            r"(?:requested|Requested) resource type=\[([^\]]+)\].*?Requested resource="
            r"<([^>]*)>.*?maximum allowed allocation=<([^>]*)>",
            re.S,
        ),
        lambda m: (
            f"the master requests <{m[2]}>, more than the cluster's maximum allocation <{m[3]}>"
            f" (exceeded: {m[1]})"
        ),
    ),
]


_TEMPORARY = re.compile(r"Queue \S+ (?:is (?:STOPPED|DRAINING)|already has \d+ applications)", re.I)
"""The known refusals that are temporary: the same job may be accepted later."""


def explain_refusal(diagnostics: str) -> str:
    """Why the ResourceManager refused an application: in our words, else in its own."""
    return match_refusal(diagnostics) or _strip_class(diagnostics) or "it gave no reason"


def match_refusal(diagnostics: str) -> Optional[str]:
    """A known refusal in our words; None if it is unknown."""
    text = " ".join(diagnostics.split())
    for pattern, words in _REFUSALS:
        found = pattern.search(text)
        if found:
            return words(found)
    return None


def _strip_class(diagnostics: str) -> str:
    """YARN's words without the Java class before them."""
    return _CLASS.sub("", " ".join(diagnostics.split()))


def refused_submission(app_id: str, diagnostics: str) -> SchedulerError:
    """The error for an application that the ResourceManager accepted and then refused."""
    return _error_class(diagnostics)(
        f"the cluster refused {app_id}: {explain_refusal(diagnostics)}"
    )


def _error_class(text: str) -> Type[SchedulerError]:
    """The error's class: lasting for a known refusal, unless it may pass."""
    text = " ".join(text.split())
    return LastingRefusal if match_refusal(text) and not _TEMPORARY.search(text) else SchedulerError


def translate_error(error: HadoopError, what: str) -> SchedulerError:
    """Translate an error of Hadoop into one of the port."""
    if isinstance(error, ApplicationNotFound):
        return NoSuchApplication(f"{what}: the ResourceManager does not know it, or no longer")
    if isinstance(error, Unreachable):
        return SchedulerError(str(error))
    if isinstance(error, (ConfigurationError, LoginError)):
        return LastingRefusal(str(error))
    if isinstance(error, RemoteError):
        words = match_refusal(error.text)
        if words is None:
            words = f"{_strip_class(error.text) or 'no reason given'} ({error.short_class})"
        return _error_class(error.text)(f"{what} was refused: {words}")
    return SchedulerError(f"{what}: {error}")


def parse_id(app_id: str) -> ApplicationId:
    """Parse an application id; raises :class:`NoSuchApplication`."""
    try:
        return ApplicationId.parse(app_id)
    except ValueError:
        raise NoSuchApplication(f"{app_id!r} is not the id of an application of YARN") from None
