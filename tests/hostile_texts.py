"""Every regular expression of the project, and texts of any length that are chosen against one."""

import ast
import importlib
import re
from pathlib import Path
from typing import Any, NamedTuple

if hasattr(re, "_parser"):
    from re import _compiler as compiler  # type: ignore[attr-defined]
    from re import _constants as constants  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
else:  # Python 3.10
    import sre_compile as compiler  # type: ignore[no-redef]
    import sre_constants as constants  # type: ignore[no-redef]
    import sre_parse as parser  # type: ignore[no-redef]

ROOT = Path(__file__).parents[1]
PACKAGES = ("backend_plugin", "kfpytorch_common", "flytekitplugins")
_METHODS = ("search", "match", "fullmatch", "findall", "finditer", "sub", "split")
_REFERENCE = re.compile(rf"(\w+)\.({'|'.join(_METHODS)})\b")
_PATHS = 100  # A path through a pattern is one of its alternatives. More paths only repeat the same parts.
# Repetitions are tested short, long, and longer than any bounded repetition.
_LONG = 300
_Path = list[tuple[str, str]]
"""Parts of a text that a pattern matches. Each part has the text that may repeat there, or an empty text."""
_CHARACTERS = (constants.LITERAL, constants.NOT_LITERAL, constants.ANY, constants.IN)


class Use(NamedTuple):
    """A place in the source that applies a regular expression."""

    where: str
    pattern: "re.Pattern[Any]"
    methods: tuple[str, ...]


class Unknown(NamedTuple):
    """A place with a regular expression that is built at run time."""

    where: str
    source: str


def read_uses():
    """Return every use of `re` in the packages, and those that depend on local variables."""
    uses = []
    unknown = []
    paths = sorted(each for package in PACKAGES for each in (ROOT / package).rglob("*.py"))
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    everywhere = _find_methods("\n".join(sources.values()))
    for name, source in sources.items():
        if "import re\n" not in source:
            continue
        methods = {**everywhere, **_find_methods(source)}
        for node, target in _calls(ast.parse(source)):
            pattern = _evaluate(node, name)
            method = node.func.attr
            if pattern is None:
                unknown.append(Unknown(f"{name}: {ast.unparse(node.args[0])}", ast.unparse(node)))
            else:
                found = methods.get(target, {"search"}) if method == "compile" else {method}
                uses.append(Use(f"{name}:{node.lineno}", pattern, tuple(sorted(found))))
    return uses, unknown


def _find_methods(source):
    """Return the methods of patterns that are called, by the name of the variable or the attribute."""
    found = {}
    for name, method in _REFERENCE.findall(source):
        found.setdefault(name, set()).add(method)
    return found


def _calls(tree):
    """Yield the calls of `re`, each with the name that its result is assigned to."""
    targets = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            targets[id(node.value)] = target.id if isinstance(target, ast.Name) else ""
        elif isinstance(node, ast.keyword):
            targets[id(node.value)] = node.arg or ""
    for node in nodes:
        if isinstance(node, ast.Call) and _is_call_of_re(node.func):
            yield node, targets.get(id(node), "")


def _is_call_of_re(function):
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in ("compile", *_METHODS)
    )


def _evaluate(node, file):
    module = importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    flags = [each.value for each in node.keywords if each.arg == "flags"]
    if node.func.attr == "compile":
        flags += node.args[1:]
    try:
        arguments = [eval(ast.unparse(each), vars(module)) for each in (node.args[0], *flags)]
    except NameError:
        return None
    return re.compile(*arguments)


class Recipe(NamedTuple):
    """A text of any length that is slow to match for a pattern."""

    head: str
    pump: str
    is_head_last: bool = False

    def text(self, pattern, length):
        many = (self.pump * (length // len(self.pump) + 1))[: length - len(self.head)]
        text = many + self.head if self.is_head_last else self.head + many
        return text if isinstance(pattern.pattern, str) else text.encode("utf-8", "replace")[:length]


def recipes(pattern):
    """Return repetitions of each kind of character, and of texts that nearly match the pattern."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    found = {Recipe("", run) for run in "aZ0 \t\n\r\x00\x1b.-_/:,;\"'=()[]{}$\\✗é\ud800"}
    for path in (*_paths(tree, least=False), *_paths(tree, least=True)):
        for head, pump in _cuts(path):
            found |= {Recipe("", head or pump), Recipe(head, pump), Recipe(head, pump, is_head_last=True)}
    return sorted(found)


def _paths(tree, *, least):
    """Return parts of matching texts, each part in each of its forms and the others in their first form."""
    choices = [_choices(name, value, least=least) for name, value in tree]
    first = [each[0] for each in choices]
    found = [first]
    for at, others in enumerate(choices):
        found += [[*first[:at], other, *first[at + 1 :]] for other in others[1:]]
    return [[part for parts in path for part in parts] for path in found][:_PATHS]


def _choices(name, value, *, least):
    if name in _CHARACTERS:
        return [[(_character(name, value), "")]]
    if "REPEAT" in str(name):
        return _repetitions(*value, least=least)
    if name in (constants.ASSERT, constants.ASSERT_NOT, constants.AT, constants.GROUPREF):
        return [[]]
    inner = list(value[1]) if name is constants.BRANCH else [value[3]]
    return [path for each in inner for path in _paths(each, least=least)]


def _repetitions(low, high, body, *, least):
    inner = _paths(body, least=least)
    text = "".join(part for part, _ in inner[0])
    if not text:
        return [[]]
    first = [(text * low, text)] if least else [(text, text)]
    found = [first, [(text * min(int(high), _LONG), text)]]
    return found if len(body) == 1 and body[0][0] in _CHARACTERS else [*found, *inner]


def _cuts(path):
    """Yield each prefix of a path before a repetition, with the repeated text, and the complete path."""
    head = ""
    for text, pump in path:
        if pump:
            yield head, pump
        head += text
        if pump:
            yield head, pump
    if head:
        yield head, head


def _character(name, value):
    if name is constants.LITERAL:
        return chr(value)
    if name is constants.ANY:
        return "x"
    if name is constants.IN and value[0][0] is constants.LITERAL:
        return chr(value[0][1])
    accepts = compiler.compile(parser.SubPattern(parser.State(), [(name, value)]))
    candidates = (chr(each) for each in (*b"x0- ./\nX,:\"'()[]{}$=", *range(32, 0x250)))
    return next((each for each in candidates if accepts.match(each)), "x")
