"""Analytics of long context: pure functions on numbers and arrays, and the glossary of their symbols."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Symbol:
    """One quantity: how it is written in an equation, its name in the code, its unit and its meaning."""

    symbol: str
    name: str
    unit: str
    meaning: str


GLOSSARY = (
    Symbol("T", "calls", "calls", "calls of an agent run; each submits a whole prompt"),
    Symbol("m", "prefix", "tokens", "fixed start of every prompt: system text, tools"),
    Symbol("r", "growth", "tokens per call", "what a call adds to the next prompt, its output included"),
    Symbol("K", "block", "calls", "calls between two compactions"),
    Symbol("c", "summary", "tokens", "summary that replaces the history at a compaction"),
    Symbol("q", "instruction", "tokens", "text that asks for the summary"),
    Symbol("Q, s", "calls // block, calls % block", "blocks, calls", "full blocks of a run, and the calls after them"),
    Symbol("P_T", "last_call_tokens", "tokens", "prompt of the last call"),
    Symbol("S_2", "", "tokens squared", "sum of the squared prompt sizes"),
    Symbol("s_min", "minimum_tokens", "tokens", "shortest prefix that is cached"),
    Symbol("U, R, W, O", "uncached, cache_read, cache_write, output", "tokens", "the disjoint classes of a bill"),
    Symbol("C, C_in", "usd", "USD", "a bill; the bill of the input"),
    Symbol("N", "tokens", "tokens", "submitted input tokens"),
    Symbol("h", "cached_fraction", "fraction", "share of the input read from the prompt cache"),
    Symbol("p_u", "usd_per_mtok", "USD per million tokens", "price of input that is neither read nor written"),
    Symbol("p_c", "cached_usd_per_mtok", "USD per million tokens", "price of input read from the cache"),
    Symbol("p_w", "written_usd_per_mtok", "USD per million tokens", "price of input written to the cache"),
    Symbol("p_o", "output_usd_per_mtok", "USD per million tokens", "price of output"),
    Symbol("L", "layers", "layers", "layers of the model"),
    Symbol("n", "tokens, cached", "tokens", "context length; tokens in the cache"),
    Symbol("g", "new", "tokens", "tokens that are computed on top of the cache"),
    Symbol("h_q", "query_heads", "heads", "query heads of a layer"),
    Symbol("h_kv", "kv_heads", "heads", "heads that are cached: all (MHA), some (GQA), one (MQA)"),
    Symbol("d_k", "key_width", "numbers", "width of one head's key"),
    Symbol("d_v", "value_width", "numbers", "width of one head's value"),
    Symbol("w", "window", "tokens", "newest tokens that a sliding layer attends to, the token itself among them"),
    Symbol("r", "latent_width", "numbers", "width of the latent from which keys and values are rebuilt"),
    Symbol("d_r", "rope_width", "numbers", "width of the rotated key that all heads of a latent layer share"),
    Symbol("d_n", "nope_width", "numbers", "width of one head's key without the rotated part"),
    Symbol("h_i, d_i", "index_heads, index_width", "heads, numbers", "heads of an indexer, and the width of its key"),
    Symbol("b", "bytes_per_number", "bytes", "size of one cached number: 2 for bf16"),
    Symbol("P", "parameters", "parameters", "numbers in the weights; a matrix product costs 2 P FLOP per token"),
    Symbol("W", "weights_bytes", "bytes", "weights that a decode step reads once for the whole batch"),
)
"""Symbols of the equations. Three are used twice here: n (context), h (heads; cached fraction), r (growth; latent)."""
