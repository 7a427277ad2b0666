"""The targets that the CMakeLists.txt files declare, and the headers that their sources may include."""
import os
import re

DECLARE = re.compile(
    r"^ *(?:baton_(?:library|binary|test|benchmark|gpu_benchmark|fuzzer)|add_library|add_executable"
    r"|target_link_libraries)\s*\(\s*([^)]*)\)", re.MULTILINE)
SOURCES = (".cc", ".cu")
ROOT = "${CMAKE_SOURCE_DIR}/"
GENERATED = re.compile(r"^proto/.*\.pb\.h$")
# Third-party headers that only some modules may include, and the target that has them.
PACKAGES = [(re.compile(r"^(grpc|grpcpp)/"), "gRPC::grpc++"),
            (re.compile(r"^google/protobuf/"), "protobuf::libprotobuf")]
MAY_INCLUDE_TESTS = ("tests/", "bench/")


def plain(name):
    """The name x of the targets baton_x and baton::x."""
    return re.sub(r"^baton(::|_)", "", name)


class Targets:
    """The targets of the CMakeLists.txt files among `texts`, which maps paths to lines."""

    def __init__(self, texts):
        self.folders = {}  # of the CMakeLists.txt that declares the target, by target
        self.sources = {}  # paths, by target
        self.links = {}    # words after the target's name that are not sources, by target
        self.closures = {}
        for path, lines in texts.items():
            if os.path.basename(path) == "CMakeLists.txt":
                text = "\n".join(line.split("#")[0] for line in lines)
                for words in DECLARE.findall(text):
                    self.declare(os.path.dirname(path), words.split())

    def declare(self, folder, words):
        name = plain(words[0])
        self.folders.setdefault(name, folder)
        sources = self.sources.setdefault(name, set())
        links = self.links.setdefault(name, set())
        for word in words[1:]:
            if not word.endswith(SOURCES):
                links.add(plain(word))
            elif word.startswith(ROOT):
                sources.add(word[len(ROOT):])
            else:
                sources.add(os.path.join(folder, word))

    def closure(self, name):
        """The target and all targets that it links."""
        if name not in self.closures:
            found = self.closures[name] = {name}
            for link in self.links.get(name, ()):
                found |= self.closure(link)
        return self.closures[name]

    def owners(self, path):
        """The targets to which a file belongs: those that list the file, or the source beside a header. A
        header without a source belongs to the targets of its folder: those with sources there, and those
        that its CMakeLists.txt, or else the nearest one above, declares."""
        stem = os.path.splitext(path)[0]
        owners = {name for name, sources in self.sources.items() if any(stem + end in sources for end in SOURCES)}
        folder = os.path.dirname(path)
        if not owners:
            owners = {name for name, sources in self.sources.items()
                      if self.folders[name] == folder or folder in map(os.path.dirname, sources)}
        while not owners and folder:
            folder = os.path.dirname(folder)
            owners = {name for name in self.sources if self.folders[name] == folder}
        return owners

    def problem(self, path, header):
        """Why the source `path` must not include `header`, or nothing. Each module may include the headers of
        the targets that it links; tests and benchmarks may include all headers of tests."""
        owners = self.owners(path)
        if not owners:
            return "belongs to no target of a CMakeLists.txt"
        if header.startswith("tests/") and path.startswith(MAY_INCLUDE_TESTS):
            return None
        if GENERATED.match(header):
            providers = {"proto"}
        elif os.path.exists(header):
            providers = self.owners(header)
        else:
            providers = {package for pattern, package in PACKAGES if pattern.match(header)}
        if not providers or any(providers & self.closure(name) for name in owners):
            return None
        return (f"{header} belongs to {' or '.join(sorted(providers))}, which "
                f"{' or '.join(sorted(owners))} does not link (CMakeLists.txt)")
