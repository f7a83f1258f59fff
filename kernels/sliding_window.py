"""Sliding-window attention: causal attention in which a token sees the last few tokens only, itself among them.

B batch, H query heads, G KV heads (H is a multiple of G), N new tokens, T tokens in all, D key width, E value width.
"""

import torch

from kernels.heads import require_counts, require_fitting_heads, score_scale
from kernels.softmax import attention_by_rows, masked_attention


def window_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, window: int, scale: float | None = None
) -> torch.Tensor:
    """Sliding-window attention of the last N of T tokens, with all scores held at once.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens; query head i uses KV head i // (H / G) [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    window : int
        Tokens that a token sees, itself among them: w earlier tokens are a window of w + 1 [tokens].
    scale : float or None
        Factor of the scores; None is 1 / sqrt(D) [1].

    Returns
    -------
    Tensor
        Weighted values, in the type of `q` [(B, H, N, E)].

    Raises
    ------
    ValueError
        If a tensor does not fit the others, if there are more queries than keys, if `scale` is not finite, or if
        `window` is not at least 1.

    Notes
    -----
    `kernels.softmax.masked_attention` where the token at position p sees positions p - window + 1 to p. The whole
    square is computed, as eager code does: 2 B H N T (D + E) FLOP. A window of 1 returns the token's own value; one of
    T or more is full causal attention. Source: Beltagy et al. 2020 (Longformer); Jiang et al. 2023 (Mistral 7B).

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> window_attention(q, k, v, window=2).flatten().tolist()
    [1.0, 1.5, 4.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    require_counts(window=window)
    new, tokens = q.shape[2], k.shape[2]
    causal = torch.ones(new, tokens, dtype=torch.bool, device=q.device).tril(tokens - new)
    return masked_attention(q, k, v, causal.triu(tokens - new - min(window, tokens) + 1), scale=scale)


def window_attention_blocks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, window: int, scale: float | None = None, block: int = 128
) -> torch.Tensor:
    """Sliding-window attention by blocks of rows, which score no key that none of their rows sees.

    Parameters
    ----------
    q : Tensor
        Queries of the last N tokens [(B, H, N, D)].
    k : Tensor
        Keys of all T tokens [(B, G, T, D)].
    v : Tensor
        Values of all T tokens [(B, G, T, E)].
    window : int
        Tokens that a token sees, itself among them: w earlier tokens are a window of w + 1 [tokens].
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
        `window` or `block` is not at least 1.

    Notes
    -----
    Equal to `window_attention` up to rounding. A block of c rows scores at most window + c - 1 keys: at most
    2 B H N (window + c - 1) (D + E) FLOP, and memory beside the result that grows with c (window + c) and not with T.
    Blocks of 1 cost the pairs within the window and no more. A NaN in `v` reaches the rows of every block that scores
    its key.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 3, 4)
    >>> v = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    >>> window_attention_blocks(q, k, v, window=2, block=2).flatten().tolist()
    [1.0, 1.5, 4.0]
    """
    require_fitting_heads(q=q, k=k, v=v)
    require_counts(window=window, block=block)
    return attention_by_rows(q, k, v, window=window, scale=score_scale(scale, q.shape[3]), block=block)
