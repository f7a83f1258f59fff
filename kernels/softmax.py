"""Softmax attention: by its definition, by blocks of rows, and online by blocks of rows and keys.

B batch, H query heads, G KV heads (H is a multiple of G), N new tokens, T tokens in all, D key width, E value width.
"""

import math

import torch

from kernels.heads import inner_dtype, require_counts, require_fitting_heads, score_scale


def masked_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, *, scale: float | None = None
) -> torch.Tensor:
    """Attention over the keys that a mask leaves, with all scores held at once.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens; query head i uses KV head i // (H / G) [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    visible : Tensor
        Whether a new token sees a token, the same for all heads [(N, T) of bool].
    scale : float or None
        Factor of the scores; None is 1 / sqrt(D) [1].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q`; 0 for a token that sees nothing [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, if there are more queries than keys, or if `scale` is not finite.

    Notes
    -----
    softmax(scale q k^T) v over visible keys. The whole N x T square is computed, then masked: 2 B H N T (D + E) FLOP
    in matrix products, and memory that grows with N T. A NaN anywhere in `v` reaches every row, since a weight of 0
    times NaN is NaN. Source: Vaswani et al. 2017, equation 1; checked against torch's scaled_dot_product_attention.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 2, 4)
    >>> v = torch.tensor([1.0, 2.0]).reshape(1, 1, 2, 1)
    >>> masked_attention(q, k, v, torch.tensor([[False, False], [True, True]])).flatten().tolist()
    [0.0, 1.5]
    """
    require_fitting_heads(q=q, k=k, v=v)
    shape = (q.shape[2], k.shape[2])
    if not isinstance(visible, torch.Tensor) or visible.dtype != torch.bool or visible.device != q.device:
        raise ValueError(f"visible must be a tensor of bool on {q.device}, got {visible!r}")
    if visible.shape != shape:
        raise ValueError(f"visible must have the shape {shape}, got {tuple(visible.shape)}")
    shared_by = q.shape[1] // k.shape[1]
    # Scaled before the product, where a large query could still overflow.
    scaled = q.to(inner_dtype(q.dtype)) * score_scale(scale, q.shape[3])
    keys = k.to(scaled.dtype).repeat_interleave(shared_by, dim=1)  # (B, H, T, D)
    values = v.to(scaled.dtype).repeat_interleave(shared_by, dim=1)  # (B, H, T, E)
    scores = scaled @ keys.transpose(-2, -1)  # (B, H, N, T)
    # The softmax of a row without a visible key is NaN, hence the second fill.
    weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1).masked_fill(~visible, 0)
    return (weights @ values).to(q.dtype)


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
    `masked_attention` where new token i sees the keys up to T - N + i: 2 B H N T (D + E) FLOP in matrix products, and
    memory that grows with N T.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> causal_attention(q, k, v).flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    new, tokens = q.shape[2], k.shape[2]
    visible = torch.ones(new, tokens, dtype=torch.bool, device=q.device).tril(tokens - new)
    return masked_attention(q, k, v, visible, scale=scale)


