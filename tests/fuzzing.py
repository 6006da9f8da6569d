"""Property-based tests of parsers that read a stranger's bytes.

``@fuzz(data=mutations(SAMPLE))`` runs a test 150 times, with the same inputs each time, and with
``--hypothesis-profile night`` 5,000 times, with new inputs each night. Each run is bounded in
processor time and in memory; the test body calls the parser and lets only the parser's own errors
pass.
:func:`mutations` turns valid samples into damaged ones: almost-valid input reaches deeper into a
parser than random bytes do.
"""

from __future__ import annotations

import functools
import itertools
import time
import tracemalloc
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BY_DAY, BY_NIGHT = 150, 5_000
_IS_NIGHT = settings().max_examples >= 1000
_INTERESTING = [
    b"", b"\0", b"\xff", b"\x7f", b"\x80", b"\r\n", b"\n", b"\r", b" ", b"\t", b'"', b"\\", b"%",
    b"-1", b"0", b"9" * 30, b"9" * 5000, b"1e999", b"NaN", b"../", b"/", b":", b"[", b"]", b"{",
    b"}", b"$(1)", b"${a}", b"&amp;", b"<!--", b"\xed\xa0\x80", b"\\ud800", "²".encode(),
    b"\x1b]0;x\x07", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x10", b"\0" * 64,
]  # fmt: skip


def fuzz(
    *,
    seconds: float = 2.0,
    megabytes: float = 64.0,
    by_day: int = BY_DAY,
    **strategies: st.SearchStrategy[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A property that holds for many inputs, each within these bounds.

    ``by_day``: how many inputs, for tests over real sockets, which take longer.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def bounded(*args: Any, **kwargs: Any) -> None:
            with bounds(seconds, megabytes):
                test(*args, **kwargs)

        wanted = settings(
            max_examples=BY_NIGHT if _IS_NIGHT else by_day,
            derandomize=not _IS_NIGHT,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        property_test: Callable[..., None] = wanted(given(**strategies)(bounded))
        return pytest.mark.timeout(3600)(property_test) if _IS_NIGHT else property_test

    return decorate


@contextmanager
def bounds(seconds: float = 5.0, megabytes: float = 64.0) -> Iterator[None]:
    """Fails when the block takes more processor time of this thread, or more memory at once."""
    nested = tracemalloc.is_tracing()
    if not nested:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before, began = tracemalloc.get_traced_memory()[0], time.thread_time()
    try:
        yield
    finally:
        took = time.thread_time() - began
        peak = (tracemalloc.get_traced_memory()[1] - before) / 1e6
        if not nested:
            tracemalloc.stop()
    assert took <= seconds, f"took {took:.1f} s of the processor; at most {seconds} are allowed"
    assert peak <= megabytes, f"took {peak:.0f} MB of memory; at most {megabytes} are allowed"


@st.composite
def mutations(draw: st.DrawFn, *samples: bytes, most: int = 6) -> bytes:
    """One of the samples with up to ``most`` damages: cut, flipped, repeated, spliced, replaced."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 16)))
        kind = draw(
            st.sampled_from(["cut", "flip", "insert", "repeat", "replace", "splice", "end"])
        )
        if kind == "cut":
            del data[at:end]
        elif kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "insert":
            data[at:at] = draw(st.sampled_from(_INTERESTING))
        elif kind == "repeat":
            data[at:at] = data[at:end] * draw(st.integers(1, 8))
        elif kind == "replace":
            data[at:end] = draw(st.binary(max_size=16))
        elif kind == "splice":
            other = draw(st.sampled_from(samples))
            data[at:] = other[draw(st.integers(0, len(other))) :]
        elif kind == "end":
            del data[at:]
    return bytes(data)


def pieces(data: bytes, cuts: List[int]) -> List[bytes]:
    """The data in parts as a socket may bring them, cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]
