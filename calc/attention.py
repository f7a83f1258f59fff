"""FLOP of attention from the pairs of tokens that attend to each other, and the bytes that decode reads.

Every FLOP count here is `attention_flops` of a number of pairs (one query token, one key token); a phase of serving
differs from another only in its pairs. A multiply-add is two FLOP. Softmax is not a matrix product and is not counted.
"""

from calc.numeric import COUNT, POSITIVE, POSITIVE_COUNT, Numeric, count_up_to, formula, larger, smaller

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


@formula(
    r"F = 2\,L\,h_q\,(2 r + d_r) \cdot \text{pairs}",
    pairs=PAIRS,
    layers=COUNT,
    query_heads=COUNT,
    latent_width=COUNT,
    rope_width=COUNT,
)
def latent_attention_flops(
    pairs: Numeric, layers: Numeric, query_heads: Numeric, latent_width: Numeric, rope_width: Numeric
) -> Numeric:
    """FLOP of multi-head latent attention over a number of pairs, in the absorbed form that decode uses.

    Parameters
    ----------
    pairs : int or array
        Pairs of a query token and a key token it attends to [pairs].
    layers : int or array
        Layers that attend over these pairs, L [layers].
    query_heads : int or array
        Query heads of a layer, h_q [heads].
    latent_width : int or array
        Width of the latent, r [numbers].
    rope_width : int or array
        Width of the rotated key that all heads share, d_r [numbers].

    Returns
    -------
    int or array
        2 L h_q ((r + d_r) + r) pairs [FLOP].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    The matrix that would rebuild keys is multiplied into the query and the one for values into the output, once per
    new token, so that a pair costs r + d_r multiply-adds for the score and r for the weighted latent. Keys and values
    rebuilt for each head, as a prefill does, cost `attention_flops` of their own widths, which are smaller, and the
    rebuilding. Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1.

    Examples
    --------
    >>> latent_attention_flops(1, 1, 1, 512, 64)
    2176
    >>> latent_attention_flops([1, 10], 1, 2, 4, 2)
    array([ 40, 400])
    """
    return 2 * layers * query_heads * (2 * latent_width + rope_width) * pairs


@formula(
    r"F = 2\,L\,h_i\,(d_i + 1) \cdot \text{pairs}",
    pairs=PAIRS,
    layers=COUNT,
    index_heads=COUNT,
    index_width=COUNT,
)
def indexer_flops(pairs: Numeric, layers: Numeric, index_heads: Numeric, index_width: Numeric) -> Numeric:
    """FLOP by which an indexer scores tokens, before attention reads the few with the highest scores.

    Parameters
    ----------
    pairs : int or array
        Pairs of a query token and a token that is scored for it: all causal ones [pairs].
    layers : int or array
        Layers with an indexer, L [layers].
    index_heads : int or array
        Heads of the indexer, h_i [heads].
    index_width : int or array
        Width of the indexer's key, which its heads share, d_i [numbers].

    Returns
    -------
    int or array
        2 L h_i (d_i + 1) pairs [FLOP].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    A pair costs each head d_i multiply-adds for its score and one to weight it. Picking the highest is not a matrix
    product. Source: transformers 5.24.0, DeepseekV32Indexer; checked against torch's FLOP counter.

    Examples
    --------
    >>> indexer_flops(1, 1, 64, 128)
    16512
    >>> indexer_flops([1, 10], 1, 2, 4)
    array([ 20, 200])
    """
    return 2 * layers * index_heads * (index_width + 1) * pairs


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
    r"\text{pairs} = a\,n + \frac{a(a+1)}{2} + (g - a)\,w" "\n" r"a = \max(0, \min(g, w - n))",
    cached=COUNT,
    new=COUNT,
    window=POSITIVE_COUNT,
)
def window_pairs(cached: Numeric, new: Numeric, window: Numeric) -> Numeric:
    """Pairs that causality and a sliding window leave when new tokens come on top of cached ones.

    Parameters
    ----------
    cached : int or array
        Tokens before the new ones, n, however many of them are still kept [tokens].
    new : int or array
        Tokens computed now, g [tokens].
    window : int or array
        Newest tokens that one attends to, itself among them, w [tokens].

    Returns
    -------
    int or array
        Sum of min(n + j, w) over the new tokens j = 1 ... g [pairs].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    The first a new tokens still see all tokens before them, the others w. A window of n + g or more is full attention,
    `causal_pairs`. The same count holds where each token attends to the w tokens that an indexer picks.
    Source: definition of the mask.

    Examples
    --------
    >>> window_pairs(0, 5, 3), window_pairs(10, 1, 3)
    (12, 3)
    >>> window_pairs(0, 5, [1, 3, 5])
    array([ 5, 12, 15])
    """
    growing = larger(0, smaller(new, window - cached))
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * window


