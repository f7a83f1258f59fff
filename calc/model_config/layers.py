"""The layers of a model from its config: what kind each is of, and groups of those that keep the same."""

from dataclasses import replace
from typing import Any

from calc.model_config.file import shown
from calc.model_config.patterns import GROUP, LOOPS, attention_blocks, by_rules, words_of
from calc.model_config.reading import Reading
from calc.model_config.rules import checked, unsupported_layer_kind
from calc.model_config.shapes import STATES, WORDS, Word, compression, ngram_states
from calc.model_spec import MODEL_DTYPE, LayerGroup

FULL_ATTENTION = "full_attention"
WINDOW, LAYER_TYPES, PER_LAYER = "sliding_window", "layer_types", "per_layer_config"
KV_HEADS = "num_key_value_heads"


class Layers:
    """The layers of one config being read."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.family = reading.family
        self.readings: dict[Any, Reading] = {}

    def groups(self) -> tuple[tuple[LayerGroup, ...], tuple[int, ...]]:
        """Groups of layers that keep the same, and the group of each layer."""
        words = self._words()
        shared, indexers = self._first_shared(len(words)), self._indexers(len(words))
        sources, rotated = self._flags("kv_source_layers", len(words)), self._flags("rotated_layers", len(words))
        ngrams = self._ngram_layers()
        overrides = self._overrides(len(words))
        layers = [
            (
                word,
                overrides.get(i, ()),
                i >= shared,
                indexers[i] if indexers else None,
                sources is not None and sources[i] != i,
                rotated is not None and not rotated[i],
                i + 1 in ngrams,
            )
            for i, word in enumerate(words)
        ]
        if "loop" in self.family:
            layers = LOOPS[self.family["loop"]](self.reading, layers)
        shapes: dict[LayerGroup, int] = {}
        of_layer: dict[tuple, int] = {}
        order, counts = [], []
        for layer in layers:
            if layer not in of_layer:
                of_layer[layer] = shapes.setdefault(self._shape(*layer), len(shapes))
                counts += [0] * (len(shapes) - len(counts))
            order.append(of_layer[layer])
            counts[order[-1]] += 1
        self._note_what_was_read()
        groups = tuple(replace(shape, layers=count) for shape, count in zip(shapes, counts))
        return groups, tuple(order) if len(groups) > 1 else ()

    def _words(self) -> list[str]:
        """The kind of each layer."""
        reading, family = self.reading, self.family
        if (
            not family.get("pattern")
            and not reading.has("window")
            and not reading.has("chunk")
            and "word" not in family
        ):
            self._require_full_attention()
            return [FULL_ATTENTION] * reading.fact("layers")
        words, by_rule = None, False
        for field in family.get("layer_lists", [LAYER_TYPES]):
            if (words := words_of(reading.field(field), field)) is not None:
                break
        by_list = family.get("layers_by_list")
        layers = (len(words) if words else 1) if by_list else reading.fact("layers")
        if words is None:
            by_rule = True
            words = by_rules(reading, family.get("pattern", []), layers)
            field = LAYER_TYPES
            if words is None and not (window := self._window()) and "word" not in family and reading.optional("chunk"):
                words = ["chunked_attention"] * layers
            elif words is None:
                words = [family.get("word") or ("sliding_attention" if window else FULL_ATTENTION)] * layers
        if family.get("layers_in_pairs") and "none" in words:
            words = words[::2]
            layers //= 2
        if family.get("list_is_cut"):
            words = words[:layers]
        if by_list:
            reading.facts["layers"] = layers = len(words)
            reading.sources.setdefault("layers", f"the length of {field}")
        if len(words) != layers:
            raise ValueError(f"{field} must be a list of {layers} layer kinds, got {len(words)}")
        if family.get("last_is_full"):
            words = [*words[:-1], FULL_ATTENTION]
        meaning = family.get("words", {})
        if "words_of_old" in family and self._own_layers() is None:
            meaning = family["words_of_old"]
        words = [meaning.get(word, word) for word in words]
        if by_rule:
            words = [self._without_window(word) for word in words]
        for index, word in enumerate(words):
            if word not in WORDS or not self._has_facts_of(word):
                raise unsupported_layer_kind(shown(word, quote=False), f"{field}[{index}]")
        return words

    def _has_facts_of(self, word: str) -> bool:
        """Whether the family says what a layer of this kind is made of."""
        made_of = WORDS[word]
        if made_of.cross:
            return any(rule.get("is") == word for rule in self.family.get("pattern", []))
        if made_of.compressed:
            return self.reading.has(made_of.compressed)
        return not made_of.indexed or self.reading.has("index_width")

    def _without_window(self, word: str) -> str:
        """A windowed layer is a full one where no window is in force."""
        bounded = WORDS[word].window if word in WORDS else ""
        off = bounded and (self._window() if bounded == "window" else self.reading.optional(bounded)) is None
        return FULL_ATTENTION if off and not WORDS[word].state else word

    def _window(self) -> int | None:
        """The window, where one is in force."""
        switch = self.family.get("window_switch")
        if switch and not self.reading.switch(switch):
            return None
        return self.reading.optional("window")

    def _shape(
        self,
        word: str,
        overrides: tuple,
        shared: bool,
        indexer: str | None,
        reuses: bool,
        unrotated: bool,
        ngrams: bool,
    ) -> LayerGroup:
        """One layer: what its word, and what is said of this layer alone, make of it."""
        made_of = WORDS[word]
        reading = self._reading_of(word, overrides)
        fact = reading.fact
        states = STATES[self._state_of(word)](fact) if made_of.state else ()
        if ngrams:
            states = (*states, *ngram_states(fact))
        if shared and made_of.attention:
            return self._shared(made_of, word, reading)
        if not made_of.attention:
            return LayerGroup(kind="recurrent" if states else "none", layers=1, states=states)
        latent = self.family.get("attention") == "latent"
        window = None
        if made_of.window:
            window = self._window_of(word, made_of.window, reading)
        kind = {"window": "sliding", "chunk": "chunked"}.get(made_of.window, "cross" if made_of.cross else "full")
        query_heads = fact("query_heads")
        if latent:
            reading.warn_of_printed_heads()
            rotated = reading.has("rope_width") and not unrotated
            kv_heads, key_width, value_width = 1, fact("latent_width"), fact("rope_width") if rotated else 0
        else:
            kv_heads, key_width = fact("kv_heads"), fact("head_width")
            value_width = fact("value_width") if reading.has("value_width") else key_width
        if query_heads % kv_heads:
            raise ValueError(f"{reading.label('kv_heads')} must divide the {query_heads} query heads, got {kv_heads}")
        index_width = fact("index_width") if made_of.indexed and indexer != "shared" else 0
        if latent:
            kind = "sliding latent" if window else "latent"
        if index_width:
            kind = "indexed latent" if latent else "indexed"
            if reuses:  # the keys of the indexer alone
                kv_heads, key_width, value_width, index_width = 1, index_width, 0, 0
        elif reuses:
            return LayerGroup(kind="shared", layers=1)
        if states:
            kind = f"{kind} with state"
        if made_of.compressed:
            kind = "compressed latent"
        broadcast = self.family.get("transformers_kv_heads")
        crosses = any(reading.is_on(field) for field in self.family.get("cross_if", ()))
        return LayerGroup(
            kind=kind,
            layers=1,
            query_heads=query_heads,
            kv_heads=kv_heads,
            key_width=key_width,
            value_width=value_width,
            window=window,
            index_width=index_width,
            index_dtype=self.family.get("index_dtype", MODEL_DTYPE),
            index_heads=(reading.optional("index_heads") or 0) if index_width else 0,
            index_tokens=reading.optional("index_tokens") if made_of.indexed else None,
            nope_width=(reading.optional("nope_width") or 0) if value_width and latent else 0,
            head_value_width=(reading.optional("head_value_width") or 0) if value_width and latent else 0,
            cross_kv_heads=kv_heads if crosses else 0,
            states=states,
            transformers_kv_heads=fact(broadcast["heads"]) if broadcast and reading.is_on(broadcast["if"]) else None,
            extra_tokens=fact("extra_tokens") if reading.has("extra_tokens") else 0,
            compression=compression(fact, made_of.compressed) if made_of.compressed else None,
            transformers_planes=self.family.get("transformers_planes", 1),
            transformers_trims=self.family.get("transformers_trims", True),
            transformers_token_bytes=self.family.get("transformers_token_bytes", 0) if index_width else 0,
        )

    def _shared(self, made_of: Word, word: str, reading: Reading) -> LayerGroup:
        """A layer that attends with its own queries to the keys and values of another one."""
        width = reading.fact("head_width")
        return LayerGroup(
            kind="shared",
            layers=1,
            query_heads=reading.fact("query_heads"),
            key_width=width,
            value_width=width,
            window=self._window_of(word, made_of.window, reading) if made_of.window else None,
        )

    def _state_of(self, word: str) -> str:
        if "state" not in self.family:
            raise unsupported_layer_kind(word, f"in a model of type {self.reading.model_type}")
        return self.family["state"]

    def _window_of(self, word: str, name: str, reading: Reading) -> int:
        value = self._window() if name == "window" and reading is self.reading else reading.optional(name)
        if value is None:
            raise ValueError(
                f"{' or '.join(reading.rules['fields'].get(name, [name]))} must be set for {word}, got null"
            )
        return value

    def _reading_of(self, word: str, overrides: tuple) -> Reading:
        """The reading in which the facts of this layer are found: the model's, or one with this layer's own."""
        facts = self.family.get("of_word", {}).get(word, {})
        if overrides:
            facts = {}
        elif facts and self._own_layers() is not None:
            facts = {}
        if not facts and not overrides:
            return self.reading
        key = (word if facts else "", overrides)
        if key not in self.readings:
            known = {fact: self.reading.value_of(fact, rule) for fact, rule in facts.items()}
            self.readings[key] = Reading({**self.reading.config, **dict(overrides)}, self.reading.model_type, known)
        return self.readings[key]

    def _note_what_was_read(self) -> None:
        """What was read for single layers counts as read for the model, and their facts as facts of it."""
        reading = self.reading
        for (word, overrides), own in self.readings.items():
            alone = dict(overrides)
            reading.read |= {field: value for field, value in own.read.items() if field not in alone}
            reading.warnings += own.warnings
            for fact, value in own.facts.items():
                if word and fact in self.family["of_word"][word]:
                    reading.facts[f"{fact} of {word}"] = value
                    reading.sources[f"{fact} of {word}"] = f"rule of the {reading.model_type} class"
                elif fact not in reading.facts:
                    source = own.sources[fact]
                    of_layers = f"{source} of {self.family.get('blocks', PER_LAYER)}" if source in alone else source
                    reading.facts[fact], reading.sources[fact] = value, of_layers

    def _own_layers(self) -> Any:
        return self.reading.field(PER_LAYER) if self.family.get(PER_LAYER) else None

    def _overrides(self, layers: int) -> dict[int, tuple]:
        """Fields that the config gives for single layers."""
        if field := self.family.get("blocks"):
            return self._of_blocks(field)
        value = self._own_layers()
        if value is None:
            return {}
        own = {}
        for index, fields in value.items() if isinstance(value, dict) else [(None, None)]:
            if not str(index).isdecimal() or int(index) >= layers or not isinstance(fields, dict):
                raise ValueError(f"{PER_LAYER} must give fields by layer index, got {shown(value)}")
            if bad := [name for name, entry in fields.items() if not isinstance(entry, (int, float, str, type(None)))]:
                raise ValueError(f"{PER_LAYER} must give numbers, got another value for {shown(bad[0])}")
            own[int(index)] = tuple(sorted(fields.items()))
        return own

    def _of_blocks(self, name: str) -> dict[int, tuple]:
        """The KV heads of each layer with attention, from how many query heads share one."""
        heads, own = self.reading.fact("query_heads"), {}
        for index, attention in enumerate(attention_blocks(self.reading, name)):
            if attention is not None:
                group = checked(attention.get(GROUP), "query_heads", f"{name}[{index}].attention.{GROUP}")
                if heads % group:
                    raise ValueError(f"{name}[{index}].attention.{GROUP} must divide {heads} query heads, got {group}")
                own[index] = ((KV_HEADS, heads // group),)
        return own

    def _first_shared(self, layers: int) -> int:
        field = self.family.get("shared_layers")
        return layers - (self.reading.whole(field) or 0) if field else layers

    def _indexers(self, layers: int) -> list[str] | None:
        if not self.family.get("indexers"):
            return None
        field = "indexer_types"
        kinds = words_of(self.reading.field(field), field) or by_rules(self.reading, self.family["indexers"], layers)
        if kinds is None:
            return None
        kinds = [{"F": "full", "S": "shared"}.get(kind, kind) for kind in kinds]
        if len(kinds) != layers or set(kinds) - {"full", "shared"}:
            raise ValueError(f"{field} must be a list of {layers} times full or shared, got {shown(kinds)}")
        return kinds

    def _flags(self, name: str, layers: int) -> list[int] | None:
        """A list of one number per layer, by a rule of the family."""
        rules = self.family.get(name)
        if not rules:
            return None
        value = self.reading.field(rules["field"])
        if value is None and "interval_field" in rules:
            interval = self.reading.whole(rules["interval_field"]) or rules["interval"]
            value = [int((i + 1) % interval != 0) for i in range(layers)]
        if value is None:
            return None
        whole = isinstance(value, (list, tuple)) and all(isinstance(i, int) for i in value)
        if not whole or len(value) != layers:
            raise ValueError(f"{rules['field']} must be a list of {layers} whole numbers, got {shown(value)}")
        return list(value)

    def _ngram_layers(self) -> frozenset[int]:
        field = self.family.get("ngram_layers")
        value = self.reading.field(field) if field else None
        if not value:
            return frozenset()
        if not isinstance(value, (list, tuple)) or not all(isinstance(i, int) for i in value):
            raise ValueError(f"{field} must be a list of layer numbers, got {shown(value)}")
        return frozenset(value)

    def _require_full_attention(self) -> None:
        reading = self.reading
        types = reading.config.get(LAYER_TYPES)
        if types is not None:
            layers = reading.fact("layers")
            if not isinstance(types, (list, tuple)) or len(types) != layers:
                raise ValueError(f"{LAYER_TYPES} must be a list of {layers} layer kinds, got {shown(types)}")
            for index, kind in enumerate(types):
                if not (isinstance(kind, str) and kind == FULL_ATTENTION):
                    raise unsupported_layer_kind(shown(kind, quote=False), f"{LAYER_TYPES}[{index}]")
        if reading.config.get(WINDOW) is not None:
            raise unsupported_layer_kind("sliding window", f"{WINDOW} = {shown(reading.config[WINDOW])}")
