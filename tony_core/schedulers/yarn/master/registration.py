"""A master's first word to the ResourceManager, and what is left to do when it is not taken.

What the configuration makes impossible, no later attempt can do either; but a ResourceManager
that has not proved who it is may be anybody, and ends nothing.
As nothing may be said to the ResourceManager as a master then, the application is ended as its
user would end it, in words by which its clients know a failure (:mod:`status`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Callable, NoReturn, Optional, Sequence
from urllib.parse import urlsplit

from tony_core.hadoop.errors import ConfigurationError, HadoopError
from tony_core.hadoop.yarn.messages.asks import PlacementConstraintMapEntry
from tony_core.hadoop.yarn.rm_master import Registered
from tony_core.schedulers.port import LastingRefusal, SchedulerError
from tony_core.schedulers.yarn import constraints
from tony_core.schedulers.yarn.client import refusals
from tony_core.schedulers.yarn.master.application import Application

Call = Callable[[str, int, str, Sequence[PlacementConstraintMapEntry]], Registered]
End = Callable[[str], None]


def register(
    call: Call, application: Application, page_url: str, end: Optional[End] = None
) -> Registered:
    """Make this attempt the application's master; :class:`SchedulerError` in one line."""
    try:
        constrained = constraints.of_application(application.placement_spec)
    except constraints.ConstraintError as error:
        _never(f"tony.application.placement-spec: {error}", error, end)
    number = urlsplit(page_url).port or 0
    try:
        return call(application.host, number, page_url, constrained)
    except ConfigurationError as error:
        _never(f"the ResourceManager cannot take this master: {error}", error, end)
    except HadoopError as error:
        told = refusals.told(error, "this master")
        if isinstance(told, LastingRefusal):
            _never(str(told), error, end)
        text = f"the ResourceManager did not take this master: {error}"
        raise SchedulerError(" ".join(text.split())) from error


def _never(text: str, error: Exception, end: Optional[End]) -> NoReturn:
    words = " ".join(text.split())
    if end is not None:
        with suppress(HadoopError):
            end(words)
    raise LastingRefusal(words) from error
