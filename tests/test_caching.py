"""Cache reads and writes against a simulation that stores prefixes token by token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.caching import (
    TEXTBOOK_RULE,
    CachingRule,
    append_only_split,
    cache_split,
    cached_fraction_of_run,
    caching_rule,
    hit_tokens,
)
from calc.tokens import submitted_input_tokens


def simulated(prompts: list[list[str]], minimum: int, granularity: int):
    """Read, written and plain tokens when a cache holds every stored prefix of every prompt sent before."""
    stored: set[tuple[str, ...]] = set()
    for prompt in prompts:
        lengths = [n for n in range(granularity, len(prompt) + 1, granularity) if n >= minimum]
        read = max((n for n in lengths if tuple(prompt[:n]) in stored), default=0)
        top = max(lengths, default=0)
        stored |= {tuple(prompt[:n]) for n in lengths}
        yield read, top - read, len(prompt) - top


def append_only_prompts(calls, prefix, growth):
    text = [f"t{i}" for i in range(prefix + growth * calls)]
    return [text[: prefix + growth * call] for call in range(calls)]


small = st.integers(0, 12)


@given(st.integers(1, 7), small, small, st.integers(0, 8), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_every_call_is_split_as_a_cache_of_prefixes_would(calls, prefix, growth, steps, granularity):
    minimum = steps * granularity  # as with every provider that has both
    prompts = append_only_prompts(calls, prefix, growth)
    sizes = [len(prompt) for prompt in prompts]
    rule = CachingRule(minimum_tokens=minimum, granularity_tokens=granularity, stated=True, source="this test")
    split = cache_split(sizes, [0, *sizes[:-1]], rule)
    expected = list(simulated(prompts, minimum, granularity))
    assert list(zip(split.read.tolist(), split.written.tolist(), split.plain.tolist())) == expected


@given(st.integers(0, 40), st.integers(0, 500), st.integers(0, 200), st.integers(0, 6000))
@settings(max_examples=300)
def test_the_closed_form_of_a_run_is_the_sum_over_its_calls(calls, prefix, growth, minimum):
    sizes = [prefix + growth * call for call in range(calls)]
    read = sum(s for s in sizes[:-1] if s >= minimum)
    plain = sum(s for s in sizes if s < minimum)
    split = append_only_split(calls, prefix, growth, minimum)
    assert (split.read, split.plain) == (read, plain)
    assert split.read + split.written + split.plain == submitted_input_tokens(calls, prefix, growth)


def test_an_array_of_runs_is_split_as_each_run_is():
    calls, minimum = np.array([1, 7, 8, 100]), 4096
    together = append_only_split(calls, 2000, 300, minimum)
    for i, count in enumerate(calls.tolist()):
        alone = append_only_split(count, 2000, 300, minimum)
        assert (together.read[i], together.written[i], together.plain[i]) == (alone.read, alone.written, alone.plain)


def test_published_reads_and_writes_of_the_test_vector():
    split = append_only_split(50, 4000, 500)
    assert (split.read, split.written, split.plain) == (784_000, 28_500, 0)
    assert round(cached_fraction_of_run(50, 4000, 500), 6) == 0.964923
    assert round(cached_fraction_of_run(100, 26_000, 1400), 4) == 0.9827


def test_a_hit_is_nothing_below_the_minimum_and_whole_steps_above():
    # docs.rbln.ai: a block of 4,096 tokens with 3,000 shared reuses nothing. OpenAI: steps of 128 from 1,024 on.
    assert hit_tokens(3000, 4096, 4096) == 0
    assert [hit_tokens(n, 1024, 128) for n in (1023, 1024, 1151, 1152)] == [0, 1024, 1024, 1152]


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 5000))
def test_a_hit_never_exceeds_what_is_shared_and_is_a_multiple(shared, minimum, granularity):
    hit = hit_tokens(shared, minimum, granularity)
    assert hit <= shared
    assert hit % granularity == 0
    assert hit == 0 or shared - hit < granularity


def test_rules_come_from_the_model_then_the_provider_then_the_textbook():
    assert caching_rule("anthropic", "claude-opus-4-6").minimum_tokens == 4096
    assert caching_rule("anthropic", "claude-opus-4-7").minimum_tokens == 2048
    assert caching_rule("anthropic", "claude-opus-5").minimum_tokens == 512
    unlisted = caching_rule("anthropic", "claude-of-next-year")
    assert (unlisted.minimum_tokens, unlisted.stated) == (1024, False)
    assert caching_rule("openai", "gpt-5.4").granularity_tokens == 128
    assert caching_rule("nobody", "x") is TEXTBOOK_RULE


def test_a_prompt_cannot_share_more_than_it_holds():
    with pytest.raises(ValueError, match="shared_tokens must not exceed prompt_tokens"):
        cache_split([10], [11], TEXTBOOK_RULE)


def test_what_a_run_writes_is_its_last_prompt_even_where_its_sum_is_too_large_for_int64():
    split = append_only_split(np.array([10**15, 10**12]), np.array([10**15, 0]), np.array([0, 1]))
    assert split.written.tolist() == [10**15, 10**12 - 1]
