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
        """Parse an id; raises ValueError."""
        match = _APPLICATION.fullmatch(text)
        if not match:
            raise _malformed(text, "application_1700000000000_0042")
        return cls(int(match.group(1)), int(match.group(2)))

    @classmethod
    def from_message(cls, message: yarn.ApplicationId) -> ApplicationId:
        return cls(message.cluster_timestamp, message.id)

    def to_message(self) -> yarn.ApplicationId:
        return yarn.ApplicationId(id=self.number, cluster_timestamp=self.cluster)


class AttemptId(NamedTuple):
    """``appattempt_1700000000000_0042_000001``: an attempt of an application's master."""

    application: ApplicationId
    number: int  # from 1

    def __str__(self) -> str:
        app = self.application
        return f"appattempt_{app.cluster}_{app.number:04d}_{self.number:06d}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        """Parse an id; raises ValueError."""
        match = _ATTEMPT.fullmatch(text)
        if not match:
            raise _malformed(text, "appattempt_1700000000000_0042_000001")
        cluster, application, number = (int(group) for group in match.groups())
        return cls(ApplicationId(cluster, application), number)

    @classmethod
    def from_message(cls, message: yarn.ApplicationAttemptId) -> AttemptId:
        return cls(ApplicationId.from_message(message.application_id), message.attempt_id)

    def to_message(self) -> yarn.ApplicationAttemptId:
        return yarn.ApplicationAttemptId(
            application_id=self.application.to_message(), attempt_id=self.number
        )


class ContainerId(NamedTuple):
    """``container_e17_1700000000000_0042_01_000003``."""

    attempt: AttemptId
    number: int  # the epoch above, the serial number below

    @property
    def epoch(self) -> int:
        """How often the ResourceManager had restarted before it allocated this container."""
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
        """Parse an id; raises ValueError."""
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
    def from_message(cls, message: yarn.ContainerId) -> ContainerId:
        return cls(AttemptId.from_message(message.app_attempt_id), message.id)

    def to_message(self) -> yarn.ContainerId:
        return yarn.ContainerId(app_attempt_id=self.attempt.to_message(), id=self.number)


class NodeId(NamedTuple):
    """``host:45454``: the address of a NodeManager, and its id."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> NodeId:
        """Parse an id; raises ValueError."""
        match = _NODE.fullmatch(text)
        if not match:
            raise _malformed(text, "host:45454")
        return cls(match.group(1), int(match.group(2)))

    @classmethod
    def from_message(cls, message: yarn.NodeId) -> NodeId:
        return cls(message.host, message.port)

    def to_message(self) -> yarn.NodeId:
        return yarn.NodeId(host=self.host, port=self.port)


def _malformed(text: str, example: str) -> ValueError:
    return ValueError(f"{text!r} is not of the form {example}")
