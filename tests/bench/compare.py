#!/usr/bin/env python3
"""AllReduce by arcommd, Gloo and Open MPI on this machine, in one run, in turns; see README.md beside it."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from local_daemon import LocalCluster, LocalDaemon

SIZES = ["1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M"]
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bytes_of(size: str) -> int:
    return int(size[:-1]) * UNITS[size[-1]] if size[-1] in UNITS else int(size)


def human(size: int) -> str:
    for unit in ("M", "K"):
        if size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]}{unit}"
    return str(size)


class Results:
    """Samples by (system, algorithm, ranks, dtype, bytes)."""

    def __init__(self):
        self.samples: dict[tuple, list[float]] = {}
        self.wrong: dict[str, int] = {}

    def add(self, system, algorithm, ranks, dtype, size, samples, wrong):
        self.samples.setdefault((system, algorithm, ranks, dtype, size), []).extend(samples)
        self.wrong[system] = self.wrong.get(system, 0) + wrong

    def best(self, system, ranks, dtype, size) -> tuple[float, str] | None:
        """The median of the system's fastest algorithm, and its name."""
        found = [(statistics.median(samples), key[1]) for key, samples in self.samples.items()
                 if (key[0], *key[2:]) == (system, ranks, dtype, size)]
        return min(found) if found else None


def run(command, environment, seconds):
    """The lines on stdout, or None with a line on stderr: a peer that fails is reported and left out."""
    try:
        done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, timeout=seconds)
    except (subprocess.TimeoutExpired, OSError) as failure:
        print(f"{command[0]}: {failure}", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr.strip()[-600:]}", file=sys.stderr)
        return None
    return done.stdout


def measure_ours(build, environment, ranks, dtype, sizes, rounds, results):
    # One call over the whole ladder, with the factor between its sizes: one communicator, as the peers have.
    factor = sizes[1] // sizes[0] if len(sizes) > 1 else 2
    out = run([build / "client/arctl/arctl", "bench", "--json", "--place", "out", "-r", ranks, "-d", dtype, "-b", sizes[0],
               "-e", sizes[-1], "-f", factor, "--rounds", rounds, "--timeout", 120], environment, 1800)
    for row in json.loads(out)["rows"] if out else []:
        results.add("arcommd", "auto", ranks, dtype, row["bytes"], row["samples_us"], row["wrong"])


def measure_nodes(build, runtime_dirs, dtype, sizes, rounds, results):
    """A rank on each of several daemons."""
    measure_peer([build / "tests/bench/nodes_peer", "--runtime", ",".join(runtime_dirs), "--sizes", ",".join(map(str, sizes)),
                  "--dtype", dtype, "--rounds", rounds], os.environ, results)


def measure_peer(command, environment, results):
    for line in (run(command, environment, 1800) or "").splitlines():
        row = json.loads(line)
        results.add(row["system"], row["algorithm"], row["ranks"], row["dtype"], row["bytes"], row["samples_us"], row["wrong"])


