"""Words that survive YARN's own script.

The node writes a launch context's environment as ``export K="V"`` and its command as
``bash -c "CMD"``, both as they are. ``{{K}}``, ``<LOG_DIR>`` and ``<CPS>`` are replaced first.
"""

from __future__ import annotations

import re
import shlex
from typing import Dict, Mapping, Sequence

_BEFORE_QUOTES = re.compile(r'([\\"$`])')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_IN_A_VARIABLE = re.compile(r'[\\"$`\n\r\0]|\{\{|<LOG_DIR>|<CPS>')


def word(text: str) -> str:
    """One word of a command."""
    return _BEFORE_QUOTES.sub(r"\\\1", shlex.quote(text))


def command(words: Sequence[str], stdout: str, stderr: str) -> str:
    """A container's command, its output in files of its log folder.

    Where a site's ``yarn.nodemanager.env-whitelist`` lacks PATH, the node's shell has one of its
    own that no process sees, and a Python that was started by its name does not know where it is.
    """
    return (
        f"export PATH; exec {' '.join(word(text) for text in words)}"
        f" 1><LOG_DIR>/{stdout} 2><LOG_DIR>/{stderr}"
    )


def is_plain(value: str) -> bool:
    """Whether a variable's value arrives on the node as it was sent."""
    return _NOT_IN_A_VARIABLE.search(value) is None


def plain_variables(env: Mapping[str, str]) -> Dict[str, str]:
    """Those that arrive on the node as they were sent."""
    return {name: env[name] for name in env if _NAME.match(name) and is_plain(env[name])}
