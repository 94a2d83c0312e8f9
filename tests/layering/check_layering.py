#!/usr/bin/env python3
"""Fails when the source tree breaks the rules that keep it readable: who may include whom, what lies at the top,
how headers begin, how files are not named. Prints one line per violation: file:line: what, and what to do instead.

  check_layering.py [folder]      the whole tree under the folder, by default the one this script lies in
"""
import os
import re
import subprocess
import sys
from pathlib import Path

# A room may include itself and the rooms listed. A file belongs to the longest room that is a prefix of its path.
# What the kernels are made of. A header says what a launch takes and the .cu behind it how that runs, so a folder may
# need one that needs it; what is listed in neither is apart, and stays so.
OF_KERNELS = {
    "launch": ["device", "lines", "all_reduce"],  # launch_cuda.cu knows every algorithm
    "device": ["launch", "network"],  # what a call carries
    "lines": ["device", "launch"],  # its self-test is launched
    "codec": ["device", "lines", "host"],
    "host": ["codec"],
    "all_reduce": ["device", "lines", "codec", "launch"],
    "in_stream": ["device", "lines", "codec", "all_reduce"],
    "network": ["device", "lines", "codec"],  # what travels may be encoded
    "resident": ["device", "lines", "codec", "launch"],
    "trial": ["device"],
}
KERNELS = ["kernels"] + [f"kernels/{room}" for room in OF_KERNELS]
BELOW_DAEMON = ["proto", "config", "transport/device", "transport/peer", "transport/net", "transport/topology"] + KERNELS
ABOVE_DEVICE = ["proto", "transport/device"]
DAEMON_ORDER = [["telemetry"], ["memory", "plan", "proxy"], ["comm"], ["session"], ["exec"], ["control"]]
# How matched operations run: exec itself has the interfaces and values, the rooms in it what is behind them. Those who
# drive workers see exec and these.
OF_EXEC = {"net": [], "host": ["net"], "gpu": ["net"], "worker": ["net"], "tune": ["host", "worker"]}
EXEC_FOR_CALLERS = {"control": ["worker"]}

# Folders of plan/ stand below the files beside them, but for these, which say values alone.
OF_PLAN = {
    "daemon/plan/tuning/": ("daemon/plan/gpu_paths.h",),
    "daemon/plan/network/": ("daemon/plan/tuning/", "daemon/plan/explanation.h", "daemon/plan/network_policy.h"),
}

ROOMS = {
    "proto": [],
    "config": ["proto"],
    "kernels": ["proto", "kernels/launch"],
    "transport/device": ["proto"],
    "transport/peer": ABOVE_DEVICE,
    "transport/net": ABOVE_DEVICE,
    "transport/topology": ABOVE_DEVICE,
    "client/include": [],
    "client/cuda": ABOVE_DEVICE,
    # Small operations on the host are reduced where they are called.
    "client/src": ABOVE_DEVICE + ["kernels", "kernels/host", "client/include", "client/cuda"],
    "client/arctl": ABOVE_DEVICE + ["client/include", "client/src"],
    "client/examples": ["client/include"],
}
for room, others in OF_KERNELS.items():
    ROOMS[f"kernels/{room}"] = ["proto", "kernels"] + [f"kernels/{other}" for other in others]
for level, siblings in enumerate(DAEMON_ORDER):
    below = [f"daemon/{room}" for lower in DAEMON_ORDER[:level] for room in lower]
    for room in siblings:
        ROOMS[f"daemon/{room}"] = BELOW_DAEMON + below + [f"daemon/exec/{own}" for own in EXEC_FOR_CALLERS.get(room, [])]
for room, others in OF_EXEC.items():
    ROOMS[f"daemon/exec/{room}"] = ROOMS["daemon/exec"] + ["daemon/exec"] + [f"daemon/exec/{other}" for other in others]
# daemon.cc, main.cc and their neighbours meet everything, operator/ among them: what they answer an operator with. Nothing
# in a room below includes them.
EVERYTHING = BELOW_DAEMON + [f"daemon/{room}" for siblings in DAEMON_ORDER for room in siblings] \
    + [f"daemon/exec/{room}" for room in OF_EXEC]
ROOMS["daemon"] = EVERYTHING + ["daemon/operator"]
ROOMS["daemon/operator"] = EVERYTHING + ["daemon"]

