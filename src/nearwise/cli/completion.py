"""`nearwise completion`: scripts for bash, zsh and fish, made from the parsers of the commands.

What a value may be is read off its argument: its choices, or files where it is called by one of `_FILES`. By
hand and not by shtab, which (1.13) offers no files after `--query=` and would be one more package in every
installation, for a script that is printed once.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nearwise.cli._common import DONE

_FILES = ("FILE", "OUT", "MODEL", "DATA")  # names of arguments that are files


@dataclass(frozen=True)
class Argument:
    """An option, or without flags a positional argument; what may follow: words, files, or anything."""

    flags: tuple[str, ...]
    help: str
    name: str
    takes_value: bool
    words: tuple[str, ...]
    files: bool
    repeats: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from nearwise import cli

    parser = cli.parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {name: command.help for name, command in cli.COMMANDS.items()}
    described = {name: list(_arguments(sub)) for name, sub in commands.choices.items()}
    general = [argument for argument in _arguments(parser) if argument.flags]
    print(_SCRIPTS[arguments.shell](general, helps, described), end="")
    return DONE


def _arguments(parser: argparse.ArgumentParser) -> Iterator[Argument]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        name = action.metavar if isinstance(action.metavar, str) else action.dest
        yield Argument(
            flags=tuple(action.option_strings),
            help=parser._get_formatter()._expand_help(action) if action.help else "",
            name=name,
            takes_value=action.nargs != 0,
            words=tuple(map(str, action.choices or ())),
            files=name in _FILES or action.type is Path,
            repeats=isinstance(action, argparse._AppendAction),
        )


_Commands = dict[str, list[Argument]]


def _bash(general: list[Argument], helps: dict[str, str], commands: _Commands) -> str:
    def may_follow(pattern: str, flags: Iterable[str], arguments: Iterable[Argument]) -> str:
        words = [word for argument in arguments for word in argument.words]
        files = int(any(argument.files for argument in arguments))
        return f"        {pattern}) flags={_quoted(flags)} words={_quoted(words)} files={files} ;;"

    def flags_of(arguments: Iterable[Argument]) -> list[str]:
        return [flag for argument in arguments for flag in argument.flags]

    anywhere = "\n".join(
        may_follow(command, flags_of(arguments), [a for a in arguments if not a.flags])
        for command, arguments in commands.items()
    )
    after_options = "\n".join(
        may_follow("|".join(f"{command},{flag}" for flag in argument.flags), (), [argument])
        for command, arguments in commands.items()
        for argument in arguments
        if argument.flags and argument.takes_value
    )
    return f"""# Completion of nearwise for bash; in ~/.bashrc: eval "$(nearwise completion bash)"
_nearwise() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="" flags="" words="" files=0 i IFS=$' \t\n'
    if [[ $word == "=" ]]; then
        word=""
    elif [[ $previous == "=" ]]; then
        previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${{COMP_WORDS[i]}} != -* ]]; then
            command="${{COMP_WORDS[i]}}"
            break
        fi
    done
    case "$command" in
        "") flags={_quoted(flags_of(general))} words={_quoted(commands)} ;;
{anywhere}
    esac
    case "$command,$previous" in
{after_options}
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$word"))
        return
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [[ $files == 1 ]]; then
        IFS=$'\n'
        COMPREPLY+=($(compgen -f -- "$word"))
        compopt -o filenames 2>/dev/null
    fi
}}
complete -F _nearwise nearwise
"""


def _zsh(general: list[Argument], helps: dict[str, str], commands: _Commands) -> str:
    names = "\n".join(f"        {shlex.quote(f'{name}:{_zsh_text(text)}')}" for name, text in helps.items())
    cases = "\n".join(
        f"        {command})\n            _arguments -s \\\n                "
        + " \\\n                ".join(_zsh_argument(argument) for argument in arguments)
        + "\n            ;;"
        for command, arguments in commands.items()
    )
    first = " \\\n        ".join(_zsh_argument(argument) for argument in general)
    return f"""#compdef nearwise
# Completion of nearwise for zsh; in a folder of $fpath: nearwise completion zsh > _nearwise
_nearwise() {{
    local context state line
    local -a commands
    commands=(
{names}
    )
    _arguments -C \\
        {first} \\
        '1:command:->command' \\
        '*::argument:->argument' && return
    if [[ $state == command ]]; then
        _describe command commands
        return
    fi
    case $line[1] in
{cases}
    esac
}}
if [[ $funcstack[1] == _nearwise ]]; then
    _nearwise "$@"
else
    compdef _nearwise nearwise
fi
"""


def _zsh_argument(argument: Argument) -> str:
    value = ""
    if argument.takes_value:
        what = f"({' '.join(argument.words)})" if argument.words else "_files" if argument.files else " "
        value = f":{_zsh_text(argument.name)}:{what}"
    if not argument.flags:
        return shlex.quote(f"*{value}" if argument.repeats else value)
    text = shlex.quote(f"[{_zsh_text(argument.help)}]{value}")
    if argument.repeats:
        return " ".join(f"'*{flag}'{text}" for flag in argument.flags)
    others = f"'({' '.join(argument.flags)})'"
    return " ".join(f"{others}{flag}{text}" for flag in argument.flags)


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _fish(general: list[Argument], helps: dict[str, str], commands: _Commands) -> str:
    start = "complete -c nearwise"
    lines = ["# Completion of nearwise for fish: ~/.config/fish/completions/nearwise.fish", f"{start} -f"]
    lines += [f"{start} -n __fish_use_subcommand {_fish_argument(argument)}" for argument in general]
    lines += [
        f"{start} -n __fish_use_subcommand -a {name} -d {_fish_text(text)}" for name, text in helps.items()
    ]
    for command, arguments in commands.items():
        here = f"{start} -n '__fish_seen_subcommand_from {command}'"
        lines += [f"{here} {_fish_argument(argument)}" for argument in arguments]
    return "\n".join(lines) + "\n"


def _fish_argument(argument: Argument) -> str:
    parts = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in argument.flags]
    if argument.takes_value:
        if argument.flags:
            parts.append("-r")
        if argument.words:
            parts.append(f"-f -a {_fish_text(' '.join(argument.words))}")
        else:
            parts.append("-F" if argument.files else "-f")
    if argument.help:
        parts.append(f"-d {_fish_text(argument.help)}")
    return " ".join(parts)


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
