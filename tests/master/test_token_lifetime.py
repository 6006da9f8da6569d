"""When a job with delegation tokens is warned, fetches fresh ones, and ends."""

from __future__ import annotations

from itertools import pairwise
from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.master.token_lifetime import (
    FETCH_LIMIT_S,
    MAX_LIFETIME,
    Command,
    EndJob,
    Fetch,
    Fetched,
    FetchFailed,
    RestartGang,
    Started,
    Tick,
    TokenLifetime,
    Warn,
)

HOUR, DAY = 3600.0, 86400.0
WEEK = 7 * DAY
Story = List[Tuple[float, Command]]


def run(machine: TokenLifetime, until: float) -> Story:
    """Tick at each deadline; no fetch is answered."""
    story: Story = []
    while True:
        due = machine.next_deadline()
        if due is None or due > until:
            return story
        story += [(due, command) for command in machine.handle(Tick(), due)]


def test_without_a_keytab_a_job_is_warned_an_hour_before_and_ends_a_minute_before() -> None:
    machine = TokenLifetime()
    assert machine.handle(Started(0, WEEK), 5.0) == []
    (warned, warning), (ended, end) = run(machine, 2 * WEEK)
    assert (warned, ended) == (WEEK - HOUR, WEEK - 60)
    assert isinstance(warning, Warn) and "ended in 59 min" in warning.text
    assert isinstance(end, EndJob) and "7 days" in end.reason and MAX_LIFETIME in end.reason
    assert machine.next_deadline() is None
    assert machine.handle(Tick(), 2 * WEEK) == []


def test_a_short_lifetime_has_short_margins() -> None:
    machine = TokenLifetime()
    machine.handle(Started(100, 250), 100)
    assert [at for at, _ in run(machine, 1000)] == [235, 242.5]


@pytest.mark.parametrize("can_fetch", [False, True])
def test_a_job_that_starts_late_is_ended_at_once(can_fetch: bool) -> None:
    (end,) = TokenLifetime(can_fetch).handle(Started(0, 100), 99)
    assert isinstance(end, EndJob)


def test_with_a_keytab_fresh_tokens_begin_a_new_lifetime() -> None:
    machine = TokenLifetime(can_fetch=True)
    machine.handle(Started(0, 1000), 0)
    assert machine.next_deadline() == 750
    assert machine.handle(Tick(), 750) == [Fetch()]
    assert machine.handle(Tick(), 751) == []
    assert machine.handle(Fetched(1752), 752) == []
    assert machine.next_deadline() == 752 + 750


def test_the_gang_restarts_once_for_each_fetch_where_it_is_wanted() -> None:
    machine = TokenLifetime(can_fetch=True, restarts_gang=True)
    machine.handle(Started(0, 1000), 0)
    machine.handle(Tick(), 750)
    (restart,) = machine.handle(Fetched(1752), 752)
    assert isinstance(restart, RestartGang) and "tony.kerberos.refresh" in restart.reason
    assert machine.handle(Tick(), 760) == []


def test_a_failed_fetch_is_tried_again_after_growing_pauses_and_the_end_names_why() -> None:
    machine = TokenLifetime(can_fetch=True)
    machine.handle(Started(0, WEEK), 0)
    now, tries, story = 0.0, [], []
    while machine.next_deadline() is not None:
        now = machine.next_deadline() or 0.0
        commands = machine.handle(Tick(), now)
        if Fetch() in commands:
            tries.append(now)
            commands = machine.handle(FetchFailed("the KDC did not answer"), now)
            assert isinstance(commands[0], Warn) and "the KDC did not answer" in commands[0].text
        story += commands
    pauses = [b - a for a, b in pairwise(tries)]
    assert pauses[:3] == [60, 120, 240] and pauses == sorted(pauses) and max(pauses) == HOUR
    assert isinstance(story[-1], EndJob) and "the KDC did not answer" in story[-1].reason
    assert now == WEEK - 60


def test_a_fetch_without_an_answer_is_given_up_and_a_late_answer_still_counts() -> None:
    machine = TokenLifetime(can_fetch=True)
    machine.handle(Started(0, WEEK), 0)
    at = 0.75 * WEEK
    assert machine.handle(Tick(), at) == [Fetch()]
    assert machine.next_deadline() == at + FETCH_LIMIT_S
    (warning,) = machine.handle(Tick(), at + FETCH_LIMIT_S)
    assert isinstance(warning, Warn)
    assert machine.handle(FetchFailed("late"), at + FETCH_LIMIT_S + 1) == []
    machine.handle(Fetched(2 * WEEK), at + FETCH_LIMIT_S + 2)
    assert (machine.next_deadline() or 0) > WEEK


