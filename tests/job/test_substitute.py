from __future__ import annotations

import pytest

from tests.job.loading import CWD, job, why


def name(text: str, **more: object) -> str:
    env = {"HOME": "/home/me", "EMPTY": "", "LOOP": "${env.LOOP}"}
    return job({"tony.application.name": text, "base": "b", "x.y": "z"}, env=env, **more).name


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("${x.y}-${base}", "z-b"),
        ("${env.HOME}", "/home/me"),
        ("${env.GONE:-d}${env.GONE-e}", "de"),
        ("${env.EMPTY:-d}|${env.EMPTY-e}|", "d||"),
        ("${user.name}", "tester"),
        ("${user.dir}", CWD),
        ("${tony.yarn.queue}", "default"),
        ("${tony.worker.memory} ${tony.am.memory}", "2g 512m"),
        ("${tony.task.heartbeat-interval}", "1000"),
        ("$HOME ${TASK_INDEX} $(x) ${}", "$HOME ${TASK_INDEX} $(x) ${}"),
    ],
)
def test_references(text: str, becomes: str) -> None:
    assert name(text) == becomes


def test_a_circle_is_named() -> None:
    text = why({"tony.application.name": "${a}", "a": "${b}", "b": "x${a}"})
    assert "--conf: tony.application.name: ${...} goes in a circle: a -> b -> a" in text


def test_what_is_missing_is_named() -> None:
    assert "${no.such.key} is set nowhere" in why({"tony.application.name": "${no.such.key}"})
    assert "the environment has no GONE" in why({"tony.application.name": "${env.GONE}"})


def test_growth_ends() -> None:
    keys = {"k0": "x" * 100}
    keys.update({f"k{i}": f"${{k{i - 1}}}" * 10 for i in range(1, 12)})
    assert "longer than" in why({**keys, "tony.application.name": "${k11}"})


def test_a_variable_that_holds_itself_ends() -> None:
    with pytest.raises(Exception, match="more than 20"):
        name("${env.LOOP}")
