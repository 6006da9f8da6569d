"""A container's launch for YARN: files, environment, command, credentials.

Environment and command are written into a script on the node without any quoting
(``export K="V"``, ``bash -c "CMD"``): the caller quotes.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Tuple

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.site.urls import url_message
from tony_core.hadoop.yarn.messages import yarn

PUBLIC, PRIVATE, APPLICATION = "PUBLIC", "PRIVATE", "APPLICATION"
_VISIBILITY = {PUBLIC: 1, PRIVATE: 2, APPLICATION: 3}
_ARCHIVE, _FILE = 1, 2
_VIEW, _MODIFY = 1, 2


class LocalFile(NamedTuple):
    """A file that the node localizes; size and time must be exact."""

    location: str
    size: int
    timestamp_ms: int
    archive: bool = False  # unpacked
    visibility: str = APPLICATION

    def to_message(self) -> yarn.LocalResource:
        return yarn.LocalResource(
            resource=url_message(self.location),
            size=self.size,
            timestamp=self.timestamp_ms,
            type=_ARCHIVE if self.archive else _FILE,
            visibility=_VISIBILITY[self.visibility],
        )


class Launch(NamedTuple):
    """The launch context of a container."""

    command: Tuple[str, ...]
    environment: Mapping[str, str] = {}
    files: Mapping[str, LocalFile] = {}  # by the name it gets
    credentials: Credentials = Credentials()
    view_acl: str = ""  # "user,user group,group"; a node has them of the application's first launch
    modify_acl: str = ""

    def to_message(self) -> yarn.ContainerLaunchContext:
        acls = [(_VIEW, self.view_acl), (_MODIFY, self.modify_acl)]
        return yarn.ContainerLaunchContext(
            local_resources=[
                yarn.StringLocalResourceMap(key=name, value=file.to_message())
                for name, file in sorted(self.files.items())
            ],
            tokens=self.credentials.encode(),
            environment=[
                yarn.StringStringMap(key=name, value=value)
                for name, value in sorted(self.environment.items())
            ],
            command=self.command,
            application_acls=[
                yarn.ApplicationACLMap(access_type=kind, acl=acl) for kind, acl in acls if acl
            ],
        )
