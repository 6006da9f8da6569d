"""Where each rule begins to speak, and how loudly: every number of the rules, with its reason.

:class:`LeastEvidence` says below which a rule is silent; a caller may pass another one (tests with
short jobs do). The rest are grades: of a value that should be large (:func:`grade_below`) or small
(:func:`grade_above`), the limits of low, moderate, severe and critical.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from tony_core.advice.advice import SEVERITIES

#: Of a rule that never speaks so loudly the last ones are missing.
Grades = Tuple[float, ...]


class LeastEvidence(NamedTuple):
    """With less than this a rule is silent. Seconds, unless the name says otherwise."""

    #: Programs that ran for a shorter time were still loading data and libraries.
    run_s: float = 300.0
    #: A minute at the usual interval of 5 s; below it one odd value decides.
    samples: int = 12
    #: Reports of a step, for a rate.
    steps: int = 10
    #: Of a job that is not over, or failed: its largest use may yet have come.
    unfinished_s: float = 3600.0
    #: A shorter wait for containers is how every scheduler works.
    wait_s: float = 120.0
    #: A usual virtual environment is on the nodes in less.
    staging_s: float = 60.0
    #: Less lost work than this is not worth a change.
    lost_s: float = 300.0
    #: A job that is shorter can be run again.
    unsaved_s: float = 3600.0
    #: Retries that took less were a cheap try.
    retried_s: float = 60.0
    #: A gap shorter than some seconds is a busy node, whatever the limit.
    gap_s: float = 5.0


LEAST_EVIDENCE = LeastEvidence()

MB_OF_GB = 1024.0

# ------------------------------------------------------------------ memory

USED_MEMORY: Grades = (0.8, 0.7, 0.6, 0.5)  # the peak, of what was asked
LEAST_MEMORY_MB = 2048  # the default of a role: below it a site has little to gain
MEMORY_HEAD_ROOM = 1.25  # of the peak: it is sampled, and the next run's data differ
EXECUTOR_MB = 64  # our own processes in the container: executor, and shim or guard
#: Schedulers round to steps of this size or larger. From here on whole GB: they read better.
MEMORY_STEP_MB, WHOLE_GB_FROM_MB = 512, 8192
LEAST_MEMORY_SAVED_MB = 256
NEAR_LIMIT = 0.95  # of what was asked, with our own processes

# ------------------------------------------------------------------ cores

#: The busiest task's 95th percentile, of what was asked. Cores are shared more easily than
#: memory, so these begin lower.
USED_CORES: Grades = (0.5, 0.35, 0.2, 0.1)
CORES_HEAD_ROOM = 1.25
HIGH = 0.95  # the percentile that counts as the most: a short burst may wait
FULL_CORES = 0.9  # of what was asked, half of the time: all cores are busy
FEW_CORES = 8  # with more, all of them busy is good use
#: Used, of what was asked, half of the time: a single core that is full says nothing (one thread
#: can use no more), more than was asked for is taken from others.
OVER_CORES: Grades = (1.2, 1.5, 2.0, 4.0)

# ------------------------------------------------------------------ GPUs

IDLE_GPU = 5.0  # percent, on average ...
IDLE_GPU_HIGH = 10.0  # ... and nearly always: one that looks at a GPU makes it this busy
#: More than drivers and a card's own needs take: a program has put something there, and may end
#: where it finds no GPU.
IDLE_GPU_MEMORY_MB = 1024.0
#: The mean in percent: what waits for its input, or launches kernels that are too small.
USED_GPU: Grades = (50.0, 35.0, 20.0, 10.0)
PULSING_GPU = 70.0  # the mean up to which pulses count
PULSE_LOW, PULSE_HIGH, PULSE_SHARE = 20.0, 70.0, 0.25  # percent, percent, of the samples
BUSY_GPU = 90.0  # what a well fed program reaches
#: Cores in use: one process prepares all the input, or starts kernels that are too small.
ONE_CORE = (0.8, 1.3)
BUSY_CORES = 0.8  # of what was asked
#: The peak of GPU memory, of what the card has. Never more than moderate: a smaller card may not
#: be there.
USED_GPU_MEMORY: Grades = (0.3, 0.15)

# ------------------------------------------------------------------ stragglers, servers, sizes

#: A task's speed, of the median of its peers'.
PEER_SPEED: Grades = (0.8, 0.7, 0.6, 0.5)
STRAGGLERS = 3  # named at most: with more the peers differ, and no task is behind
IDLE_WORKERS: Grades = (0.5, 0.4, 0.3, 0.2)  # cores of workers in use while a server is full
#: Speed-up of a larger gang, of the growth of the gang.
SPEED_UP: Grades = (0.6, 0.5, 0.4, 0.3)
GOOD_SPEED_UP = 0.9
#: From this on the workers share a fixed batch. With a fixed batch for each of them a step keeps
#: its time, and which of two sizes looks a little faster is chance.
FASTER = 1.3
#: Below this a step that became slower has no good reading: with a fixed batch for each worker
#: it should keep its time, with a fixed batch for all it should get shorter.
SLOWER = 0.5

# ------------------------------------------------------------------ time

WAITING_GRADES: Grades = (0.2, 0.4, 0.6, 0.8)  # of the job's time
STAGING_GRADES: Grades = (0.1, 0.25, 0.5, 0.75)
STALLED_GRADES: Grades = (0.05, 0.15, 0.3, 0.5)  # of the job's time: all of it is waste
#: A longer pause that passes is hardly a step, an evaluation or a checkpoint: no allowance for it.
LONGEST_PAUSE_S = 7200.0
PAUSE_ROOM = 1.5  # of the longest pause that passed: the next one may be longer
LOST_GRADES: Grades = (0.1, 0.2, 0.35, 0.5)  # of the time that programs ran
#: Of LeastEvidence.unsaved_s: hours, as it is. The program may save without TonY, however long it
#: runs.
UNSAVED: Grades = (1.0, 4.0)
RETRIED: Grades = (0.0, 0.25, 0.5, 0.75)  # of the job's time
HEARTBEAT_GAP: Grades = (0.5, 0.7, 0.85, 1.0)  # of the allowance
#: With a longer allowance a task that is lost would hold up the others for too long.
LONGEST_ALLOWANCE_S = 600.0


def grade_below(value: float, grades: Grades) -> Optional[str]:
    """The severity of a value that should be larger; None: it is large enough."""
    return _worst(sum(value < limit for limit in grades))


def grade_above(value: float, grades: Grades) -> Optional[str]:
    """The severity of a value that should be smaller; None: it is small enough."""
    return _worst(sum(value >= limit for limit in grades))


def at_most(severity: str, limit: str) -> str:
    """The severity, or the limit where that is less."""
    return min(severity, limit, key=SEVERITIES.index)


def _worst(reached: int) -> Optional[str]:
    return SEVERITIES[reached - 1] if reached else None
