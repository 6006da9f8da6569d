"""Errors of a Hadoop cluster, and whether a retry can help.

A server answers with the name of a Java class. The table at the end of this module maps the
names once; a class that is not in it stays a plain :class:`RemoteError`, which is not retried.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, Type


class Remedy(str, Enum):
    """What a caller can do about an error."""

    NONE = "none"
    RETRY = "retry"  # the same server, a little later
    FAILOVER = "failover"  # another server of the pair, or this one when it is back


class HadoopError(Exception):
    """The base of all errors of a cluster."""

    remedy = Remedy.NONE


class ConfigurationError(HadoopError):
    """The site's configuration cannot be read, or does not say what is needed."""


class Unreachable(HadoopError):
    """No connection, or it broke; ``sent``: the server may have received the request."""

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


class CredentialRefused(AuthenticationError):
    """The server refuses a token or a ticket, and will again.

    Each server of a pair is asked once; waiting does not help.
    """


class ProtectionRefused(AuthenticationError):
    """A server that has proved who it is allows no protection of calls that this side accepts."""

    remedy = Remedy.NONE


class LoginError(HadoopError):
    """This process has no valid credential of Kerberos; the text says why, and what to do."""


class NoTicket(LoginError):
    """The login gives no valid ticket now: it has expired, is missing, or the KDC has other keys.

    A new one may come at any time: from ``kinit``, or what renews tickets and keytabs.
    """

    def __init__(self, message: str, *, has_expired: bool = False) -> None:
        super().__init__(message)
        self.has_expired = has_expired


class KdcUnreachable(Unreachable):
    """No KDC of the realm answers; it may later. Another server of Hadoop cannot help."""

    remedy = Remedy.NONE


class Closed(HadoopError):
    """The connection was closed on this side during a call."""


class ProtocolError(HadoopError):
    """The answer is not RPC of Hadoop, or violates its protocol."""


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
    ) -> None:
        self.remote_class = remote_class
        self.text = strip_class(remote_class, text)  # without the stack trace
        self.trace = text
        self.method = method
        self.server = server
        self.fatal = fatal  # the server closed the connection with it
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
    """The ResourceManager does not know the application (any more)."""


class AttemptNotFound(RemoteError):
    """The ResourceManager has given up this attempt of the master: it has to stop."""


class NotRegistered(RemoteError):
    """The ResourceManager restarted: the master registers and sends its requests again."""


class AlreadyRegistered(RemoteError):
    """This attempt has registered before (possibly by a call whose answer was lost)."""


class ContainerNotFound(RemoteError):
    """The node or the ResourceManager does not know the container (any more)."""


class InvalidRequest(RemoteError):
    """The request can never be granted: too large, or an unknown label, queue or resource."""


class AccessDenied(RemoteError):
    """The user lacks the permission."""


class InvalidToken(RemoteError):
    """The token has expired, was rolled over, or is for something else."""


class Standby(RemoteError):
    """This server of the pair is not the active one."""

    remedy = Remedy.FAILOVER


class Busy(RemoteError):
    """The server cannot answer now: it starts, is overloaded, or in safe mode."""

    remedy = Remedy.RETRY


class WrongService(RemoteError):
    """Another service, or another version of Hadoop, answers at this address."""


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
    """The error for a server's exception."""
    kind = _KNOWN.get(short_class_name(remote_class), RemoteError)
    if kind is AlreadyRegistered and "already registered" not in text:
        kind = RemoteError
    return kind(remote_class, text, method=method, server=server, fatal=fatal)


_KNOWN: Dict[str, Type[RemoteError]] = {
    # ids
    "ApplicationNotFoundException": ApplicationNotFound,
    "ApplicationAttemptNotFoundException": AttemptNotFound,
    "ContainerNotFoundException": ContainerNotFound,
    # the master's registration
    "ApplicationMasterNotRegisteredException": NotRegistered,
    "InvalidApplicationMasterRequestException": AlreadyRegistered,
    # requests
    "InvalidResourceRequestException": InvalidRequest,
    "SchedulerInvalidResourceRequestException": InvalidRequest,
    "InvalidLabelResourceRequestException": InvalidRequest,
    "InvalidResourceException": InvalidRequest,
    "ResourceNotFoundException": InvalidRequest,
    "InvalidAllocationTagsQueryException": InvalidRequest,
    "InvalidQueueNameException": InvalidRequest,
    "YARNFeatureNotEnabledException": InvalidRequest,
    # permissions
    "AccessControlException": AccessDenied,
    "AuthorizationException": AccessDenied,
    "InvalidToken": InvalidToken,
    "SaslException": InvalidToken,  # a password that does not fit
    # servers that cannot answer now
    "StandbyException": Standby,
    "ObserverRetryOnActiveException": Standby,
    "RetriableException": Busy,
    "CallQueueOverflowException": Busy,
    "SafeModeException": Busy,
    "NMNotYetReadyException": Busy,
    "ServerNotRunningYetException": Busy,
    # another service at this address
    "RpcNoSuchProtocolException": WrongService,
    "RpcNoSuchMethodException": WrongService,
    "VersionMismatch": WrongService,
}