TOP_LEVEL = {"proto", "client", "kernels", "transport", "daemon", "config", "systemd", "tests",
             "CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "quickstart"}
NOT_SOURCE = {"build", "stage", "__pycache__"}
SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh"}
HEADER_SUFFIXES = {".h", ".hpp", ".cuh"}
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "manager", "common", "misc"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
GRPC_HEADER = re.compile(r"^(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h$")
GRPC_PLACES = re.compile(r"^daemon/control/|^client/src/control/control_")
CUDA_HEADER = re.compile(r"^(cuda|cuda_\w+|cuda\w*_api|nvml|driver_types|cooperative_groups|nccl)\.h$|^(cuda|cub|thrust)/")
CUDA_PLACES = re.compile(r"^kernels/.*\.cuh?$|^transport/(device|peer|topology)/([^/]*/)*[^/]*(cuda|nvml)[^/]*$"
                         r"|^transport/(device|peer|topology)/.*\.cuh?$|^client/(cuda|arctl/gpu)/([^/]*/)*cuda_[^/]*$")
BOOST_PLACES = re.compile(r"^proto/shared_mapping\.(h|cc)$")
CUDA_SWITCH = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*\b\w*(ARCOMM|HAVE|USE|WITH|ENABLE)_?\w*CUDA")


def files_of(root):
    """Paths relative to root: what git tracks or would track, or simply everything where there is no repository."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-c", f"safe.directory={root}", "ls-files", "--cached", "--others",
                                 "--exclude-standard"], cwd=root, capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            return sorted(path for path in listed.stdout.splitlines() if (root / path).is_file())
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_SOURCE and name != ".git"]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def room_of(path):
    rooms = [room for room in ROOMS if path.startswith(room + "/")]
    return max(rooms, key=len, default=None)


def check_include(path, included, is_quoted):
    if GRPC_HEADER.search(included) and not path.startswith("tests/") and not GRPC_PLACES.search(path):
        yield f"includes {included}: gRPC stays in daemon/control and in the client's control channel"
    if CUDA_HEADER.search(included) and not path.startswith("tests/") and not CUDA_PLACES.search(path):
        yield f"includes {included}: CUDA stays in kernels/**/*.cu(h) and the CUDA files of transport, client/cuda and " \
              "client/arctl/gpu"
    top = included.split("/")[0]
    if top == "boost" and not BOOST_PLACES.search(path):
        yield f"includes {included}: shared mappings have one owner, proto/shared_mapping.h"
    # Installed headers find each other beside themselves; Highway documents its own in quotes.
    is_elsewhere = path.startswith("client/include/") or top == "hwy"
    if is_quoted and top not in TOP_LEVEL and not is_elsewhere:
        yield f'includes "{included}": name project headers from the top of the tree, others in <>'
    for folder, below in OF_PLAN.items():
        if path.startswith(folder) and included.startswith("daemon/plan/") and not included.startswith((folder, *below)):
            yield f"includes {included}: {folder} may include {', '.join(below)} of daemon/plan"
    room = room_of(path)
    if room is None or top not in TOP_LEVEL:
        return
    target = room_of(included) or top
    if target != room and target not in ROOMS[room]:
        allowed = ", ".join(ROOMS[room]) or "nothing of this project"
        yield f"includes {included}: {room} may include {allowed}"


def check_header(path, lines):
    first = next((line for line in lines if line.strip()), "")
    if not first.startswith(("//", "/*")):
        yield 1, "does not begin with its contract: what it is, thread rule, ownership, units"
    # Public headers keep to what every compiler knows; Highway's -inl.h are included once per target on purpose.
    if not path.startswith("client/include/") and not path.endswith("-inl.h"):
        if not any(line.startswith("#pragma once") for line in lines):
            yield 1, "lacks #pragma once"
    for number, line in enumerate(lines, 1):
        if CUDA_SWITCH.search(line):
            yield number, "switches on CUDA in a header: let the build select another file"


def check_name(path):
    for part in Path(path).parts:
        words = re.split(r"[_.\-]", part.lower())
        for word in EMPTY_NAMES.intersection(words):
            yield f'"{word}" in a name says nothing: name the thing that lives there'


def check_file(root, path):
    yield from ((1, message) for message in check_name(path))
    if Path(path).suffix not in SOURCE_SUFFIXES:
        return
    lines = (root / path).read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            yield from ((number, message) for message in check_include(path, match[2], match[1] == '"'))
    if Path(path).suffix in HEADER_SUFFIXES:
        yield from check_header(path, lines)


def violations_in(root):
    files = files_of(root)
    found = []
    for entry in sorted({path.split("/")[0] for path in files}):
        if entry not in TOP_LEVEL and not entry.startswith("."):
            found.append(f"{entry}: does not belong at the top: put it into the room that needs it")
    for path in files:
        found += [f"{path}:{number}: {message}" for number, message in check_file(root, path)]
    return files, found


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    files, found = violations_in(root)
    sources = [path for path in files if Path(path).suffix in SOURCE_SUFFIXES]
    if not sources:
        sys.exit(f"{root}: no source files here")
    for violation in found:
        print(violation)
    print(f"{len(sources)} source files, {len(found)} violations")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
