"""YARN's messages of preemption, the site's times, and what is withdrawn without a word."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId, ContainerId
from tony_core.hadoop.yarn.rm_master import Preempted
from tony_core.schedulers.container_pool import PreemptionRequested, PreemptionWithdrawn
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.master.preemption import (
    UNKNOWN_WAIT_S,
    Preemptions,
    PreemptionTimes,
    preemption_times,
)

MONITOR = "yarn.resourcemanager.monitor.capacity.preemption"
ATTEMPT = AttemptId(ApplicationId(1, 1), 1)
ONE, TWO, THREE = (ContainerId(ATTEMPT, number) for number in (2, 3, 4))
NOTHING = Preempted((), ())
TIMES = PreemptionTimes(15.0, 3.0)


class Yarn:
    """A pool's preemptions, with a clock and the containers that are held."""

    def __init__(self, times: PreemptionTimes = TIMES) -> None:
        self.preemptions = Preemptions(times)
        self.held: Set[ContainerId] = {ONE, TWO, THREE}
        self.now = 100.0

    def answer(
        self, certain: Sequence[ContainerId] = (), negotiable: Sequence[ContainerId] = ()
    ) -> List[Tuple[str, Tuple[str, ...], Optional[float]]]:
        message = Preempted(tuple(certain), tuple(negotiable))
        events = self.preemptions.update(message, self.held.__contains__, self.now)
        return [
            (type(event).__name__, event.container_ids, getattr(event, "seconds", None))
            for event in events
            if isinstance(event, (PreemptionRequested, PreemptionWithdrawn))
        ]


def test_both_contracts_are_asked_for_once_with_the_time_left_at_least() -> None:
    yarn = Yarn()
    assert yarn.answer([TWO], [ONE]) == [("PreemptionRequested", (str(ONE), str(TWO)), 14.0)]
    for _ in range(15):  # as the Fair Scheduler names them
        yarn.now += 1.0
        assert yarn.answer([TWO], [ONE]) == []


def test_an_answer_without_them_means_nothing_until_the_scheduler_has_forgotten_them() -> None:
    yarn = Yarn()
    yarn.answer([ONE, TWO])
    yarn.now += 2 * 15.0
    assert yarn.answer() == []
    yarn.held.discard(TWO)  # taken
    yarn.now += 6.0
    assert yarn.answer() == [("PreemptionWithdrawn", (str(ONE),), None)]
    assert yarn.answer() == []
    assert yarn.answer([ONE]) == [("PreemptionRequested", (str(ONE),), 14.0)]


def test_one_that_is_named_again_after_its_time_has_its_time_again() -> None:
    yarn = Yarn()
    yarn.answer([ONE])
    yarn.now += 31.0
    assert yarn.answer([ONE]) == [("PreemptionRequested", (str(ONE),), 14.0)]
    yarn.now += 34.0
    assert yarn.answer() == []


def test_where_the_wait_is_not_known() -> None:
    yarn = Yarn(PreemptionTimes())
    assert yarn.answer([ONE]) == [("PreemptionRequested", (str(ONE),), None)]
    yarn.now += UNKNOWN_WAIT_S
    assert yarn.answer() == []
    yarn.now += 1.0
    assert yarn.answer() == [("PreemptionWithdrawn", (str(ONE),), None)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["name", "end", "wait"]), st.sampled_from([ONE, TWO, THREE]),
                  st.floats(0.0, 40.0)),
        max_size=20,
    )
)  # fmt: skip
def test_each_is_asked_for_and_withdrawn_in_turn(happenings: Any) -> None:
    yarn = Yarn()
    asked: Set[str] = set()
    for what, container, seconds in happenings:
        yarn.now += seconds if what == "wait" else 0.25
        if what == "end":
            yarn.held.discard(container)
        for kind, names, _ in yarn.answer([container] if what == "name" else []):
            for name in names:
                assert name in map(str, yarn.held)
                if kind == "PreemptionRequested":
                    asked.add(name)
                else:
                    asked.remove(name)
        if what == "name" and container in yarn.held:
            assert str(container) in asked


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, PreemptionTimes(None, 3.0)),
        (
            {f"{MONITOR}.max_wait_before_kill": "15000", f"{MONITOR}.monitoring_interval": "500"},
            PreemptionTimes(15.0, 0.5),
        ),
        ({"yarn.resourcemanager.scheduler.class": "a.b.FairScheduler"}, PreemptionTimes(15.0)),
        (
            {
                "yarn.resourcemanager.scheduler.class": "a.b.FairScheduler",
                "yarn.scheduler.fair.waitTimeBeforeKill": "60000",
                f"{MONITOR}.max_wait_before_kill": "1",
            },
            PreemptionTimes(60.0),
        ),
    ],
)
def test_the_times_of_the_site_get_to_the_master(
    properties: Dict[str, str], expected: PreemptionTimes
) -> None:
    conf = SiteConfiguration.of(properties)
    sent = job_credentials.select_master_properties(conf)
    assert preemption_times(SiteConfiguration.of(sent)) == expected
