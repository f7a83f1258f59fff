"""Softmax attention by its definition: every query scores every key that it may see.

B batch, H query heads, G KV heads (H is a multiple of G), N new tokens, T tokens in all, D key width, E value width.
"""

import math
from numbers import Real

import torch


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None) -> torch.Tensor:
    """Causal attention of the last N of T tokens, with all scores held at once.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens; N = T is prefill from the start [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens; query head i uses KV head i // (H / G) [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    scale : float or None
        Factor of the scores; None is 1 / sqrt(D) [1].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, if there are more queries than keys, or if `scale` is not finite.

    Notes
    -----
    softmax(scale q k^T) v, where new token i sees the keys up to T - N + i. The whole N x T square is computed, then
    masked: 2 B H N T (D + E) FLOP in matrix products, and memory that grows with N T. A NaN anywhere in `v` reaches
    every row, since a weight of 0 times NaN is NaN. Source: Vaswani et al. 2017, equation 1; checked against torch's
    scaled_dot_product_attention.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> causal_attention(q, k, v).flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    if scale is None:
        scale = q.shape[-1] ** -0.5
    elif not (isinstance(scale, Real) and math.isfinite(scale)):
        raise ValueError(f"scale must be a finite number or None, got {scale!r}")
    shared_by = q.shape[1] // k.shape[1]
    new, tokens = q.shape[2], k.shape[2]
    # Scaled before the product, where a large query could still overflow.
    scaled = q.to(inner_dtype(q.dtype)) * scale
    keys = k.to(scaled.dtype).repeat_interleave(shared_by, dim=1)  # (B, H, T, D)
    values = v.to(scaled.dtype).repeat_interleave(shared_by, dim=1)  # (B, H, T, E)
    scores = scaled @ keys.transpose(-2, -1)  # (B, H, N, T)
    visible = torch.ones(new, tokens, dtype=torch.bool, device=q.device).tril(tokens - new)
    weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1)
    return (weights @ values).to(q.dtype)


def inner_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that a kernel computes in: float64 for float64, float32 for every narrower one."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def require_fitting_heads(**tensors: torch.Tensor) -> None:
    """Check that queries, keys and values, given in this order, fit; the message names the one that does not."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.ndim != 4:
            raise ValueError(f"{name} must be (batch, heads, tokens, width), got shape {tuple(tensor.shape)}")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} must be of a floating-point type, got {tensor.dtype}")
        if 0 in (tensor.shape[1], tensor.shape[3]):
            raise ValueError(f"{name} must have at least one head and a width of at least 1, got {tuple(tensor.shape)}")
    (query_name, q), (key_name, k), (value_name, v) = tensors.items()
    for name, tensor in ((key_name, k), (value_name, v)):
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise ValueError(
                f"{name} must be {q.dtype} on {q.device} like {query_name}, got {tensor.dtype} on {tensor.device}"
            )
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"{key_name} must have the batch {q.shape[0]} and the width {q.shape[3]} of {query_name}, "
            f"got {tuple(k.shape)}"
        )
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(
            f"{value_name} must have the batch, heads and tokens {tuple(k.shape[:3])} of {key_name}, "
            f"got {tuple(v.shape[:3])}"
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"{query_name} must have a multiple of the {k.shape[1]} heads of {key_name}, got {q.shape[1]}")
    if q.shape[2] > k.shape[2]:
        raise ValueError(f"{query_name} must have at most the {k.shape[2]} tokens of {key_name}, got {q.shape[2]}")
