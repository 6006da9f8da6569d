"""A shell's completion of this command, made from its own parsers.

bash:  eval "$(tony completion bash)"       in ~/.bashrc
zsh:   eval "$(tony completion zsh)"        in ~/.zshrc, after compinit
fish:  tony completion fish | source        in ~/.config/fish/config.fish
"""

from __future__ import annotations

import argparse
import os
from typing import Callable, Dict, Iterator, List, NamedTuple, Tuple

from tony_core.cli.output import line
from tony_core.cli.verbs import VERBS, parser_of
from tony_core.client.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", nargs="?", choices=SHELLS, help="bash, zsh or fish; without: that of $SHELL"
    )


def run(args: argparse.Namespace) -> int:
    shell = args.shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in SHELLS:
        raise UsageError(f"expected a shell: {', '.join(SHELLS)}")
    line(SCRIPTS[shell](grammar()))
    return 0


class Option(NamedTuple):
    """One option: its spellings, what it does, and what its value is (if it takes one)."""

    names: Tuple[str, ...]
    help: str
    value: str = ""  # "", "path", "word", or choices with spaces between


class VerbGrammar(NamedTuple):
    """A verb; ``history show`` counts as one of its own."""

    path: str
    help: str
    options: Tuple[Option, ...]
    below: Tuple[str, ...] = ()  # sub-verbs
    takes_app: bool = False


def grammar() -> List[VerbGrammar]:
    found: List[VerbGrammar] = []
    for verb, text in VERBS.items():
        found.extend(_walk(verb, text, parser_of(verb)))
    return found


def _walk(path: str, text: str, parser: argparse.ArgumentParser) -> Iterator[VerbGrammar]:
    options: List[Option] = []
    below: Dict[str, argparse.ArgumentParser] = {}
    helps: Dict[str, str] = {}
    takes_app = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            helps = {one.dest: one.help or "" for one in action._choices_actions}
        elif action.option_strings:
            options.append(_option(action))
        else:
            takes_app = takes_app or action.metavar == "ID"
    yield VerbGrammar(path, text, tuple(options), tuple(below), takes_app)
    for name, inner in below.items():
        yield from _walk(f"{path} {name}", helps.get(name, ""), inner)


def _option(action: argparse.Action) -> Option:
    names: List[str] = []
    for name in action.option_strings:
        other = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        names.extend(dict.fromkeys((other, name)))
    value = ""
    if action.nargs != 0:
        value = "word"
        if action.choices:
            value = " ".join(str(choice) for choice in action.choices)
        elif action.metavar in ("PATH", "FILE", "PATHS"):
            value = "path"
    return Option(tuple(names), (action.help or "").partition(";")[0], value)


def _bash(verbs: List[VerbGrammar]) -> str:
    cases = []
    for verb in verbs:
        flags = " ".join(name for option in verb.options for name in option.names)
        offer = f"{' '.join(verb.below)} {flags}".strip()
        apps = 1 if verb.takes_app else 0
        cases.append(f'    "{verb.path}") offer="{offer}"; apps={apps} ;;')
    values = []
    for option in _values(verbs):
        how = "compopt -o default; return" if option.value == "path" else None
        if option.value not in ("", "path", "word"):
            how = f'COMPREPLY=($(compgen -W "{option.value}" -- "$word")); return'
        elif option.value == "word":
            how = "return"
        values.append(f"    {'|'.join(option.names)}) {how} ;;")
    pairs = "|".join(f'"{v.path} {name}"' for v in verbs for name in v.below) or '""'
    return "\n".join(
        [
            "_tony() {",
            '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
            '  local verb="${COMP_WORDS[1]}" path offer apps=0',
            "  COMPREPLY=()",
            "  if [ $COMP_CWORD -le 1 ]; then",
            f'    COMPREPLY=($(compgen -W "{" ".join(VERBS)} --help --version" -- "$word"))',
            "    return",
            "  fi",
            '  path="$verb"',
            '  [ $COMP_CWORD -gt 2 ] && case "$verb ${COMP_WORDS[2]}" in',
            f'    {pairs}) path="$verb ${{COMP_WORDS[2]}}" ;;',
            "  esac",
            '  case "$before" in',
            *values,
            "  esac",
            '  case "$path" in',
            *cases,
            "  esac",
            '  if [ $apps -eq 1 ] && [ "${word#-}" = "$word" ]; then',
            '    offer="$offer $(tony list --quiet 2>/dev/null)"',
            "  fi",
            '  COMPREPLY=($(compgen -W "$offer" -- "$word"))',
            "}",
            "complete -F _tony tony",
        ]
    )


def _zsh(verbs: List[VerbGrammar]) -> str:
    # zsh reads bash's completions; its own way of loading them is one line.
    return "\n".join(
        ["autoload -Uz bashcompinit && bashcompinit", _bash(verbs).replace("compopt -o", ": -o")]
    )


def _fish(verbs: List[VerbGrammar]) -> str:
    lines = ["complete -c tony -f"]
    for verb in VERBS:
        text = _quoted(VERBS[verb])
        lines.append(f"complete -c tony -n __fish_use_subcommand -a {verb} -d {text}")
    for grammar_of_verb in verbs:
        verb, _, inner = grammar_of_verb.path.partition(" ")
        test = f"__fish_seen_subcommand_from {verb}"
        if inner:
            test += f"; and __fish_seen_subcommand_from {inner}"
        for name in grammar_of_verb.below:
            none = " ".join(grammar_of_verb.below)
            lines.append(
                f"complete -c tony -n '{test}; and not __fish_seen_subcommand_from {none}'"
                f" -a {name}"
            )
        if grammar_of_verb.takes_app:
            lines.append(f"complete -c tony -n '{test}' -a '(tony list --quiet 2>/dev/null)'")
        for option in grammar_of_verb.options:
            flags = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = {"": "", "path": " -r -F", "word": " -x"}.get(
                option.value, f" -x -a {_quoted(option.value)}"
            )
            lines.append(f"complete -c tony -n '{test}' {flags}{value} -d {_quoted(option.help)}")
    return "\n".join(lines)


def _values(verbs: List[VerbGrammar]) -> List[Option]:
    """Options that take a value, each once."""
    found: Dict[Tuple[str, ...], Option] = {}
    for verb in verbs:
        for option in verb.options:
            if option.value:
                found.setdefault(option.names, option)
    return list(found.values())


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Dict[str, Callable[[List[VerbGrammar]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
