"""Which context items to carry under a token budget: the exact 0/1 knapsack, and what a greedy choice loses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from calc.numeric import COUNT, MAX_COUNT, NON_NEGATIVE, require

MAX_TABLE = 50_000_000
"""Most partial choices that the exact search remembers; a larger problem is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that a prompt may carry."""

    size: int
    """Tokens."""
    value: float
    """Worth of carrying it; any unit, the same for all items. A pinned item needs none."""
    name: str = ""
    pinned: bool = False
    """Carried first, whatever its value."""

    def __post_init__(self) -> None:
        require(self.size, COUNT, "size")
        require(self.value, NON_NEGATIVE, "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A choice of items, by their positions in the list that was given."""

    selected: tuple[int, ...]
    size: int
    """Tokens of the chosen items, pinned ones included."""
    value: float
    """Summed value of the chosen items that are not pinned."""


def select_items(candidates: Iterable[Item | tuple[int, float]], budget: int) -> Selection:
    """The choice of items with the largest summed value that fits a token budget.

    Parameters
    ----------
    candidates : iterable of Item or (int, float)
        Items, or pairs of size and value [tokens, any unit].
    budget : int
        Tokens to spend [tokens].

    Returns
    -------
    Selection
        Positions of the chosen items in rising order, their size and value [tokens, the unit of the values].

    Raises
    ------
    ValueError
        If a number is out of range, the pinned items do not fit, or the search would not fit in memory.

    Notes
    -----
    The exact 0/1 knapsack: every combination is considered, by keeping for each item the partial choices that no other
    beats in both size and value (Nemhauser and Ullmann, 1969). Of two choices of one value the smaller is taken.
    Pinned items are carried first and count no value. The limit of any such choice: values are added, so that two items
    that say the same, or that are useful only together, are not seen.

    Examples
    --------
    >>> select_items([(6, 8), (3, 5), (3, 5)], 6)
    Selection(selected=(1, 2), size=6, value=10)
    """
    items, pinned, left = _prepared(candidates, budget)
    free = [i for i, item in enumerate(items) if not item.pinned and item.size <= left]
    return _selection(items, pinned, _best_subset([items[i] for i in free], free, left))


def greedy_by_value(candidates: Iterable[Item | tuple[int, float]], budget: int) -> Selection:
    """The choice of someone who takes the most valuable item that still fits, again and again.

    Parameters
    ----------
    candidates : iterable of Item or (int, float)
        Items, or pairs of size and value [tokens, any unit].
    budget : int
        Tokens to spend [tokens].

    Returns
    -------
    Selection
        Chosen positions, size and value, to hold beside `select_items` [tokens, the unit of the values].

    Raises
    ------
    ValueError
        If a number is out of range or the pinned items do not fit.

    Examples
    --------
    >>> greedy_by_value([(6, 8), (3, 5), (3, 5)], 6)
    Selection(selected=(0,), size=6, value=8)
    """
    return _greedy(candidates, budget, lambda item: item.value)


def greedy_by_value_per_token(candidates: Iterable[Item | tuple[int, float]], budget: int) -> Selection:
    """The choice of someone who takes the item with the most value per token that still fits, again and again.

    Parameters
    ----------
    candidates : iterable of Item or (int, float)
        Items, or pairs of size and value [tokens, any unit].
    budget : int
        Tokens to spend [tokens].

    Returns
    -------
    Selection
        Chosen positions, size and value, to hold beside `select_items` [tokens, the unit of the values].

    Raises
    ------
    ValueError
        If a number is out of range or the pinned items do not fit.

    Examples
    --------
    >>> greedy_by_value_per_token([(1, 2), (10, 10)], 10)
    Selection(selected=(0,), size=1, value=2)
    """
    return _greedy(candidates, budget, lambda item: item.value / item.size if item.size else float("inf"))


def _prepared(candidates, budget) -> tuple[list[Item], list[int], int]:
    """The items, the positions of the pinned ones, and the budget that these leave."""
    budget = require(budget, COUNT, "budget")
    items = [item if isinstance(item, Item) else _item_of_pair(item) for item in candidates]
    if sum(item.value for item in items) > MAX_COUNT:
        raise ValueError(f"value of all items must add up to at most {MAX_COUNT:,}, got more")
    pinned = [i for i, item in enumerate(items) if item.pinned]
    needed = sum(items[i].size for i in pinned)
    if needed > budget:
        raise ValueError(f"budget must be at least the {needed:,} tokens of the pinned items, got {budget:,}")
    return items, pinned, budget - needed


def _item_of_pair(pair) -> Item:
    try:
        size, value = pair
    except (TypeError, ValueError):
        raise ValueError(f"a candidate must be an Item or a pair (size, value), got {str(pair)[:60]}") from None
    return Item(size=size, value=value)


def _selection(items: Sequence[Item], pinned: Sequence[int], chosen: Sequence[int]) -> Selection:
    selected = tuple(sorted((*pinned, *chosen)))
    return Selection(
        selected=selected,
        size=sum(items[i].size for i in selected),
        value=sum(items[i].value for i in selected if not items[i].pinned),
    )


def _greedy(candidates, budget, merit) -> Selection:
    items, pinned, left = _prepared(candidates, budget)
    chosen = []
    for i in sorted((i for i, item in enumerate(items) if not item.pinned), key=lambda i: -merit(items[i])):
        if items[i].size <= left:
            chosen.append(i)
            left -= items[i].size
    return _selection(items, pinned, chosen)


def _best_subset(items: Sequence[Item], positions: Sequence[int], budget: int) -> list[int]:
    """Positions of the best subset, by partial choices that no other beats in both size and value."""
    sizes, values = np.zeros(1, dtype=np.int64), np.zeros(1)
    came_from: list[tuple[np.ndarray, np.ndarray]] = []
    table = 0
    for item in items:
        fits = np.flatnonzero(sizes <= budget - item.size)
        all_sizes = np.concatenate((sizes, sizes[fits] + item.size))
        all_values = np.concatenate((values, values[fits] + item.value))
        order = np.lexsort((-all_values, all_sizes))
        best_before = np.concatenate(([-1.0], np.maximum.accumulate(all_values[order])[:-1]))
        kept = order[all_values[order] > best_before]
        table += kept.size
        if table > MAX_TABLE:
            raise ValueError(f"candidates must allow at most {MAX_TABLE:,} partial choices, got more")
        parents = np.concatenate((np.arange(sizes.size), fits))
        came_from.append((parents[kept].astype(np.int32), kept >= sizes.size))
        sizes, values = all_sizes[kept], all_values[kept]
    state, chosen = sizes.size - 1, []
    for position, (parent, taken) in zip(reversed(positions), reversed(came_from)):
        if taken[state]:
            chosen.append(position)
        state = parent[state]
    return chosen
