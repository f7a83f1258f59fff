"""Decode attention: the query of one new token over a cache, with each cached number read once for its group of heads.

B batch, H query heads, G KV heads (H is a multiple of G), T tokens in the cache, D key width, E value width.
"""

import torch

from kernels.heads import inner_dtype, require_fitting_heads


def decode_attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Attention of one new token over a cache that already holds the token's own key and value.

    Parameters
    ----------
    q : Tensor
        Query of the new token [(B, H, 1, D)].
    keys : Tensor
        Cached keys; query head i uses KV head i // (H / G) [(B, G, T, D)].
    values : Tensor
        Cached values [(B, G, T, E)].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q` [(B, H, 1, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, if `q` is not one token, or if the cache is empty.

    Notes
    -----
    The H / G query heads that share a KV head are the rows of one matrix, so that keys and values are not repeated:
    2 B H T (D + E) FLOP over B G T (D + E) cached numbers. A cache in a type narrower than float32 is widened first.
    Equal to the last row of `kernels.softmax.causal_attention`. Source: Ainslie et al. 2023 (GQA).

    Examples
    --------
    >>> values = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> decode_attention(torch.zeros(1, 2, 1, 4), torch.zeros(1, 1, 3, 4), values).flatten().tolist()
    [3.0, 3.0]
    """
    require_fitting_heads(q=q, keys=keys, values=values)
    if q.shape[2] != 1:
        raise ValueError(f"q must be one token, got {q.shape[2]}")
    batch, heads, _, width = q.shape
    kv_heads = keys.shape[1]
    inner = inner_dtype(q.dtype)
    grouped = q.reshape(batch, kv_heads, heads // kv_heads, width).to(inner) * width**-0.5  # (B, G, H / G, D)
    weights = (grouped @ keys.to(inner).transpose(-2, -1)).softmax(dim=-1)  # (B, G, H / G, T)
    return (weights @ values.to(inner)).reshape(batch, heads, 1, values.shape[3]).to(q.dtype)
