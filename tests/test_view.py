"""Records of a job as its readers see them: which of its links a page may offer."""

from __future__ import annotations

import pytest

from tony_core.view import is_web, web_links


@pytest.mark.parametrize("url", ["http://a", "https://a:1/b?c", "http://[::1]:80/"])
def test_links_to_web_servers(url: str) -> None:
    assert is_web(url)


@pytest.mark.parametrize(
    "url",
    ["", "/x", "//host/x", "HTTPS://a", "javascript:alert(1)", "JavaScript://host/%0aalert(1)",
     "data:text/html,x", "file:///etc/passwd", " http://a", "ht\ntps://a", "http:a", "http:///x", "http://",
     "http://[::1"],
)  # fmt: skip
def test_links_that_no_page_offers(url: str) -> None:
    assert not is_web(url)


def test_links_by_name() -> None:
    links = {"page": "http://a", "wiki": "https://b", "evil": "javascript:x", "number": 1}
    assert web_links(links, "page") == {"wiki": "https://b"}
    assert web_links(["http://a"]) == {}
