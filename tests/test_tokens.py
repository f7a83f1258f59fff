"""Submitted tokens against plain loops over the calls, and the published run of 100."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc import prompts as prompts_of
from calc import tokens

calls = st.integers(0, 60)
sizes = st.integers(0, 5000)
blocks = st.integers(1, 70)


def prompts_by_loop(calls, prefix, growth, block=None, summary=0, accumulate=False):
    """Prompt sizes, read contexts of compactions: the definition, call by call."""
    prompts, reads, history, kept = [], [], 0, 0
    for call in range(1, calls + 1):
        prompts.append(prefix + kept + history)
        history += growth
        if block and call % block == 0 and call < calls:
            reads.append(prefix + kept + history)
            kept = kept + summary if accumulate else summary
            history = 0
    return prompts, reads


@given(calls, sizes, sizes)
def test_submitted_tokens_are_the_sum_of_the_prompts(calls, prefix, growth):
    assert tokens.submitted_input_tokens(calls, prefix, growth) == sum(prompts_by_loop(calls, prefix, growth)[0])


@given(calls, sizes, sizes, blocks, sizes, sizes)
def test_block_compaction_equals_the_loop_with_a_partial_last_block(calls, prefix, growth, block, summary, instruction):
    prompts, reads = prompts_by_loop(calls, prefix, growth, block, summary)
    assert tokens.compacted_input_tokens(calls, prefix, growth, block, summary) == sum(prompts)
    assert tokens.compaction_calls(calls, block) == len(reads)
    read = sum(reads) + instruction * len(reads)
    assert tokens.compaction_read_tokens(calls, prefix, growth, block, summary, instruction) == read
    assert tokens.compaction_written_tokens(calls, block, summary) == summary * len(reads)


@given(calls, sizes, sizes, blocks, sizes)
def test_accumulating_summaries_equal_the_loop(calls, prefix, growth, block, summary):
    prompts, _ = prompts_by_loop(calls, prefix, growth, block, summary, accumulate=True)
    assert tokens.accumulated_input_tokens(calls, prefix, growth, block, summary) == sum(prompts)


@given(calls, sizes, sizes, blocks, sizes, st.booleans())
def test_the_listed_prompt_sizes_equal_the_loop(calls, prefix, growth, block, summary, accumulate):
    listed = prompts_of.prompt_tokens_per_call(
        calls, prefix, growth, block=block, summary=summary, accumulate=accumulate
    )
    assert listed.tolist() == prompts_by_loop(calls, prefix, growth, block, summary, accumulate)[0]


@given(calls=st.integers(1, 60), prefix=sizes, growth=sizes)
def test_a_block_as_long_as_the_run_compacts_nothing(calls, prefix, growth):
    whole = tokens.submitted_input_tokens(calls, prefix, growth)
    assert tokens.compacted_input_tokens(calls, prefix, growth, calls, 777) == whole
    assert tokens.accumulated_input_tokens(calls, prefix, growth, calls, 777) == whole


def test_the_published_run_of_100_calls():
    assert tokens.submitted_input_tokens(100, 2000, 300) == 1_685_000
    assert tokens.last_call_tokens(100, 2000, 300) == 31_700
    assert tokens.compacted_input_tokens(100, 2000, 300, 20, 1000) == 565_000
    assert tokens.accumulated_input_tokens(100, 2000, 300, 20, 1000) == 685_000
    per_call = prompts_of.prompt_tokens_per_call(100, 2000, 300, block=20, summary=1000)
    assert per_call.reshape(5, 20).sum(axis=1).tolist() == [97_000, *[117_000] * 4]
    assert per_call[-1] == 8_700
    assert round(100 * (1 - 565_000 / 1_685_000), 1) == 66.5
    # 565,000 of the calls and what four compactions read.
    assert 565_000 + tokens.compaction_read_tokens(100, 2000, 300, 20, 1000) == 600_000


def test_scalar_counts_stay_exact_at_any_size():
    big = 10**15
    exact = big * big + big * (big * (big - 1) // 2)
    result = tokens.submitted_input_tokens(big, big, big)
    assert type(result) is int
    assert result == exact


@pytest.mark.parametrize("size", [10, 10**6, 10**9, 10**12, 10**15])
def test_arrays_never_wrap_around(size):
    exact = tokens.submitted_input_tokens(size, size, size)
    result = tokens.submitted_input_tokens(np.array([size]), np.array([size]), size)[0]
    assert result > 0
    assert abs(int(result) - exact) <= exact * 2**-50


@given(st.lists(st.tuples(st.integers(0, 10**7), sizes, sizes, st.integers(1, 10**7), sizes), min_size=1, max_size=5))
def test_an_array_of_runs_gives_what_each_run_gives(runs):
    columns = [np.array(column) for column in zip(*runs)]
    together = tokens.compacted_input_tokens(*columns)
    assert together.dtype == np.int64
    assert together.tolist() == [tokens.compacted_input_tokens(*run) for run in runs]


def test_growth_may_be_a_list_or_a_curve():
    assert prompts_of.prompt_tokens_per_call(4, 10, [1, 2, 3]).tolist() == [10, 11, 13, 16]
    curve = prompts_of.growth_through_sizes(30, [(1, 2_000), (5, 14_000), (15, 58_000), (25, 112_000)])
    prompts = prompts_of.prompt_tokens_per_call(30, 2_000, curve)
    assert prompts[[0, 4, 14, 24]].tolist() == [2_000, 14_000, 58_000, 112_000]
    assert prompts[29] == 112_000 + 5 * 5_400
    stepped = prompts_of.growth_in_steps(5, [(1, 10), (3, 100)])
    assert prompts_of.prompt_tokens_per_call(5, 0, stepped).tolist() == [0, 10, 20, 120, 220]


@given(st.integers(1, 40), sizes, sizes, st.integers(0, 200_000))
def test_the_refused_call_is_the_first_above_the_limit(calls, prefix, growth, limit):
    prompts, _ = prompts_by_loop(calls, prefix, growth)
    expected = next((number for number, size in enumerate(prompts, 1) if size > limit), None)
    assert prompts_of.first_refused_call(prompts, limit) == expected


@pytest.mark.parametrize("bad", [-1, 2.5, float("nan"), float("inf"), "100", None, True, 10**18, [1, -1], [1.5]])
def test_a_bad_count_is_named_with_its_range_and_value(bad):
    with pytest.raises(ValueError, match=r"^calls must be a whole number from 0 to 1,000,000,000,000,000.*got"):
        tokens.submitted_input_tokens(bad, 2000, 300)


def test_a_list_of_growths_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="growth must be one number or a list of calls - 1 = 3 numbers, got 2"):
        prompts_of.prompt_tokens_per_call(4, 10, [1, 2])


def test_a_run_too_long_to_list_is_refused():
    with pytest.raises(ValueError, match="calls must be a whole number from 0 to 1,000,000, got 1,000,001"):
        prompts_of.prompt_tokens_per_call(1_000_001, 0, 1)


def test_a_steep_curve_does_not_wrap_and_meets_its_sizes():
    # The product of a step and a rise, 2 * 10^20, is beyond int64.
    sizes = [(1, 0), (200_000, 10**15)]
    curve = prompts_of.growth_through_sizes(200_000, sizes)
    prompts = prompts_of.prompt_tokens_per_call(200_000, 0, curve)
    assert prompts[-1] == 10**15
    assert prompts[100_000] == 100_000 * 10**15 // 199_999
    assert (curve >= 0).all()
