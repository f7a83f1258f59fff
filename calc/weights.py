"""Parameters of a dense decoder, matrix by matrix, and the FLOP of multiplying by them."""

from dataclasses import dataclass

from calc.model_spec import LayerGroup, ModelSpec, WeightShape
from calc.numeric import COUNT, RUN_TOKENS, Numeric, count_up_to, formula

PLAIN_MLP_MATRICES = 2
GATED_MLP_MATRICES = 3
FEW = count_up_to(64)
PARAMETERS = count_up_to(10**33)


@formula(
    r"P_{attn} = H\,(h_q d_k + h_{kv}(d_k + d_v)) + h_q d_v H",
    hidden_width=COUNT,
    query_heads=COUNT,
    kv_heads=COUNT,
    key_width=COUNT,
    value_width=COUNT,
)
def attention_matrix_parameters(
    hidden_width: Numeric, query_heads: Numeric, kv_heads: Numeric, key_width: Numeric, value_width: Numeric
) -> Numeric:
    """Parameters of one layer's query, key, value and output projections.

    Parameters
    ----------
    hidden_width : int or array
        Width of the residual stream, H [numbers].
    query_heads : int or array
        Query heads, h_q [heads].
    kv_heads : int or array
        Key-value heads, h_kv [heads].
    key_width : int or array
        Width of one head's query and key, d_k [numbers].
    value_width : int or array
        Width of one head's value, d_v [numbers].

    Returns
    -------
    int or array
        H (h_q d_k + h_kv (d_k + d_v)) + h_q d_v H, without biases [parameters].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    One matrix each, stored together or apart. Source: the shapes in transformers' modeling files; checked against its
    models.

    Examples
    --------
    >>> attention_matrix_parameters(4, 2, 1, 2, 2)
    48
    >>> attention_matrix_parameters(4096, 32, [32, 8, 1], 128, 128)
    array([67108864, 41943040, 34603008])
    """
    return hidden_width * (query_heads * key_width + kv_heads * (key_width + value_width)) + (
        query_heads * value_width * hidden_width
    )


@formula(
    r"P_{MLA} = H\,(h_q (d_n + d_r) + r + d_r) + r\,h_q (d_n + d_v) + h_q d_v H",
    hidden_width=COUNT,
    query_heads=COUNT,
    latent_width=COUNT,
    rope_width=COUNT,
    nope_width=COUNT,
    value_width=COUNT,
)
def latent_attention_matrix_parameters(
    hidden_width: Numeric,
    query_heads: Numeric,
    latent_width: Numeric,
    rope_width: Numeric,
    nope_width: Numeric,
    value_width: Numeric,
) -> Numeric:
    """Parameters of one layer's projections in multi-head latent attention whose queries are projected whole.

    Parameters
    ----------
    hidden_width : int or array
        Width of the residual stream, H [numbers].
    query_heads : int or array
        Query heads, h_q [heads].
    latent_width : int or array
        Width of the latent from which keys and values are rebuilt, r [numbers].
    rope_width : int or array
        Width of the rotated key that all heads share, d_r [numbers].
    nope_width : int or array
        Width of one head's key without the rotated part, d_n [numbers].
    value_width : int or array
        Width of one head's value, d_v [numbers].

    Returns
    -------
    int or array
        H (h_q (d_n + d_r) + r + d_r) + r h_q (d_n + d_v) + h_q d_v H, without biases [parameters].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    The query, the way down to the plane, the way up to keys and values, the output. Source: DeepSeek-V2
    (arXiv 2405.04434); checked against transformers' DeepSeek-V2 without a rank for queries.

    Examples
    --------
    >>> latent_attention_matrix_parameters(4, 2, 8, 1, 2, 2)
    140
    >>> latent_attention_matrix_parameters(2048, 16, [512, 256], 64, 128, 128)
    array([13762560, 12189696])
    """
    return (
        hidden_width * (query_heads * (nope_width + rope_width) + latent_width + rope_width)
        + latent_width * query_heads * (nope_width + value_width)
        + query_heads * value_width * hidden_width
    )


@formula(r"P_{mlp} = k\,H\,I", hidden_width=COUNT, intermediate_width=COUNT, matrices=FEW)
def mlp_matrix_parameters(hidden_width: Numeric, intermediate_width: Numeric, matrices: Numeric) -> Numeric:
    """Parameters of one layer's MLP matrices.

    Parameters
    ----------
    hidden_width : int or array
        Width of the residual stream, H [numbers].
    intermediate_width : int or array
        Width inside the MLP, I [numbers].
    matrices : int or array
        3 for a gated MLP (gate, up, down), 2 for a plain one (up, down) [matrices].

    Returns
    -------
    int or array
        k H I, without biases [parameters].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Source: the shapes in transformers' modeling files; checked against its models.

    Examples
    --------
    >>> mlp_matrix_parameters(4, 16, 2)
    128
    >>> mlp_matrix_parameters(4096, [11008, 14336], 3)
    array([135266304, 176160768])
    """
    return matrices * hidden_width * intermediate_width


