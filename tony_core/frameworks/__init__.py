"""Frameworks by name: a cluster spec in, an environment out.

Ours are built in and found without looking at what is installed, so that they are there
under ``python -S`` too; others come by the entry point group ``tony.frameworks``, whose
objects are classes derived from :class:`tony_core.frameworks.base.Framework`. Their package
travels with the job (``tony_core/plugins.py``).
"""

from __future__ import annotations

import importlib
from typing import Dict, List, Optional, Tuple

from tony_core.frameworks.base import Framework
from tony_core.job.problems import did_you_mean
from tony_core.plugins import Plugin, installed

GROUP = "tony.frameworks"

_BUILT_IN: Dict[str, Tuple[str, str]] = {
    "horovod": ("tony_core.frameworks.horovod", "Horovod"),
    "jax": ("tony_core.frameworks.jax", "Jax"),
    "lightgbm": ("tony_core.frameworks.lightgbm", "LightGbm"),
    "mpi": ("tony_core.frameworks.mpi", "Mpi"),
    "mxnet": ("tony_core.frameworks.mxnet", "MxNet"),
    "pytorch": ("tony_core.frameworks.pytorch", "PyTorch"),
    "ray": ("tony_core.frameworks.ray", "Ray"),
    "standalone": ("tony_core.frameworks.standalone", "Standalone"),
    "tensorflow": ("tony_core.frameworks.tensorflow", "TensorFlow"),
    "xgboost": ("tony_core.frameworks.xgboost", "XGBoost"),
}


class UnknownFramework(ValueError):
    """``tony.application.framework`` names an unknown framework; the text says what to do."""


def find_framework(name: str) -> Framework:
    """The framework of that name, in any case; raises :class:`UnknownFramework`."""
    wanted = name.strip().lower()
    if wanted in _BUILT_IN:
        module, attribute = _BUILT_IN[wanted]
        made = getattr(importlib.import_module(module), attribute)()
        assert isinstance(made, Framework)
        return made
    plugin = installed(GROUP).get(wanted)
    if plugin is not None:
        return _load(plugin)
    known = framework_names()
    raise UnknownFramework(
        f"there is no framework called {name!r}{did_you_mean(wanted, known)};"
        f" there are {', '.join(known)}"
    )


def framework_names() -> List[str]:
    """Every framework that :func:`find_framework` finds."""
    return sorted({*_BUILT_IN, *installed(GROUP)})


def plugin_of(name: str) -> Optional[Plugin]:
    """The plugin of another distribution of this name; None for ours and the unknown."""
    wanted = name.strip().lower()
    return None if wanted in _BUILT_IN else installed(GROUP).get(wanted)


def _load(plugin: Plugin) -> Framework:
    try:
        made = plugin.load()()
    except Exception as error:
        # Another distribution's code: the answer to any exception is the same.
        raise UnknownFramework(
            f"the framework {plugin.name} ({plugin.target}, by the entry point group {GROUP})"
            f" cannot be loaded: {type(error).__name__}: {error}; fix or remove its distribution"
        ) from error
    if not isinstance(made, Framework):
        raise UnknownFramework(
            f"the framework {plugin.name} ({plugin.target}) is not a"
            " tony_core.frameworks.base.Framework"
        )
    return made
