"""The names of what is measured of a task, for those who measure it and for all who read it.

Executors measure and send them; the master, history, pages, Prometheus and advice read them.
"""

from __future__ import annotations

# Of a program's processes, now and then while it runs.
RSS_MB = "rss_mb"
CPU_PERCENT = "cpu_percent"  # of one core
THREADS = "threads"
PROCESSES = "processes"

# Of the task's GPUs: percent is their mean, memory their sum.
GPUS = "gpus"
GPU_PERCENT = "gpu_percent"
GPU_MEMORY_MB = "gpu_memory_mb"
GPU_MEMORY_TOTAL_MB = "gpu_memory_total_mb"

# Over a program's whole run, at its end.
PEAK_RSS_MB = "peak_rss_mb"
PEAK_THREADS = "peak_threads"
CPU_S = "cpu_s"
WALL_S = "wall_s"

# By the master.
HEARTBEAT_GAP_S = "heartbeat_gap_s"  # the longest time without a message of the executor

STEPS_PER_SECOND = "steps_per_second"  # of the last minute, for pages and Prometheus

# What a program reports of itself.
PROGRESS = "progress"
STEP = "step"
SAVED = "saved"  # the step of its last checkpoint