def peers(build, ranks, dtype, sizes, rounds, over_tcp=False):
    """Name and command of every peer that was built. Gloo has TCP alone."""
    arguments = ["--sizes", ",".join(map(str, sizes)), "--dtype", dtype, "--ranks", ranks, "--rounds", rounds]
    gloo, mpi = build / "tests/bench/gloo_peer", build / "tests/bench/mpi_peer"
    if gloo.exists():
        yield "gloo", [gloo, *arguments]
    if mpi.exists() and shutil.which("mpirun"):
        command = ["mpirun", "-np", ranks, "--oversubscribe", "--mca", "btl", "self,tcp" if over_tcp else "self,vader"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        yield "openmpi", [*command, mpi, *arguments]


def table(results, config) -> tuple[str, list[dict]]:
    lines, rows = [], []
    heading = (f"{'dtype':9} {'ranks':>5} {'bytes':>6} {'arcommd':>11} {'gloo':>11} {'':16} {'openmpi':>11} {'best/ours':>9} "
               f"{'floor':>11} {'ours/floor':>10}")
    lines.append(heading)
    for dtype in config["dtypes"]:
        for ranks in config["ranks"]:
            for size in config["sizes"]:
                ours = results.best("arcommd", ranks, dtype, size)
                gloo = results.best("gloo", ranks, dtype, size)
                mpi = results.best("openmpi", ranks, dtype, size)
                copy = results.best("copy", ranks, "float32", size)
                # A copy reads and writes the same bytes that an out-of-place AllReduce must: every input once and
                # every output once.
                row = {"dtype": dtype, "ranks": ranks, "bytes": size, "arcommd_us": ours and ours[0], "gloo_us": gloo and gloo[0],
                       "gloo_algorithm": gloo and gloo[1], "openmpi_us": mpi and mpi[0], "floor_us": copy and copy[0]}
                fastest = min((peer[0] for peer in (gloo, mpi) if peer), default=None)
                row["speedup"] = fastest / ours[0] if fastest and ours else None
                # Of a few bytes it is less than what is counted.
                row["over_floor"] = ours[0] / copy[0] if ours and copy and copy[0] else None
                rows.append(row)
                shown = lambda value, width, places=1: f"{value:{width}.{places}f}" if value is not None else f"{'-':>{width}}"
                lines.append(f"{dtype:9} {ranks:5} {human(size):>6} {shown(row['arcommd_us'], 11)} {shown(row['gloo_us'], 11)} "
                             f"{row['gloo_algorithm'] or '':16} {shown(row['openmpi_us'], 11)} {shown(row['speedup'], 9, 2)} "
                             f"{shown(row['floor_us'], 11)} {shown(row['over_floor'], 10, 2)}")
    return "\n".join(lines), rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=Path("build/bench"))
    parser.add_argument("--sizes", default=",".join(SIZES), help="ascending, the same factor from one to the next")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--between-nodes", action="store_true",
                        help="a daemon for each rank, which talk over TCP on the loopback interface, as the peers do")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--turns", type=int, default=3, help="how often each system has its turn")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds per turn and size")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="begin no further turn after so long; the first is always done")
    parser.add_argument("--only", choices=["arcommd", "gloo", "openmpi"], help="one system alone")
    parser.add_argument("--tune", action="store_true", help="run arctl tune first")
    parser.add_argument("--json", type=Path, help="write everything that was measured here")
    options = parser.parse_args()
    build = options.build.resolve()
    sizes = [bytes_of(size) for size in options.sizes.split(",")]
    ranks_list = [int(ranks) for ranks in options.ranks.split(",")]
    dtypes = options.dtypes.split(",")
    results = Results()
    present = {name for name, _ in peers(build, 2, "float32", sizes, 1)}
    for missing, package in (("gloo", "libgloo-dev"), ("openmpi", "libopenmpi-dev and openmpi-bin")):
        if missing not in present:
            print(f"{missing} is not in this build: install {package} and configure again", file=sys.stderr)
    started = time.monotonic()
    with LocalDaemon(build) as environment:
        if options.tune and not options.between_nodes:
            run([build / "client/arctl/arctl", "tune"], environment, 900)
        for turn in range(options.turns):
            if turn > 0 and options.budget and time.monotonic() - started > options.budget:
                break
            turns = turn + 1
            for ranks in ranks_list:
                if not options.only and not options.between_nodes:
                    measure_peer([build / "tests/bench/copy_rate", "--sizes", ",".join(map(str, sizes)), "--ranks", ranks,
                                  "--rounds", options.rounds], environment, results)
                for dtype in dtypes:
                    if options.only in (None, "arcommd") and options.between_nodes:
                        with LocalCluster(build, ranks) as runtime_dirs:
                            measure_nodes(build, runtime_dirs, dtype, sizes, options.rounds, results)
                    elif options.only in (None, "arcommd"):
                        measure_ours(build, environment, ranks, dtype, sizes, options.rounds, results)
                    for name, command in peers(build, ranks, dtype, sizes, options.rounds, options.between_nodes):
                        if options.only in (None, name):
                            measure_peer(command, environment, results)
                    print(f"turn {turn + 1} of {options.turns}: {ranks} ranks {dtype} done, {time.monotonic() - started:.0f} s",
                          file=sys.stderr)
    text, rows = table(results, {"dtypes": dtypes, "ranks": ranks_list, "sizes": sizes})
    print(f"\nmicroseconds per out-of-place AllReduce: median over {turns * options.rounds} rounds of the slowest rank\n")
    print(text)
    for system, wrong in sorted(results.wrong.items()):
        if wrong:
            print(f"{system}: {wrong} wrong elements")
    if options.json:
        options.json.write_text(json.dumps({"cores": os.cpu_count(), "turns": turns, "rounds": options.rounds, "rows": rows,
                                            "wrong": results.wrong,
                                            "samples_us": [{"system": key[0], "algorithm": key[1], "ranks": key[2], "dtype": key[3],
                                                            "bytes": key[4], "samples": samples}
                                                           for key, samples in results.samples.items()]}, indent=1))
    return 1 if results.wrong.get("arcommd") else 0


if __name__ == "__main__":
    sys.exit(main())
