"""Guards what each part may import, what an import loads, and where powers of 1000 and 1024 may be written."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
STANDARD = frozenset(sys.stdlib_module_names)

ALLOWED = {
    "calc": STANDARD | {"numpy", "calc"},
    "kernels": STANDARD | {"torch", "kernels"},
    "views": STANDARD | {"streamlit", "plotly", "pandas", "numpy", "calc", "views"},
    "app.py": frozenset({"streamlit", "views"}),
}
"""Top-level packages that each part may import; the longest matching part holds."""


class Exemption(NamedTuple):
    package: str
    inside_functions_only: bool
    reason: str


EXEMPTIONS = {
    "calc/prices.py": Exemption("genai_prices", True, "the price list; a cold import is slow, so it waits for a card"),
    "calc/model_config/gguf_header.py": Exemption(
        "gguf", True, "headers of .gguf files; its import takes a tenth of a second, which only a .gguf file pays"
    ),
    "calc/cli": Exemption("click", False, "the command line is one of the edges of calc"),
    "kernels/__main__.py": Exemption("calc", False, "it prints predictions beside its measurements"),
    "views/kernels.py": Exemption("kernels", True, "the page that runs kernels; a cold import of torch costs seconds"),
}
"""Further packages of single files and folders, each with its reason."""

UNIT_POWERS = frozenset(
    {1024**power for power in range(1, 7)}
    | {1000**power for power in range(2, 7)}
    | {float(f"1e-{3 * power}") for power in range(2, 5)}
)
"""What a conversion between units multiplies or divides by."""


IMPORTING_CALLS = ("__import__", "import_module", "importlib.import_module")


class Import(NamedTuple):
    package: str
    line: int
    inside_function: bool


def source_files() -> list[str]:
    paths = [path for part in ("calc", "kernels", "views") for path in sorted((ROOT / part).rglob("*.py"))]
    return [path.relative_to(ROOT).as_posix() for path in [*paths, ROOT / "app.py"]]


def imports(source: str) -> Iterator[Import]:
    """Every import of a source, those in functions and under conditions too."""

    def visit(node: ast.AST, inside: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name.partition(".")[0], node.lineno, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import("." if node.level else node.module.partition(".")[0], node.lineno, inside)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in IMPORTING_CALLS:
            yield Import(f"what {ast.unparse(node)} names", node.lineno, inside)
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse(source), False)


def breaches(file: str, source: str) -> list[str]:
    allowed = ALLOWED["app.py" if file == "app.py" else file.partition("/")[0]]
    exemptions = [rule for place, rule in EXEMPTIONS.items() if file == place or file.startswith(f"{place}/")]
    return [
        f"{file}:{found.line} imports {found.package}"
        for found in imports(source)
        if found.package not in allowed
        and not any(
            found.package == rule.package and (found.inside_function or not rule.inside_functions_only)
            for rule in exemptions
        )
    ]


def unit_powers(source: str) -> Iterator[int]:
    """Lines that write a power of 1000 or 1024 other than as the value of a module's constant."""
    module = ast.parse(source)
    for statement in module.body:
        if not _names_a_constant(statement):
            for node in ast.walk(statement):
                if _number(node) in UNIT_POWERS:
                    yield node.lineno


