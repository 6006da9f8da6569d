"""Who gets which file system."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import List

from tony_core.files.local import LocalFileSystem
from tony_core.files.registry import SeparateRegistry, filesystem, register


class Closing(LocalFileSystem):
    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_separate_registry_is_one_callers_own() -> None:
    everybodys, own, other = Closing(), Closing(), Closing()
    register("far", lambda: everybodys)
    first, second = SeparateRegistry(), SeparateRegistry()
    with first:
        register("far", lambda: own)
        assert filesystem("far://x") is own
        with second:
            register("far", lambda: other)
            assert filesystem("far://x") is other
        assert filesystem("far://x") is own
    assert filesystem("far://x") is everybodys
    first.close()
    assert (own.closed, other.closed, everybodys.closed) == (True, False, False)
    second.close()


def test_a_thread_takes_it_along_with_its_context() -> None:
    own = Closing()
    separate = SeparateRegistry()
    found: List[object] = []
    with separate:
        register("far", lambda: own)
        context = copy_context()
    thread = threading.Thread(
        target=context.run, args=(lambda: found.append(filesystem("far://x")),)
    )
    thread.start()
    thread.join()
    assert found == [own]
    separate.close()
