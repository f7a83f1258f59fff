"""Torch reference kernels that prove the formulas in `calc` on real tensors."""
