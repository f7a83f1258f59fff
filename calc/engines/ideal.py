"""What any implementation must keep, without rounding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from calc.engines.layers import LayerParts, LayerRule, Sizes
from calc.model_spec import ModelSpec
from calc.numeric import Numeric


@dataclass(frozen=True, slots=True, kw_only=True)
class Ideal(LayerRule):
    """min(n, w) tokens of a window, one latent row, states in the type that the config names."""

    name: ClassVar[str] = "ideal"
    version: ClassVar[str] = "ideal (what must be kept)"
    model: ModelSpec
    sizes: Sizes

    def all_ranks(self, bounds: Sequence[range], tokens: Numeric) -> LayerParts:
        """What all ranks of all stages keep: those that share out a sequence's tokens hold each token once."""
        split = self.sizes.split
        undivided = replace(split, tensor_parallel=split.head_ranks, data_parallel=1, decode_context_parallel=1)
        whole = replace(self, sizes=replace(self.sizes, split=undivided))
        return LayerParts.sum(whole.stages(bounds, tokens)).of(split.head_ranks)