def causal_attention_blocks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, block: int = 256
) -> torch.Tensor:
    """Causal attention by blocks of rows: the scores of one block and one KV head are held at a time.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    scale : float or None
        Factor of the scores; None is 1 / sqrt(D) [1].
    block : int
        New tokens whose scores are held at once [tokens].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, if there are more queries than keys, if `scale` is not finite, or if
        `block` is not at least 1.

    Notes
    -----
    Equal to `causal_attention` up to rounding. A block computes no key after its last row: 2 B H (D + E) FLOP for
    each of sum(rows x keys up to the last row) pairs, which for blocks of 1 are the causal pairs and no more. Memory
    beside the result grows with block x T. A NaN in `v` reaches the rows of its own block and all later ones.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> causal_attention_blocks(q, k, v, block=2).flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    require_counts(block=block)
    return attention_by_rows(q, k, v, window=k.shape[2], scale=score_scale(scale, q.shape[3]), block=block)


def attention_by_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, window: int, scale: float, block: int
) -> torch.Tensor:
    """Causal attention of checked tensors within a window, one block of rows and one KV head after the other."""
    (batch, _, new, _), (_, kv_heads, tokens, _) = q.shape, k.shape
    inner = inner_dtype(q.dtype)
    grouped = q.unflatten(1, (kv_heads, -1))  # (B, G, H / G, N, D)
    result = q.new_empty(*grouped.shape[:4], v.shape[3])
    window = min(window, tokens)
    for sequence in range(batch):
        for head in range(kv_heads):
            keys, values = k[sequence, head].to(inner), v[sequence, head].to(inner)
            for start in range(0, new, block):
                stop = min(start + block, new)
                rows = stop - start
                first, end = tokens - new + start, tokens - new + stop
                low = max(0, first - window + 1)
                queries = grouped[sequence, head, :, start:stop].to(inner) * scale  # (H / G, rows, D)
                scores = (queries.flatten(0, 1) @ keys[low:end].T).unflatten(0, (-1, rows))
                # Only the rows' own square at the right and the one at the left edge of the window hide any key.
                square = torch.ones(rows, rows, dtype=torch.bool, device=q.device)
                scores[..., -rows:].masked_fill_(square.triu(1), -math.inf)
                scores[..., :rows].masked_fill_(square.tril(first - window - low), -math.inf)
                weights = scores.softmax(dim=-1)
                weighted = weights.flatten(0, 1) @ values[low:end]
                result[sequence, head, :, start:stop] = weighted.unflatten(0, (-1, rows)).to(q.dtype)
    return result.flatten(1, 2)


def causal_attention_online(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, block: int = 256
) -> torch.Tensor:
    """Causal attention by blocks of rows and of keys, with a softmax that is corrected as larger scores appear.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    scale : float or None
        Factor of the scores; None is 1 / sqrt(D) [1].
    block : int
        New tokens, and keys, whose scores are held at once [tokens].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, if there are more queries than keys, if `scale` is not finite, or if
        `block` is not at least 1.

    Notes
    -----
    Of each row three sums are kept while blocks of keys pass: the largest score m, the weights l = sum(exp(s - m)) and
    the values a = sum(exp(s - m) v); where m grows to m', l and a are multiplied by exp(m - m'). The result a / l is
    `causal_attention` up to rounding, with the FLOP of `causal_attention_blocks` and memory beside the result that
    grows with block^2, whatever T. Source: Milakov and Gimelshein 2018; Dao et al. 2022 (FlashAttention).

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> causal_attention_online(q, k, v, block=2).flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    require_counts(block=block)
    scale = score_scale(scale, q.shape[3])
    inner = inner_dtype(q.dtype)
    new, tokens = q.shape[2], k.shape[2]
    grouped = q.unflatten(1, (k.shape[1], -1))  # (B, G, H / G, N, D)
    result = q.new_empty(*grouped.shape[:4], v.shape[3])
    for start in range(0, new, block):
        stop = min(start + block, new)
        first, end = tokens - new + start, tokens - new + stop
        queries = (grouped[:, :, :, start:stop].to(inner) * scale).flatten(2, 3)  # (B, G, rows of all H / G, D)
        positions = torch.arange(first, end, device=q.device).repeat(grouped.shape[2])
        largest = queries.new_full((*queries.shape[:3], 1), -math.inf)
        weight_sum = torch.zeros_like(largest)
        value_sum = queries.new_zeros(*queries.shape[:3], v.shape[3])
        for low in range(0, end, block):
            high = min(low + block, end)
            scores = queries @ k[:, :, low:high].to(inner).transpose(-2, -1)
            if high > first + 1:
                scores = scores.masked_fill(torch.arange(low, high, device=q.device) > positions[:, None], -math.inf)
            # The largest score cancels in the result, so that no gradient has to pass through it.
            larger = torch.maximum(largest, scores.detach().amax(dim=-1, keepdim=True))
            # A row that has met only scores of -inf would compute -inf - -inf.
            origin = larger.masked_fill(larger == -math.inf, 0)
            weights = (scores - origin).exp()
            correction = (largest - origin).exp()
            weight_sum = weight_sum * correction + weights.sum(dim=-1, keepdim=True)
            value_sum = value_sum * correction + weights @ v[:, :, low:high].to(inner)
            largest = larger
        result[:, :, :, start:stop] = (value_sum / weight_sum).unflatten(2, (-1, stop - start)).to(q.dtype)
    return result.flatten(1, 2)
