"""What the kernels share: the type they compute in, and the checks of heads, masks, scales and counts."""

import math
from numbers import Integral, Real

import torch


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


def score_scale(scale: float | None, width: int) -> float:
    """The factor of the scores: the given finite number, or 1 / sqrt(width) for None."""
    if scale is None:
        return width**-0.5
    if not (isinstance(scale, Real) and math.isfinite(scale)):
        raise ValueError(f"scale must be a finite number or None, got {scale!r}")
    return scale


def require_counts(**counts: int) -> None:
    """Check that every argument is a whole number of at least 1; the message names the one that is not."""
    for name, count in counts.items():
        if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {count!r}")