def _names_a_constant(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return all(isinstance(target, ast.Name) and target.id.isupper() for target in targets)


def _number(node: ast.AST) -> int | float | None:
    """The value of a number, or of a power or shift of two numbers."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        left, right = _number(node.left), _number(node.right)
        if left is not None and right is not None and 0 <= right <= 100:
            return left**right if isinstance(node.op, ast.Pow) else left << right
    return None


@pytest.mark.parametrize("file", source_files())
def test_a_file_imports_only_what_its_part_may(file):
    assert breaches(file, (ROOT / file).read_text("utf-8")) == []


@pytest.mark.parametrize("file", [file for file in source_files() if file.startswith(("calc/", "views/"))])
def test_powers_of_1000_and_1024_are_written_in_units_only(file):
    # calc/units.py needs no exemption: all it holds are constants.
    assert list(unit_powers((ROOT / file).read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("file", "source", "found"),
    [
        ("calc/x.py", "import pandas", 1),
        ("calc/x.py", "import numpy.linalg, streamlit.runtime", 1),
        ("calc/x.py", "def f():\n    from torch import nn", 1),
        ("calc/x.py", "if True:\n    import kernels", 1),
        ("calc/x.py", "import genai_prices", 1),
        ("calc/x.py", "from . import tokens", 1),
        ("calc/x.py", "import importlib\nimportlib.import_module('torch')", 1),
        ("calc/prices.py", "import genai_prices", 1),
        ("calc/prices.py", "def f():\n    import genai_prices", 0),
        ("calc/cli/x.py", "import click", 0),
        ("calc/x.py", "import click", 1),
        ("calc/x.py", "import json\nimport numpy as np\nfrom calc.units import GIB", 0),
        ("kernels/x.py", "import numpy", 1),
        ("kernels/x.py", "import math\nimport torch", 0),
        ("views/x.py", "import kernels", 1),
        ("views/x.py", "import genai_prices", 1),
        ("app.py", "import pandas", 1),
        ("app.py", "from calc import units", 1),
    ],
)
def test_the_import_guard_sees_a_breach(file, source, found):
    assert len(breaches(file, source)) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(x):\n    return x / 1024", 1),
        ("def f(x):\n    return x / 1e9", 1),
        ("def f(x):\n    return x * 1e-6", 1),
        ("def f(x):\n    return x / 2**30", 1),
        ("def f(x):\n    return x / 10**9", 1),
        ("def f(x):\n    return x / 1_000_000", 1),
        ("def f(x):\n    return x >> 1 << 3, 1 << 20", 1),
        ("def f(x, scale=1024**3):\n    return x", 2),
        ("gib = 1024", 1),
        ("class A:\n    GIB = 1024", 1),
        ("MAX_BYTES = 10**6\n_LADDER = (1024, 2048)\nLIMIT: int = 1024", 0),
        ('def f(x):\n    """1024"""\n    return x * 1000 + 10**15 - 4096', 1),
        ("def f(x):\n    return x * 1000 + 4096 + 2**53", 0),
    ],
)
def test_the_unit_guard_sees_a_breach(source, found):
    assert len(list(unit_powers(source))) == found


def loaded_after(code: str) -> set[str]:
    """Top-level packages that a fresh process holds after running the code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


HEAVY = {
    "gguf",
    "yaml",
    "torch",
    "streamlit",
    "pandas",
    "plotly",
    "genai_prices",
    "transformers",
    "duckdb",
    "dask",
    "pydantic",
}


def calc_modules() -> list[str]:
    files = [file for file in source_files() if file.startswith("calc/") and not file.startswith("calc/cli/")]
    names = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files]
    return [name for name in names if name != "calc.__main__"]


def test_calc_loads_nothing_heavy():
    assert {"calc", "calc.prices", "calc.tokens", "calc.presets"} <= set(calc_modules())
    loaded = loaded_after("".join(f"import {name}\n" for name in calc_modules()))
    assert "numpy" in loaded
    assert loaded & (HEAVY | {"click"}) == set()


def test_calc_alone_loads_nothing_heavy():
    assert loaded_after("import calc") & (HEAVY | {"click"}) == set()


def test_the_command_line_loads_nothing_heavy_until_it_needs_a_price():
    assert loaded_after("import calc.cli") & HEAVY == set()
    tokens = "from calc.cli import main\nmain(['tokens', '--calls', '1', '--prefix', '1', '--growth', '1'])"
    assert loaded_after(tokens) & HEAVY == set()


def test_prices_load_the_price_list_with_the_first_card():
    assert "genai_prices" not in loaded_after("import calc.prices")
    assert "genai_prices" in loaded_after(
        "from calc.prices import price_card\nprice_card('claude-opus-4-6', date='2026-04-01')"
    )


def test_what_the_app_imports_does_not_load_torch():
    statements = [
        ast.unparse(node)
        for node in ast.parse((ROOT / "app.py").read_text("utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert any(statement.startswith("from views import") for statement in statements)
    loaded = loaded_after("\n".join(statements))
    assert "streamlit" in loaded
    assert loaded & {"torch", "transformers", "kernels"} == set()


def test_the_home_page_opens_without_torch():
    opened = "AppTest.from_file('app.py', default_timeout=60).run()"
    code = f"from streamlit.testing.v1 import AppTest\nassert not {opened}.exception"
    assert loaded_after(code) & {"torch", "transformers", "kernels"} == set()
