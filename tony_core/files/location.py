"""Parts of a location: its scheme, its last name, what people may see of it."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote, urlsplit

# Two characters at least, so that no single letter before a colon is taken for a scheme.
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
_PLAIN = "/~!$&'()*+,;=:@"
_APP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\Z")
_USER_INFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+://)[^/?#@]*@")

#: Schemes of object stores, which nodes do not read (see ``objects``).
OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss")


def scheme_of(location: str) -> str:
    """The URL's scheme in lower case; empty for a plain path. ``file:/x`` is ``file``."""
    match = _SCHEME.match(location)
    if match:
        return match.group(1).lower()
    return "file" if location.startswith("file:/") else ""


def is_app_id(name: str) -> bool:
    """Whether a file or folder of that name can belong to an application."""
    return _APP_ID.match(name) is not None


def is_remote(location: str) -> bool:
    """Whether it is anywhere but on this machine's own file system."""
    return scheme_of(location) not in ("", "file")


def local_path(location: str) -> str:
    """The path behind a plain path (``~`` expanded) or a ``file:`` URL."""
    if scheme_of(location) == "file":
        parts = urlsplit(location)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(
                f"{location}: a file URL has three slashes (file:///{parts.netloc}...) "
                "or names no other host"
            )
        return unquote(parts.path)
    return os.path.expanduser(location)


def join(location: str, *names: str) -> str:
    """A location below another one. Names are plain: in a URL they are quoted."""
    base = location.rstrip("/")
    if scheme_of(location):
        base += "//" if base.endswith(":") else ""  # hdfs:/// is the root of a file system
        names = tuple(quote(name, _PLAIN, errors="surrogateescape") for name in names)
    return "/".join([base, *names])


def base_name(location: str) -> str:
    """The last name of a path or URL, without query and fragment."""
    if is_remote(location):
        return unquote(urlsplit(location).path).rstrip("/").rpartition("/")[2]
    return os.path.basename(os.path.abspath(local_path(location)))


def parent(location: str) -> str:
    """The folder that holds it; of a file system's root, that root."""
    match = _SCHEME.match(location)
    if match and is_remote(location):
        authority, _, path = location[match.end() :].partition("/")
        return f"{match[0]}{authority}/{path.rstrip('/').rpartition('/')[0]}"
    return os.path.dirname(os.path.abspath(local_path(location)))


def masked(location: str) -> str:
    """The location as people may see it: without user info."""
    return _USER_INFO.sub(r"\1****@", location)


def remedy(root: str) -> str:
    """Advice for a damaged object below that staging root."""
    command = f"tony gc --scheduler yarn --verify --remove --staging-dir {masked(root)}"
    return f"{command} removes it: then submit again"
