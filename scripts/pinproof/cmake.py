"""Reading CMake files without running CMake: commands, what is known of conditions, and where files lead.

Conditions have three values: a branch is taken, is not, or may be. What nobody told stays unknown,
except environment variables and what is set from them: they count as not set, so that a walk sees
what a build would do to which nothing was staged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_TOKEN = re.compile(
    r"""\#\[(?P<c>=*)\[.*?\](?P=c)\]      # bracket comment
      | \#[^\n]*                          # comment
      | \[(?P<b>=*)\[(?P<bracket>.*?)\](?P=b)\]
      | "(?P<quoted>(?:[^"\\]|\\.)*)"
      | (?P<paren>[()])
      | (?P<word>(?:[^\s()"\#\\]|\\.|"(?:[^"\\]|\\.)*")+)
    """,
    re.X | re.S,
)
_NAME = re.compile(r"\$(?P<env>ENV)?\{(?P<name>[\w.+-]+)\}")
_ENV = re.compile(r"\$?ENV\{(\w+)\}")
_FETCHED = re.compile(r"\$\{(?!CMAKE_|PROJECT_)[\w-]+_SOURCE_DIR\}")  # a tree that the build fetched
_FALSE = {"0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND", ""}
_TRUE = {"1", "ON", "YES", "TRUE", "Y"}
_UNARY = {
    "EXISTS", "IS_DIRECTORY", "IS_SYMLINK", "IS_ABSOLUTE", "IS_READABLE", "IS_WRITABLE", "TARGET", "COMMAND", "POLICY",
    "TEST",
}  # fmt: skip
_COMPARISONS = ("EQUAL", "LESS", "GREATER", "LESS_EQUAL", "GREATER_EQUAL")
_BINARY = {
    "MATCHES", "IN_LIST", "IS_NEWER_THAN", "PATH_EQUAL",
    *(prefix + word for prefix in ("", "STR", "VERSION_") for word in _COMPARISONS),
}  # fmt: skip
_BLOCKS = {"foreach", "while", "function", "macro", "block"}

Truth = bool | None


@dataclass(frozen=True)
class Word:
    """One argument; a quoted one is never a variable's name or an operator."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Command:
    """One command of a file. `certain`: it runs (True), may run (None), or does not (False).

    `redirects` are the environment variables that would have kept the build from coming here,
    innermost first.
    """

    name: str
    words: tuple[Word, ...]
    file: Path
    line: int
    certain: Truth = None
    redirects: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        return [word.text for word in self.words]

    def after(self, keyword: str) -> str | None:
        """The argument that follows a keyword."""
        texts = self.texts
        return texts[texts.index(keyword) + 1] if keyword in texts[:-1] else None


@dataclass
class Walk:
    """What a walk through the CMake files of a tree met; texts hold the values of variables where they are known."""

    commands: list[Command] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    environment: set[str] = field(default_factory=set)
    unresolved: list[str] = field(default_factory=list)


def commands(path: Path) -> Iterator[Command]:
    """The commands of one file as they stand, conditions not looked at."""
    text = path.read_text(encoding="utf-8", errors="replace")
    name, line, depth, words = "", 1, 0, []
    for token in _TOKEN.finditer(text):
        if token["paren"] == "(":
            depth += 1
            if depth == 1:
                words = []
                continue
        elif token["paren"] == ")":
            depth -= 1
            if depth == 0:
                yield Command(name.lower(), tuple(words), path, line)
                name = ""
                continue
        if token["paren"] and depth > 0:
            words.append(Word(token["paren"]))
        elif token["quoted"] is not None:
            words.append(Word(token["quoted"], quoted=True))
        elif token["bracket"] is not None:
            words.append(Word(token["bracket"], quoted=True))
        elif token["word"] and depth == 0:
            name, line = token["word"], text.count("\n", 0, token.start()) + 1
        elif token["word"]:
            words.append(Word(token["word"]))


def files(tree: Path) -> list[Path]:
    """Every CMake file of a tree, what a build left behind not counted."""
    found = [*tree.rglob("CMakeLists.txt"), *tree.rglob("*.cmake")]
    left = {".git", ".deps", "_deps", "build", "CMakeFiles"}
    return sorted(path for path in found if path.is_file() and not left & set(path.relative_to(tree).parts[:-1]))


def walk(tree: Path, known: Mapping[str, str]) -> Walk:
    """Go through a tree's CMake files from its CMakeLists.txt, then through those it does not lead to.

    `known` are variables whose values are certain and stay so (target device, processor).
    """
    met = _Walker(tree, known)
    every = files(tree)
    start = tree / "CMakeLists.txt"
    if start in every:
        met.file(start, True)
    doubtful = None if met.walk.unresolved or start not in every else False
    for path in every:
        if path not in met.walk.files:
            met.file(path, doubtful)
    return met.walk


class _Walker:
    def __init__(self, tree: Path, known: Mapping[str, str]) -> None:
        self.tree, self.known = tree, dict(known)
        self.values: dict[str, tuple[str, bool]] = {}  # text, and whether it is certain
        self.from_environment: dict[str, str] = {}
        self.walk = Walk()

    def file(self, path: Path, certain: Truth) -> None:
        if path in self.walk.files:
            return
        self.walk.files.append(path)
        _Frame(self, path, certain).run()

    def text(self, raw: str) -> str:
        """The text with the values of the variables that are known; others stay as they are written."""
        for _ in range(4):
            changed = _NAME.sub(lambda found: found[0] if found["env"] else self._value(found["name"], found[0]), raw)
            if changed == raw:
                break
            raw = changed
        return raw

    def _value(self, name: str, otherwise: str) -> str:
        return self.known.get(name, self.values.get(name, (otherwise, False))[0])

    def certain(self, name: str) -> str | None:
        """The value of a variable, when there is no doubt about it."""
        if name in self.known:
            return self.known[name]
        text, sure = self.values.get(name, ("", False))
        return text if sure and "$" not in text else None


class _Frame:
    """One file under way: the branches around the present command."""

    def __init__(self, walker: _Walker, path: Path, certain: Truth) -> None:
        self.walker, self.path, self.base = walker, path, certain
        self.branches: list[_Branch] = []
        folder = str(path.parent)
        for name in ("CMAKE_CURRENT_LIST_DIR", "CMAKE_CURRENT_SOURCE_DIR"):
            walker.known[name] = folder
        for name in ("CMAKE_SOURCE_DIR", "PROJECT_SOURCE_DIR"):
            walker.known[name] = str(walker.tree)
        self.here = {"CMAKE_CURRENT_LIST_DIR": folder, "CMAKE_CURRENT_SOURCE_DIR": folder}

    @property
    def certain(self) -> Truth:
        return _all([self.base, *(branch.certain for branch in self.branches)])

    def run(self) -> None:
        for command in commands(self.path):
            self.walker.known.update(self.here)
            self.walker.walk.environment |= {name for word in command.texts for name in _ENV.findall(word)}
            if command.name in ("if", "elseif", "else", "endif"):
                self._branch(command)
            elif command.name in _BLOCKS:
                self.branches.append(_Branch(True if command.name in ("foreach", "block") else None))
            elif command.name.removeprefix("end") in _BLOCKS:
                if self.branches:
                    self.branches.pop()
            elif command.name == "return":
                if self.certain is True:
                    self.base = False  # the rest of the file is not run
                elif self.certain is None:
                    self.base = None if self.base else self.base
            else:
                self._step(command)

    def _branch(self, command: Command) -> None:
        if command.name == "endif":
            if self.branches:
                self.branches.pop()
        elif command.name == "if":
            self.branches.append(_Branch(*self._condition(command.words)))
        elif self.branches:
            truth, names = self._condition(command.words) if command.name == "elseif" else (True, ())
            self.branches[-1].next(truth, names)

    def _condition(self, words: tuple[Word, ...]) -> tuple[Truth, tuple[str, ...]]:
        """Its truth, and the environment variables that it asks for."""
        names = [name for word in words for name in _ENV.findall(word.text)]
        names += [self.walker.from_environment[w.text] for w in words if w.text in self.walker.from_environment]
        return _Condition(self.walker, list(words)).truth(), tuple(dict.fromkeys(names))

    def _step(self, command: Command) -> None:
        certain = self.certain
        walker = self.walker
        if command.name == "set" and len(command.words) > 0 and not command.texts[0].startswith("ENV{"):
            self._set(command.texts[0], command.texts[1:], certain)
        elif command.name in (
            "option",
            "unset",
            "list",
            "string",
            "find_program",
            "find_package",
            "get_filename_component",
        ):
            for word in command.words:
                if word.text in walker.values:
                    walker.values[word.text] = (walker.values[word.text][0], False)
        words = tuple(Word(walker.text(word.text), word.quoted) for word in command.words)
        redirects = tuple(name for branch in reversed(self.branches) for name in branch.redirects)
        seen = Command(command.name, words, command.file, command.line, certain, tuple(dict.fromkeys(redirects)))
        walker.walk.commands.append(seen)
        if command.name in ("include", "add_subdirectory") and words:
            self._follow(words[0].text, command, certain)

    def _set(self, name: str, values: list[str], certain: Truth) -> None:
        walker = self.walker
        cached = "CACHE" in values  # a default, which a -D on the command line goes before
        plain = values[: values.index("CACHE")] if cached else [value for value in values if value != "PARENT_SCOPE"]
        if found := [word for value in values for word in _ENV.findall(value)]:
            walker.from_environment[name] = found[0]
        elif certain is not False:
            walker.values[name] = (walker.text(";".join(plain)), certain is True and not cached)

    def _follow(self, text: str, command: Command, certain: Truth) -> None:
        place = self.path.parent / text
        if command.name == "add_subdirectory":
            place /= "CMakeLists.txt"
        if certain is False or _FETCHED.search(text):
            return
        if "$" in text:
            where = f"{self.path.relative_to(self.walker.tree)}:{command.line}"
            self.walker.walk.unresolved.append(f"{command.name}({text}) at {where}")
        elif place.is_file() and place.resolve().is_relative_to(self.walker.tree.resolve()):
            self.walker.file(place, certain)
        else:  # a module by name, from the tree or from CMake itself
            for found in self.walker.tree.rglob(f"{Path(text).name}.cmake"):
                self.walker.file(found, certain)


class _Branch:
    """An if with its elses: whether the present part is run, and which variables led past the others."""

    def __init__(self, truth: Truth, names: Iterable[str] = ()) -> None:
        self.certain, self.own, self.earlier, self.names, self.missed = truth, truth, [truth], tuple(names), ()

    @property
    def redirects(self) -> tuple[str, ...]:
        """Variables that lead elsewhere when they are set: those of earlier parts, and of `NOT DEFINED` here."""
        return self.missed if self.own is False else (*self.names, *self.missed)

    def next(self, truth: Truth, names: Iterable[str]) -> None:
        self.certain = _all([truth, *(_not(one) for one in self.earlier)])
        self.missed = (*self.missed, *self.names)
        self.names, self.own = tuple(names), truth
        self.earlier.append(truth)


class _Condition:
    """A condition of `if`, by descent: OR, AND, NOT, comparisons."""

    def __init__(self, walker: _Walker, words: list[Word]) -> None:
        self.walker, self.words, self.at = walker, words, 0

    def truth(self) -> Truth:
        return self._either() if self.words else False

    def _peek(self) -> Word | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def _is(self, *texts: str) -> bool:
        word = self._peek()
        return word is not None and not word.quoted and word.text in texts

    def _next(self) -> Word:
        word = self._peek() or Word("", quoted=True)
        self.at += 1
        return word

    def _chain(self, operator: str, part: Callable[[], Truth]) -> list[Truth]:
        parts = [part()]
        while self._is(operator):
            self.at += 1
            parts.append(part())
        return parts

    def _either(self) -> Truth:
        return _not(_all([_not(one) for one in self._chain("OR", self._both)]))

    def _both(self) -> Truth:
        return _all(self._chain("AND", self._negated))

    def _negated(self) -> Truth:
        if self._is("NOT"):
            self.at += 1
            return _not(self._negated())
        return self._one()

    def _one(self) -> Truth:
        if self._is("("):
            self.at += 1
            truth = self._either()
            self.at += 1
            return truth
        word = self._next()
        if not word.quoted and word.text == "DEFINED":
            name = self._next().text
            return False if name.startswith("ENV{") else None if self.walker.certain(name) is None else True
        if not word.quoted and word.text in _UNARY:
            operand = self._next().text
            return False if "$ENV{" in operand else None
        if self._is(*_BINARY):
            operator = self._next().text
            return self._compare(word, operator, self._next())
        return self._value(word)

    def _value(self, word: Word) -> Truth:
        text = word.text if word.quoted else self.walker.text(word.text)
        if text.upper() in _TRUE or text.upper() in _FALSE:
            return text.upper() in _TRUE
        if text in self.walker.from_environment or "$ENV{" in text:
            return False
        value = self.walker.certain(text)
        return None if value is None else value.upper() not in _FALSE and not value.endswith("-NOTFOUND")

    def _compare(self, left: Word, operator: str, right: Word) -> Truth:
        values = [self._operand(left), self.walker.text(right.text)]
        if values[0] is None or any("$" in value for value in values if operator != "MATCHES" or value == values[0]):
            return None
        if operator in ("STREQUAL", "PATH_EQUAL"):
            return values[0] == values[1]
        if operator == "MATCHES":
            try:
                return re.search(values[1], values[0]) is not None
            except re.error:
                return None
        return None

    def _operand(self, word: Word) -> str | None:
        if word.quoted or "$" in word.text:
            text = self.walker.text(word.text)
            sure = all(self.walker.certain(found["name"]) is not None for found in _NAME.finditer(word.text))
            return text if sure else None
        return self.walker.certain(word.text)


def _all(parts: Iterable[Truth]) -> Truth:
    parts = list(parts)
    return False if False in parts else None if None in parts else True


def _not(part: Truth) -> Truth:
    return None if part is None else not part
