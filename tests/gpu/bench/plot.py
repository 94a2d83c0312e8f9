#!/usr/bin/env python3
"""Draws the figures of one run (run_figures.py) as one SVG: for each number of ranks how many times as fast as the
best peer a sum through arcommd is, and the bus bandwidth of all, over the size. Python's standard library only.

  plot.py FOLDER [SVG]      by default FOLDER/figures.svg
  plot.py FILE [SVG]        of one `arctl bench --device gpu --json > FILE`; by default beside it
  plot.py FOLDER SVG HOST   and, below, what tests/bench/compare.py --json HOST measured between processes of a host
"""
import json
import math
import os
import sys
from xml.sax.saxutils import escape

import run_figures

WIDTH, HEIGHT = 560, 340  # of one panel's axes
LEFT, TOP, GAP_X, GAP_Y, RIGHT, BOTTOM = 70, 64, 110, 190, 40, 120
LEGEND_DOWN, LEGEND_LINE = 62, 20
# Colours that differ for the colour-blind too (Okabe and Ito), and dashes that differ without colour.
OURS = {"graph": ("#0072b2", "", "arcommd, graph"), "stream": ("#56b4e9", "7 3", "arcommd, stream")}
PEERS = {"NCCL": ("#d55e00", ""), "NCCL symmetric": ("#e69f00", "7 3"), "PyTorch one-shot": ("#009e73", "2 3"),
         "PyTorch two-shot": ("#cc79a7", "9 3 2 3"), run_figures.FASTER_OF_PYTORCH: ("#009e73", "2 3")}
HOST_TYPES = {"float32": ("#0072b2", ""), "bfloat16": ("#56b4e9", "7 3")}


class Panel:
    """One pair of axes, x logarithmic in bytes."""

    def __init__(self, x, y, sizes, title, unit):
        self.x, self.y, self.title, self.unit = x, y, title, unit
        self.low, self.high = math.log2(min(sizes)), math.log2(max(sizes))
        self.sizes = sizes
        self.lines = []   # (label, colour, dash, points)
        self.levels = []  # (value, label)

    def line(self, label, colour, dash, points):
        points = [(size, value) for size, value in points if value is not None]
        if points:
            self.lines.append((label, colour, dash, points))

    def level(self, value, label=""):
        self.levels.append((value, label))

    def at_x(self, size):
        span = self.high - self.low or 1
        return self.x + (math.log2(size) - self.low) / span * WIDTH

    def svg(self):
        top = max([value for *_, points in self.lines for _, value in points] + [v for v, _ in self.levels] + [1e-9])
        step = nice_step(top)
        most = step * math.ceil(top / step + 0.2)

        def at_y(value):
            return self.y + HEIGHT - value / most * HEIGHT

        parts = [text(self.x, self.y - 34, self.title, size=16, weight="bold"),
                 text(self.x, self.y - 14, self.unit, size=12, colour="#555")]
        for i in range(int(round(most / step)) + 1):
            value = i * step
            parts.append(stroke([(self.x, at_y(value)), (self.x + WIDTH, at_y(value))], "#e3e3e3", 1))
            parts.append(text(self.x - 8, at_y(value) + 4, f"{value:g}", anchor="end"))
        for size in self.sizes:
            parts.append(stroke([(self.at_x(size), self.y), (self.at_x(size), self.y + HEIGHT)], "#f0f0f0", 1))
            parts.append(text(self.at_x(size), self.y + HEIGHT + 18, run_figures.text_of_bytes(size), anchor="middle"))
        parts.append(text(self.x + WIDTH / 2, self.y + HEIGHT + 36, "bytes", anchor="middle", colour="#555"))
        parts.append(stroke([(self.x, self.y), (self.x, self.y + HEIGHT), (self.x + WIDTH, self.y + HEIGHT)], "#444", 1))
        for value, label in self.levels:
            parts.append(stroke([(self.x, at_y(value)), (self.x + WIDTH, at_y(value))], "#444", 1.2, "4 4"))
            if label:
                parts.append(text(self.x + WIDTH - 4, at_y(value) - 5, label, anchor="end", colour="#444"))
        for _, colour, dash, points in self.lines:
            places = [(self.at_x(size), at_y(value)) for size, value in points]
            parts.append(stroke(places, colour, 2.2, dash))
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        return parts + self.legend()

    def legend(self):
        """Under the axis, where no curve is; as many to a line as there is room for."""
        if not self.lines:
            return [text(self.x + WIDTH / 2, self.y + HEIGHT / 2, "not measured", anchor="middle", colour="#777")]
        parts, x, y = [], self.x, self.y + HEIGHT + LEGEND_DOWN
        for label, colour, dash, _ in self.lines:
            width = 70 + 7 * len(label)
            if x + width > self.x + WIDTH + 20 and x > self.x:
                x, y = self.x, y + LEGEND_LINE
            parts += [stroke([(x, y), (x + 36, y)], colour, 2.2, dash),
                      f'<circle cx="{x + 18:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>', text(x + 44, y + 4, label)]
            x += width
        return parts


