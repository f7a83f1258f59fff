"""Guards the docstrings of public functions: sections, units, and examples that run."""

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest

import calc
import kernels

UNIT_AT_END = re.compile(r"\[[^\[\]]+\]\.?$")


def modules():
    for package in (calc, kernels):
        yield package
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def public_functions():
    for module in modules():
        if module.__name__.startswith("calc.cli"):
            continue
        for name, function in vars(module).items():
            if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_"):
                yield pytest.param(module, function, id=f"{module.__name__}.{name}")


def described_items(section: str) -> list[str]:
    """The description under each item of a numpydoc section, joined into one line each."""
    items: list[list[str]] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            items.append([])
        elif line.strip():
            items[-1].append(line.strip())
    return [" ".join(item) for item in items]


def sections(docstring: str) -> dict[str, str]:
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


@pytest.mark.parametrize(("module", "function"), list(public_functions()))
def test_a_public_function_says_what_it_takes_and_returns_with_units(module, function):
    docstring = inspect.getdoc(function)
    assert docstring, "no docstring"
    if "\n" not in docstring:  # a helper that one sentence explains
        return
    found = sections(docstring)
    if inspect.signature(function).parameters:
        assert "Parameters" in found
        headings = [line for line in found["Parameters"].splitlines() if re.match(r"[\w*]", line)]
        names = [name.strip() for line in headings for name in line.split(" : ")[0].split(",")]
        expected = [parameter.name for parameter in inspect.signature(function).parameters.values()]
        assert [name.lstrip("*") for name in names] == expected
        for description in described_items(found["Parameters"]):
            assert UNIT_AT_END.search(description), description
    assert "Returns" in found
    for description in described_items(found["Returns"]):
        assert UNIT_AT_END.search(description), description


@pytest.mark.parametrize(("module", "function"), list(public_functions()))
def test_the_examples_in_a_docstring_run(module, function):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for example in doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs=dict(vars(module))):
        runner.run(example)
    assert runner.failures == 0


@pytest.mark.parametrize("module", list(modules()), ids=lambda module: module.__name__)
def test_a_module_opens_with_a_sentence(module):
    assert module.__doc__ and module.__doc__.strip().splitlines()[0].endswith((".", ":", ";", ","))
