"""Rotary position embeddings: every pair of a head's numbers turns by an angle that grows with the token's position.

B batch, H heads, N tokens, D head width.
"""

import math
from numbers import Real

import torch

from kernels.heads import inner_dtype


def rotated(
    x: torch.Tensor, positions: torch.Tensor, *, base: float = 10_000.0, interpolation: float = 1.0
) -> torch.Tensor:
    """Queries or keys, turned by their positions.

    Parameters
    ----------
    x : Tensor
        Queries or keys; D is even [(B, H, N, D)].
    positions : Tensor
        Position of each token, of any whole or floating-point type [(N,), or (B, N) where sequences differ].
    base : float
        The slowest pair turns about once in 2 pi `base` tokens [1].
    interpolation : float
        Positions are divided by it: with 4 a model trained on n tokens spans 4 n with the angles it knows [1].

    Returns
    -------
    Tensor
        `x`, turned, in its type [(B, H, N, D)].

    Raises
    ------
    ValueError
        If a tensor has the wrong shape, type or device, D is odd, or `base` or `interpolation` is not finite and above
        0.

    Notes
    -----
    Numbers i and i + D / 2 of a head are a pair, turned by positions / interpolation x base^(-2 i / D): the two halves
    of a head are paired, as transformers' Llama does; other code pairs neighbours, and its weights must be reordered.
    A turn keeps lengths, and the product of a turned query and a turned key depends on the difference of their
    positions only. Angles are computed in float64 whatever the type of `x`: in bfloat16 position 257 is 256, and in
    float32 an angle at position 10^6 is wrong by up to 0.03. Source: Su et al. 2021 (RoFormer), equation 34; positions
    divided: Chen et al. 2023 (position interpolation).

    Examples
    --------
    >>> x = torch.tensor([1.0, 0.0]).reshape(1, 1, 1, 2)
    >>> rotated(x, torch.tensor([math.pi / 2])).flatten().round(decimals=4).abs().tolist()
    [0.0, 1.0]
    """
    _require_rotatable(x, positions)
    for name, number in (("base", base), ("interpolation", interpolation)):
        if isinstance(number, bool) or not (isinstance(number, Real) and math.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be a finite number > 0, got {number!r}")
    width = x.shape[3]
    speeds = base ** -(torch.arange(0, width, 2, device=x.device, dtype=torch.float64) / width)  # (D / 2,)
    angles = (positions.to(torch.float64) / interpolation)[..., None] * speeds  # (N, D / 2) or (B, N, D / 2)
    if positions.ndim == 2:
        angles = angles[:, None]  # (B, 1, N, D / 2)
    inner = inner_dtype(x.dtype)
    cosine, sine = angles.cos().to(inner), angles.sin().to(inner)
    first, second = x.to(inner).chunk(2, dim=3)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=3).to(x.dtype)


def _require_rotatable(x: torch.Tensor, positions: torch.Tensor) -> None:
    """Check that heads can be turned by the positions; the message names the one that does not fit."""
    for name, tensor in (("x", x), ("positions", positions)):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if x.ndim != 4 or not x.is_floating_point():
        raise ValueError(f"x must be floating-point (batch, heads, tokens, width), got {x.dtype} {tuple(x.shape)}")
    if x.shape[3] < 2 or x.shape[3] % 2:
        raise ValueError(f"x must have an even width of at least 2, got {x.shape[3]}")
    if positions.shape not in ((x.shape[2],), (x.shape[0], x.shape[2])):
        raise ValueError(
            f"positions must have the shape {(x.shape[2],)} or {(x.shape[0], x.shape[2])}, got {tuple(positions.shape)}"
        )
    if positions.dtype == torch.bool or positions.is_complex():
        raise ValueError(f"positions must be of a whole or floating-point type, got {positions.dtype}")
    if positions.device != x.device:
        raise ValueError(f"positions must be on {x.device} like x, got {positions.device}")
