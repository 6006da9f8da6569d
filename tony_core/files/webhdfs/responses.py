"""Parses what servers of HDFS send: status, listings and exceptions.

A server refuses with the name of a Java class and a message. The table maps the names once to
Python's errors; an unknown one is an input/output error with name and message in its text. A
listed name is one plain segment of a path.
"""

from __future__ import annotations

import errno
import json
import re
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

_SECURE = (
    "the cluster asks for Kerberos: get a ticket (kinit), or a delegation token that is still valid"
)
_BY_NAME = (
    "the cluster asks for Kerberos, and the configuration read here does not: name the cluster's"
    " own by HADOOP_CONF_DIR, or set hadoop.security.authentication to kerberos in its"
    " core-site.xml"
)
_EXPIRED = (
    "the delegation token was cancelled, or has expired: obtain new tokens in the file that"
    " HADOOP_TOKEN_FILE_LOCATION names, or unset that variable and use a ticket (kinit)"
)
_NO_PROXY_USER = (
    "HADOOP_PROXY_USER (--proxy-user) names a user for whom this one may not act: an administrator"
    " can allow it by hadoop.proxyuser.NAME.{hosts,groups,users} in the NameNodes' core-site.xml"
)
_SAFE_MODE = (
    "HDFS is in safe mode and takes no changes: wait until it has left it, or ask the administrator"
)
_QUOTA = "a quota of HDFS is used up: remove files, or ask the administrator for more"
_NO_SPACE = (
    "HDFS has no DataNode that can take the data (their disks are full, or they are down): "
    "ask the administrator"
)
_LOST = "no DataNode that has the data is up: ask the administrator"
_BUSY = "another program writes this file just now"

NO_NODE = ("Failed to find datanode", "No active nodes contain this block")
"""A NameNode's messages when no DataNode is left beside the excluded ones."""

_INVALID_TOKEN = "SecretManager$InvalidToken"  # noqa: S105 (a class's name, inside another's text)

_KNOWN: Dict[str, Tuple[int, str]] = {
    "FileNotFoundException": (errno.ENOENT, ""),
    "FileAlreadyExistsException": (errno.EEXIST, ""),
    "ParentNotDirectoryException": (errno.ENOTDIR, ""),
    "PathIsNotDirectoryException": (errno.ENOTDIR, ""),
    "PathIsNotEmptyDirectoryException": (errno.ENOTEMPTY, ""),
    "InvalidPathException": (errno.EINVAL, "HDFS does not allow such a name"),
    "IllegalArgumentException": (errno.EINVAL, ""),
    "HadoopIllegalArgumentException": (errno.EINVAL, ""),
    "UnsupportedOperationException": (errno.EOPNOTSUPP, ""),
    "PathComponentTooLongException": (errno.ENAMETOOLONG, ""),
    "AccessControlException": (errno.EACCES, ""),
    "AuthorizationException": (errno.EACCES, ""),
    "SecurityException": (errno.EACCES, _SECURE),
    "AuthenticationException": (errno.EACCES, _SECURE),
    "InvalidToken": (errno.EACCES, _EXPIRED),
    "SafeModeException": (errno.EROFS, _SAFE_MODE),
    "NSQuotaExceededException": (errno.EDQUOT, _QUOTA),
    "DSQuotaExceededException": (errno.EDQUOT, _QUOTA),
    "QuotaExceededException": (errno.EDQUOT, _QUOTA),
    "QuotaByStorageTypeExceededException": (errno.EDQUOT, _QUOTA),
    "MaxDirectoryItemsExceededException": (errno.EDQUOT, "the folder holds too many files"),
    "AlreadyBeingCreatedException": (errno.EBUSY, _BUSY),
    "LeaseExpiredException": (errno.EBUSY, _BUSY),
    "BlockMissingException": (errno.EIO, _LOST),
}

_BY_TEXT: Tuple[Tuple[str, int, str], ...] = (
    ("is not allowed to impersonate", errno.EACCES, _NO_PROXY_USER),
    ("Unauthorized connection for super-user", errno.EACCES, _NO_PROXY_USER),
    ("Path is not a file", errno.EISDIR, ""),
    ("must both be directories", errno.EISDIR, ""),
    ("could only be written to", errno.ENOSPC, _NO_SPACE),
    ("could only be replicated to", errno.ENOSPC, _NO_SPACE),
    (NO_NODE[0], errno.ENOSPC, _NO_SPACE),
    ("Could not obtain block", errno.EIO, _LOST),
    (NO_NODE[1], errno.EIO, _LOST),
    (_INVALID_TOKEN, errno.EACCES, _EXPIRED),
)
"""Reasons that only the message tells: the class is a general one."""


class TokenRefused(PermissionError):
    """The token of a request has expired, or was cancelled: a newer one may be accepted."""


class RemoteException(NamedTuple):
    """The exception in an unsuccessful response."""

    name: str  # of the Java class, without its package; empty: the answer is not WebHDFS's
    text: str
    server: str
    status: int


