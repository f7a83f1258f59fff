"""What the commands share: how a number is typed, how a model is named, and how an answer is printed."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from calc.model_config import read_config
from calc.model_spec import ModelSpec
from calc.numeric import NON_NEGATIVE, require
from calc.presets import model_ids, model_preset


class Whole(click.ParamType):
    """A whole number as people type it: 128000, 128_000 or 128,000; ranges are checked by the formulas."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or one message that names the option and the value."""
        if isinstance(value, int):
            return value
        try:
            return int(value.strip().replace(",", "").replace("_", ""))
        except ValueError:
            self.fail(f"must be a whole number, got {value[:60]!r}", param, ctx)


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
        help="A Hugging Face config.json.",
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
        A config.json file [path].
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
