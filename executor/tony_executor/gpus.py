"""What the GPUs say, by nvidia-smi. Pure but for finding it."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional

EVERY_S = 10.0
"""nvidia-smi costs a tenth of a second of a core: not more often than this."""

_FIELDS = ("utilization.gpu", "memory.used", "memory.total")
_DEVICE = "/dev/nvidiactl"


def command(environment: Mapping[str, str], given: str = "") -> Optional[List[str]]:
    """How to ask for our GPUs; None where there are none."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles", "none", "void"):
        return None
    if not given and not os.path.exists(_DEVICE):
        return None
    program = given or _found(environment.get("PATH", ""))
    if not program or not os.access(program, os.X_OK):
        return None
    asked = [
        program,
        "--query-gpu=" + ",".join(_FIELDS),
        "--format=csv,noheader,nounits",
    ]
    return [*asked, "-i", visible] if visible else asked


def parse(text: str) -> Dict[str, float]:
    """The means and sums over our GPUs; what says [N/A] is left out."""
    columns: Dict[str, List[float]] = {name: [] for name in _FIELDS}
    rows = [line for line in text.splitlines() if line.count(",") == len(_FIELDS) - 1]
    for line in rows:
        for name, word in zip(_FIELDS, line.split(",")):
            try:
                columns[name].append(float(word))
            except ValueError:
                continue
    values: Dict[str, float] = {}
    busy, used, whole = (columns[name] for name in _FIELDS)
    if busy:
        values["gpu_percent"] = round(sum(busy) / len(busy), 1)
    if used:
        values["gpu_memory_mb"] = sum(used)
    if whole:
        values["gpu_memory_total_mb"] = sum(whole)
    if rows:
        values["gpus"] = float(len(rows))
    return values


def _found(path: str) -> Optional[str]:
    for folder in [*path.split(os.pathsep), "/usr/bin", "/usr/local/nvidia/bin"]:
        candidate = os.path.join(folder, "nvidia-smi")
        if folder and os.access(candidate, os.X_OK):
            return candidate
    return None
