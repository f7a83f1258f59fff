"""Formats of cached keys and values, scales included: what a row of one head takes in each."""

from dataclasses import dataclass

from calc.catalogue import Catalogue
from calc.numeric import COUNT, POSITIVE_COUNT, Numeric, formula, require_scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class KVFormat:
    """How the numbers of keys or values are packed."""

    name: str
    label: str
    block_numbers: int
    """Numbers in a block, which share what the block keeps besides them."""
    block_bytes: int
    """Bytes of a block, its scale included."""
    row_bytes: int = 0
    """Bytes that stand once per row: a scale per token and head."""
    rope_bytes_per_number: int | None = None
    """Bytes of a number in the rotated part of a latent row; None where it is packed like the rest."""
    engines: tuple[str, ...] = ()
    """Serving engines that know the format."""

    @property
    def is_for_latent_rows(self) -> bool:
        """Whether only latent rows come in this format."""
        return self.rope_bytes_per_number is not None

    def row(self, width: int) -> int:
        """Bytes of one head's key or value of a token; a width that blocks do not fill is refused."""
        if self.is_for_latent_rows:
            raise ValueError(f"KV format {self.name} is for latent rows only, and this layer has keys and values")
        return self._packed(width)

    def latent_row(self, latent_width: int, rope_width: int) -> int:
        """Bytes of the one row that a latent layer keeps of a token."""
        if self.is_for_latent_rows:
            return self._packed(latent_width) + rope_width * self.rope_bytes_per_number
        return self._packed(latent_width + rope_width)

    def _packed(self, width: int) -> int:
        if width % self.block_numbers:
            raise ValueError(
                f"width of a row in {self.name} must be a multiple of the {self.block_numbers} numbers of a block, "
                f"got {width:,}"
            )
        return row_bytes(width, self.block_numbers, self.block_bytes, self.row_bytes)


@formula(
    r"\beta = \frac{d}{N}\,B + s",
    width=COUNT,
    block_numbers=POSITIVE_COUNT,
    block_bytes=POSITIVE_COUNT,
    scale_bytes=COUNT,
)
def row_bytes(width: Numeric, block_numbers: Numeric, block_bytes: Numeric, scale_bytes: Numeric = 0) -> Numeric:
    """Bytes of one head's key, or value, of one token.

    Parameters
    ----------
    width : int or array
        Numbers in the row, a multiple of those in a block, d [numbers].
    block_numbers : int or array
        Numbers packed together, N: 1 for plain types [numbers].
    block_bytes : int or array
        Bytes of a block with its scale, B [bytes].
    scale_bytes : int or array
        Bytes that stand once per row, s [bytes].

    Returns
    -------
    int or array
        (d / N) B + s [bytes].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    q8_0 packs 32 numbers into 34 bytes: 8.5 bits each. Source: ggml's block structs; vLLM's page sizes.

    Examples
    --------
    >>> row_bytes(128, 1, 2), row_bytes(128, 32, 34), row_bytes(128, 1, 1, 4)
    (256, 136, 132)
    >>> row_bytes([64, 128], 16, 9)
    array([36, 72])
    """
    return width // block_numbers * block_bytes + scale_bytes


_CATALOGUE = Catalogue("kv_formats", "KV format")
_FACTS = ("label", "block_numbers", "block_bytes", "row_bytes", "rope_bytes_per_number")
_FORMATS = {
    name: KVFormat(
        name=name,
        engines=tuple(_CATALOGUE[name]["engines"]),
        **{fact: _CATALOGUE[name][fact] for fact in _FACTS if fact in _CATALOGUE[name]},
    )
    for name in _CATALOGUE
}


def kv_format_names(engine: str = "ideal") -> tuple[str, ...]:
    """Formats that an engine knows, in the order they are shown.

    Parameters
    ----------
    engine : str
        Engine; the ideal rule takes every format [name].

    Returns
    -------
    tuple of str
        Names [names].

    Examples
    --------
    >>> kv_format_names("transformers")
    ('bf16', 'fp16', 'fp32')
    """
    return tuple(name for name, packed in _FORMATS.items() if engine == "ideal" or engine in packed.engines)


def kv_format(name: str) -> KVFormat:
    """A format by its name.

    Parameters
    ----------
    name : str
        bf16, fp16, fp32, fp8, int8, nvfp4, q8_0, ..., or an alias such as bfloat16 [name].

    Returns
    -------
    KVFormat
        How it packs numbers [facts].

    Raises
    ------
    LookupError
        If the format is not known.

    Examples
    --------
    >>> kv_format("bfloat16").row(128), kv_format("q8_0").row(128), kv_format("int8").row(128)
    (256, 136, 132)
    """
    return _FORMATS[_CATALOGUE.id(name)]


def bytes_per_number(kv_dtype: str, width: int) -> int | float:
    """Size of one cached number, scales included.

    Parameters
    ----------
    kv_dtype : str
        Format [name].
    width : int
        Numbers in the row that shares a scale, where the format has one per row [numbers].

    Returns
    -------
    int or float
        Bytes of one number; an int where they are whole [bytes].

    Raises
    ------
    LookupError
        If the format is not known.
    ValueError
        If the width is no positive count, or blocks of the format do not fill it.

    Examples
    --------
    >>> bytes_per_number("bfloat16", 128), 8 * bytes_per_number("q8_0", 128), 8 * bytes_per_number("int8", 128)
    (2, 8.5, 8.25)
    """
    require_scalar(width, POSITIVE_COUNT, "width")
    packed = kv_format(kv_dtype)
    row = packed.latent_row(width, 0) if packed.is_for_latent_rows else packed.row(width)
    return row // width if row % width == 0 else row / width
