"""gmlake completion."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Final, NamedTuple

from gmlake import settings
from gmlake.commands import COMMANDS, common, make_parser
from gmlake.snapshots.asking import MOMENTS

_EPILOG: Final = """\
bash: gmlake completion bash > ~/.local/share/bash-completion/completions/gmlake
zsh:  source <(gmlake completion zsh), in ~/.zshrc behind compinit
fish: gmlake completion fish > ~/.config/fish/completions/gmlake.fish
"""

_BASH: Final = """\
# Completion of gmlake, made by `gmlake completion bash`.
_gmlake() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=($(compgen -W {commands} -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}} $before" in
{values}
    esac
    if [[ -z $words && $word == -* ]]; then
        case "${{COMP_WORDS[1]}}" in
{options}
        esac
    fi
    if [[ -n $words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
        if [[ $words == *= ]]; then
            compopt -o nospace 2>/dev/null
        fi
    else
        local IFS=$'\n'
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _gmlake gmlake
"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


class _Option(NamedTuple):
    """One option of a command. values: None if it takes no value, () if it takes any."""

    flags: tuple[str, ...]
    values: tuple[str, ...] | None
    purpose: str


class CompletionCommand(common.Command):
    """Print a completion script for bash, zsh or fish."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = _EPILOG
        parser.add_argument("shell", choices=("bash", "zsh", "fish"))

    def run(self, args: argparse.Namespace) -> int:
        """Ask every command for its options."""
        options = {name: options_of(name) for name in COMMANDS}
        if args.shell == "fish":
            sys.stdout.write(_for_fish(options))
        else:
            sys.stdout.write((_ZSH if args.shell == "zsh" else "") + _for_bash(options))
        return 0


def options_of(name: str) -> list[_Option]:
    """Return the options of a command, and the choices of its positional argument, if any."""
    policies = ("all", *settings.policies())
    known = {
        "--policy": policies[1:] if name == "run" else policies,
        "--replay": policies,
        "--at": MOMENTS,
        "--set": tuple(f"{knob['name']}=" for knob in settings.knobs()),
    }
    parsers = (action.choices for action in _actions(make_parser(name)))
    (parser,) = (choices[name] for choices in parsers if isinstance(choices, dict))
    found = []
    for action in _actions(parser):
        flags = tuple(action.option_strings)
        if flags:
            choices = tuple(action.choices or ())
            given = next((known[flag] for flag in flags if flag in known), choices)
            found.append(_Option(flags, None if action.nargs == 0 else given, action.help or ""))
        elif action.choices:
            found.append(_Option((), tuple(action.choices), ""))
    return found


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 (argparse has no public list of what it was told)


def _for_bash(options: dict[str, list[_Option]]) -> str:
    values, flags = [], []
    for name, known in options.items():
        words = " ".join(flag for option in known for flag in option.flags)
        flags.append(f"        {name}) words={shlex.quote(words)} ;;")
        for option in known:
            cases = "|".join(f'"{name} {flag}"' for flag in option.flags or (name,))
            if option.values:
                values.append(f"    {cases}) words={shlex.quote(' '.join(option.values))} ;;")
    return _BASH.format(
        commands=shlex.quote(" ".join(options)),
        values="\n".join(values),
        options="\n".join(flags),
    )


def _for_fish(options: dict[str, list[_Option]]) -> str:
    lines = ["# Completion of gmlake, made by `gmlake completion fish`."]
    begin = "complete -c gmlake"
    for name in options:
        purpose = _in_fish(COMMANDS[name])
        lines.append(f"{begin} -f -n __fish_use_subcommand -a {name} -d {purpose}")
    for name, known in options.items():
        for option in known:
            words = [f"{begin} -n '__fish_seen_subcommand_from {name}'"]
            words += [f"-l {flag[2:]}" for flag in option.flags if flag.startswith("--")]
            words += [f"-s {flag[1:]}" for flag in option.flags if not flag.startswith("--")]
            if option.values is not None:
                words.append("-x" if option.values else "-r")
            if option.values:
                words.append(f"-a {_in_fish(' '.join(option.values))}")
            if option.purpose:
                words.append(f"-d {_in_fish(option.purpose)}")
            lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


def _in_fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%")
    return f"'{escaped}'"


COMMAND = CompletionCommand()
