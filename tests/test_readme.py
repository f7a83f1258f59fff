"""The README's examples print what the README shows, and its file map names files that exist."""

import re
import shlex
from pathlib import Path

import pytest

from calc.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
EXAMPLES = [text.partition("\n") for _, text in BLOCKS if text.startswith("$ python -m calc ")]
MAP = next(text for _, text in BLOCKS if text.startswith("app.py "))


@pytest.mark.parametrize(("command", "_", "printed"), EXAMPLES, ids=lambda part: part[:40])
def test_an_example_prints_what_the_readme_shows(command, _, printed, capsys):
    main(shlex.split(command.removeprefix("$ python -m calc ")))
    assert capsys.readouterr().out == printed


def test_there_is_an_example_of_each_job():
    jobs = dict.fromkeys(re.search(r"calc ([\w-]+)", command)[1] for command, _, _ in EXAMPLES)
    assert list(jobs) == ["cost", "memory", "explain-log", "flops"]


def test_the_python_example_gives_the_numbers_in_its_comments():
    example = next(text for language, text in BLOCKS if language == "python")
    imports, calls = example.split("\n\n")
    names: dict = {}
    exec(imports, names)
    for line in calls.strip().splitlines():
        call, _, comment = line.partition("#")
        assert eval(call, names) == int(re.match(r"\d+", comment.strip())[0])


def test_the_file_map_names_files_that_exist_and_leaves_no_module_out():
    named = set(re.findall(r"[\w.]+\.py\b", MAP))
    existing = {path.name for folder in (".", "calc", "views") for path in (ROOT / folder).glob("*.py")}
    assert named <= existing
    assert existing - {"__init__.py", "__main__.py"} <= named
    for folder in re.findall(r"^ *([\w/]+)/ ", MAP, re.MULTILINE):
        assert (ROOT / folder).is_dir() or (ROOT / "calc" / folder).is_dir()
