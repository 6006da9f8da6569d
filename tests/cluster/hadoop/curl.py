"""What a user reads with curl: with a ticket, or as a stranger; nothing of TonY's takes part."""

from __future__ import annotations

import os
import subprocess
from typing import Mapping, Optional, Tuple

TIMEOUT_S = 30


def curl(
    url: str,
    ticket: Optional[Mapping[str, str]] = None,
    *,
    cookies: str = "",
    source: str = "",
    method: str = "GET",
    follow: bool = False,
) -> Tuple[int, str]:
    """Status and body; ``ticket`` is the environment of a user who has one."""
    command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--request", method]
    command += ["--max-time", str(TIMEOUT_S), "--write-out", "\n%{http_code}"]
    command += ["--negotiate", "--user", ":"] if ticket is not None else []
    command += ["--cookie", cookies] if cookies else []
    command += ["--interface", source] if source else []
    # As a browser does: to the next address with the cookies that the last one set.
    command += ["--location", "--cookie", ""] if follow else []
    done = subprocess.run(
        [*command, url],
        env={"PATH": os.environ.get("PATH", ""), **(ticket or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=2 * TIMEOUT_S,
    )
    assert done.returncode == 0, f"{url}: {done.stderr}"
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body
