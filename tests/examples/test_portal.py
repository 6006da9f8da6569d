"""The portal's settings to copy: those of the example, and those on its page."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import List

import pytest

from tony_core.portal.settings_checks import find_problems
from tony_core.portal.settings_file import parse_settings

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLE = CHECKOUT / "examples" / "portal"
PAGE = CHECKOUT / "docs" / "portal.md"


def on_the_page() -> List[str]:
    return re.findall(r"```ini\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_page_has_some() -> None:
    assert len(on_the_page()) >= 3


@pytest.mark.parametrize("text", [(EXAMPLE / "portal.ini").read_text(), *on_the_page()])
def test_settings_are_understood(text: str) -> None:
    settings = parse_settings(text)
    found = [one for one in find_problems(settings) if "cannot be read" not in one]
    if settings.locations:
        assert found == [], "but for the secret's file, which is not here"


def test_every_key_stands_on_the_page() -> None:
    from tony_core.portal import settings_file

    text = PAGE.read_text()
    for keys in (settings_file._PORTAL, settings_file._HISTORY, settings_file._LOGIN):
        assert [key for key in keys if f"`{key}`" not in text] == []


def test_the_unit_starts_what_there_is() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(EXAMPLE / "tony-portal.service")
    words = unit["Service"]["ExecStart"].split()
    assert words[0].endswith("/bin/tony") and words[1:3] == ["portal", "--config"]
    from tony_core.cli.verbs import parser_of

    assert parser_of("portal").parse_args(words[2:]).config == "/etc/tony-portal/portal.ini"
    assert unit["Service"]["StateDirectory"] == "tony-portal"
    assert "AF_NETLINK" in unit["Service"]["RestrictAddressFamilies"]


def test_the_container_and_the_proxy_have_the_portals_port() -> None:
    for name in ("Containerfile", "nginx.conf"):
        assert "19886" in (EXAMPLE / name).read_text()
