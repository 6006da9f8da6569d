"""The ``__main__`` of our code on a node: ``PYTHON -I -S RUNTIME VERB ARGS``.

``RUNTIME/__main__.py`` for the folder does as well, and saves Python the search for it.

Kept to syntax and modules that old Pythons have too, so that one that is too old gets a message
instead of a SyntaxError.
"""

import gc
import os
import sys

# Verb -> the module whose main(argv) it is, and the oldest Python that can run it.
VERBS = {
    "master": ("tony_core.master.main", (3, 9)),
    "executor": ("tony_executor.main", (3, 8)),
    "shim": ("tony_core.schedulers.local.shim", (3, 8)),
    "local-successor": ("tony_core.schedulers.local.attempts", (3, 8)),
    "local-finalize": ("tony_core.schedulers.local.finalize", (3, 9)),
    "yarn-start": ("tony_core.schedulers.yarn.node.start", (3, 8)),
    "yarn-probe": ("tony_core.schedulers.yarn.node.probe", (3, 9)),
    "yarn-fetch-tokens": ("tony_core.schedulers.yarn.node.fetch_tokens", (3, 9)),
    "yarn-find-master": ("tony_core.schedulers.yarn.node.find_master", (3, 8)),
}
USAGE = 2


def main() -> int:
    """Find the verb and run it; returns the exit code."""
    arguments = sys.argv[1:]
    verb = arguments[0] if arguments else ""
    if verb not in VERBS:
        sys.stderr.write(
            "tony runtime: {!r} is not one of {}\n".format(verb, ", ".join(sorted(VERBS)))
        )
        return USAGE
    module, oldest = VERBS[verb]
    if sys.version_info[:2] < oldest:
        sys.stderr.write(
            "tony runtime: {} is Python {}.{}, but the {} needs {}.{} or newer on every node; "
            "name one with tony.runtime.python\n".format(
                sys.executable, sys.version_info[0], sys.version_info[1], verb, *oldest
            )
        )
        return USAGE
    # Started by a relative name, through a link that may go: what is imported later must
    # be found all the same.
    here = os.path.dirname(os.path.realpath(__file__))
    if os.path.realpath(sys.path[0]) != here:
        sys.path.insert(0, here)  # started as RUNTIME/__main__.py
    sys.path[0] = here
    gc.disable()  # nothing of the imports is garbage; to look for it takes a tenth of their time
    __import__(module)
    gc.enable()
    return int(sys.modules[module].main(arguments[1:]) or 0)


def leave(code):
    # type: (int) -> None
    """End this process at once: Python would take all its modules apart first, in every executor
    of a gang at the same moment. With a thread at work it ends in Python's own way.
    """
    threading = sys.modules.get("threading")
    if threading is not None:
        others = set(threading.enumerate()) - {threading.main_thread()}
        if not all(one.daemon for one in others):
            sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # closed, or its reader has gone
    os._exit(code)


if __name__ == "__main__":
    leave(main())
