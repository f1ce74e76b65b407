"""Finds function definitions in C++ text: name, first line, last line, number of parameters.

A scanner of braces, not a compiler: comments, literals and preprocessor lines are blanked, then every
'{' at namespace or class scope is classified by what stands before it.
"""

import re
from dataclasses import dataclass

_BLANK = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
    re.S)
_PREPROCESSOR = re.compile(r'^[ \t]*#(?:\\\n|[^\n])*', re.M)
_SCOPE = re.compile(r'^(?:\[\[[^\]]*\]\]\s*)*(?:inline\s+)?(?:namespace\b|extern\s*""\s*$)')
_TYPE = re.compile(r'\b(?:class|struct|union|enum)\b[^()=]*(?:\([^()]*\)[^()=]*)?$')
_TRAILER = re.compile(
    r'\)\s*(?:const|noexcept|override|final|mutable|volatile|&&?|\s|__attribute__\(\([^)]*\)\)+|->\s*[\w:<>,&*\s]+)*$')
_INITIALISER = re.compile(r'\)\s*(?:noexcept\s*)?:(?!:)')


@dataclass
class Function:
    name: str
    first_line: int
    last_line: int
    num_parameters: int

    @property
    def num_lines(self):
        return self.last_line - self.first_line + 1


def _blank(match):
    text = match.group(0)
    if text[0] in '"R':
        return '""' + ''.join('\n' if c == '\n' else ' ' for c in text[2:])
    return ''.join('\n' if c == '\n' else ' ' for c in text)


def strip(text):
    """The text with comments and literals blanked; lines and columns stay."""
    return _BLANK.sub(_blank, text)


def _closing(text, at):
    """Index of the bracket that closes the one at `at`, or the end of the text."""
    depth = 0
    for i in range(at, len(text)):
        if text[i] in '({[':
            depth += 1
        elif text[i] in ')}]':
            depth -= 1
            if depth == 0:
                return i
    return len(text) - 1


def _count_parameters(head):
    """Parameters of the first parameter list of a function head."""
    at = head.find('(', head.find('operator()') + 10) if 'operator()' in head else head.find('(')
    inside = head[at + 1:_closing(head, at)].strip()
    if inside in ('', 'void'):
        return 0
    depth = count = 0
    for c in inside:
        if c in '([{<':
            depth += 1
        elif c in ')]}>':
            depth -= 1
        elif c == ',' and depth == 0:
            count += 1
    return count + 1


def _name(head):
    before = head[:head.find('(')].split()
    return before[-1].lstrip('*&') if before else '?'


def _opens_scope(head):
    """Does this brace open a namespace or a type, whose members are declarations of their own?"""
    if head == '' or _SCOPE.match(head):
        return True
    return bool(_TYPE.search(head)) and not _TRAILER.search(head)


def _is_member_initialiser(head):
    """Type(int a) : a_{a}, ...: a brace of the initialiser list; the body comes later."""
    return bool(_INITIALISER.search(head) and re.search(r'[\w>]$', head)) and not _TRAILER.search(head)


def _is_function(head):
    if '(' not in head:
        return False
    before = re.sub(r'operator\s*\S+', '', head[:head.find('(')])
    if '=' in re.sub(r'<[^<>]*>', '', before):
        return False  # a variable and its initialiser
    return bool(_TRAILER.search(head) or _INITIALISER.search(head))


def functions(text):
    code = _PREPROCESSOR.sub(_blank, strip(text))
    found = []
    at = start = 0  # start: where the current declaration began
    while at < len(code):
        if code[at] in ';}':
            start = at + 1
        elif code[at] in '([':
            at = _closing(code, at)
        elif code[at] == '{':
            head = code[start:at].strip()
            end = _closing(code, at)
            if _opens_scope(head):
                start = at + 1
            elif _is_member_initialiser(head):
                at = end
            elif _is_function(head):
                begin = at - len(code[start:at].lstrip())
                parameters = _count_parameters(re.sub(r'^template\s*<[^{]*?>\s*', '', head))
                found.append(Function(_name(head), code.count('\n', 0, begin) + 1,
                                      code.count('\n', 0, end) + 1, parameters))
                at = end
                start = end + 1
            else:
                at = end  # an initialiser
        at += 1
    return found
