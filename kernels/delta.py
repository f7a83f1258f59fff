"""The delta rule and the gated delta rule, token by token: a state of fixed size that corrects what it holds of a key.

B batch, H query heads, G KV heads (H is a multiple of G), N new tokens, T tokens in all, D key width, E value width.
"""

import torch

from kernels.heads import inner_dtype, require_fitting_heads


def delta_rule(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """The delta rule for the last N of T tokens, token by token.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens, not scaled here [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens, not normalised here; query head i uses KV head i // (H / G) [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    beta : Tensor
        Share of what the state holds of a key that its new value replaces, usually 0 to 1 [(B, G, T)].

    Returns
    -------
    Tensor
        What the state holds of each query, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, or if there are more queries than keys.

    Notes
    -----
    y_t = S_t^T q_t, with S_t = S_(t-1) + beta_t k_t (v_t - S_(t-1)^T k_t)^T. With keys of length 1 and beta 1 the key
    just written reads back its value exactly; keys longer than sqrt(2 / beta) can make the state grow without bound.
    The state, B G D E numbers, stays in float32 or float64 whatever the type of `q`. Source: Schlag et al. 2021; Yang
    et al. 2024 (DeltaNet).

    Examples
    --------
    >>> key = torch.tensor([1.0, 0.0]).expand(1, 1, 2, 2)
    >>> v = torch.tensor([5.0, 7.0]).reshape(1, 1, 2, 1)
    >>> delta_rule(key, key, v, torch.ones(1, 1, 2)).flatten().tolist()
    [5.0, 7.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    _require_per_token(k, beta=beta)
    return gated_delta_rule(q, k, v, beta, torch.zeros_like(beta))


def gated_delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, log_decay: torch.Tensor
) -> torch.Tensor:
    """The gated delta rule for the last N of T tokens, token by token: the delta rule over a state that fades.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens, not scaled here [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens, not normalised here; query head i uses KV head i // (H / G) [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    beta : Tensor
        Share of what the state holds of a key that its new value replaces, usually 0 to 1 [(B, G, T)].
    log_decay : Tensor
        Logarithm of the factor that the state keeps at each token; 0 keeps all, -inf nothing [(B, G, T)].

    Returns
    -------
    Tensor
        What the state holds of each query, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, or if there are more queries than keys.

    Notes
    -----
    `delta_rule` with exp(log_decay_t) S_(t-1) in place of S_(t-1): the state fades, then is corrected, then read.
    What of an older key has faded, or is mixed with keys that point the same way, comes back wrong without a sign.
    Source: Yang et al. 2025 (Gated Delta Networks), equation 10.

    Examples
    --------
    >>> keys = torch.eye(2).reshape(1, 1, 2, 2)
    >>> read = keys[:, :, :1].expand(1, 1, 2, 2)
    >>> v = torch.tensor([4.0, 7.0]).reshape(1, 1, 2, 1)
    >>> gated_delta_rule(read, keys, v, torch.ones(1, 1, 2), torch.full((1, 1, 2), 0.5).log()).flatten().tolist()
    [4.0, 2.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    _require_per_token(k, beta=beta, log_decay=log_decay)
    inner = inner_dtype(q.dtype)
    queries = q.to(inner).unflatten(1, (k.shape[1], -1))  # (B, G, H / G, N, D)
    keys, values, shares = k.to(inner), v.to(inner), beta.to(inner)
    kept = log_decay.to(inner).exp()[..., None, None]  # (B, G, T, 1, 1)
    before = k.shape[2] - q.shape[2]
    state = keys.new_zeros(*k.shape[:2], k.shape[3], v.shape[3])
    result = queries.new_empty(*queries.shape[:4], v.shape[3])
    for token in range(k.shape[2]):
        key = keys[:, :, token, :, None]  # (B, G, D, 1)
        state = state * kept[:, :, token]
        held = (state * key).sum(dim=-2)  # (B, G, E)
        correction = shares[:, :, token, None] * (values[:, :, token] - held)
        state = state + key * correction[..., None, :]
        if token >= before:
            result[:, :, :, token - before] = queries[:, :, :, token - before] @ state
    return result.flatten(1, 2).to(q.dtype)


def _require_per_token(k: torch.Tensor, **tensors: torch.Tensor) -> None:
    """Check that every argument holds one number per key; the message names the one that does not."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.shape != k.shape[:3]:
            raise ValueError(f"{name} must have the shape {tuple(k.shape[:3])}, got {tuple(tensor.shape)}")
        if not tensor.is_floating_point() or tensor.device != k.device:
            raise ValueError(f"{name} must be floating-point on {k.device}, got {tensor.dtype} on {tensor.device}")
