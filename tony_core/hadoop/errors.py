"""Errors of a Hadoop cluster: whose fault they are, and whether a retry can help.

A server answers with the name of a Java class. The table at the end of this module maps the
names once; a class that is not in it stays a plain :class:`RemoteError`, which is not retried.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, Optional, Tuple, Type


class Fault(str, Enum):
    """Who has to act."""

    CONFIG = "configuration"  # the site's files, or what was asked of us
    USER = "user"  # a request that the cluster will never grant, or not to this user
    CLUSTER = "cluster"  # a server is away, restarting or broken
    OURS = "protocol"  # we or the server broke the protocol


class Remedy(str, Enum):
    """What may help."""

    NONE = "none"
    RETRY = "retry"  # the same server, a little later
    FAILOVER = "failover"  # another server of the pair, or this one when it is back


class HadoopError(Exception):
    """Everything that this package raises about a cluster."""

    fault = Fault.CLUSTER
    remedy = Remedy.NONE


class ConfigurationError(HadoopError):
    """The site's configuration cannot be read, or does not say what is needed."""

    fault = Fault.CONFIG


class Unreachable(HadoopError):
    """No connection, or it broke. ``sent``: the server may have got the request."""

    remedy = Remedy.FAILOVER

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class DeadlineExceeded(Unreachable):
    """No answer within the time that the call had."""


class AuthenticationError(Unreachable):
    """The server has not proved that it knows the token, or a message did not come from it.

    What answers there may be any program, so this is trouble with a connection and no answer of
    the cluster's, whatever it was that came: it is tried again, and ends nothing.
    """


class Closed(HadoopError):
    """We closed the connection ourselves during a call."""

    fault = Fault.OURS


class ProtocolError(HadoopError):
    """The answer is not RPC of Hadoop, or violates its protocol."""

    fault = Fault.OURS


class RemoteError(HadoopError):
    """A server answered a call with an exception."""

    def __init__(
        self,
        remote_class: str,
        text: str = "",
        *,
        method: str = "",
        server: str = "",
        fatal: bool = False,
        fault: Optional[Fault] = None,
        remedy: Optional[Remedy] = None,
    ) -> None:
        self.remote_class = remote_class
        self.text = strip_class(remote_class, text)  # without the stack trace
        self.trace = text
        self.method = method
        self.server = server
        self.fatal = fatal  # the server closed the connection with it
        if fault is not None:
            self.fault = fault
        if remedy is not None:
            self.remedy = remedy
        super().__init__(remote_class, text)

    def __str__(self) -> str:
        target = f" to {self.method}" if self.method else ""
        where = f"{self.server} answered{target}: " if self.server else ""
        return f"{where}{self.text or 'no reason given'} ({self.short_class})"

    @property
    def short_class(self) -> str:
        """The remote class without its package."""
        return short_class_name(self.remote_class)


class ApplicationNotFound(RemoteError):
    """The ResourceManager knows no such application any more."""


class AttemptNotFound(RemoteError):
    """The ResourceManager has given up this attempt of the master: it has to stop."""


class NotRegistered(RemoteError):
    """The ResourceManager restarted: the master registers again and asks again for all."""


class AlreadyRegistered(RemoteError):
    """This attempt has registered before (possibly by a call whose answer was lost)."""


class ContainerNotFound(RemoteError):
    """No such container, there or any more."""


class InvalidRequest(RemoteError):
    """What was asked for can never be granted: too large, unknown label, queue or resource."""


class AccessDenied(RemoteError):
    """This user may not do this."""


class InvalidToken(RemoteError):
    """The token has expired, was rolled over, or is for something else."""


class Standby(RemoteError):
    """This server of the pair is not the active one."""


class Busy(RemoteError):
    """The server asks to come back later: it starts, is overloaded, or in safe mode."""


class WrongService(RemoteError):
    """Something else of Hadoop answers at this address, or another version of it."""


def short_class_name(remote_class: str) -> str:
    """A Java class's own name, without package and outer class."""
    return remote_class.replace("$", ".").rpartition(".")[2]


def strip_class(remote_class: str, text: str) -> str:
    """The message in a printed Java exception: neither its class nor its stack trace."""
    message = text.partition("\n\tat ")[0].strip()
    if message == remote_class:
        return ""
    if message.startswith(remote_class + ": "):
        message = message[len(remote_class) + 2 :]
    return message


