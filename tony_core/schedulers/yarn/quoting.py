"""Words that survive YARN's own script.

The node writes a launch context's environment as ``export K="V"`` and its command as
``bash -c "CMD"``, both as they are. ``{{K}}``, ``<LOG_DIR>`` and ``<CPS>`` are replaced first.
"""

from __future__ import annotations

import re
import shlex

_BEFORE_QUOTES = re.compile(r'([\\"$`])')
_NOT_IN_A_VARIABLE = re.compile(r'[\\"$`\n\r\0]|\{\{|<LOG_DIR>|<CPS>')


def word(text: str) -> str:
    """One word of a command."""
    return _BEFORE_QUOTES.sub(r"\\\1", shlex.quote(text))


def is_plain(value: str) -> bool:
    """Whether a variable's value arrives on the node as it was sent."""
    return _NOT_IN_A_VARIABLE.search(value) is None
