"""The command line: the same answers as the pages, for people by default and with --json for scripts."""

import sys

import click

from calc.cli import cost, explain_log, flops, memory, select, tokens
from calc.names import UnknownName

BAD_INPUT = 2
"""Exit code for anything that the user typed wrong."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """What long context costs: tokens, dollars, bytes and FLOP."""


for module in (tokens, memory, explain_log, flops, cost, select):
    commands.add_command(module.command)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; bad input ends in one line on standard error and exit code 2."""
    try:
        commands.main(args=arguments, prog_name="python -m calc", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as without_command:
        click.echo(without_command.format_message())
    except click.Abort:
        sys.exit(130)
    except click.ClickException as problem:
        _stop(problem.format_message())
    except (ValueError, UnknownName) as problem:
        _stop(str(problem))
    except OSError as problem:  # the answer could not be written, to a full disk for instance
        _stop(f"the answer could not be written: {problem.strerror or problem}")


def _stop(message: str) -> None:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(BAD_INPUT)