def remote_error(
    remote_class: str, text: str, *, method: str = "", server: str = "", fatal: bool = False
) -> RemoteError:
    """The error that an answer stands for."""
    kind, fault, remedy = _KNOWN.get(
        short_class_name(remote_class), (RemoteError, Fault.CLUSTER, Remedy.NONE)
    )
    if kind is AlreadyRegistered and "already registered" not in text:
        kind = RemoteError
    return kind(
        remote_class, text, method=method, server=server, fatal=fatal, fault=fault, remedy=remedy
    )


_KNOWN: Dict[str, Tuple[Type[RemoteError], Fault, Remedy]] = {
    # ids
    "ApplicationNotFoundException": (ApplicationNotFound, Fault.USER, Remedy.NONE),
    "ApplicationAttemptNotFoundException": (AttemptNotFound, Fault.CLUSTER, Remedy.NONE),
    "ContainerNotFoundException": (ContainerNotFound, Fault.CLUSTER, Remedy.NONE),
    # the master's standing
    "ApplicationMasterNotRegisteredException": (NotRegistered, Fault.CLUSTER, Remedy.NONE),
    "InvalidApplicationMasterRequestException": (AlreadyRegistered, Fault.OURS, Remedy.NONE),
    # requests
    "InvalidResourceRequestException": (InvalidRequest, Fault.USER, Remedy.NONE),
    "SchedulerInvalidResourceRequestException": (InvalidRequest, Fault.USER, Remedy.NONE),
    "InvalidLabelResourceRequestException": (InvalidRequest, Fault.USER, Remedy.NONE),
    "InvalidResourceException": (InvalidRequest, Fault.USER, Remedy.NONE),
    "ResourceNotFoundException": (InvalidRequest, Fault.USER, Remedy.NONE),
    "InvalidAllocationTagsQueryException": (InvalidRequest, Fault.USER, Remedy.NONE),
    "InvalidQueueNameException": (InvalidRequest, Fault.USER, Remedy.NONE),
    "YARNFeatureNotEnabledException": (InvalidRequest, Fault.CONFIG, Remedy.NONE),
    "InvalidContainerException": (RemoteError, Fault.OURS, Remedy.NONE),
    "InvalidContainerReleaseException": (RemoteError, Fault.OURS, Remedy.NONE),
    "InvalidResourceBlacklistRequestException": (RemoteError, Fault.OURS, Remedy.NONE),
    "ApplicationIdNotProvidedException": (RemoteError, Fault.OURS, Remedy.NONE),
    "ContainerIdNotProvidedException": (RemoteError, Fault.OURS, Remedy.NONE),
    "IllegalArgumentException": (RemoteError, Fault.OURS, Remedy.NONE),
    # who may
    "AccessControlException": (AccessDenied, Fault.USER, Remedy.NONE),
    "AuthorizationException": (AccessDenied, Fault.USER, Remedy.NONE),
    "InvalidToken": (InvalidToken, Fault.CLUSTER, Remedy.NONE),
    "SaslException": (InvalidToken, Fault.CLUSTER, Remedy.NONE),  # a password that does not fit
    # a server that cannot just now
    "StandbyException": (Standby, Fault.CLUSTER, Remedy.FAILOVER),
    "ObserverRetryOnActiveException": (Standby, Fault.CLUSTER, Remedy.FAILOVER),
    "RetriableException": (Busy, Fault.CLUSTER, Remedy.RETRY),
    "CallQueueOverflowException": (Busy, Fault.CLUSTER, Remedy.RETRY),
    "SafeModeException": (Busy, Fault.CLUSTER, Remedy.RETRY),
    "NMNotYetReadyException": (Busy, Fault.CLUSTER, Remedy.RETRY),
    "ServerNotRunningYetException": (Busy, Fault.CLUSTER, Remedy.RETRY),
    # something else listens there
    "RpcNoSuchProtocolException": (WrongService, Fault.CONFIG, Remedy.NONE),
    "RpcNoSuchMethodException": (WrongService, Fault.CONFIG, Remedy.NONE),
    "VersionMismatch": (WrongService, Fault.CONFIG, Remedy.NONE),
    "RpcServerException": (RemoteError, Fault.OURS, Remedy.NONE),
}
