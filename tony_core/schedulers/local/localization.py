"""Puts a container's artifacts into its working folder: links to what is on this machine.

What was staged by content is linked to as it is. Archives and what is remote go through
:mod:`tony_core.bundle.unpack`, which does the work once for all containers; it loads much
code, so it runs in a child process, and the shim that stays beside the container keeps none.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence
from urllib.parse import unquote


class LocaliseError(Exception):
    """An artifact cannot be put where it belongs; says which and why."""


def localise(
    artifacts: Sequence[Mapping[str, Any]], work: str, root: str, archives: Sequence[int]
) -> None:
    """``artifacts`` are ``Artifact.to_json()``; ``root`` is where the store stands;
    ``archives``: the megabytes that one may unpack to, and its members."""
    for item in artifacts:
        name = str(item["name"])
        if not name or name in (".", "..") or "/" in name:
            raise LocaliseError("the artifact %r has no name that a file can have" % name)
        target = os.path.join(work, name)
        if os.path.lexists(target):
            raise LocaliseError("two artifacts are called %s; give one another name" % name)
        source = local_path(str(item["uri"]))
        if not source or (item["kind"] == "archive" and not os.path.isdir(source)):
            source = _in_a_child(item, root, archives)
        elif not os.path.exists(source):
            raise LocaliseError(
                "%s is not there any more: %s (staged from %s)" % (name, source, item["source"])
            )
        os.symlink(source, target)


def local_path(uri: str) -> str:
    """The path behind a path or file URL; empty when it is anywhere else."""
    if uri.startswith("file:"):
        path = uri[len("file:") :]
        if path.startswith("//"):
            path = "/" + path[2:].partition("/")[2]
        return unquote(path)
    return "" if "://" in uri else os.path.abspath(uri)


def _in_a_child(item: Mapping[str, Any], root: str, archives: Sequence[int]) -> str:
    """The path that :func:`_produce` says, in a forked child; or why it failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        code = 1
        try:
            os.write(writing, os.fsencode(_produce(item, root, archives)))
            code = 0
        except BaseException as error:  # nothing may escape into the shim's own code
            os.write(writing, (str(error) or repr(error)).encode("utf-8", "replace")[:4000])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(pid, 0)
    if status:
        why = said.decode("utf-8", "replace") or "status %d" % status
        raise LocaliseError("%s cannot be localised: %s" % (item["name"], why))
    return os.fsdecode(said)


def _produce(item: Mapping[str, Any], root: str, archives: Sequence[int]) -> str:
    from tony_core.bundle import unpack
    from tony_core.files.artifact import Artifact

    return unpack.localise(Artifact.from_json(item), root, unpack.Limits.of(*archives))
