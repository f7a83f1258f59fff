"""Guards the data files: every record says where it is from and since when, and names things that exist."""

import datetime
import re
import tomllib
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from genai_prices import data_snapshot

from calc.caching import caching_rule

PRESETS = Path(__file__).parent.parent / "calc" / "presets"
FILES = {path.name: tomllib.loads(path.read_text("utf-8")) for path in sorted(PRESETS.glob("*.toml"))}
WRITTEN = datetime.date(2026, 11, 30)
"""The day of the newest facts; a clock may be behind it."""
WITH_ALIASES = [file for file in FILES if "aliases" in next(iter(FILES[file].values()))]
RULES = FILES["caching.toml"]["rule"]
LISTED = {provider.id: {model.id for model in provider.models} for provider in data_snapshot.get_snapshot().providers}


def records():
    """Every record of every file: the file as a whole where it carries one source, else each entry."""
    for file, content in FILES.items():
        if "source" in content:
            yield pytest.param(content, id=file)
            continue
        for name, entry in content.items():
            for i, record in enumerate(entry if isinstance(entry, list) else [entry]):
                yield pytest.param(record, id=f"{file}-{name}-{i}")


def test_the_data_files_are_found():
    assert {"models.toml", "caching.toml", "families.toml", "layer_kinds.toml"} <= FILES.keys()


@pytest.mark.parametrize("record", list(records()))
def test_a_record_says_where_it_is_from_and_when_it_was_checked(record):
    assert isinstance(record["source"], str)
    assert record["source"].strip()
    assert type(record["checked"]) is datetime.date  # not a time, not a text
    assert datetime.date(2025, 1, 1) <= record["checked"] <= max(WRITTEN, datetime.date.today())


@pytest.mark.parametrize("file", WITH_ALIASES)
def test_an_alias_is_listed_once_and_is_no_id(file):
    aliases = [alias for record in FILES[file].values() for alias in record["aliases"]]
    assert [alias for alias, times in Counter(aliases).items() if times > 1] == []
    assert set(aliases) & FILES[file].keys() == set()
    assert all(alias.strip() == alias != "" for alias in aliases)


@pytest.mark.parametrize("file", FILES)
def test_ids_differ_by_more_than_their_case(file):
    names = [name.lower() for name in FILES[file]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['provider']}-{rule['minimum_tokens']}")
def test_a_caching_rule_names_models_of_the_price_list(rule):
    assert set(rule) <= {"provider", "models", "minimum_tokens", "granularity_tokens", "stated", "source", "checked"}
    assert rule["provider"] in LISTED
    assert rule["models"]
    unmatched = [
        pattern
        for pattern in rule["models"]
        if not any(fnmatchcase(model, pattern) for models in LISTED.values() for model in models)
    ]
    assert unmatched == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['provider']}-{rule['minimum_tokens']}")
def test_a_caching_rule_counts_in_whole_steps(rule):
    minimum, granularity = rule["minimum_tokens"], rule["granularity_tokens"]
    assert type(minimum) is int
    assert type(granularity) is int
    assert minimum >= 0
    assert granularity >= 1
    assert minimum % granularity == 0
    assert type(rule["stated"]) is bool


def test_a_model_id_stands_in_one_rule_of_its_provider():
    named = Counter((rule["provider"], model) for rule in RULES for model in rule["models"])
    assert [model for model, times in named.items() if times > 1] == []


@pytest.mark.parametrize(
    ("provider", "model", "minimum", "granularity"),
    [  # facts/caching_and_cost.md, section 2
        ("anthropic", "claude-opus-5", 512, 1),
        ("anthropic", "claude-fable-5", 512, 1),
        ("anthropic", "claude-sonnet-5", 1024, 1),
        ("anthropic", "claude-opus-4-8", 1024, 1),
        ("anthropic", "claude-opus-4-7", 2048, 1),
        ("anthropic", "claude-opus-4-5", 4096, 1),
        ("anthropic", "claude-opus-4-6", 4096, 1),
        ("anthropic", "claude-haiku-4-5", 4096, 1),
        ("openai", "gpt-5.6-sol", 1024, 1),
        ("openai", "gpt-5.4", 1024, 128),
        ("google", "gemini-2.5-pro", 4096, 1),
        ("google", "gemini-2.5-flash", 1024, 1),
        ("anthropic", "claude-3-haiku", 2048, 1),  # anthropic-sdk-python#1194
        ("google", "claude-opus-4-6", 4096, 1),  # minimums apply on every platform: Anthropic's page
        ("aws", "global.anthropic.claude-opus-4-6-v1:0", 4096, 1),
    ],
)
def test_a_caching_rule_holds_the_published_numbers(provider, model, minimum, granularity):
    rule = caching_rule(provider, model)
    assert (rule.minimum_tokens, rule.granularity_tokens) == (minimum, granularity)


def test_models_of_openai_from_gpt_5_6_on_are_matched_to_the_token():
    # facts/caching_and_cost.md, section 2: 128-token increments up to gpt-5.5, breakpoints from gpt-5.6 on.
    version = re.compile(r"gpt-(\d)(?:\.(\d))?(?![\d.])")
    newer = {
        model
        for model in LISTED["openai"]
        if (found := version.match(model)) and (int(found[1]), int(found[2] or 0)) >= (5, 6)
    }
    assert "gpt-5.6-sol" in newer
    assert {caching_rule("openai", model).granularity_tokens for model in newer} == {1}
