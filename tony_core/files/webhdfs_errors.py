"""What WebHDFS refuses, in Python's own words: the class, whose fault it is, what to do.

A server answers with the name of a Java class and a message. The table maps the names once;
what is not in it is an input/output error with both of them in its text.
"""

from __future__ import annotations

import errno
import json
import socket
from typing import Dict, Optional, Tuple

from tony_core.files.location import masked
from tony_core.hadoop.errors import RemoteError, Unreachable, remote_error

_SECURE = (
    "the cluster wants to know for sure who asks (Kerberos, or a delegation token that is "
    "still valid), and secure clusters are not supported yet"
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
    "AuthorizationException": (errno.EACCES, ""),
    "SecurityException": (errno.EACCES, _SECURE),
    "AuthenticationException": (errno.EACCES, _SECURE),
    "InvalidToken": (errno.EACCES, _SECURE),
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

_SAID: Tuple[Tuple[str, int, str], ...] = (
    ("Path is not a file", errno.EISDIR, ""),
    ("must both be directories", errno.EISDIR, ""),
    ("could only be written to", errno.ENOSPC, _NO_SPACE),
    ("could only be replicated to", errno.ENOSPC, _NO_SPACE),
    ("Failed to find datanode", errno.ENOSPC, _NO_SPACE),
    ("Could not obtain block", errno.EIO, _LOST),
    ("No active nodes contain this block", errno.EIO, _LOST),
)
"""Some reasons are in the message alone, under a class that says nothing."""


def refusal(status: int, body: bytes, method: str, server: str) -> RemoteError:
    """What an answer that is no success stands for."""
    try:
        told = json.loads(body)["RemoteException"]
        name, text = str(told["javaClassName"]), str(told.get("message") or "")
    except (ValueError, TypeError, KeyError, RecursionError):
        if 300 <= status < 400:
            name, text = "", f"a redirect ({status}), which is not followed"
        elif status == 401:
            name, text = "AuthenticationException", "401, without a reason"
        else:
            name, text = "", f"an answer of status {status} that is not WebHDFS's"
    return remote_error(name, text, method=method, server=server)


def refused(error: RemoteError, location: str, user: str) -> OSError:
    """A refusal as the port's callers know errors."""
    name, text = error.short_class, error.text
    shown = masked(location)
    code, advice = _KNOWN.get(name, (errno.EIO, ""))
    for part, other, hint in _SAID:
        if part in text:
            code, advice = other, hint
    if name == "AccessControlException":
        who = f"TonY asks as {user!r}, by HADOOP_USER_NAME or the login"
        return PermissionError(errno.EACCES, f"{text or 'permission denied'} ({who})", shown)
    if not name:
        where = f"{error.server} gave {text}: is that the web address of a NameNode?"
        return OSError(errno.EPROTO, where, shown)
    words = [advice, f"HDFS says: {text or 'nothing'} ({name})"] if advice else []
    if not words:
        words = [f"HDFS says: {text}" if text else f"HDFS says: {name}"]
        if code == errno.EIO:
            words[0] += f" ({name}, from {error.server})"
    return OSError(code, "; ".join(words), shown)


def unreachable(error: Unreachable, location: str, note: str) -> OSError:
    """No NameNode answered, or none was the active one, all the time that there was."""
    tail = f". {note}" if note else ""
    return OSError(errno.EHOSTUNREACH, f"{error}{tail}", masked(location))


def lost_node(node: str, error: Optional[OSError], location: str, doing: str) -> OSError:
    """A DataNode that the NameNode sent us to cannot be talked to."""
    why = words(error) if error is not None else "it broke off"
    return OSError(
        errno.EHOSTUNREACH,
        f"the DataNode {node} could not be reached for {doing} ({why}). The NameNode named it: "
        "it is down, or a firewall or its host name keeps this machine from it",
        masked(location),
    )


def words(error: OSError) -> str:
    """The reason in an error of a socket."""
    if isinstance(error, socket.timeout):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "no such host is known"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            "its certificate is not trusted here; SSL_CERT_FILE may name a file "
            "with the authorities to trust"
        )
    return error.strerror or str(error) or type(error).__name__