@formula(r"F = 2\,P\,n", parameters=PARAMETERS, tokens=RUN_TOKENS)
def matrix_flops(parameters: Numeric, tokens: Numeric) -> Numeric:
    """FLOP of multiplying tokens by matrices of a number of parameters.

    Parameters
    ----------
    parameters : int or array
        Numbers in the matrices, P [parameters].
    tokens : int or array
        Tokens that are multiplied, n [tokens].

    Returns
    -------
    int or array
        2 P n; a multiply-add is two [FLOP].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Each parameter meets each token once. Biases, norms and the embedding look-up are no matrix products and are left
    out. Source: definition; checked against torch.utils.flop_counter.

    Examples
    --------
    >>> matrix_flops(10, 3)
    60
    >>> matrix_flops(8_000_000_000, [1, 1000])
    array([   16000000000, 16000000000000])
    """
    return 2 * parameters * tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """A model's parameters by what they cost: matrices are multiplied with every token, the rest is not."""

    layer_matrices: int
    """Projections and MLP of all layers."""
    head_matrix: int
    """Hidden width by vocabulary; counts as a matrix product even where it is the embedding itself."""
    embedding: int
    """Rows for tokens and for learned positions."""
    vectors: int
    """Norms and biases."""
    total: int
    """What is stored: a head tied to the embedding is stored once."""


def parameters(model: ModelSpec) -> Parameters:
    """Parameters of a model, by kind.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].

    Returns
    -------
    Parameters
        Matrices, embedding, vectors and total [parameters].

    Raises
    ------
    ValueError
        If the parameters of such a model are not known.

    Notes
    -----
    Source: the shapes in transformers' modeling files; totals checked against its models and published sizes.

    Examples
    --------
    >>> from calc.model_config import read_config
    >>> model = read_config({"model_type": "gpt2"})
    >>> parameters(model).layer_matrices, parameters(model).total
    (84934656, 124439808)
    """
    shape = model.weights
    if shape is None:
        raise ValueError(f"parameters of {model.unknown_weights or model.name} are not known here")
    head_matrix = shape.hidden_width * shape.vocabulary
    layer_matrices = sum(group.layers * _layer_matrices(shape, group) for group in model.layer_groups)
    embedding = head_matrix + shape.hidden_width * shape.position_embeddings
    vectors = sum(group.layers * _layer_vectors(shape, group) for group in model.layer_groups) + (
        shape.outer_norms * shape.norm_vectors * shape.hidden_width + shape.head_bias * shape.vocabulary
    )
    return Parameters(
        layer_matrices=layer_matrices,
        head_matrix=head_matrix,
        embedding=embedding,
        vectors=vectors,
        total=layer_matrices + embedding + vectors + (0 if shape.tied_head else head_matrix),
    )


def _layer_matrices(shape: WeightShape, group: LayerGroup) -> int:
    matrices = GATED_MLP_MATRICES if shape.gated_mlp else PLAIN_MLP_MATRICES
    if group.is_latent:
        attention = latent_attention_matrix_parameters(
            shape.hidden_width,
            group.query_heads,
            group.key_width,
            group.value_width,
            group.nope_width,
            group.head_value_width,
        )
    else:
        attention = attention_matrix_parameters(
            shape.hidden_width, group.query_heads, group.kv_heads, group.key_width, group.value_width
        )
    return attention + mlp_matrix_parameters(shape.hidden_width, shape.intermediate_width, matrices)


def _layer_vectors(shape: WeightShape, group: LayerGroup) -> int:
    """Norms and biases of one layer; a yes/no fact counts as 1 or 0."""
    inner_matrices = (GATED_MLP_MATRICES if shape.gated_mlp else PLAIN_MLP_MATRICES) - 1
    return (
        shape.norms_per_layer * shape.norm_vectors * shape.hidden_width
        + _attention_vectors(shape, group)
        + shape.attention_output_bias * shape.hidden_width
        + shape.mlp_bias * (inner_matrices * shape.intermediate_width + shape.hidden_width)
    )


def _attention_vectors(shape: WeightShape, group: LayerGroup) -> int:
    """Norms of queries and keys and biases of what makes them; of a latent layer the latent's norm instead."""
    if group.is_latent:
        plane, query = group.key_width + group.value_width, group.query_heads * (group.nope_width + group.value_width)
        return shape.norm_vectors * group.key_width + shape.query_key_value_bias * (query + plane)
    heads = group.query_heads + group.kv_heads if shape.query_key_norm_per_head else 2
    return (
        shape.query_key_norm * shape.query_key_norm_vectors * heads * group.key_width
        + shape.query_key_value_bias
        * (group.query_heads * group.key_width + group.kv_heads * (group.key_width + group.value_width))
    )
