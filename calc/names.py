"""Names that a user types - models, formats, cards - and the one error for a name that is not known."""

import difflib
from collections.abc import Collection, Mapping


class UnknownName(LookupError):
    """A name that is not in a list of exact names and aliases."""


def known(name: str, names: Collection[str], what: str, *, aliases: Mapping[str, str] | None = None) -> str:
    """The canonical form of a name, or an error that lists near names.

    Parameters
    ----------
    name : str
        What was typed [name].
    names : collection of str
        Exact names [names].
    what : str
        What the message calls it [text].
    aliases : mapping of str to str or None
        Other spellings and the exact name of each [names].

    Returns
    -------
    str
        The exact name [name].

    Raises
    ------
    UnknownName
        If it is neither an exact name nor a listed alias.

    Examples
    --------
    >>> known("bfloat16", ["bf16", "fp32"], "KV format", aliases={"bfloat16": "bf16"})
    'bf16'
    >>> known("fp23", ["bf16", "fp32"], "KV format")
    Traceback (most recent call last):
        ...
    calc.names.UnknownName: unknown KV format 'fp23'; did you mean fp32?
    """
    aliases = aliases or {}
    text = name if isinstance(name, str) else repr(name)
    if text in names:
        return text
    if text in aliases:
        return aliases[text]
    by_lower_case = {candidate.lower(): candidate for candidate in [*aliases, *names]}
    matches = difflib.get_close_matches(text[:100].lower(), by_lower_case, n=3, cutoff=0.6)
    near = [by_lower_case[match] for match in matches]
    shown = repr(text if len(text) <= 60 else text[:57] + "...")
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        listed = sorted(names)
        hint = f"known: {', '.join(listed[:12])}{' ...' if len(listed) > 12 else ''}"
    raise UnknownName(f"unknown {what} {shown}; {hint}")
