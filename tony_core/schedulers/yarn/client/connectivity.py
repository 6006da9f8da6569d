"""Whether anybody listens where the ResourceManager should be: asked before anything else.

A refused connection is known in a millisecond; the calls' own patience (half a minute, made
for a ResourceManager that fails over) would only keep a user waiting at a wrong address.
"""

from __future__ import annotations

import socket
import time
from typing import Dict

from tony_core.hadoop.rpc.connection import Address, Endpoints

CONNECT_S = 3.0
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0


def why_not(endpoints: Endpoints, retries: int = 0) -> str:
    """Why none of the servers takes a connection; empty when one does."""
    pause = FIRST_PAUSE_S
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)
        said: Dict[str, None] = {}
        for address in endpoints.addresses:
            why = _try(address)
            if not why:
                return ""
            said[f"{address}: {why}"] = None
    words = "; ".join(said)
    note = f". {endpoints.note}" if endpoints.note else ""
    tries = f" ({retries + 1} attempts)" if retries else ""
    return f"{endpoints.service} cannot be reached{tries}: {words}{note}"


def _try(address: Address) -> str:
    try:
        socket.create_connection((address.host, address.port), timeout=CONNECT_S).close()
    except socket.timeout:
        return f"no answer within {CONNECT_S:g} s"
    except socket.gaierror as error:
        return f"this name is not known ({error.strerror})"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""
