"""Random heads, torch's attention as a second opinion, and counters of FLOP and bytes, for the tests of kernels."""

import torch
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

SHAPES = [  # batch, query heads, KV heads, tokens, key width, value width
    (1, 1, 1, 0, 4, 4),
    (1, 1, 1, 1, 1, 1),
    (2, 6, 6, 7, 16, 16),
    (2, 6, 3, 13, 5, 8),
    (3, 6, 2, 31, 17, 3),
    (1, 7, 1, 64, 40, 1),
    (0, 4, 2, 5, 8, 8),
    (1, 8, 4, 97, 1, 40),
]
dimensions = st.tuples(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 48), st.integers(1, 40), st.integers(1, 40)
).map(lambda d: (d[0], d[1] * d[2], d[2], *d[3:]))


def random_heads(batch, query_heads, kv_heads, tokens, key_width, value_width, *, new=None, dtype=torch.float64):
    random = torch.Generator().manual_seed(20_261_130)
    shapes = (
        (batch, query_heads, tokens if new is None else new, key_width),
        (batch, kv_heads, tokens, key_width),
        (batch, kv_heads, tokens, value_width),
    )
    return tuple(torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes)


def torch_attention(q, k, v, *, scale=None, visible=None):
    """Torch's unfused attention of the last queries, on keys and values repeated for each query head; causal if no
    mask is given."""
    shared_by = q.shape[1] // k.shape[1]
    if visible is None:
        rows = torch.arange(k.shape[2] - q.shape[2], k.shape[2])
        visible = rows[:, None] >= torch.arange(k.shape[2])
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(
            q,
            k.repeat_interleave(shared_by, dim=1),
            v.repeat_interleave(shared_by, dim=1),
            attn_mask=visible,
            scale=scale,
        )


def assert_equal(ours, theirs, *, rtol=1e-12, atol=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


# Rounding once to p = 24, 11 or 8 significant bits is off by at most half of the last bit: 2^-p of the value.
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def counted(kernel, *tensors, **options):
    with FlopCounterMode(display=False) as counter:
        kernel(*tensors, **options)
    return counter.get_total_flops()


class LargestMade(TorchDispatchMode):
    """The bytes of the largest storage that is made, views of given tensors aside."""

    def __init__(self, *given):
        super().__init__()
        self.given = {tensor.untyped_storage().data_ptr() for tensor in given}
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if made.untyped_storage().data_ptr() not in self.given:
            self.bytes = max(self.bytes, made.untyped_storage().nbytes())
        return made
