"""One emulated machine: QEMU without KVM, so that it runs wherever the tests do.

run(...) boots it, hears what `init` says on the second serial line, and returns when it is off. Every wait has an end: a
machine that says nothing for too long, or is not through in time, is killed.
"""
import dataclasses
import os
import pathlib
import selectors
import subprocess
import time

SLOWEST_BOOT_S = 90


@dataclasses.dataclass
class Ended:
    name: str
    code: int
    seconds: float
    output: list


@dataclasses.dataclass
class Story:
    """What became of a machine. `broken` says in words why it did not end as it should; "" when it did."""
    booted_after: float = 0
    lasted: float = 0
    kernel: str = ""
    programs: list = dataclasses.field(default_factory=list)
    broken: str = ""


def run(kernel: pathlib.Path, initramfs: pathlib.Path, console: pathlib.Path, seconds: float, *,
        megabytes=2048, cores=2, heard=print) -> Story:
    # A second node with a quarter of the memory and no cores: small enough for a test to fill it.
    small = megabytes // 4
    # What makes emulated memory slow is left out: five levels of page tables, access checks of the kernel's, isolation.
    command = ["qemu-system-x86_64", "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
               "-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "max,-smap,-smep",
               "-smp", str(cores), "-m", f"{megabytes}M",
               "-object", f"memory-backend-ram,id=memory0,size={megabytes - small}M",
               "-object", f"memory-backend-ram,id=memory1,size={small}M",
               "-numa", f"node,memdev=memory0,cpus=0-{cores - 1}", "-numa", "node,memdev=memory1",
               "-kernel", kernel, "-initrd", initramfs,
               "-append", "console=ttyS0 quiet panic=-1 oops=panic tsc=reliable mitigations=off nokaslr no5lvl",
               "-serial", f"file:{console}", "-serial", "stdio"]
    # An own process group: an interrupt at the terminal is ours to pass on.
    qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            start_new_session=True)
    try:
        return listen(qemu, seconds, heard)
    finally:
        qemu.kill()
        qemu.communicate()


def listen(qemu, seconds, heard) -> Story:
    story, began, current = Story(), time.monotonic(), None
    deadline = began + SLOWEST_BOOT_S
    finished = False
    for line in lines_of(qemu.stdout, lambda: deadline):
        if line is None:
            story.broken = f"it was not through in time: {doing(story, current)} after {time.monotonic() - began:.0f} s"
            break
        if not line.startswith("@@ "):
            if line:
                heard(line)
            if current:
                current.output.append(line)
            continue
        word, *rest = line[3:].split()
        if word == "up":
            story.kernel = rest[1]
            story.booted_after = time.monotonic() - began
            deadline = began + story.booted_after + seconds
            heard(f"---- Linux {story.kernel} is up after {story.booted_after:.1f} s")
        elif word == "begin":
            current, since = Ended(rest[1], -1, 0, []), float(rest[0])
            heard(f"---- {current.name}")
        elif word == "end" and current:
            current.code, current.seconds = int(rest[2]), float(rest[0]) - since
            story.programs.append(current)
            current = None
        elif word == "down":
            finished = True
        else:
            story.broken = line[3:]
    if not story.broken and not finished:
        story.broken = f"it went off while {doing(story, current)}"
    if not story.broken:
        try:
            qemu.wait(20)
        except subprocess.TimeoutExpired:
            story.broken = "it does not go off"
    story.lasted = time.monotonic() - began
    return story


def doing(story, current):
    if current:
        return f"{current.name} was at work"
    return "no program was at work" if story.kernel else "it was booting"


def lines_of(pipe, deadline):
    """Line by line until the end, and None, once, when the deadline has passed."""
    unread = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0, deadline() - time.monotonic())):
                yield None
                return
            got = os.read(pipe.fileno(), 65536)
            if not got:
                return
            *lines, unread = (unread + got).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
