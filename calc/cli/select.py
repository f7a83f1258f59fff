"""python -m calc select: which items to carry under a token budget."""

import click

from calc.cli.options import MAX_DIGITS, WHOLE, WHOLE_NUMBER, as_json, show
from calc.formats import count_text
from calc.selection import Item, greedy_by_value, greedy_by_value_per_token, select_items


@click.command("select")
@click.option("--item", "items", multiple=True, required=True, metavar="SIZE:VALUE", help="An item; give several.")
@click.option(
    "--pin", "pins", multiple=True, metavar="SIZE", help="Tokens of an item that is carried whatever its value."
)
@click.option("--budget", type=WHOLE, required=True, help="Tokens to spend.")
@as_json
def command(items: tuple[str, ...], pins: tuple[str, ...], budget: int, as_json: bool) -> None:
    """The most valuable items that fit a token budget, exactly."""
    candidates = [_item(text) for text in items]
    candidates += [_pinned(text) for text in pins]
    best = select_items(candidates, budget)
    by_value = greedy_by_value(candidates, budget)
    per_token = greedy_by_value_per_token(candidates, budget)
    answer = {
        "selected": list(best.selected),
        "value": best.value,
        "size": best.size,
        "greedy_value": by_value.value,
        "greedy_per_token_value": per_token.value,
    }
    lines = [
        f"Carry items {', '.join(str(i) for i in best.selected) or 'none'} (counted from 0, in the order given)",
        f"Value {best.value:g} in {count_text(best.size)} of {count_text(budget)} tokens",
        f"Taking the most valuable first gives {by_value.value:g}; the most valuable per token first {per_token.value:g}",
        "Values are added: that two items say the same, or help only together, is not seen.",
    ]
    show(answer, lines, as_json)


def _item(text: str) -> Item:
    """An item as typed; its ranges are checked by the item itself."""
    size, _, value = text.partition(":")
    try:
        numbers = _whole(size), _int_or_float(value)
    except ValueError:
        raise ValueError(f"--item must be SIZE:VALUE, a whole number and a number, got {text[:60]!r}") from None
    return Item(size=numbers[0], value=numbers[1])


def _pinned(text: str) -> Item:
    """A pinned item as typed."""
    try:
        size = _whole(text)
    except ValueError:
        raise ValueError(f"--pin must be SIZE, a whole number, got {text[:60]!r}") from None
    return Item(size=size, value=0, pinned=True)


def _whole(text: str) -> int:
    if not WHOLE_NUMBER.fullmatch(text) or len(text) > MAX_DIGITS:
        raise ValueError
    return int(text.replace(",", "").replace("_", ""))


def _int_or_float(text: str) -> float:
    try:
        return _whole(text)
    except ValueError:
        return float(text)
