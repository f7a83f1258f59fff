"""Exact names, listed aliases, and the message for anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.names import UnknownName, known

FORMATS = {"bf16": 2, "fp16": 2, "fp32": 4}
ALIASES = {"bfloat16": "bf16", "half": "fp16"}


def test_an_exact_name_is_itself_and_an_alias_its_exact_name():
    assert known("bf16", FORMATS, "format", aliases=ALIASES) == "bf16"
    assert known("half", FORMATS, "format", aliases=ALIASES) == "fp16"
    assert known("bf16", ("bf16", "fp16"), "format") == "bf16"


def test_an_exact_name_goes_before_an_alias_of_the_same_spelling():
    assert known("bf16", FORMATS, "format", aliases={"bf16": "fp32"}) == "bf16"


@given(st.text(max_size=8))
def test_only_listed_names_are_known(text):
    if text in FORMATS or text in ALIASES:
        assert known(text, FORMATS, "format", aliases=ALIASES) in FORMATS
        return
    with pytest.raises(UnknownName, match="^unknown format "):
        known(text, FORMATS, "format", aliases=ALIASES)


@pytest.mark.parametrize("name", ["BF16", "bf16 ", "bf16-foo", "bf", "", "fp23"])
def test_a_near_name_is_suggested_and_never_taken(name):
    with pytest.raises(UnknownName):
        known(name, FORMATS, "format", aliases=ALIASES)


def test_the_message_names_what_was_typed_and_what_is_near():
    with pytest.raises(UnknownName) as caught:
        known("fp23", FORMATS, "KV format")
    assert str(caught.value) == "unknown KV format 'fp23'; did you mean fp32?"


def test_an_alias_may_be_suggested_too():
    with pytest.raises(UnknownName, match="did you mean .*bfloat16"):
        known("bfloat61", FORMATS, "format", aliases=ALIASES)


def test_where_nothing_is_near_the_known_names_are_listed():
    with pytest.raises(UnknownName) as caught:
        known("zzz", FORMATS, "format")
    assert str(caught.value) == "unknown format 'zzz'; known: bf16, fp16, fp32"


def test_a_long_list_and_a_long_name_are_cut():
    many = [f"name{i:03}" for i in range(500)]
    with pytest.raises(UnknownName) as caught:
        known("?" * 10_000, many, "thing")
    assert "name000, name001" in str(caught.value)
    assert str(caught.value).endswith("name011 ...")
    assert len(str(caught.value)) < 250


def test_an_unknown_name_is_a_lookup_error():
    assert issubclass(UnknownName, LookupError)
    assert not issubclass(UnknownName, KeyError)  # whose message is shown in quotes


@pytest.mark.parametrize("name", [None, 5, 2.5, ("bf16",)])
def test_what_is_not_a_text_is_not_a_name(name):
    with pytest.raises(UnknownName, match="^unknown format "):
        known(name, FORMATS, "format", aliases=ALIASES)
