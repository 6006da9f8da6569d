"""Schedulers by name: the built-in ones, and those of other distributions.

Another distribution registers a :class:`~tony_core.schedulers.port.Scheduler` class (or any
callable that takes the environment and gives one) under the entry point group
``tony.schedulers``, and under the same name in the group ``tony.pools`` the function
``open_master`` of the master's side, whose package travels with the job
(``tony_core/plugins.py``). Nothing is imported, and no distribution is searched for, before it is
needed: the processes beside every container import this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

if TYPE_CHECKING:
    from types import SimpleNamespace

    from tony_core.plugins import Plugin
    from tony_core.schedulers.container_pool import ContainerPool, MasterContext
    from tony_core.schedulers.port import Scheduler

GROUP = "tony.schedulers"
POOLS = "tony.pools"

BUILT_IN: Dict[str, Tuple[str, str]] = {
    "local": ("tony_core.schedulers.local.client", "LocalScheduler"),
    "yarn": ("tony_core.schedulers.yarn.client.scheduler", "YarnScheduler"),
}

_POOL_MODULES = {
    "local": "tony_core.schedulers.local.pool",
    "yarn": "tony_core.schedulers.yarn.master.pool_factory",
}


def scheduler_names() -> List[str]:
    """Every scheduler that can be opened."""
    return sorted({*BUILT_IN, *_plugins(GROUP)})


def open_scheduler(name: str, env: Optional[Mapping[str, str]] = None) -> Scheduler:
    """The client's side of a scheduler; ``env`` stands for ``os.environ``."""
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name]
        factory = getattr(importlib.import_module(module), attribute)
    else:
        plugin = _plugins(GROUP).get(name.lower())
        if plugin is None:
            from tony_core.schedulers.port import NoSuchScheduler

            raise NoSuchScheduler(missing(name))
        factory = plugin.load()
    opened: Scheduler = factory(env)
    return opened


def missing(name: str) -> str:
    """Why no scheduler of that name can be opened; empty if one can."""
    if name in BUILT_IN or name.lower() in _plugins(GROUP):
        return ""
    there = f"there is: {', '.join(scheduler_names())}"
    return f"there is no scheduler {name!r}; {there}"


def open_master(arguments: SimpleNamespace) -> Tuple[MasterContext, ContainerPool]:
    """The master's side, by the words that the scheduler started this master with."""
    name: str = arguments.scheduler
    if name in BUILT_IN:
        opener = importlib.import_module(_POOL_MODULES[name]).open_master
    else:
        from tony_core.schedulers.port import SchedulerError

        plugin = _plugins(POOLS).get(name.lower())
        if plugin is None:
            raise SchedulerError(f"the scheduler {name!r} has no master's side here")
        opener = plugin.load()
    opened: Tuple[MasterContext, ContainerPool] = opener(arguments)
    return opened


def plugin_of(name: str) -> Optional[Plugin]:
    """The master's side of another distribution's scheduler; None for ours.

    SchedulerError when it has only the client's side: no master could be started.
    """
    if name in BUILT_IN or name.lower() not in _plugins(GROUP):
        return None
    plugin = _plugins(POOLS).get(name.lower())
    if plugin is None:
        from tony_core.schedulers.port import SchedulerError

        raise SchedulerError(
            f"the scheduler {name} has no master's side: its distribution must name its"
            f" open_master as {name} in the entry point group {POOLS}"
        )
    return plugin


def _plugins(group: str) -> Dict[str, Plugin]:
    """The plugins of other distributions, by name."""
    from tony_core.plugins import installed

    return installed(group)
