#!/usr/bin/env python3
"""Runs programs of the build in an emulated machine with Debian's own kernel, which is older than most hosts'.

    run.py BUILD [--only WORD]...     exit 0: all of them passed; 77: this machine lacks something, and ARCOMM_VM is not
                                      "required"; 1: otherwise
A program passes when it ends with status 0 in its time and skips nothing that its entry in programs.toml does not name.
"""
import argparse
import os
import pathlib
import re
import shutil
import sys
import time
import tomllib

import kernel
import machine
from image import Image

HERE = pathlib.Path(__file__).resolve().parent
SLOWDOWN = 3  # README.md says why
BETWEEN_S = 5  # from the end of one program to the next one
ACCOUNTS = {"root": 0, "daemon": 1, "alice": 1000, "bob": 1001, "nobody": 65534}
GROUPS = {"root": 0, "daemon": 1, "users": 100, "alice": 1000, "bob": 1001, "nogroup": 65534}


def system(linux, modules):
    """What every machine has: its first process, busybox, accounts and these modules."""
    image = Image()
    image.add_device("/dev/console", 5, 1)  # what the kernel gives its first process
    image.add_file("/init", (HERE / "init").read_bytes(), executable=True)
    image.add_file("/bin/busybox", pathlib.Path("/bin/busybox").read_bytes(), executable=True)
    image.add_file("/etc/passwd", "".join(f"{name}:x:{uid}:{uid}::/tmp:/bin/sh\n" for name, uid in ACCOUNTS.items()))
    image.add_file("/etc/group", "".join(f"{name}:x:{gid}:\n" for name, gid in GROUPS.items()))
    image.add_file("/etc/nsswitch.conf", "passwd: files\ngroup: files\n")
    files = linux.with_dependencies(modules)
    for file in files:
        image.add_file(f"/lib/modules/{file.name}", file.read_bytes())
    image.add_file("/modules", "".join(f"/lib/modules/{file.name}\n" for file in files))
    return image


def add_script(image, number, name, seconds, lines):
    """One program of the list, as `init` expects it: the first line is for `init`, the whole is for the shell."""
    image.add_file(f"/programs/{number:03}", f"# {name} {seconds}\n{lines}\n")


def name_of(program):
    return program.get("name", pathlib.Path(program["run"]).name)


def add_programs(image, build, listed, programs):
    for path in listed["started"]:
        image.add_program(build / path)
    for number, program in enumerate(programs):
        path = build / program["run"]
        image.add_program(path)
        cases = f" --gtest_filter='{program['cases']}'" if "cases" in program else ""
        add_script(image, number, name_of(program), program["seconds"],
                   f"export ARCOMM_TEST_SLOWDOWN={SLOWDOWN}\n{program.get('prepare', ':')} || exit 1\n"
                   f"exec {path} --gtest_color=no{cases}")


def judge(program, ended):
    """In words what is wrong with how it ended; "" when nothing is."""
    if ended is None:
        return "did not run to its end"
    if ended.code == 137:
        return f"was killed: after {program['seconds']} s, if nobody else did it"
    if ended.code != 0:
        return f"ended with status {ended.code}"
    skipped = {found[1] for line in ended.output if (found := re.match(r"\[  SKIPPED \] (\S+) \(", line))}
    if skipped - set(program.get("may_skip", [])):
        return f"skipped {', '.join(sorted(skipped))}"
    if not any(line.startswith("[       OK ]") for line in ended.output):
        return "ran no case"
    return ""


def ensure_tools():
    for tool, package in {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static"}.items():
        if shutil.which(tool) is None:
            raise kernel.Missing(f"there is no {tool} here (apt-get install {package})")


def without(missing):
    """The exit status of a machine that lacks this."""
    required = os.environ.get("ARCOMM_VM") == "required"
    print(f"{'FAILED' if required else 'skipped'}: {missing}")
    return 1 if required else 77


def run(build, only):
    ensure_tools()
    listed = tomllib.loads((HERE / "programs.toml").read_text())
    programs = [one for one in listed["program"] if not only or any(word in name_of(one) for word in only)]
    began = time.monotonic()
    work = build / "tests/rdma_vm"
    linux = kernel.fetch(work / "kernel")
    image = system(linux, listed["modules"])
    add_programs(image, build, listed, programs)
    image.write(work / "initramfs")
    ready_after = time.monotonic() - began
    print(f"---- Linux {linux.version} and {len(programs)} programs: ready after {ready_after:.1f} s", flush=True)

    seconds = sum(one["seconds"] + BETWEEN_S for one in programs)
    story = machine.run(linux.image, work / "initramfs", work / "console.log", seconds,
                        heard=lambda line: print(line, flush=True))
    faults = 0
    for program in programs:
        name = name_of(program)
        ended = next((one for one in story.programs if one.name == name), None)
        wrong = judge(program, ended)
        faults += bool(wrong)
        print(f"{'FAILED' if wrong else 'passed'} {name:28} {f'{ended.seconds:5.1f} s' if ended else '':8} {wrong}")
    if story.broken:
        faults += 1
        print(f"FAILED the machine: {story.broken}; its last words:")
        print("\n".join((work / "console.log").read_text(errors="replace").splitlines()[-30:]))
    print(f"Linux {story.kernel}: up after {story.booted_after:.1f} s, off after {story.lasted:.1f} s")
    return 1 if faults else 0


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    words.add_argument("--only", action="append", help="programs with this word in their name")
    asked = words.parse_args()
    try:
        return run(asked.build, asked.only)
    except kernel.Missing as missing:
        return without(missing)


if __name__ == "__main__":
    sys.exit(main())
