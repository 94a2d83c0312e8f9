#!/usr/bin/env python3
"""AllReduce on cores that other processes use, beside Gloo and Open MPI, in one run, in turns; see README.md beside it."""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from compare import Results, bytes_of, human, peers, run
from local_daemon import LocalDaemon

SIZES = ["4", "1K", "16K", "64K"]


class BusyProcesses:
    """So many processes that compute and nothing else, for as long as the block lasts."""

    def __init__(self, count: int):
        self.count = count

    def __enter__(self):
        loop = "import os\nwhile os.getppid() != 1:\n  for _ in range(1 << 20): pass"
        self.processes = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(self.count)]
        time.sleep(0.5 if self.count else 0)  # the scheduler has spread them
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def measure(name, command, case, options, results):
    """Every system by the same loop, for as long: a number of calls would be a moment when they are fast."""
    ranks, dtype, size = case
    out = command and run([*command, "--seconds", options.seconds, "--warmup", options.warmup], None, 300)
    for line in (out or "").splitlines():
        row = json.loads(line)
        results.add(name, row["algorithm"], ranks, dtype, size, row["samples_us"][options.settling:], row["wrong"])


def command_of_ours(build, environment, case, options):
    """Two ranks are bound to a core each, as mpirun binds two; Gloo's have threads beside them, and are not."""
    ranks, dtype, size = case
    return [build / "tests/bench/nodes_peer", "--runtime", ",".join([environment["ARCOMM_RUNTIME_DIR"]] * ranks), "--sizes", size,
            "--dtype", dtype, "--rounds", options.settling + options.rounds, "--bind-to", "core"]


def command_of_peer(name, build, case, options):
    ranks, dtype, size = case
    return dict(peers(build, ranks, dtype, [size], options.settling + options.rounds)).get(name)


def table(measured, names, options, sizes) -> tuple[str, list[dict]]:
    """Medians, and beside them the means of our last build and of the peer that has the least: a round is a good one or a bad one
    as the scheduler places the processes, and a median is the one that is more frequent."""
    systems = [*names, *options.peers]
    lines = [f"{'dtype':9} {'ranks':>5} {'busy':>4} {'bytes':>6}" + "".join(f" {name:>11}" for name in systems)
             + f" {'best/' + names[-1]:>12} {'of the means':>12}"]
    rows = []
    for dtype in options.dtypes:
        for ranks in options.ranks:
            for busy, results in measured.items():
                for size in sizes:
                    row = {"dtype": dtype, "ranks": ranks, "busy_per_core": busy, "bytes": size}
                    for name in systems:
                        best = results.best(name, ranks, dtype, size)
                        samples = best and results.samples[(name, best[1], ranks, dtype, size)]
                        row[f"{name}_us"] = best and best[0]
                        row[f"{name}_mean_us"] = best and statistics.mean(samples)
                    for ratio, of in (("speedup", "us"), ("speedup_of_means", "mean_us")):
                        ours = row[f"{names[-1]}_{of}"]
                        least = min((row[f"{peer}_{of}"] for peer in options.peers if row[f"{peer}_{of}"]), default=None)
                        row[ratio] = least / ours if ours and least else None
                    rows.append(row)
                    shown = lambda value, width: f" {value:{width}.2f}" if value else f" {'-':>{width}}"
                    lines.append(f"{dtype:9} {ranks:5} {busy:4} {human(size):>6}" + "".join(shown(row[f"{name}_us"], 11) for name in systems)
                                 + shown(row["speedup"], 12) + shown(row["speedup_of_means"], 12))
    return "\n".join(lines), rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="append", metavar="NAME=FOLDER",
                        help="a build with arcommd, arctl, this nodes_peer and, the last one, the peers; more than once to compare versions")
    numbers = lambda text: [int(number) for number in text.split(",")]
    words = lambda text: [word for word in text.split(",") if word]
    parser.add_argument("--busy", type=numbers, default=[0, 1, 2, 4], help="busy processes per core")
    parser.add_argument("--ranks", type=numbers, default=[2, 4])
    parser.add_argument("--dtypes", type=words, default=["float32", "bfloat16"])
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--peers", type=words, default=["gloo", "openmpi"], help="empty: ours alone")
    parser.add_argument("--turns", type=int, default=6, help="how often each system has its turn, in processes of its own")
    parser.add_argument("--settling", type=int, default=4, help="rounds that do not count, while the scheduler spreads the processes")
    parser.add_argument("--rounds", type=int, default=4, help="rounds that count, per turn and size")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a round, about")
    parser.add_argument("--warmup", type=int, default=200, help="operations before the first round")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further turn begins")
    parser.add_argument("--tune", action="store_true", help="run arctl tune first")
    parser.add_argument("--json", type=Path, help="write everything that was measured here")
    options = parser.parse_args()
    builds = {name: Path(folder).resolve() for name, folder in
              (text.split("=", 1) for text in options.build or ["arcommd=build/bench"])}
    build_of_peers = list(builds.values())[-1]
    sizes = [bytes_of(size) for size in options.sizes.split(",")]
    cores = len(os.sched_getaffinity(0))
    measured = {busy: Results() for busy in options.busy}
    started = time.monotonic()
    turns = 0
    with contextlib.ExitStack() as daemons:
        # Started, and tuned, on a quiet machine, as a node's daemon is.
        environments = {name: daemons.enter_context(LocalDaemon(build)) for name, build in builds.items()}
        if options.tune:
            for name, build in builds.items():
                run([build / "client/arctl/arctl", "tune", "--device", "host"], environments[name], 900)
        for turn in range(options.turns):
            if turn > 0 and time.monotonic() - started > options.budget:
                break
            turns += 1
            for busy in options.busy:
                cases = [(ranks, dtype, size) for ranks in options.ranks for dtype in options.dtypes for size in sizes]
                for name, build in builds.items():
                    with BusyProcesses(busy * cores):
                        for case in cases:
                            measure(name, command_of_ours(build, environments[name], case, options), case, options, measured[busy])
                for name in options.peers:
                    with BusyProcesses(busy * cores):
                        for case in cases:
                            measure(name, command_of_peer(name, build_of_peers, case, options), case, options, measured[busy])
                print(f"turn {turn + 1} of {options.turns}: {busy} busy per core done, {time.monotonic() - started:.0f} s",
                      table({busy: measured[busy]}, list(builds), options, sizes)[0], sep="\n", file=sys.stderr, flush=True)
    text, rows = table(measured, list(builds), options, sizes)
    print(f"\nmicroseconds per out-of-place AllReduce on {cores} cores, `busy` other processes per core: median over "
          f"{turns * options.rounds} rounds of {options.seconds} s of the slowest rank\n")
    print(text)
    wrong = {busy: results.wrong for busy, results in measured.items()}
    if options.json:
        samples = [{"busy_per_core": busy, "system": key[0], "algorithm": key[1], "ranks": key[2], "dtype": key[3], "bytes": key[4],
                    "samples": values} for busy, results in measured.items() for key, values in results.samples.items()]
        options.json.write_text(json.dumps({"cores": cores, "turns": turns, "rows": rows, "wrong": wrong, "samples_us": samples}, indent=1))
    return 1 if any(counts.get(name) for counts in wrong.values() for name in builds) else 0


if __name__ == "__main__":
    sys.exit(main())
