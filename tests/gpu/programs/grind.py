"""Keeps the GPU busy, with so many MB of its memory, until it is ended.

With ``stubborn`` TERM does nothing, and a second process in a session of its own does the same.
"""

import os
import signal
import subprocess
import sys


def main(megabytes, *how):
    if "stubborn" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        argv = [sys.executable, __file__, megabytes, "deaf"]
        subprocess.Popen(argv, start_new_session=True)
    if "deaf" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    import torch

    held = torch.zeros(int(megabytes) << 18, device="cuda")  # 4 bytes each
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    print(f"grinding {os.getpid()} {held.numel()}", flush=True)
    while True:
        for _ in range(200):
            c = a @ b
        torch.cuda.synchronize()
        held[0] = c[0, 0]


if __name__ == "__main__":
    main(*sys.argv[1:])
