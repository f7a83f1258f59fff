"""Which kind each layer of a model is of: the rules by which config files say so, one function per rule."""

from collections.abc import Callable
from typing import Any, Protocol

from calc.model_config.file import shown
from calc.model_spec import MAX_LAYERS
from calc.numeric import count_up_to, require


class Fields(Protocol):
    """A config as the rules see it: each look-up is noted as read."""

    def field(self, name: str) -> Any:
        """The value of a field; that of the class where it is absent."""

    def whole(self, name: str) -> int | None:
        """The value of a field as a layer count or index."""

    def is_on(self, name: str) -> bool:
        """The value of a yes/no field."""


SAME_AS = {
    "attention": "full_attention",
    "mamba": "linear_attention",
    "mamba2": "linear_attention",
    "recurrent": "linear_attention",
    "global": "full_attention",
    "local": "sliding_attention",
    "moe": "none",
    "mlp": "none",
    "M": "linear_attention",
    "*": "full_attention",
    "-": "none",
    "E": "none",
    "L": "sliding_attention",
    "G": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "minimax_m3_sparse": "indexed_attention",
}
"""Words of older files and of single families, and the word they stand for."""


def listed(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """A list with one word per layer; a text counts by its letters."""
    return words_of(fields.field(rule["field"]), rule["field"])


def words_of(value: Any, field: str) -> list[str] | None:
    """The layers' words in a list or a text of letters, in the words used here."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple, str)) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{field} must be a list of layer kinds, got {shown(value)}")
    require(len(value), count_up_to(MAX_LAYERS, low=1), f"the length of {field}")
    return [SAME_AS.get(word, word) for word in value]


def periodic(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """One layer of each period is of one kind and the others of another, with exceptions at the ends."""
    period, offset = rule.get("period"), rule.get("offset", -1)
    if "period_field" in rule:
        period = fields.field(rule["period_field"])
        if isinstance(period, str):
            return cycled(fields, {"cycle": words_of(period, rule["period_field"])}, layers)
        period = fields.whole(rule["period_field"])
    if "offset_field" in rule:
        offset = fields.whole(rule["offset_field"])
    if period is None or offset is None:
        return None
    if period == 0 and rule.get("without"):
        return [rule["without"]] * layers
    if period < 1:
        raise ValueError(f"{rule['period_field']} must be at least 1, got {period}")
    words = [rule["is"] if (i - offset) % period == 0 else rule["else"] for i in range(layers)]
    for i in range(min(rule.get("first", 0), layers)):
        words[i] = rule["is"]
    if rule.get("last"):
        words[-1] = rule["is"]
    head = rule.get("head", [])
    return [*head[:layers], *words[len(head) :]]


def cycled(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """A list of words that repeats until all layers have one, after a head that does not."""
    cycle = words_of(fields.field(rule["field"]), rule["field"]) if "field" in rule else rule["cycle"]
    if cycle is None:
        return None
    head = rule.get("head", [])
    return [*head[:layers], *(cycle[i % len(cycle)] for i in range(len(head), layers))]


def indexed(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """A list of the layers that are of one kind; the others are of another, and may be listed too."""
    chosen = _indices(fields, rule["field"], rule)
    if chosen is None:
        return None
    others = _indices(fields, rule["others_field"], rule) if "others_field" in rule else None
    if others is not None and others != set(range(layers)) - chosen:
        raise ValueError(f"{rule['field']} and {rule['others_field']} must list each of the {layers} layers once")
    return [rule["is"] if i in chosen else rule["else"] for i in range(layers)]


def _indices(fields: Fields, name: str, rule: dict) -> set[int] | None:
    value = fields.field(name)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or any(isinstance(i, bool) or not isinstance(i, int) for i in value):
        raise ValueError(f"{name} must be a list of layer indices, got {shown(value)}")
    return {i - rule.get("base", 0) for i in value}


def flagged(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """A list with a 1 for each layer of one kind and a 0 for each of another."""
    value = fields.field(rule["field"])
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(isinstance(i, int) for i in value):
        raise ValueError(f"{rule['field']} must be a list of 0 and 1, got {shown(value)}")
    if value and len(value) != layers:
        raise ValueError(f"{rule['field']} must be a list of {layers} times 0 or 1, got {shown(value)}")
    return [rule["is"] if flag else rule["else"] for flag in value] or None


def by_number(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """A list with a number for each layer, each of which stands for a kind (DeepSeek-V4's compress_ratios)."""
    value = fields.field(rule["field"])
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) < layers:
        raise ValueError(f"{rule['field']} must be a list of {layers} numbers, got {shown(value)}")
    for index, number in enumerate(value):
        if str(number) not in rule["words"]:
            raise ValueError(f"{rule['field']}[{index}] must be one of {', '.join(rule['words'])}, got {shown(number)}")
    return [rule["words"][str(number)] for number in value]


def blocks(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """A list of objects, one per layer, whose attention may be left out or replaced by a matrix (Nemotron-NAS)."""
    found = attention_blocks(fields, rule["field"])
    if len(found) != layers:
        raise ValueError(f"{rule['field']} must be a list of {layers} objects, got {len(found)}")
    return [rule["else"] if attention is None else rule["is"] for attention in found]


def attention_blocks(fields: Fields, name: str) -> list[dict | None]:
    """What a list of blocks says of each layer's attention; None where the layer has none."""
    value = fields.field(name)
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"{name} must be a list of one object per layer, got {shown(value)}")
    found: list[dict | None] = []
    for i, block in enumerate(value):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise ValueError(f"{name}[{i}] must be an object with attention, got {shown(block)}")
        without = [attention.get(field) or False for field in WITHOUT_ATTENTION]
        if not all(isinstance(flag, bool) for flag in without):
            raise ValueError(f"{name}[{i}].attention: {' and '.join(WITHOUT_ATTENTION)} must be true or false")
        other = [field for field, entry in attention.items() if entry and field not in (GROUP, *WITHOUT_ATTENTION)]
        if other and not any(without):
            raise ValueError(f"{name}[{i}].attention.{other[0]} is not supported yet")
        found.append(None if any(without) else attention)
    return found


WITHOUT_ATTENTION = ("no_op", "replace_with_linear")
GROUP = "n_heads_in_group"
"""Query heads that share a KV head."""


def from_layer(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """Layers from an index on are of one kind, those before it of another."""
    start = fields.whole(rule["field"])
    return None if start is None else [rule["is"] if i >= start else rule["else"] for i in range(layers)]


def alternating_up_to(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """Every other layer before an index is of one kind, all others of another."""
    end = fields.whole(rule["field"])
    return None if end is None else [rule["is"] if i % 2 == 0 and i < end else rule["else"] for i in range(layers)]


def repeated_blocks(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """A list of pairs: words, and how often they repeat (GPT-Neo's attention_types)."""
    value = fields.field(rule["field"])
    if value is None:
        return None
    words = []
    for pair in value if isinstance(value, (list, tuple)) else [None]:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise ValueError(f"{rule['field']} must be a list of [layer kinds, times], got {shown(value)}")
        times = require(pair[1], count_up_to(MAX_LAYERS), f"a count in {rule['field']}")
        block = words_of(pair[0], rule["field"]) or []
        require(times * len(block) + len(words), count_up_to(MAX_LAYERS), f"the layers of {rule['field']}")
        words += block * times
    return words


def after_dense(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """One period among the first, dense layers and another, counted anew, among those after them (Cohere2-MoE)."""
    dense = min(fields.whole(rule["dense_field"]) or 0, layers)
    parts = [periodic(fields, {**rule, "period_field": rule["dense_period_field"]}, dense) if dense else []]
    parts.append(periodic(fields, rule, layers - dense) if layers > dense else [])
    return None if None in parts else [*parts[0], *parts[1]]


def always(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """The layers of the class where the config says nothing, whatever their number elsewhere."""
    return rule["list"]


def after_head(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """Given first layers, and a period counted from the layer after them (Zamba)."""
    head = rule["head"][:layers]
    rest = periodic(fields, {**rule, "head": []}, layers - len(head)) if layers > len(head) else []
    return None if rest is None else [*head, *rest]


def index_schedule(fields: Fields, rule: dict, layers: int) -> list[str] | None:
    """Every f-th layer has an indexer of its own, after an offset before which all have (GLM-DSA)."""
    every = max(fields.whole("index_topk_freq") or 1, 1)
    offset = fields.whole("index_skip_topk_offset")
    offset = 2 if offset is None else offset
    return [rule["is"] if max(i - offset + 1, 0) % every == 0 else rule["else"] for i in range(layers)]


RULES: dict[str, Callable[[Fields, dict, int], list[str] | None]] = {
    "listed": listed,
    "periodic": periodic,
    "cycled": cycled,
    "indexed": indexed,
    "flagged": flagged,
    "by_number": by_number,
    "blocks": blocks,
    "from_layer": from_layer,
    "alternating_up_to": alternating_up_to,
    "repeated_blocks": repeated_blocks,
    "after_dense": after_dense,
    "after_head": after_head,
    "always": always,
    "index_schedule": index_schedule,
}


def by_rules(fields: Fields, rules: list[dict], layers: int) -> list[str] | None:
    """What the first rule that applies says, one word per layer."""
    for rule in rules:
        if "unless" in rule and fields.is_on(rule["unless"]):
            continue
        if "if" in rule and not fields.is_on(rule["if"]):
            continue
        words = RULES[rule["rule"]](fields, rule, layers)
        if words is not None:
            return words
    return None


def twice(fields: Fields, words: list) -> list:
    """Each layer of the config holds two attention blocks (LongCat-Flash)."""
    return [word for word in words for _ in range(2)]


def nested_cycles(fields: Fields, words: list) -> list:
    """A stack of layers run in nested cycles, each pass with a cache of its own, until the file counts them all (HRM)."""
    if fields.whole("num_layers_per_stack") is not None:
        return words
    passes = (fields.whole("H_cycles") or 0) * ((fields.whole("L_cycles") or 0) + 1)
    require(passes * len(words), count_up_to(MAX_LAYERS, low=1), "the passes of H_cycles and L_cycles")
    return words * passes


def repeated_core(fields: Fields, words: list) -> list:
    """Layers from one index to another run in several passes, the further ones with caches of their own (Inkling 2)."""
    start, end, passes = (
        fields.whole(inner) or fields.whole(flat) or 0
        for inner, flat in (
            ("loop_config.core_start", "loop_layer_index_start"),
            ("loop_config.core_end", "loop_layer_index_end"),
            ("loop_config.num_passes", "loop_num_passes"),
        )
    )
    require(passes * len(words), count_up_to(MAX_LAYERS), "the layers of loop_num_passes")
    return [*words, *(words[start:end] * (passes - 1))]


def recurrent_middle(fields: Fields, words: list) -> list:
    """The middle layers run in loops, each further one with caches of its own unless only the last's are kept (Dory)."""
    parts = 2 if "none" in (words_of(fields.field("layer_types"), "layer_types") or ()) else 1  # attention, MLP
    first, last = ((fields.whole(name) or 0) // parts for name in ("n_input_layers", "n_output_layers"))
    middle = fields.whole("n_recurrent_layers")
    middle = middle // parts if middle else None
    middle = len(words) - first - last if middle is None else middle
    loops = 1 if fields.field("recurrent_kv_cache_mode") == "last_loop" else fields.whole("n_recurrent_loops") or 1
    require(loops * len(words), count_up_to(MAX_LAYERS), "the layers of n_recurrent_loops")
    return [*words, *(words[first : first + middle] * (loops - 1))]


LOOPS: dict[str, Callable[[Fields, list], list]] = {
    "twice": twice,
    "nested_cycles": nested_cycles,
    "repeated_core": repeated_core,
    "recurrent_middle": recurrent_middle,
}
