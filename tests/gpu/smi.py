"""What the real nvidia-smi says, asked here and not by the product."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import List, Set


def there() -> bool:
    """Whether this machine has a GPU that can be asked."""
    program = shutil.which("nvidia-smi")
    return bool(program) and bool(_query("-L"))


def uuids() -> List[str]:
    """Of the whole GPUs."""
    return re.findall(r"^GPU \d+: .*\(UUID: (GPU-[\w-]+)\)", _query("-L"), re.MULTILINE)


def on_gpus() -> Set[int]:
    """The processes that have something on a GPU."""
    output = _query("--query-compute-apps=pid", "--format=csv,noheader")
    return {int(word) for word in output.split() if word.isdigit()}


def used_mb() -> int:
    """The memory that is taken, of all GPUs."""
    output = _query("--query-gpu=memory.used", "--format=csv,noheader,nounits")
    return sum(int(word) for word in output.split())


def total_mb() -> int:
    """The memory of the smallest GPU."""
    output = _query("--query-gpu=memory.total", "--format=csv,noheader,nounits")
    return min(int(word) for word in output.split())


def _query(*words: str) -> str:
    done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""
