"""Where an application's masters ran, of which RPC says nothing once they have ended."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, NamedTuple
from urllib.parse import quote, urlencode

from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.schedulers.yarn.logs.web import Web, WebUnreachable

_KEPT = 256


class Place(NamedTuple):
    """A node: its name, and the address of its web service."""

    node: str = ""
    address: str = ""


class MasterPlaces:
    """The ResourceManager's web service, asked once for each master."""

    def __init__(self, conf: SiteConfiguration, web: Web, user: str) -> None:
        self._conf = conf
        self._web = web
        self._user = user
        self._known: OrderedDict[str, Place] = OrderedDict()

    def of(self, app_id: str, container_id: str) -> Place:
        """Where a master's container ran; an empty place when it is none, or nobody knows."""
        if container_id not in self._known:
            told = self._ask(app_id)
            self._known.update(told)
            if told:
                self._known.setdefault(container_id, Place())  # a task's, not a master's
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return self._known.get(container_id, Place())

    def _ask(self, app_id: str) -> Dict[str, Place]:
        try:
            service = endpoints.rm_web(self._conf)
        except ConfigurationError:
            return {}
        query = urlencode({"user.name": self._user})
        target = f"/ws/v1/cluster/apps/{quote(app_id, safe='')}/appattempts?{query}"
        for address in service.addresses:
            try:
                with self._web.get(str(address), target, tls=service.tls) as answer:
                    if answer.status == 200:
                        return places_in(answer.json())
            except WebUnreachable:
                continue  # or it is the other one of the pair
        return {}


def places_in(told: Any) -> Dict[str, Place]:
    """By container, out of what a ResourceManager says of an application's attempts."""
    found: Dict[str, Place] = {}
    part = told.get("appAttempts") if isinstance(told, dict) else None
    attempts = part.get("appAttempt") if isinstance(part, dict) else None
    for attempt in attempts if isinstance(attempts, list) else [attempts]:
        if isinstance(attempt, dict) and attempt.get("containerId"):
            found[str(attempt["containerId"])] = Place(
                str(attempt.get("nodeId") or ""), str(attempt.get("nodeHttpAddress") or "")
            )
    return found
