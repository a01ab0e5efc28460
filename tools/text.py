"""Reads every text file of the repository for what must not be there, and names each place.

Words come from docs/vocabulary.md. This file is the only one not read: it has to spell what it looks for.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = "docs/vocabulary.md"
SELF = "tools/text.py"
LONGEST_MODULE = 400


@dataclass(frozen=True)
class Rule:
    """A pattern, the files that it is for, and what to do where it is found."""

    pattern: str
    advice: str
    files: str = ""
    ignore_case: bool = False


RULES = (
    Rule(
        r"(?<![\w.$}~-])/(?:work|root|home/\w+)/",
        "is a path of one machine; say it relative to the repository or $HOME",
    ),
    Rule(
        r"artifactory|\bnexus\d?\.|\bjfrog\b|\.pkg\.dev\b", "is a registry's address; leave it to the user's settings"
    ),
    Rule(
        r"--(?:extra-)?index-url|--find-links",
        "is a registry's address; leave it to the user's settings",
        r"^requirements/",
    ),
    Rule(
        r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b", "is unfinished work; do it, or leave it out", r"\.(?:py|sh|go)$"
    ),
    Rule(r"^\s*(?:import|from) (?:pickle|dill|cloudpickle)\b", "runs code when it is read; use JSON or npz", r"\.py$"),
    Rule(
        r"mark\.skip|mark\.xfail|pytest\.skip\b|importorskip",
        "is a test that nobody runs; repair or delete it",
        r"^tests/",
    ),
    Rule(r"\btime\.sleep\(", "waits for a time; wait for an event", r"^tests/"),
)


def main() -> int:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        sys.exit(f"text: git can't list the files to read: {listed.stderr.decode().strip()}; run this in a clone")
    paths = sorted(path for path in listed.stdout.decode().split("\0") if path and path != SELF)
    rules = (*RULES, *word_rules())
    problems = [problem for path in paths for problem in problems_of(path, rules)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def word_rules() -> Iterator[Rule]:
    """The vocabulary's banned words, each with the word to use."""
    for line in (ROOT / VOCABULARY).read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 or cells[2] in {"", "Never", "---"}:
            continue
        for banned in cells[2].split(","):
            # A plural and a line's break inside a word pair count too; an identifier's part counts as the word.
            pattern = re.escape(banned.strip()).replace(r"\ ", r"[\s_]+")
            yield Rule(pattern, f"is called {cells[0]} here ({VOCABULARY})", rf"^(?!{VOCABULARY}$)", ignore_case=True)


def problems_of(path: str, rules: tuple[Rule, ...]) -> Iterator[str]:
    file = ROOT / path
    if file.is_symlink() or not file.is_file():
        return
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        return  # a picture
    if path.endswith(".py") and "/src/" in path and (length := text.count("\n")) > LONGEST_MODULE:
        yield f"{path}: {length} lines are more than {LONGEST_MODULE}; split it where it does two things"
    for rule in rules:
        if not re.search(rule.files, path):
            continue
        for found in re.finditer(rule.pattern, text, re.MULTILINE | (re.IGNORECASE if rule.ignore_case else 0)):
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found[0].strip()!r} {rule.advice}"


if __name__ == "__main__":
    sys.exit(main())
