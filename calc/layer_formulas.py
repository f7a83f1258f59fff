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


@formula(r"k = \min(n, w - 1)" "\n" r"k = n \text{ for } w = 1", tokens=COUNT, window=POSITIVE_COUNT)
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
    r"\text{bytes} = k\,h_{kv}(\beta_k + \beta_v)",
    kept_tokens=COUNT,
    kv_heads=COUNT,
    key_row_bytes=COUNT,
    value_row_bytes=COUNT,
)
def attention_layer_bytes(
    kept_tokens: Numeric, kv_heads: Numeric, key_row_bytes: Numeric, value_row_bytes: Numeric
) -> Numeric:
    """Bytes of the keys and values of one layer.

    Parameters
    ----------
    kept_tokens : int or array
        Tokens that the layer keeps, k [tokens].
    kv_heads : int or array
        Heads that are cached, h_kv [heads].
    key_row_bytes : int or array
        One head's key of one token, from `calc.kv_formats.row_bytes` [bytes].
    value_row_bytes : int or array
        One head's value of one token [bytes].

    Returns
    -------
    int or array
        k h_kv (beta_k + beta_v) [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Full, sliding, chunked and cross-attention, each with its own k. Source: the shapes of the cached tensors.

    Examples
    --------
    >>> attention_layer_bytes(4095, 8, 256, 256)
    16773120
    """
    return kept_tokens * kv_heads * (key_row_bytes + value_row_bytes)


@formula(r"\text{bytes} = k\,\beta", kept_tokens=COUNT, row_bytes=COUNT)
def plane_layer_bytes(kept_tokens: Numeric, row_bytes: Numeric) -> Numeric:
    """Bytes of one plane that all heads of a layer share: a latent, or the keys of an indexer.

    Parameters
    ----------
    kept_tokens : int or array
        Tokens that the layer keeps, k [tokens].
    row_bytes : int or array
        The row of one token: latent and rotated part, or the indexer's key [bytes].

    Returns
    -------
    int or array
        k beta: one plane, no head count, no second plane [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Keys and values of all heads are rebuilt from the latent. Source: DeepSeek-V2 (arXiv 2405.04434) and DeepSeek-V3.2;
    the shapes of the tensors that transformers caches.

    Examples
    --------
    >>> plane_layer_bytes(1, 1152)
    1152
    """
    return kept_tokens * row_bytes


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


@formula(r"p = \left\lceil n / B \right\rceil", tokens=COUNT, page_tokens=POSITIVE_COUNT)
def pages(tokens: Numeric, page_tokens: Numeric) -> Numeric:
    """Pages that hold a number of tokens, the last one begun.

    Parameters
    ----------
    tokens : int or array
        Tokens, n [tokens].
    page_tokens : int or array
        Tokens of a page, B; also what a cache is padded to, and the ranks that share tokens out [tokens].

    Returns
    -------
    int or array
        ceil(n / B) [pages].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Source: vLLM's and SGLang's block tables; llama.cpp's padding of cells.

    Examples
    --------
    >>> pages([0, 16, 17], 16)
    array([0, 1, 2])
    """
    return (tokens + page_tokens - 1) // page_tokens


@formula(r"\left\lfloor n / m \right\rfloor", tokens=COUNT, block_tokens=POSITIVE_COUNT)
def whole_blocks(tokens: Numeric, block_tokens: Numeric) -> Numeric:
    """Full blocks of tokens, for each of which a compressing layer keeps one entry.

    Parameters
    ----------
    tokens : int or array
        Tokens of the sequence, n [tokens].
    block_tokens : int or array
        Tokens that an entry stands for, m [tokens].

    Returns
    -------
    int or array
        floor(n / m) [entries].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Source: DeepSeek-V4, compressed sparse and heavily compressed attention; the tensors that transformers caches.

    Examples
    --------
    >>> whole_blocks([3, 4, 300], 4)
    array([ 0,  1, 75])
    """
    return tokens // block_tokens


@formula(r"n \bmod m", tokens=COUNT, block_tokens=POSITIVE_COUNT)
def open_block_tokens(tokens: Numeric, block_tokens: Numeric) -> Numeric:
    """Tokens of the block that is not full yet, kept one by one until it is.

    Parameters
    ----------
    tokens : int or array
        Tokens of the sequence, n [tokens].
    block_tokens : int or array
        Tokens that an entry stands for, m [tokens].

    Returns
    -------
    int or array
        n mod m [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Source: as `whole_blocks`.

    Examples
    --------
    >>> open_block_tokens([3, 4, 300], 128)
    array([ 3,  4, 44])
    """
    return tokens % block_tokens
