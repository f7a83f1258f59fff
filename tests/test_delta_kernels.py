"""The delta rule and its gated form against transformers, numpy, and what they promise of reading back."""

import numpy as np
import pytest
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from kernels.delta import delta_rule, gated_delta_rule
from kernels.heads import inner_dtype
from tests.heads import SHAPES, random_heads


def random_rule(*shape, new=None, dtype=torch.float64):
    """Random heads with keys of length 1, a share between 0 and 1 and a decay below 1 for each key."""
    q, k, v = random_heads(*shape, new=new)
    random = torch.Generator().manual_seed(7)
    beta = torch.rand(k.shape[:3], generator=random, dtype=torch.float64)
    log_decay = -torch.rand(k.shape[:3], generator=random, dtype=torch.float64)
    return tuple(tensor.to(dtype) for tensor in (q, k / k.norm(dim=3, keepdim=True), v, beta, log_decay))


def by_numpy(q, k, v, beta, log_decay):
    """S_t = (I - beta k k^T) a S_(t-1) + beta k v^T, as matrices, for each sequence and head apart."""
    q, k, v, beta, log_decay = (tensor.numpy() for tensor in (q, k, v, beta, log_decay))
    batch, query_heads, new, width = q.shape
    kv_heads, tokens = k.shape[1:3]
    result = np.empty((batch, query_heads, new, v.shape[3]))
    for b in range(batch):
        for h in range(query_heads):
            g = h * kv_heads // query_heads
            state = np.zeros((width, v.shape[3]))
            for t in range(tokens):
                share, key = beta[b, g, t], k[b, g, t]
                erase = np.eye(width) - share * np.outer(key, key)
                state = erase @ (np.exp(log_decay[b, g, t]) * state) + share * np.outer(key, v[b, g, t])
                if t >= tokens - new:
                    result[b, h, t - tokens + new] = state.T @ q[b, h, t - tokens + new]
    return torch.from_numpy(result)


def assert_near(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shown", ["all", "last", "none"])
def test_the_rules_are_their_matrices(shape, shown):
    new = {"all": shape[3], "last": min(1, shape[3]), "none": 0}[shown]
    q, k, v, beta, log_decay = random_rule(*shape, new=new)
    assert_near(gated_delta_rule(q, k, v, beta, log_decay), by_numpy(q, k, v, beta, log_decay))
    assert_near(delta_rule(q, k, v, beta), by_numpy(q, k, v, beta, torch.zeros_like(beta)))


def test_the_gated_rule_is_transformers_with_its_scale_taken_back():
    q, k, v, beta, log_decay = random_rule(2, 4, 4, 40, 16, 24, dtype=torch.float32)
    swapped = [tensor.transpose(1, 2) for tensor in (q * 16**0.5, k, v, log_decay, beta)]
    theirs, _ = torch_recurrent_gated_delta_rule(*swapped)
    assert_near(gated_delta_rule(q, k, v, beta, log_decay), theirs.transpose(1, 2), 1e-5)


def test_a_key_written_again_reads_back_its_newest_value():
    keys = torch.eye(4, dtype=torch.float64)[[0, 1, 2, 1, 3]].reshape(1, 1, 5, 4)
    values = torch.arange(10.0, 20.0, dtype=torch.float64).reshape(1, 1, 5, 2)
    read = torch.eye(4, dtype=torch.float64).reshape(1, 4, 1, 4)
    found = delta_rule(read, keys, values, torch.ones(1, 1, 5, dtype=torch.float64))
    assert torch.equal(found[0, :, 0], values[0, 0, [0, 3, 2, 4]])


def test_no_share_writes_nothing_and_no_decay_forgets_nothing():
    q, k, v, beta, log_decay = random_rule(2, 4, 2, 9, 8, 5)
    assert not gated_delta_rule(q, k, v, torch.zeros_like(beta), log_decay).any()
    assert torch.equal(gated_delta_rule(q, k, v, beta, torch.zeros_like(beta)), delta_rule(q, k, v, beta))


def test_a_decay_to_nothing_starts_anew():
    q, k, v, beta, log_decay = random_rule(2, 4, 2, 9, 8, 5)
    log_decay[:, :, 6] = -torch.inf
    after = [tensor[:, :, 6:] for tensor in (q, k, v, beta, log_decay)]
    assert_near(gated_delta_rule(q, k, v, beta, log_decay)[:, :, 6:], gated_delta_rule(*after))


def test_what_comes_later_changes_nothing_before_it():
    rule = random_rule(1, 2, 2, 9, 8, 5)
    before = gated_delta_rule(*rule)
    rule[2][:, :, 5:] = torch.nan
    after = gated_delta_rule(*rule)
    assert torch.equal(after[:, :, :5], before[:, :, :5])
    assert after[:, :, 5:].isnan().all()


def test_keys_that_are_too_long_make_the_state_grow_without_bound():
    q, k, v, beta, _ = random_rule(1, 1, 1, 400, 2, 2)
    ones = torch.ones_like(beta)
    assert delta_rule(q, k, v, ones).abs().max() < 100
    assert delta_rule(q, 3 * k, v, ones).abs().max() > 1e100


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_state_is_kept_wide_whatever_the_type(dtype):
    rule = random_rule(2, 4, 2, 60, 8, 5, dtype=dtype)
    result = gated_delta_rule(*rule)
    assert result.dtype == dtype
    wide = gated_delta_rule(*(tensor.to(inner_dtype(dtype)) for tensor in rule))
    assert torch.equal(result, wide.to(dtype))


def test_gradients_and_strided_inputs():
    rule = random_rule(1, 2, 1, 3, 2, 2)
    assert torch.autograd.gradcheck(gated_delta_rule, [tensor.requires_grad_() for tensor in rule])
    q, k, v, beta, log_decay = random_rule(2, 4, 4, 6, 8, 5)
    strided = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v, beta, log_decay)]
    assert_near(gated_delta_rule(*strided), gated_delta_rule(q, k, v, beta, log_decay))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("beta", torch.ones(1, 2, 4), r"beta must have the shape \(1, 2, 5\), got \(1, 2, 4\)"),
        ("beta", 0.5, "beta must be a tensor, got float"),
        ("beta", torch.ones(1, 2, 5, dtype=torch.int64), "beta must be floating-point on cpu, got torch.int64"),
        ("log_decay", torch.ones(1, 4, 5), r"log_decay must have the shape \(1, 2, 5\), got \(1, 4, 5\)"),
        ("log_decay", torch.ones(1, 2, 5, device="meta"), "log_decay must be floating-point on cpu"),
        ("q", torch.ones(1, 3, 5, 4), "q must have a multiple of the 2 heads of k, got 3"),
        ("q", torch.ones(1, 4, 6, 4), "q must have at most the 5 tokens of k, got 6"),
        ("v", torch.ones(1, 2, 4, 3), "v must have the batch, heads and tokens"),
    ],
)
def test_what_does_not_fit_is_named(name, tensor, message):
    fitting = {
        "q": torch.ones(1, 4, 5, 4),
        "k": torch.ones(1, 2, 5, 4),
        "v": torch.ones(1, 2, 5, 3),
        "beta": torch.ones(1, 2, 5),
        "log_decay": torch.zeros(1, 2, 5),
    }
    with pytest.raises(ValueError, match=message):
        gated_delta_rule(**fitting | {name: tensor})
    if name != "log_decay":
        del fitting["log_decay"]
        with pytest.raises(ValueError, match=message):
            delta_rule(**fitting | {name: tensor})
