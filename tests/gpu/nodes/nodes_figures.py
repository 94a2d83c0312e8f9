#!/usr/bin/env python3
"""The table of a run between two daemons: arcommd beside NCCL over its socket transport.

  nodes_figures.py DIR

Reads nodes-DTYPE.json, nccl-default-DTYPE.json and nccl-sockets-DTYPE.json, which node_rank wrote there. Microseconds, as
rank 0 sees them: of an operation that is waited for (the median), and of many in a row; best / ours: the faster NCCL's.
"""
import json
import pathlib
import sys

WAYS = {"one": "median_us", "in a row": "in_a_row_us"}


def rows_of(path):
    return {row["bytes"]: row for row in json.loads(path.read_text())["rows"]}


def size(number):
    for unit, bits in (("MB", 20), ("KB", 10)):
        if number >= 1 << bits:
            return f"{number >> bits} {unit}"
    return f"{number} B"


def table(folder, dtype):
    ours = rows_of(folder / f"nodes-{dtype}.json")
    peers = [rows_of(folder / f"nccl-{way}-{dtype}.json") for way in ("default", "sockets")]
    lines = ["| bytes | " + " | ".join(f"{way}: arcommd | NCCL, default | NCCL, 4 x 2 sockets | best / ours" for way in WAYS) + " |",
             "|---" * (1 + 4 * len(WAYS)) + "|"]
    for number, row in ours.items():
        cells = [size(number)]
        for field in WAYS.values():
            theirs = [peer[number][field] for peer in peers]
            cells += [f"{value:.0f}" for value in [row[field], *theirs]] + [f"{min(theirs) / row[field]:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main():
    folder = pathlib.Path(sys.argv[1])
    for dtype in ("f32", "bf16"):
        print(f"between two daemons over TCP, {dtype}, a GPU each, us:")
        print("\n".join(table(folder, dtype)))


if __name__ == "__main__":
    main()
