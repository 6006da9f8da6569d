"""Keys of the JVM TonY that have another name here, no effect, or are refused."""

from __future__ import annotations

from tony_core.job.keys.key import Key, Kind, Status


def _renamed(old: str, new: str, kind: Kind, unit: str = "") -> Key:
    return Key(old, kind, f"The older name of {new}.", unit=unit, status=Status.RENAMED, alias=new)


_RENAMED = [
    _renamed(
        "tony.application.stop.on.failure.jobtypes",
        "tony.application.stop-on-failure-jobtypes",
        Kind.ROLES,
    ),
    _renamed("tony.application.docker.enabled", "tony.docker.enabled", Kind.BOOL),
    _renamed("tony.application.docker.image", "tony.docker.containers.image", Kind.TEXT),
    _renamed(
        "tony.task.heartbeat-interval", "tony.task.heartbeat-interval-ms", Kind.DURATION, unit="ms"
    ),
    _renamed(
        "tony.task.registration-timeout-sec",
        "tony.container.registration.timeout",
        Kind.DURATION,
        unit="s",
    ),
    _renamed(
        "tony.worker.timeout",
        "tony.task.executor.execution-timeout-ms",
        Kind.DURATION,
        unit="ms",
    ),
]  # fmt: skip


def _ignored(name: str, doc: str) -> Key:
    return Key(name, Kind.TEXT, doc, status=Status.IGNORED)


_PORTAL = "For the JVM TonY's portal; the one here has a settings file of its own."
_HISTORY = "Histories stand in tony.history.location, and no server moves them."

_IGNORED = [
    _ignored("tony.<any>.jvm.opts", "Options of a JVM; there is none."),
    _ignored("tony.history.finished-dir-timezone", _HISTORY),
    _ignored("tony.http.port", _PORTAL),
    _ignored("tony.https.<any>", _PORTAL),
    _ignored("tony.secret.key", _PORTAL),
    _ignored("tony.portal.cache.max-entries", _PORTAL),
    _ignored("tony.history.intermediate", _HISTORY),
    _ignored("tony.history.finished", _HISTORY),
    _ignored("tony.history.mover-interval-ms", _HISTORY),
    _ignored("tony.history.purger-interval-ms", _HISTORY),
    _ignored("tony.history.host", _PORTAL),
    _ignored("tony.history.cache.max-entries", _PORTAL),
    _ignored("tony.history.maxAppends", _PORTAL),
    _ignored("tony.init.module", _PORTAL),
    _ignored(
        "tony.am.wait-client-signal-stop-timeout-sec", "The master does not wait for its client."
    ),
    _ignored("tony.task.registration-retry-count", "Registration is part of the session."),
    _ignored("tony.application.single-node", "A job without instances is a single task."),
    _ignored("tony.application.test.<any>", "Switches of the JVM's own tests."),
    _ignored("tony.chief.name", "The chief is the role chief, else worker 0."),
    _ignored("tony.chief.index", "The chief is the role chief, else worker 0."),
    _ignored("tony.horovod.mode.<any>", "Switches of the JVM's own Horovod tests."),
    _ignored("tony.horovod.driver.<any>", "The rendezvous runs in the master."),
    _ignored("tony.driver.<any>", "The rendezvous runs in the master."),
    _ignored("tony.version-info.<any>", "What version of JVM TonY wrote the file."),
]  # fmt: skip

_REFUSED = [
    Key("tony.horovod.driver.mode.debug", Kind.BOOL, default="false", status=Status.REFUSED,
        doc="true, a Horovod driver of the job's own (tony.driver.command), is refused: the"
            " rendezvous runs in the master."),
]  # fmt: skip

KEYS = [*_RENAMED, *_REFUSED, *_IGNORED]
