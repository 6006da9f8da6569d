"""The command line's grammar: argparse, with five rules of our own.

* An option of several parts may be spelt with ``_`` or ``-`` (``--src_dir``, ``--src-dir``):
  JVM users type the one, others the other. Before a parser reads the arguments, it rewrites each
  option in the other spelling.
* A long option may have one dash (``-src_dir``), as the JVM TonY's documentation writes them.
  ``single_dash`` of the result says whether one had.
* An option of free text (``--task_params``) takes the next argument whatever it begins with.
* What follows ``--`` is a command, where the verb runs one (:meth:`Parser.command_follows`).
* An error raises :class:`UsageError` with the nearest known option, and does not end the process.
"""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Set, Tuple

from tony_core.client.errors import UsageError


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        self._free: Set[str] = set()
        self._single_dash = False
        self._takes_command = False
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", _Formatter)
        super().__init__(*args, **options)

    def free_text(self, *options: str) -> None:
        """Let these options take the next argument whatever it begins with."""
        self._free.update(options)

    def command_follows(self) -> None:
        """Let ``--`` begin a command, which ``command`` of the result lists, as it is."""
        self._takes_command = True

    def spellings(self) -> Dict[str, str]:
        """Every other spelling of an option of this parser, and the option."""
        known: Dict[str, str] = {}
        for option in self._option_string_actions:
            if option.startswith("--"):
                name = option[2:]
                for other in (name.replace("_", "-"), name.replace("-", "_")):
                    if f"--{other}" not in self._option_string_actions:
                        known[f"--{other}"] = option
        return known

    def respell(self, arguments: Sequence[str]) -> List[str]:
        """The same arguments, with every option as this parser spells it."""
        known = self.spellings()
        out: List[str] = []
        rest = iter(arguments)
        for word in rest:
            if word == "--":
                return [*out, word, *rest]
            name, equals, value = word.partition("=")
            name = self._two_dashes(known.get(name, name), known)
            if name in self._free and not equals:
                following = next(rest, None)
                if following is None:
                    out.append(name)
                elif known.get(following, following) in self._option_string_actions:
                    # Another option of ours: the value was forgotten.
                    self.error(f"argument {name}: expected one argument, found {following}")
                else:
                    out.append(f"{name}={following}")
            else:
                out.append(f"{name}{equals}{value}")
        return out

    def _two_dashes(self, name: str, known: Dict[str, str]) -> str:
        """A long option for one that was written with a single dash; any other word as it is."""
        if not name.startswith("-") or name.startswith("--") or len(name) < 3:
            return name
        option = known.get(f"-{name}", f"-{name}")
        if name in self._option_string_actions or option not in self._option_string_actions:
            return name
        self._single_dash = True
        return option

    # ------------------------------------------------------------------ argparse's hooks

    def parse_known_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Optional[argparse.Namespace] = None
    ) -> Tuple[argparse.Namespace, List[str]]:
        assert args is not None, "main always passes the arguments"
        words = list(args)
        command: List[str] = []
        if self._takes_command and "--" in words:
            at = words.index("--")
            words, command = words[:at], words[at + 1 :]
        found, unknown = super().parse_known_args(self.respell(words), namespace)
        if self._takes_command:
            found.command = command
        found.single_dash = self._single_dash
        return found, unknown

    def parse_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Optional[argparse.Namespace] = None
    ) -> argparse.Namespace:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(describe_unknown(unknown[0], self._every_option()))
        return found

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(f"there is no verb {value!r}{nearest(str(value), list(action.choices))}")
        super()._check_value(action, value)

    def _every_option(self) -> List[str]:
        """The options of this parser and of those below it."""
        found = [option for option in self._option_string_actions if option.startswith("--")]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    found.extend(parser._option_string_actions)
        return found


def describe_unknown(word: str, known: Sequence[str]) -> str:
    """The message about an unknown option or argument."""
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {word!r}"
    if name in known:  # of a verb below it, or beside it
        return f"there is no option {name} here; it belongs to another verb"
    return f"there is no option {name}{nearest(name.replace('_', '-'), known)}"


def nearest(word: str, known: Sequence[str]) -> str:
    """``; did you mean X?``, or nothing when no known word is near."""
    import difflib

    near = difflib.get_close_matches(word, [k.replace("_", "-") for k in known], n=1, cutoff=0.6)
    if not near:
        return ""
    return f"; did you mean {next(k for k in known if k.replace('_', '-') == near[0])}?"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A little wider in its first column, so that most options fit on one line."""

    def __init__(self, prog: str, **options: Any) -> None:
        options.setdefault("max_help_position", 32)
        super().__init__(prog, **options)
