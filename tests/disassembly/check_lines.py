#!/usr/bin/env python3
"""Whether machine code moves each line of 128 bytes with one instruction of a whole warp.

LL128 (kernels/lines/ll128.cuh) rests on that: a line whose lanes store it in two groups can arrive in two parts, and
nothing but the order of instructions keeps a warp together. So each access to a packet, which is two accesses 512 bytes
apart, must follow a convergence of the warp with no branch, no call and no join of other ways in between, and under no
predicate. PTX is checked everywhere; the disassembly where there is a cuobjdump, from the CUDA toolkit or from the
packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm of PyPI. Needs no GPU.

  check_lines.py FILE...        texts that end in .ptx or .sass
  check_lines.py --nvcc NVCC [--cuobjdump CUOBJDUMP] [--build BUILD] [--arch 90a,100,...]     the kernels of this tree

With a disassembler and a build folder it looks at what was built, machine code for 90a and the PTX beside it, which
takes a third of the time; else, or where the build has no machine code, it compiles them itself.

By default for 90a, whose machine code is in the image, and for 100, for which a driver makes it of the PTX that is there,
too, by an assembler of its own. 80 and 120 can be asked for.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Of the codecs one for each layout of codes (kernels/codec/coded.cuh), with a transform and without.
KERNELS = ["in_stream/all_reduce.cu", "in_stream/coded.cu Fp8", "in_stream/coded.cu Q6", "in_stream/coded.cu Q4Rotated",
           "all_reduce/one_shot_ll128.cu", "all_reduce/two_shot_ll128.cu", "lines/ll128_self_test.cu"]
# Those that move packets, by what their names hold.
PACKETS = re.compile(r"ll128|_lines|store_packet")
PACKET_HALF = 512  # bytes between the two accesses of a lane


class Instruction:
    def __init__(self, label, text):
        self.label = label      # what branches name, or None
        self.text = text        # without predicate
        self.predicated = False
        self.kind = "other"     # converges, branches, access
        self.targets = []
        self.access = None      # (what, base, offset)
        self.joins_collective = False


def note_slow_ways(code):
    """Which branches come back from where parted lanes of a warp were gathered, one way or the other."""
    by_label = {one.label: at for at, one in enumerate(code)}
    gathers = {one.label for at, one in enumerate(code)
               if any(next_one.text.startswith("WARPSYNC") for next_one in code[at:at + 3])}
    for at, one in enumerate(code):
        if one.text.startswith("BRA.CONV"):  # sm_80: around the call that gathers them
            one.joins_collective = any(by.text.startswith("CALL") for by in code[at + 1:by_label.get(one.targets[0], at)])
        if not one.text.startswith("BRA ") or one.predicated:
            continue
        before = next((by for by in reversed(code[:at]) if by.kind != "other" or by.text.startswith("ENDCOLLECTIVE")),
                      None)
        if before is None:
            continue
        calls = before.text.startswith("CALL") and int(before.text.split("0x")[-1], 16) in gathers
        ends = before.text.startswith("ENDCOLLECTIVE")
        if before.text.startswith("BSYNC"):  # the last lanes of such a way meet
            ends = any(by.text.startswith("ENDCOLLECTIVE") for by in code[max(0, code.index(before) - 2):at])
        one.joins_collective = calls or ends


def written(one):
    """The registers that an instruction writes: its first operand, and those behind it that are of the same value."""
    found = re.match(r"(\S+) R(\d+)\b", one.text)
    if not found:
        return range(0)
    word, first = found.group(1), int(found.group(2))
    wide = 4 if ".128" in word else 2 if re.search(r"\.64|WIDE|^CS2R", word) else 1
    return range(first, first + wide)


def last_write(code, at, register):
    number = int(register[1:])
    return next((before for before in range(at - 1, -1, -1) if number in written(code[before])), -1)


def note_origins(code):
    """Two registers that are the same one and a constant are one address: sm_120 gives each line of a packet a copy."""
    for at, one in enumerate(code):
        if not one.access:
            continue
        what, base, offset = one.access
        made = last_write(code, at, base)
        adds = re.match(rf"IADD\.64 {base}, (R\d+)(?:\.reuse)?, (-?0x[0-9a-f]+)$", code[made].text) if made >= 0 else None
        if adds and not code[made].predicated and all(by.kind != "branches" for by in code[made:at]):
            base, offset, at = adds.group(1), offset + int(adds.group(2), 16), made
        one.access = (what, (base, last_write(code, at, base)), offset)


def parse_sass(text):
    """By function: its instructions in order."""
    functions, name = {}, None
    for line in text.splitlines():
        found = re.search(r"Function : (\S+)", line)
        if found:
            name = found.group(1)
            functions[name] = []
            continue
        found = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([^;]+);", line)
        if not found or name is None:
            continue
        address, predicate, code = found.groups()
        one = Instruction(int(address, 16), code.strip())
        one.predicated = predicate is not None
        word = one.text.split()[0]
        head = word.split(".")[0]
        # A NOP stands where a barrier was that the assembler proved to be needless.
        if word.startswith(("WARPSYNC.ALL", "BRA.DIV")) or word == "NOP":
            one.kind = "converges"
        elif head in ("BRA", "BRX", "JMP", "CALL", "RET", "EXIT", "BREAK", "BSYNC"):
            one.kind = "branches"
        if head == "BRA":
            one.targets = [int(hit, 16) for hit in re.findall(r"0x([0-9a-f]+)", one.text)[-1:]]
        found = re.match(r"(STG?|LDG?)\.E\.128\.STRONG\.SYS", word)
        if found:
            address = re.search(r"\[(R\d+)(?:\.\w+)*(?:\+(-?0x[0-9a-f]+))?\]", one.text)
            one.kind = "access"
            one.access = (found.group(1)[:2], address.group(1), int(address.group(2) or "0", 16))
        functions[name].append(one)
    for code in functions.values():
        note_slow_ways(code)
        note_origins(code)
    return functions


def parse_ptx(text):
    functions, name, registers, label = {}, None, {}, None
    for line in text.splitlines():
        found = re.match(r"(?:\.\w+ )*\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)", line)
        if found:
            name, registers, label = found.group(1), {}, None
            functions.setdefault(name, [])
            continue
        found = re.match(r"(\$L\w+):", line)
        if found:
            label = found.group(1)
            continue
        code = line.strip()
        if name is None or not re.match(r"(@!?%p\d+\s+)?[a-z][\w.]*(\s|;)", code):
            continue
        one = Instruction(label, re.sub(r"^@!?%p\d+\s+", "", code))
        one.predicated, label = code.startswith("@"), None
        word = one.text.split()[0].rstrip(";")
        head = word.split(".")[0]
        found = re.match(r"add\.s64\s+(%rd\d+), (%rd\d+), (-?\d+);", one.text)
        if found:
            registers[found.group(1)] = (found.group(2), int(found.group(3)))
        if word.startswith(("bar.warp.sync", "shfl.sync", "vote.sync")) and one.text.rstrip(";").endswith("-1"):
            one.kind = "converges"
        elif head in ("bra", "call", "ret", "exit", "brx"):
            one.kind = "branches"
            one.targets = re.findall(r"\$L\w+", one.text)
        found = re.match(r"(st|ld)\.volatile\.global\.v4\.u32", word)
        if found:
            register, offset = re.search(r"\[(%rd\d+)(?:\+(\d+))?\]", one.text).groups()
            base, more = registers.get(register, (register, 0))
            one.kind = "access"
            one.access = (found.group(1), base, more + int(offset or 0))
        functions[name].append(one)
    return functions


def packets_of(code, with_single_lines):
    """Indices of a packet's accesses: those of one kind that follow one another, half a packet apart; and, where kernels
    have no other lines, one whose other one is not recognised, as a packet of its own."""
    accesses = [i for i, one in enumerate(code) if one.access]
    taken = set()
    for first, second in zip(accesses, accesses[1:]):
        a, b = code[first].access, code[second].access
        if first not in taken and a[0] == b[0] and a[1] == b[1] and abs(b[2] - a[2]) == PACKET_HALF:
            taken.update((first, second))
            yield first, second
    for alone in accesses:
        if with_single_lines and alone not in taken:
            yield alone, alone


def why_apart(code, first, second, sources):
    """None where all lanes of a warp come to both accesses together."""
    def is_join(one):
        return any(not by.joins_collective for by in sources.get(one.label, []))
    for at in (first, second):
        if code[at].predicated:
            return f"{code[at].text}: only lanes with a predicate do it"
    for one in code[first + 1:second + 1]:
        if one.kind == "branches" or is_join(one):
            return f"the warp may part between its two lines, at {one.text}"
    for at in range(first, -1, -1):
        one = code[at]
        if any(by.text.startswith("BRA.CONV") and by.joins_collective for by in sources.get(one.label, [])):
            return None
        if at != first and one.kind == "branches":
            return f"{one.text} comes between it and the convergence of the warp"
        if at != first and one.kind == "converges" and not one.predicated:
            return None
        if is_join(one):
            return f"other ways join at {one.text}, behind the convergence of the warp"
    return "nothing makes the warp converge before it"


def check(name, functions):
    """Prints what is wrong; how many packets there were, and how many wrong ones."""
    # Heads, LL16 lines and what wipes them are single lines of a thread's own.
    only_packets = "in_stream" not in str(name) and not str(name).endswith(".ptx")
    packets = wrong = 0
    for function, code in functions.items():
        if not PACKETS.search(function) and not any(one.access for one in code):
            continue
        sources = {}
        for one in code:
            for target in one.targets:
                sources.setdefault(target, []).append(one)
        for first, second in packets_of(code, only_packets):
            packets += 1
            why = why_apart(code, first, second, sources)
            if why is None:
                continue
            wrong += 1
            print(f"{name}: {function}: {code[first].text}\n  {why}")
    return packets, wrong


def check_text(path):
    text = pathlib.Path(path).read_text()
    return check(path, parse_ptx(text) if str(path).endswith(".ptx") else parse_sass(text))


def run(*command):
    # cuobjdump starts nvdisasm, which lies beside it but need not be on PATH.
    path = f"{pathlib.Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PATH": path}).stdout


def disassembler(nvcc, given):
    """The cuobjdump to ask for machine code, or "" and why there is none."""
    beside = pathlib.Path(nvcc).resolve().parent / "cuobjdump"
    found = given or shutil.which("cuobjdump") or (str(beside) if beside.exists() else "")
    if not found:
        return "", "there is no cuobjdump (CUDA toolkit, or pip install nvidia-cuda-cuobjdump)"
    if not shutil.which("nvdisasm", path=f"{pathlib.Path(found).parent}{os.pathsep}{os.environ.get('PATH', '')}"):
        return "", f"{found} finds no nvdisasm (CUDA toolkit, or pip install nvidia-cuda-nvdisasm)"
    return found, ""


def built_of(kernel, build):
    """What the build has made of it: an object, or the image that travels inside the daemon."""
    file, _, codec = kernel.partition(" ")
    if not file.startswith("in_stream/"):
        return pathlib.Path(build, "kernels/CMakeFiles/arcomm_kernels_cuda.dir", file + ".o")
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", codec or "None").lower()
    return pathlib.Path(build, "kernels", f"in_stream_{words}.fatbin")


def texts_of(kernel, nvcc, cuobjdump, build, archs, folder):
    """Its PTX, and the disassembly for each of the architectures."""
    flags = ["-std=c++20", "--expt-relaxed-constexpr", "--fmad=false", f"-I{SOURCE}"]
    file, _, codec = kernel.partition(" ")
    if codec:  # what the kernels are called by does not matter here
        flags += [f"-DARC_CODEC={codec}", "-DARC_CODEC_TEXT=codec"]
    out = pathlib.Path(folder, file.replace("/", "_").replace(".cu", codec + ".cu"))
    built = built_of(kernel, build) if cuobjdump and build else None
    if built and not built.exists():
        sys.exit(f"{built} is not there: build first, or leave out --build")
    if built and "sm_90a" not in run(cuobjdump, "-lelf", built):
        built = None  # a build of PTX alone
    texts = [out.with_suffix(".ptx")]
    if built:
        texts[0].write_text(re.sub(r"\A.*?^(?=\.version)", "", run(cuobjdump, "-ptx", built), flags=re.S | re.M))
    else:
        run(nvcc, *flags, "-arch=compute_80", "-ptx", "-o", texts[0], SOURCE / "kernels" / file)
    for arch in archs if cuobjdump else []:
        # All but 90a is what a driver makes of the PTX that travels along.
        of = "90a" if arch == "90a" else "80"
        cubin, text = out.with_suffix(f".{arch}.cubin"), out.with_suffix(f".{arch}.sass")
        if of == "90a" and built:
            cubin = built
        else:
            source = SOURCE / "kernels" / file if of == "90a" else texts[0]
            more = flags if of == "90a" else []
            run(nvcc, *more, f"-gencode=arch=compute_{of},code=sm_{arch}", "-cubin", "-o", cubin, source)
        text.write_text(run(cuobjdump, "-sass", cubin))
        texts.append(text)
    return texts


def check_kernels(nvcc, cuobjdump, build, archs):
    failed = False
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda kernel: texts_of(kernel, nvcc, cuobjdump, build, archs, folder), KERNELS)
        for kernel, texts in zip(KERNELS, made):
            for text in texts:
                packets, wrong = check_text(text)
                print(f"{kernel} as {''.join(text.suffixes)}: {packets} packets moved, {wrong} by parted warps")
                failed |= wrong != 0 or packets == 0
    return failed


def main():
    options = argparse.ArgumentParser()
    options.add_argument("files", nargs="*")
    options.add_argument("--nvcc")
    options.add_argument("--cuobjdump", default="")
    options.add_argument("--build", default="")
    options.add_argument("--arch", default="90a,100")
    given = options.parse_args()
    failed = False
    for path in given.files:
        packets, wrong = check_text(path)
        print(f"{path}: {packets} packets moved, {wrong} by parted warps")
        failed |= wrong != 0 or packets == 0
    if given.nvcc:
        cuobjdump, why_not = disassembler(given.nvcc, given.cuobjdump)
        if not cuobjdump:
            print(f"{why_not}: PTX is checked, machine code is not")
        failed |= check_kernels(given.nvcc, cuobjdump, given.build, given.arch.split(","))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
