#!/usr/bin/env python3
"""The figures of one run, by number of ranks: what a client's stream saw, beside the peers of the same run.

  run_figures.py FOLDER RANKS      prints the table

In FOLDER, each of which may be missing: service-N.json (arctl bench --device gpu --json), kernels-N.json
(kernel_gpu_bench: NCCL in one process), torch-peer-N.json (torch_peer.py). NCCL is measured twice, by the ranks of the
first and by the second; it counts as what it did better. plot.py draws the same figures.
"""
import json
import os
import re
import sys

WAYS = ("stream", "graph")
FASTER_OF_PYTORCH = "PyTorch"  # of one-shot and two-shot, where only that is on record


def load(folder, name):
    """What the file holds; None where there is none, or where a program that failed left none."""
    try:
        with open(os.path.join(folder, name)) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def by_size(rows):
    return {row["bytes"]: row for row in rows or ()}


def ranks_in(folder):
    """For which numbers of ranks there are figures of a client."""
    found = (re.fullmatch(r"service-(\d+)\.json", name) for name in os.listdir(folder))
    return sorted(int(match.group(1)) for match in found if match)


class Size:
    """What was measured of one size: times in microseconds, per way ("stream", "graph"). Absent is not measured."""

    def __init__(self, row, bench, kernels, torch):
        """row: of `bench`, which is all that arctl said."""
        self.bytes, self.ranks = row["bytes"], bench["ranks"]
        self.ours = row["arcommd"]
        self.checked = next((one["checked"] for one in self.ours.values()), "?")
        self.light_gbs = bench["light_gb_s"] or kernels.get("light_gbs")
        self.peers = {way: {} for way in WAYS}
        for key, name in (("nccl", "NCCL"), ("nccl-symmetric", "NCCL symmetric")):
            in_one_process = dict(zip(WAYS, kernels.get(key.replace("-", "_") + "_us") or ()))
            for way in WAYS:
                times = [in_one_process.get(way), row.get(key, {}).get(way, {}).get("p50_us")]
                times = [us for us in times if us is not None and us > 0]
                if times:
                    self.peers[way][name] = min(times)
        for key, name in (("one_shot", "PyTorch one-shot"), ("two_shot", "PyTorch two-shot"),
                          ("faster", FASTER_OF_PYTORCH)):
            if torch.get(key):
                self.peers["graph"][name] = torch[key]["p50_us"]

    def of_light(self, way):
        """Our bus bandwidth as a part of what copies reach, per cent."""
        ours = self.ours.get(way)
        return 100 * ours["busbw_gb_s"] / self.light_gbs if ours and self.light_gbs else None

    def best_peer(self, way):
        """Its name and its time, or None."""
        return min(self.peers[way].items(), key=lambda one: one[1], default=None)

    def times_as_fast(self, way):
        """As the best peer; above one is faster."""
        best = self.best_peer(way)
        return best[1] / self.ours[way]["p50_us"] if best and way in self.ours else None

    def bus_gbs(self, us):
        """As nccl-tests counts it."""
        return self.bytes / us * 1e-3 * 2 * (self.ranks - 1) / self.ranks


def figures_of(folder, ranks):
    """Out of place, by size; nothing where arctl left no file."""
    bench = load(folder, f"service-{ranks}.json")
    if not bench:
        return []
    return figures_from(bench, load(folder, f"kernels-{ranks}.json"), load(folder, f"torch-peer-{ranks}.json"))


class NotOfGpus(Exception):
    """What is there was said by another benchmark; in words."""


def figures_from(bench, kernels=None, torch=None):
    """Of what the programs wrote."""
    device = bench.get("device") if isinstance(bench, dict) else None
    if device != "gpu":
        raise NotOfGpus("this is not what `arctl bench --device gpu --json` says" +
                        (f": its device is {device}" if device else ""))
    kernels, torch = by_size(kernels), by_size(torch)
    rows = by_size(row for row in bench["rows"] if not row["in_place"])
    return [Size(row, bench, kernels.get(size, {}), torch.get(size, {})) for size, row in sorted(rows.items())]


def text_of_bytes(size):
    for unit, bits in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << bits and size % (1 << bits) == 0:
            return f"{size >> bits}{unit}"
    return str(size)


def table(figures):
    def cell(value, width, form="{:.2f}"):
        return ("-" if value is None else form.format(value)).rjust(width)

    peers = [("NCCL", "stream"), ("NCCL", "graph"), ("NCCL symmetric", "stream"), ("NCCL symmetric", "graph"),
             ("PyTorch one-shot", "graph"), ("PyTorch two-shot", "graph")]
    yield (f"{figures[0].ranks} GPUs, us".ljust(16) + " |      arcommd, stream |       arcommd, graph    of "
           "|     NCCL          |  NCCL symmetric   |   PyTorch, graph  | best / ours")
    yield ("   bytes checked |     p50     p99  bus |     p50     p99  bus light |  stream    graph  |  stream    graph  "
           "|  1-shot   2-shot  | stream graph")
    for size in figures:
        line = f"{text_of_bytes(size.bytes):>8} {size.checked:>7}"
        for way in WAYS:
            ours = size.ours.get(way, {})
            line += " |" + "".join(cell(ours.get(key), width, form) for key, width, form in
                                   (("p50_us", 8, "{:.2f}"), ("p99_us", 8, "{:.2f}"), ("busbw_gb_s", 5, "{:.0f}")))
        line += cell(size.of_light("graph"), 5, "{:.0f}") + "%"
        for i, (name, way) in enumerate(peers):
            line += (" |" if i % 2 == 0 else " ") + cell(size.peers[way].get(name), 8)
            line += " " if i % 2 == 1 else ""
        yield line + " | " + " ".join(cell(size.times_as_fast(way), 6) for way in WAYS)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        figures = figures_of(sys.argv[1], int(sys.argv[2]))
    except NotOfGpus as why:
        sys.exit(f"{sys.argv[1]}, {sys.argv[2]} ranks: {why}")
    if not figures:
        sys.exit(f"no figures of {sys.argv[2]} ranks in {sys.argv[1]}")
    for line in table(figures):
        print(line)


if __name__ == "__main__":
    main()
