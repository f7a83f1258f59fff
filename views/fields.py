"""Kinds of input: how each is read from a link, written to it, and drawn as a widget."""

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from calc.names import known
from calc.numeric import Range, require

KEEP = {"persist_state": "session"}
"""A value outlives its widget: pages share their inputs, and closed sections keep theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number in a range; None is allowed where the default is None."""

    key: str
    label: str
    help: str
    default: int | None
    allowed: Range
    step: int = 1
    empty: str = "as listed"
    """What an empty field shows, where the default is None."""

    def parsed(self, text: str) -> int | None:
        """The value of a link's text, or a ValueError that names field, range and value."""
        if not text and self.default is None:
            return None
        return self.checked(int(text) if re.fullmatch(r"[+-]?\d{1,30}", text, re.ASCII) else text)

    def checked(self, value: Any) -> int | None:
        """The value, or a ValueError that names field, range and value."""
        return None if value is None and self.default is None else require(value, self.allowed, self.key)

    def text(self, value: int | None) -> str:
        """The value as a link holds it."""
        return "" if value is None else str(value)

    def draw(self) -> None:
        """The widget."""
        st.number_input(
            self.label,
            min_value=int(self.allowed.low),
            max_value=int(self.allowed.high),
            value=st.session_state.get(self.key, self.default),  # else the browser shows the minimum for a moment
            step=self.step,
            key=self.key,
            help=f"{self.help} Allowed: {self.allowed}.",
            placeholder=self.empty,
            **KEEP,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price typed by hand, or None for the card's."""

    key: str
    label: str
    help: str
    allowed: Range
    default: None = None

    def parsed(self, text: str) -> float | None:
        """The value of a link's text, or a ValueError that names field, range and value."""
        if not text:
            return None
        try:
            return self.checked(float(text))
        except ValueError:
            return self.checked(text)

    def checked(self, value: Any) -> float | None:
        """The value, or a ValueError that names field, range and value."""
        return None if value is None else float(require(value, self.allowed, self.key))

    def text(self, value: float | None) -> str:
        """The value as a link holds it."""
        return "" if value is None else f"{value:.12g}"

    def draw(self) -> None:
        """The widget."""
        st.number_input(
            self.label,
            min_value=float(self.allowed.low),
            max_value=float(self.allowed.high),
            value=st.session_state.get(self.key, self.default),
            step=0.05,
            format="%.8g",
            key=self.key,
            help=self.help,
            placeholder="as listed",
            **KEEP,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of a few names."""

    key: str
    label: str
    help: str
    default: str
    options: Callable[[], Sequence[str]]
    shown: Callable[[str], str] = str
    not_in_links: Mapping[str, str] = field(default_factory=dict)
    """Values that a link may name without holding what they stand for, and what to say of each."""

    def parsed(self, text: str) -> str:
        """The value of a link's text, or an error that says what it may be."""
        if text in self.not_in_links and text not in self.options():
            raise ValueError(f"{self.key}: {self.not_in_links[text]}")
        return self.checked(text)

    def checked(self, value: Any) -> str:
        """The value, or a LookupError with near names."""
        return known(value, self.options(), self.key)

    def text(self, value: str) -> str:
        """The value as a link holds it."""
        return value

    def draw(self) -> None:
        """The widget."""
        st.selectbox(self.label, self.options(), format_func=self.shown, key=self.key, help=self.help, **KEEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A date; the default is today (UTC)."""

    key: str
    label: str
    help: str
    first: datetime.date
    last: datetime.date

    @property
    def default(self) -> datetime.date:
        """Today (UTC)."""
        return datetime.datetime.now(datetime.UTC).date()

    def parsed(self, text: str) -> datetime.date:
        """The value of a link's text, or a ValueError that names field, range and value."""
        try:
            if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
                raise ValueError
            return self.checked(datetime.date.fromisoformat(text))
        except ValueError:
            raise ValueError(f"{self.key} must be a day from {self.first} to {self.last}, got {text[:40]!r}") from None

    def checked(self, value: Any) -> datetime.date:
        """The value, or a ValueError that names field, range and value."""
        if not isinstance(value, datetime.date) or not self.first <= value <= self.last:
            raise ValueError(f"{self.key} must be a day from {self.first} to {self.last}, got {value}")
        return value

    def text(self, value: datetime.date) -> str:
        """The value as a link holds it."""
        return value.isoformat()

    def draw(self) -> None:
        """The widget."""
        st.date_input(
            self.label,
            min_value=self.first,
            max_value=self.last,
            format="YYYY-MM-DD",
            key=self.key,
            help=self.help,
            **KEEP,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """A text without a widget of its own, such as what was read from a pasted config."""

    key: str
    check: Callable[[str], Any]
    default: str = ""

    def parsed(self, text: str) -> str:
        """The value of a link's text, or the ValueError of its check."""
        return self.checked(text)

    def checked(self, value: Any) -> str:
        """The value, or the ValueError of its check."""
        if value:
            try:
                self.check(value)
            except ValueError as problem:
                raise ValueError(f"{self.key}: {problem}") from None
        return value

    def text(self, value: str) -> str:
        """The value as a link holds it."""
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """Some of a list of names, in the order they were chosen."""

    key: str
    label: str
    help: str
    default: tuple[str, ...]
    options: Callable[[], Sequence[str]]
    most: int
    shown: Callable[[str], str] = str

    def parsed(self, text: str) -> tuple[str, ...]:
        """The values of a link's text, or an error that says what they may be."""
        return self.checked(text.split(",") if text else ())

    def checked(self, value: Any) -> tuple[str, ...]:
        """The values, or an error with near names or the number allowed."""
        names = tuple(dict.fromkeys(known(name, self.options(), self.key) for name in value))
        if len(names) > self.most:
            raise ValueError(f"{self.key} must be at most {self.most} names, got {len(names)}")
        return names

    def text(self, value: Sequence[str]) -> str:
        """The values as a link holds them."""
        return ",".join(value)

    def draw(self) -> None:
        """The widget."""
        st.multiselect(
            self.label,
            self.options(),
            format_func=self.shown,
            key=self.key,
            help=self.help,
            max_selections=self.most,
            **KEEP,
        )


Field = Whole | Price | Choice | Several | Day | Hidden
