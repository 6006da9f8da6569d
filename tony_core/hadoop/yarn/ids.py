"""The ids of YARN: values, as text, and as messages.

A container's id holds, above its number, the *epoch*: how often the ResourceManager was
restarted before. It shows in the text (``container_e17_...``) only when it is not zero.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tony_core.hadoop.yarn.messages import yarn

_EPOCH_BITS = 40
_APPLICATION = re.compile(r"application_(\d+)_(\d+)")
_ATTEMPT = re.compile(r"appattempt_(\d+)_(\d+)_(\d+)")
_CONTAINER = re.compile(r"container_(?:e(\d+)_)?(\d+)_(\d+)_(\d+)_(\d+)")
_NODE = re.compile(r"\[?([^\s\[\]]+?)\]?:(\d+)")


class ApplicationId(NamedTuple):
    """``application_1700000000000_0042``."""

    cluster: int  # when the ResourceManager first started, in milliseconds
    number: int

    def __str__(self) -> str:
        return f"application_{self.cluster}_{self.number:04d}"

    @classmethod
    def parse(cls, text: str) -> ApplicationId:
        """Raises ValueError."""
        match = _APPLICATION.fullmatch(text)
        if not match:
            raise _malformed(text, "application_1700000000000_0042")
        return cls(int(match.group(1)), int(match.group(2)))

    @classmethod
    def of(cls, message: yarn.ApplicationId) -> ApplicationId:
        """From a message."""
        return cls(message.cluster_timestamp, message.id)

    def message(self) -> yarn.ApplicationId:
        """For a message."""
        return yarn.ApplicationId(id=self.number, cluster_timestamp=self.cluster)


class AttemptId(NamedTuple):
    """``appattempt_1700000000000_0042_000001``: one life of an application's master."""

    application: ApplicationId
    number: int  # from 1

    def __str__(self) -> str:
        app = self.application
        return f"appattempt_{app.cluster}_{app.number:04d}_{self.number:06d}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        """Raises ValueError."""
        match = _ATTEMPT.fullmatch(text)
        if not match:
            raise _malformed(text, "appattempt_1700000000000_0042_000001")
        cluster, application, number = (int(group) for group in match.groups())
        return cls(ApplicationId(cluster, application), number)

    @classmethod
    def of(cls, message: yarn.ApplicationAttemptId) -> AttemptId:
        """From a message."""
        return cls(ApplicationId.of(message.application_id), message.attempt_id)

    def message(self) -> yarn.ApplicationAttemptId:
        """For a message."""
        return yarn.ApplicationAttemptId(
            application_id=self.application.message(), attempt_id=self.number
        )


class ContainerId(NamedTuple):
    """``container_e17_1700000000000_0042_01_000003``."""

    attempt: AttemptId
    number: int  # the epoch above, the serial number below

    @property
    def epoch(self) -> int:
        """Restarts of the ResourceManager before this container."""
        return self.number >> _EPOCH_BITS

    @property
    def serial(self) -> int:
        """The number within attempt and epoch."""
        return self.number & ((1 << _EPOCH_BITS) - 1)

    def __str__(self) -> str:
        app = self.attempt.application
        epoch = f"e{self.epoch:02d}_" if self.epoch else ""
        return (
            f"container_{epoch}{app.cluster}_{app.number:04d}"
            f"_{self.attempt.number:02d}_{self.serial:06d}"
        )

    @classmethod
    def parse(cls, text: str) -> ContainerId:
        """Raises ValueError."""
        match = _CONTAINER.fullmatch(text)
        if not match:
            raise _malformed(text, "container_1700000000000_0042_01_000003")
        epoch, cluster, application, attempt, count = (int(group or 0) for group in match.groups())
        if count >> _EPOCH_BITS:
            raise _malformed(text, "container_1700000000000_0042_01_000003")
        return cls(
            AttemptId(ApplicationId(cluster, application), attempt), epoch << _EPOCH_BITS | count
        )

    @classmethod
    def of(cls, message: yarn.ContainerId) -> ContainerId:
        """From a message."""
        return cls(AttemptId.of(message.app_attempt_id), message.id)

    def message(self) -> yarn.ContainerId:
        """For a message."""
        return yarn.ContainerId(app_attempt_id=self.attempt.message(), id=self.number)


class NodeId(NamedTuple):
    """``host:45454``: where a NodeManager takes calls, and its name."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> NodeId:
        """Raises ValueError."""
        match = _NODE.fullmatch(text)
        if not match:
            raise _malformed(text, "host:45454")
        return cls(match.group(1), int(match.group(2)))

    @classmethod
    def of(cls, message: yarn.NodeId) -> NodeId:
        """From a message."""
        return cls(message.host, message.port)

    def message(self) -> yarn.NodeId:
        """For a message."""
        return yarn.NodeId(host=self.host, port=self.port)


def _malformed(text: str, example: str) -> ValueError:
    return ValueError(f"{text!r} is not of the form {example}")
