"""What one layer keeps for one sequence: a formula for each kind of layer."""

from calc.numeric import COUNT, POSITIVE, POSITIVE_COUNT, Numeric, count_up_to, formula, smaller

BYTES = count_up_to(10**33)


@formula(r"k = \min(n, w)", tokens=COUNT, window=POSITIVE_COUNT)
def window_tokens(tokens: Numeric, window: Numeric) -> Numeric:
    """Tokens that a layer with a sliding window must keep.

    Parameters
    ----------
    tokens : int or array
        Tokens of the sequence, n [tokens].
    window : int or array
        Window, which counts the token itself, w [tokens].

    Returns
    -------
    int or array
        min(n, w) [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    A chunk counts as a window of its length. Source: definition of the mask.

    Examples
    --------
    >>> window_tokens([3, 4096, 9000], 4096)
    array([   3, 4096, 4096])
    """
    return smaller(tokens, window)


@formula(r"k = \min(n, w - 1),\quad k = n \text{ for } w = 1", tokens=COUNT, window=POSITIVE_COUNT)
def transformers_window_tokens(tokens: Numeric, window: Numeric) -> Numeric:
    """Tokens that a sliding layer of transformers' dynamic cache holds after a prefill.

    Parameters
    ----------
    tokens : int or array
        Tokens of the sequence, n [tokens].
    window : int or array
        Window, which counts the token itself, w [tokens].

    Returns
    -------
    int or array
        min(n, w - 1), and n for a window of 1 [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    The next token joins those of the window before it, so that one less is kept; the slice that does it keeps
    everything where there is nothing to keep. Source: transformers 5.24.0, DynamicSlidingWindowLayer.

    Examples
    --------
    >>> transformers_window_tokens([3, 4096, 9000], 4096), transformers_window_tokens(9000, 1)
    (array([   3, 4095, 4095]), 9000)
    """
    return smaller(tokens, window - 1 + (window == 1) * tokens)


@formula(
    r"\text{bytes} = k\,h_{kv}(d_k + d_v)\,b",
    kept_tokens=COUNT,
    kv_heads=COUNT,
    key_width=COUNT,
    value_width=COUNT,
    bytes_per_number=POSITIVE,
)
def attention_layer_bytes(
    kept_tokens: Numeric, kv_heads: Numeric, key_width: Numeric, value_width: Numeric, bytes_per_number: Numeric
) -> Numeric:
    """Bytes of the keys and values of one layer.

    Parameters
    ----------
    kept_tokens : int or array
        Tokens that the layer keeps, k [tokens].
    kv_heads : int or array
        Heads that are cached, h_kv [heads].
    key_width : int or array
        Width of one head's key, d_k [numbers].
    value_width : int or array
        Width of one head's value, d_v [numbers].
    bytes_per_number : int, float or array
        Size of one cached number, b [bytes].

    Returns
    -------
    int, float or array
        k h_kv (d_k + d_v) b [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Full, sliding, chunked and cross-attention, each with its own k. Source: the shapes of the cached tensors.

    Examples
    --------
    >>> attention_layer_bytes(4095, 8, 128, 128, 2)
    16773120
    """
    return kept_tokens * kv_heads * (key_width + value_width) * bytes_per_number


@formula(
    r"\text{bytes} = k\,(r + d_r)\,b",
    kept_tokens=COUNT,
    latent_width=COUNT,
    rope_width=COUNT,
    bytes_per_number=POSITIVE,
)
def latent_layer_bytes(
    kept_tokens: Numeric, latent_width: Numeric, rope_width: Numeric, bytes_per_number: Numeric
) -> Numeric:
    """Bytes of the latent plane of one layer of multi-head latent attention.

    Parameters
    ----------
    kept_tokens : int or array
        Tokens that the layer keeps, k [tokens].
    latent_width : int or array
        Width of the latent from which keys and values are rebuilt, r [numbers].
    rope_width : int or array
        Width of the rotated key that all heads share, d_r [numbers].
    bytes_per_number : int, float or array
        Size of one cached number, b [bytes].

    Returns
    -------
    int, float or array
        k (r + d_r) b: one plane, one head [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Source: DeepSeek-V2 (arXiv 2405.04434); the shapes of the tensors that transformers caches.

    Examples
    --------
    >>> latent_layer_bytes(1, 512, 64, 2)
    1152
    """
    return kept_tokens * (latent_width + rope_width) * bytes_per_number


@formula(r"\text{bytes} = k\,d_i\,b", kept_tokens=COUNT, index_width=COUNT, bytes_per_number=POSITIVE)
def indexer_layer_bytes(kept_tokens: Numeric, index_width: Numeric, bytes_per_number: Numeric) -> Numeric:
    """Bytes of the keys by which one layer's indexer picks the tokens to attend to.

    Parameters
    ----------
    kept_tokens : int or array
        Tokens that the layer keeps, k [tokens].
    index_width : int or array
        Width of the indexer's key, d_i [numbers].
    bytes_per_number : int, float or array
        Size of one of its numbers, b [bytes].

    Returns
    -------
    int, float or array
        k d_i b, beside the layer's own cache [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    One key per token, shared by the indexer's heads. Source: DeepSeek-V3.2; the tensors that transformers caches.

    Examples
    --------
    >>> indexer_layer_bytes(1000, 128, 2)
    256000
    """
    return kept_tokens * index_width * bytes_per_number


@formula(r"\text{bytes} = c\,k\,b", channels=COUNT, columns=COUNT, bytes_per_number=POSITIVE)
def convolution_state_bytes(channels: Numeric, columns: Numeric, bytes_per_number: Numeric) -> Numeric:
    """Bytes of the inputs that a short causal convolution keeps in one layer.

    Parameters
    ----------
    channels : int or array
        Channels, c [channels].
    columns : int or array
        Inputs kept per channel, k: the kernel's width less one [numbers].
    bytes_per_number : int, float or array
        Size of one number, b [bytes].

    Returns
    -------
    int, float or array
        c k b, whatever the length of the sequence [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    The newest input is at hand when the next output is computed; transformers keeps the whole kernel's width.
    Source: the shapes of the cached tensors.

    Examples
    --------
    >>> convolution_state_bytes(8192, 3, 2), convolution_state_bytes(8192, 4, 2)
    (49152, 65536)
    """
    return channels * columns * bytes_per_number


@formula(r"\text{bytes} = h\,s\,b", heads=COUNT, numbers=COUNT, bytes_per_number=POSITIVE)
def recurrent_state_bytes(heads: Numeric, numbers: Numeric, bytes_per_number: Numeric) -> Numeric:
    """Bytes of the state of a recurrence (state space, delta rule, linear attention) in one layer.

    Parameters
    ----------
    heads : int or array
        Heads, h [heads].
    numbers : int or array
        Numbers in one head's state, s [numbers].
    bytes_per_number : int, float or array
        Size of one number, b [bytes].

    Returns
    -------
    int, float or array
        h s b, whatever the length of the sequence [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Source: the shapes of the cached tensors.

    Examples
    --------
    >>> recurrent_state_bytes(32, 128 * 128, 4)
    2097152
    """
    return heads * numbers * bytes_per_number


@formula("a b", each=BYTES, number=COUNT)
def times(each: Numeric, number: Numeric) -> Numeric:
    """Bytes of a number of ranks or layers, which do not wrap around in arrays."""
    return each * number
