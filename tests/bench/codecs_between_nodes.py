#!/usr/bin/env python3
"""What a codec saves between two nodes: codecs_between_nodes.py BUILD [--rates 1,10] [--sizes 64K,4M] [--codecs none,q8,q4]

Two daemons in a network namespace of this run, whose loopback interface carries so many Gbit/s in both directions together
as two nodes with links of RATE would have each way; 0: as fast as it goes. Times are microseconds of the slowest rank.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_daemon import LocalCluster  # noqa: E402

INSIDE = "BENCH_IS_IN_A_NAMESPACE"  # set where this is the process in the namespace


def in_namespace():
    """Starts this again, with a loopback interface of its own."""
    if INSIDE in os.environ:
        return
    missing = [tool for tool in ("unshare", "ip", "tc") if not shutil.which(tool)]
    if missing:
        sys.exit(f"there is no {' and no '.join(missing)}: install util-linux and iproute2")
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--map-root-user", "--net", sys.executable, *sys.argv])


def limit(gigabits):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], stderr=subprocess.DEVNULL)
    if gigabits == 0:
        return
    rate = 2 * gigabits
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{rate}gbit", "burst", f"{max(256, int(rate * 128))}k",
                    "latency", "20ms"], check=True)


def measure(build, sizes, dtype, codec, rounds, timeout):
    """Median microseconds by size."""
    with LocalCluster(build, 2) as runtime_dirs:
        done = subprocess.run([build / "tests/bench/nodes_peer", "--runtime", ",".join(runtime_dirs), "--sizes", sizes, "--dtype", dtype,
                               "--rounds", str(rounds), "--codec", codec], stdout=subprocess.PIPE, text=True, check=True, timeout=timeout)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = sum(row["wrong"] for row in rows)
    if wrong:
        sys.exit(f"{codec}: {wrong} wrong elements")
    return {row["bytes"]: statistics.median(row["samples_us"]) for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--rates", default=[1, 10, 0], type=lambda text: [float(rate) for rate in text.split(",")],
                        help="Gbit/s each way, with commas between; 0: unbounded")
    parser.add_argument("--sizes", default="4K,64K,1M,16M")
    parser.add_argument("--codecs", default="none,fp8,q8,q6,q4,q4_rotated")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="for one codec at one rate")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    in_namespace()
    codecs, everything = options.codecs.split(","), []
    for rate in options.rates:
        limit(rate)
        times = {codec: measure(options.build.resolve(), options.sizes, options.dtype, codec, options.rounds, options.timeout)
                 for codec in codecs}
        print(f"\n{options.dtype}, {f'{rate:g} Gbit/s each way' if rate else 'the loopback interface as it is'}: microseconds, and times as fast"
              f" as {codecs[0]}\n")
        print("| bytes | " + " | ".join(codecs) + " |\n|---|" + "---|" * len(codecs))
        for size, first in times[codecs[0]].items():
            cells = [f"{first:.0f}"] + [f"{times[codec][size]:.0f} ({first / times[codec][size]:.2f})" for codec in codecs[1:]]
            print(f"| {size} | " + " | ".join(cells) + " |", flush=True)
        everything.append({"gigabits": rate, "dtype": options.dtype, "microseconds": times})
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
