#!/usr/bin/env python3
"""AllReduce on cores that other processes use, beside Gloo, in one run, in turns; see README.md beside it."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from compare import Results, bytes_of, human, run
from local_daemon import LocalDaemon

SIZES = ["1K", "4K", "16K", "64K", "256K", "1M"]
SMALLEST_ITERATIONS = 4  # of the largest sizes


class BusyProcesses:
    """So many processes that compute and nothing else, for as long as the block lasts."""

    def __init__(self, count: int):
        self.count = count

    def __enter__(self):
        loop = "import os, signal\nwhile os.getppid() != 1:\n  for _ in range(1 << 20): pass"
        self.processes = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(self.count)]
        time.sleep(0.5 if self.count else 0)  # the scheduler has spread them
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def iterations_of(size: int, most: int) -> int:
    """Of a round: those of arctl bench and of the peers, and `most` at most."""
    return max(SMALLEST_ITERATIONS, min(most, (64 << 20) // size))


def measure_ours(name, build, environment, ranks, sizes, options, results):
    # One communicator for all sizes, and one call: arctl takes one number of iterations, so the large ones get a call of
    # their own.
    for size in sizes:
        out = run([build / "client/arctl/arctl", "bench", "--json", "--place", "out", "-r", ranks, "-d", "float32", "-b", size,
                   "-e", size, "-n", iterations_of(size, options.iterations), "-w", options.warmup, "--rounds", options.rounds,
                   "--timing", "latency", "--timeout", 60], environment, 300)
        for row in json.loads(out)["rows"] if out else []:
            results.add(name, "auto", ranks, "float32", row["bytes"], row["samples_us"], row["wrong"])


def measure_gloo(build, ranks, sizes, options, results):
    out = run([build / "tests/bench/gloo_peer", "--sizes", ",".join(map(str, sizes)), "--dtype", "float32", "--ranks", ranks,
               "--rounds", options.rounds, "--iterations", options.iterations], None, 600)
    for line in (out or "").splitlines():
        row = json.loads(line)
        results.add("gloo", row["algorithm"], ranks, "float32", row["bytes"], row["samples_us"], row["wrong"])


def table(measured, names, ranks_list, sizes) -> tuple[str, list[dict]]:
    heading = f"{'ranks':>5} {'busy':>4} {'bytes':>6}" + "".join(f" {name:>11}" for name in [*names, "gloo"])
    lines, rows = [heading + f" {'gloo/' + names[-1]:>12}"], []
    for ranks in ranks_list:
        for busy, results in measured.items():
            for size in sizes:
                found = {name: results.best(name, ranks, "float32", size) for name in [*names, "gloo"]}
                row = {"ranks": ranks, "busy_per_core": busy, "bytes": size}
                row |= {f"{name}_us": best and best[0] for name, best in found.items()}
                last, gloo = row[f"{names[-1]}_us"], row["gloo_us"]
                row["speedup"] = gloo / last if last and gloo else None
                rows.append(row)
                figures = "".join(f" {best[0]:11.1f}" if best else f" {'-':>11}" for best in found.values())
                speedup = f"{row['speedup']:12.2f}" if row["speedup"] else f"{'-':>12}"
                lines.append(f"{ranks:5} {busy:4} {human(size):>6}{figures} {speedup}")
    return "\n".join(lines), rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="append", metavar="NAME=FOLDER",
                        help="a build with arcommd, arctl and, the last one, gloo_peer; more than once to compare versions")
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("--busy", type=numbers, default=[0, 1, 2, 4], help="busy processes per core")
    parser.add_argument("--ranks", type=numbers, default=[2, 4])
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--turns", type=int, default=3, help="how often each system has its turn")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds per turn and size")
    parser.add_argument("--iterations", type=int, default=1000, help="operations of a round at most")
    parser.add_argument("--warmup", type=int, default=200, help="operations before the first round, of ours")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further turn begins")
    parser.add_argument("--without-gloo", action="store_true", help="ours alone")
    parser.add_argument("--json", type=Path, help="write everything that was measured here")
    options = parser.parse_args()
    builds = {name: Path(folder).resolve() for name, folder in
              (text.split("=", 1) for text in options.build or ["arcommd=build/bench"])}
    sizes = [bytes_of(size) for size in options.sizes.split(",")]
    cores = len(os.sched_getaffinity(0))
    measured = {busy: Results() for busy in options.busy}
    started = time.monotonic()
    turns = 0
    for turn in range(options.turns):
        if time.monotonic() - started > options.budget:
            break
        turns += 1
        for busy in options.busy:
            results = measured[busy]
            for name, build in builds.items():
                # Started on a quiet machine, as a node's daemon is.
                with LocalDaemon(build) as environment, BusyProcesses(busy * cores):
                    for ranks in options.ranks:
                        measure_ours(name, build, environment, ranks, sizes, options, results)
            with BusyProcesses(0 if options.without_gloo else busy * cores):
                for ranks in [] if options.without_gloo else options.ranks:
                    measure_gloo(build, ranks, sizes, options, results)
            print(f"turn {turn + 1} of {options.turns}: {busy} busy per core done, {time.monotonic() - started:.0f} s",
                  table({busy: results}, list(builds), options.ranks, sizes)[0], sep="\n", file=sys.stderr, flush=True)
    text, rows = table(measured, list(builds), options.ranks, sizes)
    print(f"\nmicroseconds per out-of-place AllReduce of float32 on {cores} cores, `busy` other processes per core: median over "
          f"{turns * options.rounds} rounds of the slowest rank\n")
    print(text)
    wrong = {busy: results.wrong for busy, results in measured.items()}
    if options.json:
        samples = [{"busy_per_core": busy, "system": key[0], "algorithm": key[1], "ranks": key[2], "bytes": key[4], "samples": values}
                   for busy, results in measured.items() for key, values in results.samples.items()]
        options.json.write_text(json.dumps({"cores": cores, "turns": turns, "rows": rows, "wrong": wrong, "samples_us": samples}, indent=1))
    return 1 if any(counts.get(name) for counts in wrong.values() for name in builds) else 0


if __name__ == "__main__":
    sys.exit(main())