@formula(
    r"\text{pairs} = a\,s + \frac{a(a+1)}{2}"
    "\n"
    r"{} + q\,\frac{c(c+1)}{2} + \frac{e(e+1)}{2}"
    "\n"
    r"s = n \bmod c,\quad a = \min(g, c - s)"
    "\n"
    r"q\,c + e = g - a",
    cached=COUNT,
    new=COUNT,
    chunk=POSITIVE_COUNT,
)
def chunk_pairs(cached: Numeric, new: Numeric, chunk: Numeric) -> Numeric:
    """Pairs that causality leaves where no token looks beyond the border of its chunk.

    Parameters
    ----------
    cached : int or array
        Tokens before the new ones, n, however many of them are still kept [tokens].
    new : int or array
        Tokens computed now, g [tokens].
    chunk : int or array
        Tokens of a chunk, counted from the start of the sequence, c [tokens].

    Returns
    -------
    int or array
        Sum of (p mod c) + 1 over the positions p = n ... n + g - 1 [pairs].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    The new tokens fill the chunk that was begun, then q whole chunks, and begin one with e tokens. The cache is kept
    like a window of the chunk's length, so that eager code may compute masked pairs besides.
    Source: transformers 5.24.0, chunked_overlay in masking_utils.py.

    Examples
    --------
    >>> chunk_pairs(0, 5, 3), chunk_pairs(3, 1, 3)
    (9, 1)
    >>> chunk_pairs([0, 1, 2, 3], 1, 3)
    array([1, 2, 3, 1])
    """
    begun = cached % chunk
    filling = smaller(new, chunk - begun)
    rest = new - filling
    whole, ending = rest // chunk, rest % chunk
    return (
        filling * begun
        + filling * (filling + 1) // 2
        + whole * chunk * (chunk + 1) // 2  # the chunks first: their product is a number of tokens, and cannot overflow
        + ending * (ending + 1) // 2
    )


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
    r"\text{pairs} = \text{run pairs}(a, m, r) + w \sum_{t > a} P_t - (T - a)\,\frac{w(w-1)}{2}"
    "\n"
    r"a = \text{calls with } P_t = m + r(t-1) \le w",
    calls=COUNT,
    prefix=COUNT,
    growth=COUNT,
    window=POSITIVE_COUNT,
)
def run_window_pairs_without_reuse(calls: Numeric, prefix: Numeric, growth: Numeric, window: Numeric) -> Numeric:
    """Pairs within a sliding window of an agent run in which every call computes its whole prompt again.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens, m [tokens].
    growth : int or array
        Growth per call, r [tokens per call].
    window : int or array
        Window, which counts the token itself, w [tokens].

    Returns
    -------
    int or array
        Sum of `window_pairs` (0, P, w) over the prompts P = m + r (t - 1); grows as T^2 [pairs].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Prompts within the window are the cubic sum of `run_pairs_without_reuse`; each longer one takes w (w + 1) / 2 pairs
    and w for each token beyond the window. With reuse the run costs one prefill of its last prompt.
    Source: sums of powers.

    Examples
    --------
    >>> run_window_pairs_without_reuse(2, 3, 1, 3)
    15
    >>> run_window_pairs_without_reuse([1, 2], 3, 1, [3, 10])
    array([ 6, 16])
    """
    steps = (window - prefix) // larger(growth, 1) + 1
    same = (growth == 0) * (prefix <= window) * calls  # a run that never grows is within the window or beyond it
    within = smaller(larger(larger(steps, 0), same), calls)
    below = within * (within - 1) // 2
    squares = prefix * prefix * within + 2 * prefix * growth * below + growth * growth * (below * (2 * within - 1) // 3)
    short = (squares + prefix * within + growth * below) // 2
    longer = calls - within
    excess = longer * larger(prefix + growth * within - window, 0) + growth * (longer * (longer - 1) // 2)
    return short + longer * (window * (window + 1) // 2) + window * excess


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
