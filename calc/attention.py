"""FLOP of attention from the pairs of tokens that attend to each other, and the bytes that decode reads.

Every FLOP count here is `attention_flops` of a number of pairs (one query token, one key token); a phase of serving
differs from another only in its pairs. A multiply-add is two FLOP. Softmax is not a matrix product and is not counted.
"""

from calc.numeric import COUNT, POSITIVE, POSITIVE_COUNT, Numeric, count_up_to, formula

PAIRS = count_up_to(10**48)
"""Pairs of tokens: the square of a count, summed over a run."""


@formula(
    r"F = 2\,L\,h_q\,(d_k + d_v) \cdot \text{pairs}",
    pairs=PAIRS,
    layers=COUNT,
    query_heads=COUNT,
    key_width=COUNT,
    value_width=COUNT,
)
def attention_flops(
    pairs: Numeric, layers: Numeric, query_heads: Numeric, key_width: Numeric, value_width: Numeric
) -> Numeric:
    """FLOP of attention over a number of query-key pairs in every layer.

    Parameters
    ----------
    pairs : int or array
        Pairs of a query token and a key token it attends to [pairs].
    layers : int or array
        Layers that attend over these pairs, L [layers].
    query_heads : int or array
        Query heads of a layer, h_q; sharing KV heads saves bytes, not FLOP [heads].
    key_width : int or array
        Width of one head's key, d_k [numbers].
    value_width : int or array
        Width of one head's value, d_v [numbers].

    Returns
    -------
    int or array
        2 L h_q (d_k + d_v) pairs [FLOP].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    One pair costs d_k multiply-adds for the score and d_v for the weighted value. Source: the definition of attention;
    checked against torch's FLOP counter.

    Examples
    --------
    >>> attention_flops(1, 1, 1, 64, 64)
    256
    >>> attention_flops([1, 10], 1, 1, 64, 64)
    array([ 256, 2560])
    """
    return 2 * layers * query_heads * (key_width + value_width) * pairs


@formula(r"\text{pairs} = g\,(n + g)", tokens=COUNT, cached=COUNT)
def square_pairs(tokens: Numeric, cached: Numeric = 0) -> Numeric:
    """Pairs that a dense kernel computes in prefill: all of them, the masked half included.

    Parameters
    ----------
    tokens : int or array
        Prompt tokens computed now, g [tokens].
    cached : int or array
        Tokens before them that are already cached, n [tokens].

    Returns
    -------
    int or array
        g (n + g), the full square where nothing is cached [pairs].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    This is what FLOP counters report for eager attention. Source: torch.utils.flop_counter.

    Examples
    --------
    >>> square_pairs(1000), square_pairs(10, 90)
    (1000000, 1000)
    >>> square_pairs([1, 10])
    array([  1, 100])
    """
    return tokens * (cached + tokens)


@formula(r"\text{pairs} = g\,n + \frac{g(g+1)}{2}", cached=COUNT, new=COUNT)
def causal_pairs(cached: Numeric, new: Numeric) -> Numeric:
    """Pairs that causality asks for when new tokens come on top of cached ones.

    Parameters
    ----------
    cached : int or array
        Tokens already in the cache, n [tokens].
    new : int or array
        Tokens computed now, g; each attends to the cache, to those before it and to itself [tokens].

    Returns
    -------
    int or array
        g n + g (g + 1) / 2 [pairs].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Prefill of n tokens is the case (0, n), with n (n + 1) / 2 pairs; one decoded token the case (n, 1), which reads
    n + 1 keys; g decoded tokens, or the g new tokens that a prefix cache leaves to compute, the case (n, g).
    Source: arithmetic series.

    Examples
    --------
    >>> causal_pairs(0, 4), causal_pairs(10, 1)
    (10, 11)
    >>> causal_pairs([0, 10], [4, 1])
    array([10, 11])
    """
    return cached * new + new * (new + 1) // 2


@formula(
    r"\text{pairs} = \frac{S_2 + N}{2}" "\n" r"S_2 = m^2 T + m r T(T-1) + r^2 U" "\n" r"U = \frac{(T-1)\,T\,(2T-1)}{6}",
    calls=COUNT,
    prefix=COUNT,
    growth=COUNT,
)
def run_pairs_without_reuse(calls: Numeric, prefix: Numeric, growth: Numeric) -> Numeric:
    """Causal pairs of an agent run in which every call computes its whole prompt again.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens, m [tokens].
    growth : int or array
        Growth per call, r [tokens per call].

    Returns
    -------
    int or array
        Sum of P (P + 1) / 2 over the prompts P = m + r (t - 1); grows as T^3 [pairs].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    (S_2 + N) / 2 with S_2 the sum of the squared prompt sizes and N the submitted tokens. With reuse of the prefix the
    run costs one prefill of its last prompt, `causal_pairs(0, last)`, which grows as T^2. Source: sums of powers.

    Examples
    --------
    >>> run_pairs_without_reuse(2, 3, 1)
    16
    >>> run_pairs_without_reuse([1, 2], 3, 1)
    array([ 6, 16])
    """
    below = calls * (calls - 1) // 2
    submitted = prefix * calls + growth * below
    squares = prefix * prefix * calls + 2 * prefix * growth * below + growth * growth * (below * (2 * calls - 1) // 3)
    return (squares + submitted) // 2


@formula(
    r"\frac{2\,h_q (d_k + d_v)}{h_{kv} (d_k + d_v)\,b} = \frac{2\,h_q}{h_{kv}\,b}",
    quotient=True,
    query_heads=POSITIVE_COUNT,
    kv_heads=POSITIVE_COUNT,
    bytes_per_number=POSITIVE,
)
def decode_attention_intensity(query_heads: Numeric, kv_heads: Numeric, bytes_per_number: Numeric) -> Numeric:
    """Attention FLOP per byte of cache read while decoding: the arithmetic intensity of decode attention.

    Parameters
    ----------
    query_heads : int or array
        Query heads of a layer [heads].
    kv_heads : int or array
        KV heads of a layer [heads].
    bytes_per_number : float or array
        Size of one cached number [bytes].

    Returns
    -------
    float or array
        2 h_q / (h_kv b) [FLOP per byte].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Independent of the context: each cached number is read once and used by h_q / h_kv query heads. An accelerator with a
    higher ratio of FLOP/s to bytes/s than this waits for memory. Source: ratio of `attention_flops` to the cache read.

    Examples
    --------
    >>> decode_attention_intensity(32, 8, 2)
    4.0
    >>> decode_attention_intensity(32, [32, 8, 1], 2)
    array([ 1.,  4., 32.])
    """
    return 2 * query_heads / (kv_heads * bytes_per_number)
