"""What the commands share: how a number is typed, how a model is named, and how an answer is printed."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from calc.model_config import read_config
from calc.model_spec import ModelSpec
from calc.numeric import NON_NEGATIVE, require
from calc.presets import model_ids, model_preset

WHOLE_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+|\d{1,3}(_\d{3})+)", re.ASCII)
"""As people type it: 128000, 128,000 or 128_000, with the separators in their places."""
MAX_DIGITS = 60


class Whole(click.ParamType):
    """A whole number as people type it: 128000, 128_000 or 128,000; ranges are checked by the formulas."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or one message that names the option and the value."""
        if isinstance(value, int):
            return value
        value = value.strip()
        if not WHOLE_NUMBER.fullmatch(value) or len(value) > MAX_DIGITS:
            self.fail(
                f"must be a whole number such as 64000 or 64,000, of at most {MAX_DIGITS} digits, got {value[:60]!r}",
                param,
                ctx,
            )
        return int(value.replace(",", "").replace("_", ""))


class Price(click.ParamType):
    """A price in USD per million tokens."""

    name = "price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or one message that names the option, the range and the value."""
        try:
            return require(float(value), NON_NEGATIVE, "price")
        except ValueError:
            self.fail(f"must be {NON_NEGATIVE}, got {str(value)[:60]!r}", param, ctx)


WHOLE = Whole()
PRICE = Price()

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for scripts.")


def model_options(command: Callable) -> Callable:
    """Adds --config and --model, of which one must be given; the command receives `model`, a ModelSpec."""
    config = click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A Hugging Face config.json, or a .gguf file.",
    )
    preset = click.option(
        "--model", "preset", help=f"A model known by name: {', '.join(model_ids()[:6])}, ...; see the README."
    )
    return config(preset(command))


def chosen_model(config: Path | None, preset: str | None) -> ModelSpec:
    """The model of --config or --model.

    Parameters
    ----------
    config : Path or None
        A config.json or .gguf file [path].
    preset : str or None
        Id of a preset [name].

    Returns
    -------
    ModelSpec
        The model [facts].

    Raises
    ------
    ValueError
        If not exactly one of the two is given, or the config is refused.
    """
    if (config is None) == (preset is None):
        raise ValueError("give one of --config FILE and --model NAME")
    return read_config(config) if config is not None else model_preset(preset)


def model_remarks(model: ModelSpec, warnings: Sequence[str]) -> list[str]:
    """Lines to know before relying on a model's numbers: warnings, and fields of its config that no rule reads."""
    unread = [f"Config fields not read: {', '.join(model.unread_fields)}"] if model.unread_fields else []
    return [*(f"warning: {warning}" for warning in warnings), *unread]


def show(answer: Mapping[str, Any], lines: Sequence[str], as_json: bool) -> None:
    """Prints the answer as one JSON object, or as lines of text.

    Parameters
    ----------
    answer : mapping
        Keys that scripts rely on, and their values [each as its name says].
    lines : sequence of str
        The same for people [text].
    as_json : bool
        Whether to print JSON [yes or no].

    Returns
    -------
    None
        Nothing; it prints [nothing].
    """
    click.echo(json.dumps(answer, indent=2, allow_nan=False) if as_json else "\n".join(lines))
