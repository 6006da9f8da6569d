"""What a task finds of GPUs, as one line of JSON on its standard output."""

import json
import os

_NAMES = (
    *("JOB_NAME", "TASK_INDEX", "SESSION_ID", "CUDA_VISIBLE_DEVICES"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PET_NPROC_PER_NODE"),
)


def tell(**found):
    """It and the variables that speak of it."""
    line = {"seen": {name: os.environ.get(name) for name in _NAMES}, "pid": os.getpid(), **found}
    print(json.dumps(line), flush=True)


def by_torch():
    """PyTorch's own word; a GPU that is there has computed something."""
    import torch

    available = torch.cuda.is_available()
    count = torch.cuda.device_count() if available else 0
    uuids = [f"GPU-{torch.cuda.get_device_properties(at).uuid}" for at in range(count)]
    total = float(torch.ones(1000, device="cuda").sum()) if available else None
    tell(available=available, uuids=uuids, total=total)


def by_jax():
    """JAX's own word, likewise."""
    import jax
    import jax.numpy as jnp

    kinds = [device.platform for device in jax.local_devices()]
    total = float(jax.jit(jnp.sum)(jnp.ones(1000)))
    tell(platforms=kinds, processes=jax.process_count(), total=total)


if __name__ == "__main__":
    import sys

    if sys.argv[1] == "jax":
        by_jax()
    else:
        by_torch()
