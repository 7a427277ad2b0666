"""The types that sources define at the scope of a namespace. Two types of one qualified name in one program are
undefined behaviour that neither compilers nor linkers report: of two destructors, the linker takes one for both."""
import re

# What has no braces and words for this check: comments, literals and preprocessor lines.
SKIPPED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^(\n]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'"""
    r"""|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*""", re.DOTALL | re.MULTILINE)
NAMESPACE = re.compile(r"\bnamespace(?:\s+([\w:]+))?\s*$")
# The head of a definition: the name, perhaps of a specialisation, after attributes and macros.
TYPE = re.compile(
    r"\b(?:enum\s+class|enum|class|struct|union)\s+(?:\[\[[^\]]*\]\]\s*|\w+\([^)]*\)\s*)*"
    r"(\w[\w:]*)\s*(<[^{]*?>)?\s*(?:final\s*)?(?::[^{]*)?$")
ANONYMOUS = object()


def defined_types(lines):
    """Returns the qualified name and the line of each type that is defined in a namespace, but for anonymous
    namespaces, whose types no other source can see; nothing when the braces do not match."""
    text = SKIPPED.sub(lambda skipped: "\n" * skipped.group(0).count("\n"), "\n".join(lines))
    types, scopes, begin = [], [], 0  # of scopes: the namespace's name, or None for other braces
    for mark in re.finditer(r"[{};]", text):
        head, begin = text[begin:mark.start()], mark.end()
        if mark.group(0) == "}":
            if not scopes:
                return None
            scopes.pop()
        elif mark.group(0) == "{":
            space, found = NAMESPACE.search(head), TYPE.search(head)
            if found and all(isinstance(scope, str) for scope in scopes):
                name = found.group(1) + re.sub(r"\s", "", found.group(2) or "")
                types.append(("::".join(scopes + [name]), text.count("\n", 0, mark.start()) + 1))
            scopes.append((space.group(1) or ANONYMOUS) if space else None)
    return None if scopes else types
