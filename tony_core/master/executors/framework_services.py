"""What a framework runs in the master for a session: started, watched, closed.

A service works on threads of its own and may call back at any time. Its failure reaches the session
machine on the reactor's thread, and only while its session lasts.
"""

from __future__ import annotations

from typing import Callable, Collection, Dict, List, Mapping

from tony_core.frameworks.base import Framework, Service, ServiceContext
from tony_core.job.spec import Job
from tony_core.protocol.reactor import Reactor

#: (session, reason, task, exit code)
Failed = Callable[[int, str, str, int], None]


class FrameworkServices:
    """The services of the sessions that have not ended."""

    def __init__(
        self,
        reactor: Reactor,
        job: Job,
        framework: Framework,
        host: str,
        failed: Failed,
        log: Callable[[str], None],
        nodes: Callable[[], Collection[str]],
    ) -> None:
        self._reactor = reactor
        self._job = job
        self._framework = framework
        self._host = host
        self._failed = failed
        self._log = log
        self._nodes = nodes
        self._open: Dict[int, List[Service]] = {}

    def serve(self, session: int, size: int) -> Mapping[str, str]:
        """Start what this session needs; return the variables that its tasks need."""

        def failed(reason: str, task: str, exit_code: int) -> None:
            self._reactor.call_soon_threadsafe(self._report, session, reason, task, exit_code)

        running = self._open.setdefault(session, [])
        context = ServiceContext(self._host, failed, self._log, self._nodes)
        service = self._framework.serve(self._job, session, size, context)
        if service is None:
            return {}
        running.append(service)
        return service.environment()

    def close(self, session: int) -> None:
        for service in self._open.pop(session, ()):
            service.close()

    def close_all(self) -> None:
        for session in list(self._open):
            self.close(session)

    def _report(self, session: int, reason: str, task: str, exit_code: int) -> None:
        if session in self._open:
            self._failed(session, reason, task, exit_code)
