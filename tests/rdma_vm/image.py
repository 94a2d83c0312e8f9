"""The file system of the emulated machine, made in memory: an initramfs in cpio's newc format.

Programs keep the paths that they have on this machine, so that what is compiled into them (the build folder, the library
beside it) is true inside, too. Everything belongs to root and can be read by everybody.
"""
import pathlib
import re
import stat
import subprocess
import tempfile


class Image:
    def __init__(self):
        self._entries = {}  # path without its first slash -> (mode, bytes, device numbers)

    def add_file(self, path, content, executable=False):
        content = content.encode() if isinstance(content, str) else content
        self._add(path, stat.S_IFREG | (0o755 if executable else 0o644), content)

    def add_device(self, path, major, minor):
        self._add(path, stat.S_IFCHR | 0o600, b"", (major, minor))

    def add_program(self, path):
        """A program or library of this machine with the libraries that it needs, without symbols."""
        path = pathlib.Path(path)
        if self._key(path) in self._entries:
            return
        self.add_file(path, stripped(path), executable=True)
        for library in libraries_of(path):
            self.add_program(library)

    def write(self, file: pathlib.Path):
        with file.open("wb") as out:
            for number, (key, (mode, content, device)) in enumerate(sorted(self._entries.items()), start=1):
                out.write(record(number, key, mode, content, device))
            out.write(record(0, "TRAILER!!!", 0, b"", (0, 0)))

    @staticmethod
    def _key(path):
        return str(path).lstrip("/")

    def _add(self, path, mode, content, device=(0, 0)):
        key = self._key(path)
        for parent in list(pathlib.PurePosixPath(key).parents)[:-1]:
            self._entries.setdefault(str(parent), (stat.S_IFDIR | 0o755, b"", (0, 0)))
        self._entries[key] = (mode, content, device)


def record(number, name, mode, content, device):
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name.encode()) + 1, 0]
    head = ("070701" + "".join(f"{field:08X}" for field in fields)).encode() + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)


def libraries_of(path):
    listed = subprocess.run(["ldd", path], capture_output=True, text=True)
    if "not found" in listed.stdout:
        raise FileNotFoundError(f"{path} needs a library that is not here: {listed.stdout}")
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listed.stdout, re.M)


def stripped(path):
    with tempfile.NamedTemporaryFile() as copy:
        smaller = subprocess.run(["strip", "--strip-unneeded", "-o", copy.name, path], capture_output=True)
        return pathlib.Path(copy.name if smaller.returncode == 0 else path).read_bytes()
