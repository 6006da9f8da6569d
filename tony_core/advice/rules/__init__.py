"""The rules: one module for each subject, each with one function from facts to advice.

No two of them change the same key: a subject that touches another one's key asks it first
(:func:`tony_core.advice.rules.cores.advise_cores` leaves a role to the rules that know why its
cores are idle or busy).
"""

from __future__ import annotations

from typing import Callable, List, Tuple

from tony_core.advice.advice import Advice
from tony_core.advice.facts import Facts
from tony_core.advice.rules.checkpoints import advise_checkpoints
from tony_core.advice.rules.cores import advise_cores
from tony_core.advice.rules.gpus import advise_gpus
from tony_core.advice.rules.heartbeats import advise_heartbeats
from tony_core.advice.rules.memory import advise_memory
from tony_core.advice.rules.parameter_servers import advise_parameter_servers
from tony_core.advice.rules.retries import advise_retries
from tony_core.advice.rules.scaling import advise_scaling
from tony_core.advice.rules.stalls import advise_stalls
from tony_core.advice.rules.startup import advise_startup
from tony_core.advice.rules.stragglers import advise_stragglers

RULES: Tuple[Callable[[Facts], List[Advice]], ...] = (
    advise_memory,
    advise_gpus,
    advise_cores,
    advise_stragglers,
    advise_parameter_servers,
    advise_startup,
    advise_checkpoints,
    advise_stalls,
    advise_retries,
    advise_heartbeats,
    advise_scaling,
)
