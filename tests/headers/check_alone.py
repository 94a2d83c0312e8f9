#!/usr/bin/env python3
"""Whether every header compiles alone, so that an include which a header forgot is found here and not by its next user.

  check_alone.py BUILD        the headers that the rooms name (arcomm_room), as the build folder BUILD compiles them

The target all_verify_interface_header_sets asks the same of any compiler, and parses each header's includes anew. Here
clang parses what many of them include once, as precompiled headers, which takes a third of that. A header is only ever
compiled upon another that it includes, itself or by way of those that it includes, so nothing is there that it has not
asked for. One that does not compile so is compiled without, and that is the verdict.
"""
import argparse
import collections
import concurrent.futures
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

# With twice as many it takes no less.
MOST_PRECOMPILED = 16

VERIFIED = re.compile(r"_verify_interface_header_sets/(.+)\.cxx$")
DIRECTIVE = re.compile(r'^\s*#\s*(if|endif|include)\w*\b\s*(?:"([^"]+)"|<([^>]+)>)?')


def commands_of(build):
    """What the build compiles headers with, and the headers as it names them. What only some of them are compiled with
    (definitions for a library that they use) is there for all: precompiled headers go with one set of definitions."""
    headers, words = {}, {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        found = VERIFIED.search(entry["file"])
        if not found:
            continue
        command = shlex.split(entry["command"])
        headers[found.group(1)] = None
        for at, word in enumerate(command):
            if word.startswith(("-D", "-I", "-std=")):
                words[word] = None
            elif word == "-isystem":
                words[f"-isystem{command[at + 1]}"] = None
    return list(headers), list(words)


class Includes:
    """What headers include, read off their text. What stands under a condition counts for nothing."""

    def __init__(self, headers, folders):
        self.folders = folders
        self.paths = {header: self.path_of(header) for header in headers}
        for header, path in self.paths.items():
            if path is None:
                raise SystemExit(f"{header} is in none of {', '.join(map(str, folders))}: configure the build anew")

    @functools.lru_cache(maxsize=None)
    def path_of(self, name):
        """None for a library's."""
        return next((folder / name for folder in self.folders if (folder / name).exists()), None)

    @staticmethod
    def read(path):
        names, depth = [], 0
        for line in path.read_text().splitlines():
            found = DIRECTIVE.match(line)
            if not found:
                continue
            word, quoted, angled = found.groups()
            depth += {"if": 1, "endif": -1, "include": 0}[word]
            if word == "include" and depth == 0 and (quoted or angled):
                names.append(quoted or angled)
        return names

    @functools.lru_cache(maxsize=None)
    def all_of(self, name):
        found = {name}
        path = self.path_of(name)
        for one in self.read(path) if path else []:
            found |= self.all_of(one)
        return frozenset(found)

    @functools.lru_cache(maxsize=None)
    def weight(self, name):
        """Roughly what it takes to parse."""
        return sum(1 if self.path_of(one) else 8 for one in self.all_of(name)) if name else 0


def choose_bases(includes):
    """The headers worth precompiling, and for each header the one to compile it upon, or None."""
    headers = list(includes.paths)
    users = collections.defaultdict(list)
    for header in headers:
        for name in includes.all_of(header) - {header}:
            if name in includes.paths:
                users[name].append(header)
    upon, bases = dict.fromkeys(headers), []

    def gain(base):
        return sum(max(0, includes.weight(base) - includes.weight(upon[user])) for user in users[base])
    while len(bases) < MOST_PRECOMPILED:
        best = max((header for header in headers if header not in bases), key=gain, default=None)
        if best is None or gain(best) <= includes.weight(best) / 2:
            break
        bases.append(best)
        for user in users[best]:
            if includes.weight(best) > includes.weight(upon[user]):
                upon[user] = best
    return sorted(bases, key=includes.weight, reverse=True), upon  # the longest first


class Compiler:
    def __init__(self, clang, words, includes, folder):
        self.command = [clang, *words, "-x", "c++-header"]
        self.includes = includes
        self.folder = Path(folder)

    def precompiled(self, header):
        return self.folder / (header.replace("/", "+") + ".pch")

    def run(self, header, base, *more):
        upon = ["-include-pch", str(self.precompiled(base))] if base else []
        return subprocess.run([*self.command, str(self.includes.paths[header]), *upon, *more],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def precompile(self, header):
        # Upon none: chains of them crash clang 14. With what its templates come to: else each of its users would do that
        # anew.
        self.run(header, None, "-fpch-instantiate-templates", "-o", str(self.precompiled(header)))

    def errors_of(self, header, base):
        """Empty where it compiles alone."""
        if self.precompiled(header).exists():
            return ""
        usable = base and self.precompiled(base).exists()
        if usable and self.run(header, base, "-fsyntax-only").returncode == 0:
            return ""
        tried = self.run(header, None, "-fsyntax-only")
        return tried.stdout if tried.returncode else ""


def check(includes, words, clang, jobs):
    """Every header that does not compile alone, with what the compiler says."""
    bases, upon = choose_bases(includes)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        compiler = Compiler(clang, words, includes, folder)
        list(pool.map(compiler.precompile, bases))
        headers = list(includes.paths)
        errors = pool.map(lambda header: compiler.errors_of(header, upon[header]), headers)
        return {header: text for header, text in zip(headers, errors) if text}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("build", type=Path)
    options.add_argument("--clang", default="clang++")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    given = options.parse_args()
    headers, words = commands_of(given.build)
    if not headers:
        raise SystemExit(f"{given.build} verifies no headers: configure it first")
    folders = [Path(word[2:]) for word in words if word.startswith("-I")]
    wrong = check(Includes(headers, folders), words, given.clang, given.jobs)
    for header, text in wrong.items():
        print(f"{header} does not compile alone:\n{text}")
    print(f"{len(headers)} headers, {len(wrong)} that do not compile alone")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
