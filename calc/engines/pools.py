"""What a pool of memory holds: blocks, and the tokens that each version of an engine prints for them."""

import numpy as np

from calc.numeric import COUNT, POSITIVE, POSITIVE_COUNT, Numeric, formula

BYTES = COUNT


@formula(r"N = \left\lfloor M / b \right\rfloor", available_bytes=BYTES, block_bytes=POSITIVE_COUNT)
def pool_blocks(available_bytes: Numeric, block_bytes: Numeric) -> Numeric:
    """Blocks of a pool on one rank.

    Parameters
    ----------
    available_bytes : int or array
        Memory left for the cache on the rank, M [bytes].
    block_bytes : int or array
        One block of the pool, b [bytes].

    Returns
    -------
    int or array
        floor(M / b); the engine takes the fewest of all ranks [blocks].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Source: vLLM 0.32.0, get_num_blocks.

    Examples
    --------
    >>> pool_blocks(100, 16)
    6
    >>> pool_blocks([4 * 1024**3, 10**10], 2 * 1024**2)
    array([2048, 4768])
    """
    return available_bytes // block_bytes


@formula(r"C = N / p", quotient=True, blocks=COUNT, request_blocks=POSITIVE)
def vllm_concurrency(blocks: Numeric, request_blocks: Numeric) -> Numeric:
    """Requests of the longest length that a pool of vLLM holds at once: "Maximum concurrency".

    Parameters
    ----------
    blocks : int or array
        Blocks of the pool, N [blocks].
    request_blocks : int, float or array
        Blocks that one request of max_len takes, over all groups of layers, p; V0 did not round them up [blocks].

    Returns
    -------
    float or array
        N / p [requests].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Source: vLLM 0.32.0, get_max_concurrency_for_kv_cache_config.

    Examples
    --------
    >>> vllm_concurrency(100, 40)
    2.5
    >>> vllm_concurrency(208, [90, 104])
    array([2.31111111, 2.        ])
    """
    return blocks / request_blocks


@formula(
    r"T = \left\lfloor \frac{N}{p}\,n \right\rfloor",
    quotient=True,
    blocks=COUNT,
    request_blocks=POSITIVE,
    max_len=POSITIVE_COUNT,
)
def vllm_tokens(blocks: Numeric, request_blocks: Numeric, max_len: Numeric) -> Numeric:
    """Tokens that vLLM prints as "GPU KV cache size" since 0.21.

    Parameters
    ----------
    blocks : int or array
        Blocks of the pool, N [blocks].
    request_blocks : int, float or array
        Blocks that one request of max_len takes, over all groups of layers, p [blocks].
    max_len : int or array
        Longest sequence that the server takes, n [tokens].

    Returns
    -------
    float or array
        floor(N / p n), a whole number, rounded as vLLM's own floats are [tokens].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Concurrency times max_len: what a pool of states and windows holds depends on the length of the requests.
    Source: vLLM 0.32.0, _report_kv_cache_config; changed by PR #40694.

    Examples
    --------
    >>> int(vllm_tokens(208, 90, 131_072))
    302921
    >>> vllm_tokens([100, 208], [10, 90], [160, 131_072])
    array([  1600., 302921.])
    """
    return np.floor(blocks / request_blocks * max_len)


@formula(r"T = \left\lfloor N / g \right\rfloor B", blocks=COUNT, groups=POSITIVE_COUNT, block_tokens=POSITIVE_COUNT)
def vllm_tokens_until_0_20(blocks: Numeric, groups: Numeric, block_tokens: Numeric) -> Numeric:
    """Tokens that vLLM printed as "GPU KV cache size" until 0.20.

    Parameters
    ----------
    blocks : int or array
        Blocks of the pool, N [blocks].
    groups : int or array
        Groups of layers, each with a table of pages, g [groups].
    block_tokens : int or array
        Tokens of a page in the group whose pages hold fewest, B [tokens].

    Returns
    -------
    int or array
        floor(N / g) B [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Right for layers that all keep every token; it shares blocks evenly out among groups that do not need them evenly.
    Source: vLLM issues #40691 and #43308.

    Examples
    --------
    >>> vllm_tokens_until_0_20(10_051, 6, 16)
    26800
    >>> vllm_tokens_until_0_20([100, 101], 1, 16)
    array([1600, 1616])
    """
    return blocks // groups * block_tokens
