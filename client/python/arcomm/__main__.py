"""python -m arcomm check | bench: whether this package, its library and the node's daemon work, and how fast."""

from __future__ import annotations

import argparse
import sys

from .abi import DataType
from .commands import bench, check
from .commands.sizes import size
from .errors import ArcommError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m arcomm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--device", choices=("host", "gpu"), help="only this; default: whatever there is")
    common.add_argument("-r", "--ranks", type=int, default=2, help="processes; on GPUs one each (default: 2)")
    common.add_argument("--timeout", type=float, default=60, help="seconds that the ranks may take in all (default: 60)")
    commands.add_parser(
        "check", parents=[common], help="library, daemon, versions, devices, and sums of two ranks; status 0 if all is well"
    )
    timed = commands.add_parser("bench", parents=[common], help="times AllReduces, beside Gloo's or NCCL's where torch is")
    timed.add_argument("--sizes", default="1K,16K,256K,1M,16M", type=_sizes, help="in bytes, as 1K,256K,1M")
    timed.add_argument("--dtype", default="float32", choices=[kind.name.lower() for kind in DataType])
    timed.add_argument("--no-peer", action="store_true", help="arcommd alone")
    return parser


def _sizes(text: str) -> list[int]:
    try:
        return [size(each) for each in text.split(",")]
    except ValueError as failure:
        raise argparse.ArgumentTypeError(str(failure)) from None


def main() -> int:
    options = _parser().parse_args()
    if not 1 <= options.ranks <= 64 or options.timeout <= 0:
        print("python -m arcomm: --ranks is 1 to 64, and --timeout above 0", file=sys.stderr)
        return 2
    try:
        return (check if options.command == "check" else bench).run(options)
    except ArcommError as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
