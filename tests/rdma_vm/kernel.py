"""Debian's kernel for the emulated machine: fetched as a package, unpacked beside the build and never installed.

fetch(folder) returns a Kernel. What was fetched once is used again, whatever is newer by then.
Errors: Missing, which says what this machine lacks.
"""
import dataclasses
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile


class Missing(Exception):
    """Something that is not here and cannot be had."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    version: str
    image: pathlib.Path    # an ELF file, which qemu starts without the time that unpacking takes
    modules: pathlib.Path  # lib/modules/VERSION/kernel

    def with_dependencies(self, names):
        """The files of these modules and of all that they need, in the order in which they can be loaded."""
        known = {file.stem.replace("-", "_"): file for file in self.modules.rglob("*.ko")}
        order = []

        def add(name):
            file = known.get(name.replace("-", "_"))
            if file is None:
                raise FileNotFoundError(f"Linux {self.version} has no module {name} in what kernel.py keeps of its package")
            if file in order:
                return
            depends = re.search(rb"\0depends=([^\0]*)\0", file.read_bytes())
            for other in filter(None, depends[1].decode().split(",") if depends else []):
                add(other)
            order.append(file)

        for name in names:
            add(name)
        return order


# Of a package of 400 MB: what machines of tests may load.
KEPT_MODULES = ("drivers/infiniband/core", "drivers/infiniband/sw", "drivers/net/*.ko", "drivers/virtio", "net/core",
                "net/ipv4", "net/ipv6", "net/sched", "fs/configfs", "lib", "crypto", "arch/x86/crypto")


def fetch(folder: pathlib.Path) -> Kernel:
    complete, what = folder / "complete", "\n".join(KEPT_MODULES)
    if not complete.exists() or complete.read_text() != what:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            unpack(download(pathlib.Path(scratch)), folder)
        complete.write_text(what)
    [image] = folder.glob("vmlinux-*")
    version = image.name.removeprefix("vmlinux-")
    return Kernel(version, image, folder / "lib/modules" / version / "kernel")


def download(folder: pathlib.Path) -> pathlib.Path:
    if os.environ.get("ARCOMM_NO_APT"):
        raise Missing("there is no kernel yet, and ARCOMM_NO_APT is set, so that none was fetched")
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing("there is no kernel yet, and it is fetched with Debian's apt-get and dpkg-deb")
    why = ""
    # A fresh image of Debian knows no packages before its first update, which only root can do.
    for prepare in ([], ["apt-get", "update", "-qq"]):
        if prepare and os.geteuid() == 0:
            subprocess.run(prepare, capture_output=True, timeout=300)
        depends = subprocess.run(["apt-cache", "depends", "--important", "linux-image-amd64"],
                                 capture_output=True, text=True)
        named = re.search(r"Depends: (linux-image-\d\S+)", depends.stdout)
        if named is None:
            why = "apt knows no package linux-image-amd64"
            continue
        got = subprocess.run(["apt-get", "download", "-qq", named[1]],
                             cwd=folder, capture_output=True, text=True, timeout=600)
        packages = list(folder.glob("*.deb"))
        if got.returncode == 0 and packages:
            return packages[0]
        why = got.stderr.strip().splitlines()[-1] if got.stderr.strip() else "apt-get download failed"
    raise Missing(f"the package linux-image-amd64 cannot be fetched: {why} (apt-get update?)")


def unpack(package: pathlib.Path, folder: pathlib.Path):
    everything = folder / "package"
    subprocess.run(["dpkg-deb", "-x", package, everything], check=True)
    [compressed] = everything.glob("boot/vmlinuz-*")
    version = compressed.name.removeprefix("vmlinuz-")
    below = pathlib.Path("lib/modules") / version / "kernel"
    for pattern in KEPT_MODULES:
        for file in (everything / below).glob(pattern if pattern.endswith(".ko") else f"{pattern}/**/*.ko"):
            kept = folder / file.relative_to(everything)
            kept.parent.mkdir(parents=True, exist_ok=True)
            file.rename(kept)
    (folder / f"vmlinux-{version}").write_bytes(decompressed(compressed.read_bytes()))
    shutil.rmtree(everything)


def decompressed(image: bytes) -> bytes:
    """The ELF file within a bzImage: by the boot protocol its payload begins where the header says."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[(setup_sectors + 1) * 512 + offset:][:length]
    if not payload.startswith(b"\xfd7zXZ\0"):
        raise Missing("the kernel's image is packed in another way than with xz")
    return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
