"""The configuration that a job ran with, as history keeps it: key, value and where it came from."""

from __future__ import annotations

import errno
from typing import NamedTuple, Tuple

from tony_core.files.location import join, masked
from tony_core.history.layout import CONFIG
from tony_core.history.reader import read_config
from tony_core.job.problems import errors
from tony_core.job.xmlfile import read_xml


class ConfigEntry(NamedTuple):
    """One key. What may be secret is masked already."""

    key: str
    value: str
    source: str = ""  # "/path/tony.xml:12", "--conf", "program"...; empty: not known


def parse_config(data: bytes, name: str = CONFIG) -> Tuple[ConfigEntry, ...]:
    """The properties of a configuration in Hadoop's form, in its order; ``name`` is for messages.

    Raises ValueError where it cannot be read.
    """
    found, problems = read_xml(data, name)
    wrong = errors(problems)
    if wrong:
        raise ValueError(str(wrong[0]))
    return tuple(ConfigEntry(e.key, e.text, masked(e.origin)) for e in found)


def read_config_entries(root: str, app_id: str) -> Tuple[ConfigEntry, ...]:
    """The configuration of a job below a history root, empty where it was not kept.

    Raises OSError where it cannot be read or is damaged.
    """
    data = read_config(root, app_id)
    if data is None:
        return ()
    try:
        return parse_config(data)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), join(root, app_id, CONFIG)) from None
