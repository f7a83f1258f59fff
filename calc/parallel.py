"""How ranks share a model: heads by tensor parallelism, tokens by context, layers by pipeline stages."""

from dataclasses import dataclass

from calc.model_spec import State
from calc.numeric import POSITIVE_COUNT, count_up_to, require_scalar

RANKS = count_up_to(65_536, low=1)
STAGES = count_up_to(1000, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Ranks that serve a model, and what each kind of parallelism shares out."""

    tensor_parallel: int = 1
    """Ranks of one stage."""
    data_parallel: int = 1
    """Groups of these ranks, each of which attends for sequences of its own: data-parallel attention."""
    decode_context_parallel: int = 1
    """Ranks of a group that share out the tokens of a sequence."""
    pipeline_parallel: int = 1
    """Stages, each with layers of its own."""

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "data_parallel", "decode_context_parallel", "pipeline_parallel"):
            allowed = STAGES if name == "pipeline_parallel" else RANKS
            object.__setattr__(self, name, require_scalar(getattr(self, name), allowed, name))
        if self.tensor_parallel % self.data_parallel:
            raise ValueError(
                f"data_parallel must divide the {self.tensor_parallel} tensor-parallel ranks, got {self.data_parallel}"
            )
        if self.attention_ranks % self.decode_context_parallel:
            raise ValueError(
                f"decode_context_parallel must divide the {self.attention_ranks} ranks that attend together, "
                f"got {self.decode_context_parallel}"
            )

    @property
    def attention_ranks(self) -> int:
        """Ranks of one stage that hold a sequence together."""
        return self.tensor_parallel // self.data_parallel

    def require_none(self, engine: str, *names: str) -> None:
        """Refuses kinds of parallelism that an engine has no rule for here."""
        for name in names:
            if getattr(self, name) > 1:
                raise ValueError(f"{name} must be 1 under the {engine} rule, got {getattr(self, name)}")

    @property
    def head_ranks(self) -> int:
        """Ranks that share out the heads of a sequence; each of them stands for those that share its tokens."""
        return self.attention_ranks // self.decode_context_parallel


def heads_per_rank(kv_heads: int, tensor_parallel: int) -> int:
    """KV heads that one rank holds.

    Parameters
    ----------
    kv_heads : int
        KV heads of the model [heads].
    tensor_parallel : int
        Ranks that share the heads [ranks].

    Returns
    -------
    int
        max(1, kv_heads / ranks) [heads].

    Raises
    ------
    ValueError
        If neither number divides the other, or one is out of range.

    Notes
    -----
    Source: vLLM and SGLang, which ask that one number divide the other.

    Examples
    --------
    >>> heads_per_rank(8, 4), heads_per_rank(8, 16)
    (2, 1)
    """
    require_scalar(kv_heads, POSITIVE_COUNT, "kv_heads")
    require_scalar(tensor_parallel, RANKS, "tensor_parallel")
    if kv_heads % tensor_parallel and tensor_parallel % kv_heads:
        raise ValueError(
            f"tensor_parallel must divide the {kv_heads} KV heads or be a multiple of them, got {tensor_parallel}"
        )
    return max(1, kv_heads // tensor_parallel)


def shared_heads(state: State, tensor_parallel: int) -> int:
    """Heads or channels of a state that one rank holds.

    Parameters
    ----------
    state : State
        The state [facts].
    tensor_parallel : int
        Ranks [ranks].

    Returns
    -------
    int
        Heads / ranks; a state with a single head is on every rank, and groups of channels are replicated like KV heads
        [heads].

    Raises
    ------
    ValueError
        If the ranks do not divide the heads.
    """
    if state.heads == 1:
        return 1
    if state.is_replicated and tensor_parallel % state.heads == 0:
        return 1
    if state.heads % tensor_parallel:
        what = "channels of a convolution" if state.kind == "convolution" else "heads of a recurrent state"
        raise ValueError(f"tensor_parallel must divide the {state.heads} {what}, got {tensor_parallel}")
    return state.heads // tensor_parallel


def pipeline_stages(layers: int, stages: int) -> tuple[range, ...]:
    """The layers of each pipeline stage.

    Parameters
    ----------
    layers : int
        Layers of the model [layers].
    stages : int
        Pipeline stages [stages].

    Returns
    -------
    tuple of range
        Indices of the layers of each stage, first stage to last [layers].

    Raises
    ------
    ValueError
        If there are more stages than layers.

    Notes
    -----
    Layers that do not divide evenly go to the stages before the last, which has the head besides. Source: vLLM 0.32.0,
    get_pp_indices.

    Examples
    --------
    >>> [len(stage) for stage in pipeline_stages(61, 4)]
    [15, 15, 16, 15]
    """
    stages = require_scalar(stages, STAGES, "pipeline_parallel")
    if stages > layers:
        raise ValueError(f"pipeline_parallel must be at most the {layers} layers of the model, got {stages}")
    sizes = [layers // stages] * stages
    for place in range(2, layers % stages + 2):
        sizes[-place] += 1
    starts = [sum(sizes[:stage]) for stage in range(stages)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes))
