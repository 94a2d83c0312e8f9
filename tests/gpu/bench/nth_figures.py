#!/usr/bin/env python3
"""What communicators of the same GPUs take, by the order in which they were formed.

  nth_figures.py FOLDER RANKS      prints a row for each size and way, of nth-1-RANKS.json to nth-4-RANKS.json

Each file is what arctl bench --device gpu --json said while the communicators before it were there, idle. The ratios
are to the first's time.
"""
import json
import os
import sys


def times_in(path):
    """p50 in microseconds by (bytes, way), out of place; nothing where the file is missing."""
    try:
        with open(path) as file:
            rows = json.load(file)["rows"]
    except (OSError, ValueError, KeyError):
        return {}
    return {(row["bytes"], way): figure["p50_us"]
            for row in rows if not row["in_place"] for way, figure in row["arcommd"].items()}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, ranks = sys.argv[1:]
    nth = [times_in(os.path.join(folder, f"nth-{number}-{ranks}.json")) for number in (1, 2, 3, 4)]
    if not nth[0]:
        sys.exit(f"nth_figures.py: no times in {folder}/nth-1-{ranks}.json")
    print(f"{ranks} GPUs; us of the first, second, third, fourth communicator; the slowest by the first")
    for case in sorted(nth[0], key=lambda one: (one[1], one[0])):
        times = [one[case] for one in nth if case in one]
        print(f"{case[0]:>10} {case[1]:>6} " + " ".join(f"{us:8.2f}" for us in times) +
              f"  {max(times) / times[0]:5.2f}")


if __name__ == "__main__":
    main()
