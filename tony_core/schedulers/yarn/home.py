"""A user's home for jobs on HDFS, ``/user/USER/.tony``, where clients look for a job's state.

A job with another staging root (``tony.yarn.staging-dir``) keeps its state there. Then the job's
folder in the home is a *pointer*: it holds one empty folder whose name encodes that root, because
only the NameNode is needed to create and list it.
"""

from __future__ import annotations

import base64
from typing import Set, Tuple

from tony_core.files.location import base_name, join
from tony_core.files.registry import filesystem
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import on_hdfs

_POINTER = "root="  # how a pointer's name begins


def home_folder(conf: SiteConfiguration, user: str) -> str:
    """The user's home; raises :class:`ConfigurationError` on a site without HDFS."""
    return on_hdfs(conf, f"/user/{user}/.tony")


def home_or_root(conf: SiteConfiguration, user: str, root: str) -> str:
    """The user's home; on a site without HDFS the job's own staging root."""
    try:
        return home_folder(conf, user)
    except ConfigurationError:
        return root


def pointer_folder(home: str, root: str, app_id: str) -> str:
    """The job's folder in the home if it is a pointer; empty if the job's state is kept there."""
    return join(home, "apps", app_id) if root.rstrip("/") != home.rstrip("/") else ""


def write_pointer(home: str, root: str, app_id: str) -> None:
    """Point from the home to the staging root of a job that keeps its state elsewhere."""
    folder = pointer_folder(home, root, app_id)
    if folder:
        name = _POINTER + base64.urlsafe_b64encode(root.encode()).decode()
        filesystem(folder).mkdir(join(folder, name), 0o700)


def follow_pointer(folder: str) -> Tuple[str, Set[str]]:
    """The folder that holds the job's state, and the names in it."""
    names = _names_in(folder)
    roots = [name[len(_POINTER) :] for name in names if name.startswith(_POINTER)]
    if not roots:
        return folder, names
    root = base64.urlsafe_b64decode(roots[0]).decode()
    folder = join(root, "apps", base_name(folder))
    return folder, _names_in(folder)


def _names_in(folder: str) -> Set[str]:
    return {base_name(one.location) for one in filesystem(folder).list(folder)}