def parse_remote_exception(status: int, body: bytes, server: str) -> RemoteException:
    """Parse the exception in a response; one is made up for a response without."""
    try:
        found = json.loads(body)["RemoteException"]
        remote = str(found.get("javaClassName") or found["exception"])
        return RemoteException(
            _short(remote), _message(remote, str(found.get("message") or "")), server, status
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    if 300 <= status < 400:
        return RemoteException("", f"a redirect ({status}), which is not followed", server, status)
    if status == 401:
        return RemoteException("AuthenticationException", "401, without a reason", server, status)
    text = f"an answer of status {status} that is not WebHDFS's"
    return RemoteException("", text, server, status)


def refuses_token(refusal: RemoteException) -> bool:
    """Whether a server refused the request for its token, which is dead or unknown."""
    return refusal.name == "InvalidToken" or _INVALID_TOKEN in refusal.text


def _short(remote: str) -> str:
    return remote.replace("$", ".").rpartition(".")[2]


def _message(remote: str, text: str) -> str:
    """The message in a printed Java exception, without its class and its stack trace."""
    message = text.partition("\n\tat ")[0].strip()
    if message == remote:
        return ""
    return message[len(remote) + 2 :] if message.startswith(remote + ": ") else message


def translate_remote_exception(
    refusal: RemoteException, path: str, user: str, *, by_name: bool = False
) -> OSError:
    """Translate an exception into an OSError that says what to do.

    ``by_name``: the request said a user's name only, as on a cluster without Kerberos.
    """
    name, text, server, _ = refusal
    code, advice = _KNOWN.get(name, (errno.EIO, ""))
    for part, other, hint in _BY_TEXT:
        if part in text:
            code, advice = other, hint
    if by_name and advice == _SECURE:
        advice = _BY_NAME
    if name == "AccessControlException":
        who = f"TonY asks as {user!r}, by HADOOP_PROXY_USER, HADOOP_USER_NAME or the login"
        how = "with Kerberos by ticket, keytab or token"
        return PermissionError(errno.EACCES, f"{text or 'permission denied'} ({who}; {how})", path)
    if not name:
        where = f"{server} gave {text}: is that the web address of a NameNode?"
        return OSError(errno.EPROTO, where, path)
    words = [advice, f"HDFS says: {text or 'nothing'} ({name})"] if advice else []
    if advice == _EXPIRED:
        return TokenRefused(code, "; ".join(words), path)
    if not words:
        words = [f"HDFS says: {text}" if text else f"HDFS says: {name}"]
        if code == errno.EIO:
            words[0] += f" ({name}, from {server})"
    return OSError(code, "; ".join(words), path)


class AccessDenial(NamedTuple):
    """A permission that a user lacks on ``path``: the requested path, or a folder above it."""

    user: str
    access: str
    path: str
    owner: str
    mode: str


_DENIAL = re.compile(
    r"Permission denied: user=(?P<user>[^,\s]+), access=(?P<access>\w+),"
    r' inode="(?P<path>[^"]+)":(?P<owner>[^:\s]+):[^:\s]+:(?P<mode>[-\w+]+)'
)


def parse_access_denial(text: str) -> Optional[AccessDenial]:
    """Parse the missing permission in a NameNode's message; None if it names none."""
    found = _DENIAL.search(text)
    return AccessDenial(**found.groupdict()) if found else None


# ------------------------------------------------------------------ status and listings


class FileStatus(NamedTuple):
    """The status of a file or folder."""

    is_dir: bool
    size: int
    changed_ms: int
    name: str = ""  # in a listing
    mode: Optional[int] = None  # permission bits
    owner: str = ""
    group: str = ""


class ListingPage(NamedTuple):
    """One page of a listing."""

    entries: List[FileStatus]
    complete: bool


@contextmanager
def translate_parse_errors(path: str) -> Iterator[None]:
    """Turn the errors of parsing a response into one OSError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        why = f"an answer that is not WebHDFS's: {str(error) or type(error).__name__}"
        raise OSError(errno.EPROTO, why, path) from None


def parse_json(body: bytes) -> Any:
    """Parse a JSON body; raises ValueError."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None


def parse_status(found: Dict[str, Any]) -> FileStatus:
    """Parse a ``FileStatus``."""
    mode = int(found["permission"], 8) if "permission" in found else None
    size, name = int(found["length"]), found.get("pathSuffix", "")
    if size < 0:
        raise ValueError(f"a length of {size}")
    if not isinstance(name, str) or name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file or folder")
    name.encode()  # ValueError for half a surrogate
    return FileStatus(
        found["type"] == "DIRECTORY",
        size,
        int(found["modificationTime"]),
        name,
        mode,
        _user(found.get("owner")),
        _user(found.get("group")),
    )


def _user(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else ""


def parse_listing(response: Dict[str, Any]) -> ListingPage:
    """Parse the response of LISTSTATUS_BATCH, or of LISTSTATUS."""
    listing = response.get("DirectoryListing", {})
    listed = (listing.get("partialListing") or response)["FileStatuses"]["FileStatus"]
    entries = [parse_status(one) for one in listed]
    return ListingPage(entries, not entries or not listing.get("remainingEntries"))
