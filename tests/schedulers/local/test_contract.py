"""The embedded scheduler under the contract that every scheduler has to meet."""

from tests.schedulers.contract import *  # noqa: F403