def test_fresh_tokens_that_have_ended_are_a_failure() -> None:
    machine = TokenLifetime(can_fetch=True)
    machine.handle(Started(0, 1000), 0)
    machine.handle(Tick(), 750)
    (warning,) = machine.handle(Fetched(751), 751)
    assert isinstance(warning, Warn) and "have ended already" in warning.text


def test_fresh_tokens_last_as_long_as_no_server_renews_them() -> None:
    """The ResourceManager renews the first ones for a week, and the others not at all."""
    machine = TokenLifetime(can_fetch=True)
    machine.handle(Started(0, WEEK), 0)
    at = 0.75 * WEEK
    assert machine.handle(Tick(), at) == [Fetch()]
    assert machine.handle(Fetched(at + DAY), at) == []
    assert machine.next_deadline() == at + 0.75 * DAY


def test_tokens_that_were_renewed_restart_no_gang() -> None:
    machine = TokenLifetime(can_fetch=True, restarts_gang=True)
    machine.handle(Started(0, 1000), 0)
    machine.handle(Tick(), 750)
    assert len(machine.handle(Fetched(1750), 750)) == 1
    machine.handle(Tick(), 1500)
    assert machine.handle(Fetched(2500, known=True), 1500) == []
    assert machine.next_deadline() == 2250
    machine.handle(Tick(), 2250)
    assert len(machine.handle(Fetched(3250), 2250)) == 1


def test_a_next_master_fetches_at_once_and_ends_while_its_tokens_still_hold() -> None:
    machine = TokenLifetime(can_fetch=True)
    assert machine.handle(Started(0, 1000), 940)[0] == Fetch()
    assert [at for at, command in run(machine, 5000) if isinstance(command, EndJob)] == [950]


def test_tokens_of_a_masters_own_that_no_executor_gets_are_a_failure() -> None:
    machine = TokenLifetime(can_fetch=True)
    assert machine.handle(Started(0, 1000, is_fetched=True), 0) == []
    (warning,) = machine.handle(FetchFailed("they cannot be handed on"), 1)
    assert isinstance(warning, Warn) and "handed on" in warning.text
    assert machine.next_deadline() == 11


@given(
    lifetime=st.floats(1, 30 * DAY),
    late=st.floats(0, 2),
    can_fetch=st.booleans(),
    restarts=st.booleans(),
    answers=st.lists(st.sampled_from(["fresh", "stale", "fails", "none"]), max_size=40),
)
def test_whatever_the_answers_every_end_is_warned_of_and_nothing_is_fetched_twice(
    lifetime: float, late: float, can_fetch: bool, restarts: bool, answers: List[str]
) -> None:
    machine = TokenLifetime(can_fetch, restarts)
    now = begun = late * lifetime
    commands = machine.handle(Started(0, lifetime), now)
    ends, script, asked_at, restarted, fetched = lifetime, iter(answers), None, 0, 0
    for _ in range(2000):
        for command in commands:
            if isinstance(command, Fetch):
                assert can_fetch
                assert asked_at is None or now >= asked_at + FETCH_LIMIT_S
                asked_at = now
            restarted += isinstance(command, RestartGang)
        if any(isinstance(command, EndJob) for command in commands):
            assert isinstance(commands[-1], EndJob)
            break
        due = machine.next_deadline()
        assert due is not None and due >= now - 1e-6  # never in the past: the master does not spin
        answer = next(script, "none") if asked_at is not None else "none"
        if answer == "none":
            now = max(now, due)
            commands = machine.handle(Tick(), now)
            continue
        asked_at = None
        if answer == "fresh":
            fetched += 1
            ends = max(now, ends) + lifetime
            commands = machine.handle(Fetched(ends), now)
        elif answer == "stale":
            commands = machine.handle(Fetched(min(ends, now)), now)
        else:
            commands = machine.handle(FetchFailed("the KDC did not answer"), now)
    else:
        raise AssertionError("the job never ended")
    assert machine.next_deadline() is None
    assert restarted == (fetched if restarts else 0)
    assert now <= max(begun, ends)
