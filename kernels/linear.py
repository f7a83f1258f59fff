"""Linear attention: by its recurrence over a state of fixed size, by chunks, and with all pairs at once.

B batch, H query heads, G KV heads (H is a multiple of G), N new tokens, T tokens in all, D key width, E value width.
"""

import torch

from kernels.heads import inner_dtype, require_counts, require_fitting_heads


def linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Linear attention of the last N of T tokens, token by token.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens; query head i uses KV head i // (H / G) [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, or if there are more queries than keys.

    Notes
    -----
    y_t = S_t^T f(q_t) / (D_t . f(q_t)), with S_t = S_(t-1) + f(k_t) v_t^T, D_t = D_(t-1) + f(k_t), and the features
    f(x) = relu(x) + exp(min(x, 0)), which are elu(x) + 1 without the cancellation that makes float32's elu(x) + 1
    exactly 0 from x = -18 on. Nothing is added to the denominator: where all features underflow to 0 (below about -103
    in float32) the result is NaN. The state stays in float32 or float64 whatever the type of `q`. A token is not
    reached by a NaN in what comes after it. Source: Katharopoulos et al. 2020, equations 10 to 12 and 16 to 20.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> linear_attention(q, k, v).flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    queries = _grouped_features(q, k.shape[1])  # (B, G, H / G, N, D)
    before = k.shape[2] - q.shape[2]
    state, key_sum = linear_state(k[:, :, :before], v[:, :, :before])
    result = queries.new_empty(*queries.shape[:4], v.shape[3])
    for token in range(q.shape[2]):
        key = _features(k[:, :, before + token])  # (B, G, D)
        value = v[:, :, before + token].to(state.dtype)  # (B, G, E)
        state = state + key[..., :, None] * value[..., None, :]
        key_sum = key_sum + key
        query = queries[:, :, :, token]  # (B, G, H / G, D)
        result[:, :, :, token] = (query @ state) / (query @ key_sum[..., None])
    return result.flatten(1, 2).to(q.dtype)


def linear_state(k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The state that linear attention keeps of T tokens: all that later tokens need of them.

    Parameters
    ----------
    k : Tensor
        Keys of the tokens [(B, G, T, D)].
    v : Tensor
        Values of the tokens [(B, G, T, E)].

    Returns
    -------
    state : Tensor
        S, the sum of f(k) v^T, in float32, or float64 for float64 [(B, G, D, E)].
    key_sum : Tensor
        D, the sum of f(k), in the same type [(B, G, D)].

    Raises
    ------
    ValueError
        If the tensors do not fit each other.

    Notes
    -----
    B G D (E + 1) numbers, whatever T; both are 0 for no tokens. Kept in a narrower type the sums would stop growing:
    in bfloat16 adding 1.5 changes nothing from 512 on.

    Examples
    --------
    >>> state, key_sum = linear_state(torch.zeros(1, 1, 3, 2), torch.ones(1, 1, 3, 1))
    >>> state.flatten().tolist(), key_sum.flatten().tolist()
    ([3.0, 3.0], [3.0, 3.0])
    """
    require_fitting_heads(q=k, k=k, v=v)
    features = _features(k)
    return features.transpose(-2, -1) @ v.to(features.dtype), features.sum(dim=2)


def linear_attention_chunked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, chunk: int = 64) -> torch.Tensor:
    """Linear attention by chunks: pairs within a chunk, the state for all that came before it.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    chunk : int
        New tokens that are computed at once [tokens].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, if there are more queries than keys, or if `chunk` is not at least 1.

    Notes
    -----
    Equal to `linear_attention` up to rounding. Every chunk of c tokens costs 2 B H c^2 (D + E) FLOP for its pairs,
    2 B H c D (E + 1) to read the state and 2 B G c D E to add to it: linear in N. A NaN in `v` reaches the rows of its
    own chunk and all later ones. Source: Yang et al. 2024 (gated linear attention), section 2.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> linear_attention_chunked(q, k, v, chunk=2).flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    require_counts(chunk=chunk)
    new, before = q.shape[2], k.shape[2] - q.shape[2]
    state, key_sum = linear_state(k[:, :, :before], v[:, :, :before])
    grouped = q.unflatten(1, (k.shape[1], -1))  # (B, G, H / G, N, D)
    result = q.new_empty(*grouped.shape[:4], v.shape[3])
    for start in range(0, new, chunk):
        stop = min(start + chunk, new)
        queries = _features(grouped[:, :, :, start:stop]).flatten(2, 3)  # (B, G, rows of all H / G, D)
        keys = _features(k[:, :, before + start : before + stop])  # (B, G, rows, D)
        values = v[:, :, before + start : before + stop].to(keys.dtype)
        pairs = (queries @ keys.transpose(-2, -1)).unflatten(2, (-1, stop - start)).tril().flatten(2, 3)
        weighted = pairs @ values + queries @ state
        weight_sum = pairs.sum(dim=-1, keepdim=True) + queries @ key_sum[..., None]
        result[:, :, :, start:stop] = (weighted / weight_sum).unflatten(2, (-1, stop - start)).to(q.dtype)
        state = state + keys.transpose(-2, -1) @ values
        key_sum = key_sum + keys.sum(dim=2)
    return result.flatten(1, 2)


def linear_attention_parallel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Linear attention with the weights of all pairs held at once, like softmax attention without the softmax.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, or if there are more queries than keys.

    Notes
    -----
    Equal to `linear_attention` up to rounding: 2 B H N T (D + E) FLOP and memory that grows with N T. A NaN anywhere
    in `v` reaches every row.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> linear_attention_parallel(q, k, v).flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    queries = _grouped_features(q, k.shape[1])  # (B, G, H / G, N, D)
    keys = _features(k)[:, :, None]  # (B, G, 1, T, D)
    pairs = (queries @ keys.transpose(-2, -1)).tril(k.shape[2] - q.shape[2])
    weighted = pairs @ v[:, :, None].to(keys.dtype)
    return (weighted / pairs.sum(dim=-1, keepdim=True)).flatten(1, 2).to(q.dtype)


def _features(x: torch.Tensor) -> torch.Tensor:
    """relu(x) + exp(min(x, 0)) in the inner type."""
    x = x.to(inner_dtype(x.dtype))
    return x.relu() + x.clamp(max=0).exp()


def _grouped_features(q: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """Features of queries, with the heads that share a KV head in a dimension of their own."""
    return _features(q.unflatten(1, (kv_heads, -1)))