def nice_step(top):
    """So that five to ten of them, of 1, 2 or 5 times a power of ten, reach the top."""
    magnitude = 10 ** math.floor(math.log10(top / 5))
    return next(magnitude * factor for factor in (1, 2, 5, 10) if magnitude * factor >= top / 8)


def text(x, y, what, size=12, anchor="start", weight="normal", colour="#222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{colour}">{escape(what)}</text>')


def stroke(points, colour, width, dash=""):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def panels_of(figures, row):
    sizes = [one.bytes for one in figures]
    y = TOP + row * (HEIGHT + GAP_Y)
    ranks = figures[0].ranks
    ratio = Panel(LEFT, y, sizes, f"{ranks} GPUs: times as fast as the best peer",
                  "best peer's median time / arcommd's, each way against peers of the same way; above 1 is faster")
    ratio.level(1)
    bandwidth = Panel(LEFT + WIDTH + GAP_X, y, sizes, f"{ranks} GPUs: bus bandwidth",
                      "GB/s as nccl-tests counts it, medians; peers in a graph")
    for way, (colour, dash, label) in OURS.items():
        ratio.line(label, colour, dash, [(one.bytes, one.times_as_fast(way)) for one in figures])
        bandwidth.line(label, colour, dash,
                       [(one.bytes, one.ours[way]["busbw_gb_s"] if way in one.ours else None) for one in figures])
    for name, (colour, dash) in PEERS.items():
        times = [(one, one.peers["graph"].get(name)) for one in figures]
        label = name + (", bfloat16" if name.startswith("PyTorch") else "")
        bandwidth.line(label, colour, dash, [(one.bytes, one.bus_gbs(us) if us else None) for one, us in times])
    light = next((one.light_gbs for one in figures if one.light_gbs), None)
    if light:
        bandwidth.level(light, f"copies from each GPU to the next, all at once: {light:.0f}")
    return [ratio, bandwidth]


def host_panels(compared, row):
    """Of compare.py: at most two numbers of rank processes, the most first."""
    y = TOP + row * (HEIGHT + GAP_Y)
    panels = []
    for column, ranks in enumerate(sorted({one["ranks"] for one in compared["rows"]}, reverse=True)[:2]):
        rows = [one for one in compared["rows"] if one["ranks"] == ranks]
        panel = Panel(LEFT + column * (WIDTH + GAP_X), y, sorted({one["bytes"] for one in rows}),
                      f"Host, {ranks} processes on {compared['cores']} cores: times as fast as the best peer",
                      "the faster of Open MPI and Gloo / arcommd, median times; above 1 is faster")
        panel.level(1)
        for dtype, (colour, dash) in HOST_TYPES.items():
            panel.line(f"arcommd, {dtype}", colour, dash,
                       [(one["bytes"], one["speedup"]) for one in rows if one["dtype"] == dtype])
        panels.append(panel)
    return panels


def draw(all_figures, compared=None):
    panels = [panel for row, figures in enumerate(all_figures) for panel in panels_of(figures, row)]
    panels += host_panels(compared, len(all_figures)) if compared else []
    width = LEFT + 2 * WIDTH + GAP_X + RIGHT
    height = TOP + (len(all_figures) + bool(compared)) * (HEIGHT + GAP_Y) - GAP_Y + BOTTOM
    body = "\n".join(part for panel in panels for part in panel.svg())
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">\n'
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n')


def main():
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__)
    source = sys.argv[1]
    try:
        if os.path.isdir(source):
            target = os.path.join(source, "figures.svg")
            all_figures = [run_figures.figures_of(source, ranks) for ranks in run_figures.ranks_in(source)]
        else:
            target = os.path.splitext(source)[0] + ".svg"
            bench = run_figures.load(*os.path.split(source))
            all_figures = [run_figures.figures_from(bench)] if bench else []
    except run_figures.NotOfGpus as why:
        sys.exit(f"{source}: {why}")
    target = sys.argv[2] if len(sys.argv) > 2 else target
    compared = None
    if len(sys.argv) == 4:
        with open(sys.argv[3]) as file:
            compared = json.load(file)
    all_figures = [figures for figures in all_figures if figures]
    if not all_figures:
        sys.exit(f"no figures of `arctl bench --device gpu --json`, out of place, in {source}")
    with open(target, "w") as file:
        file.write(draw(all_figures, compared))
    print(f"{target}: {', '.join(str(figures[0].ranks) for figures in all_figures)} ranks")


if __name__ == "__main__":
    main()
