"""Layout: where the boxes and wires of a graph go, in layers from top to bottom.

After Sugiyama, Tagawa and Toda. Every edge but a self-loop is taken downwards; inside a cycle, from
the operator that comes first in the source, and the edges against that are drawn upwards. A wire
that passes a layer has a cell of its own there, so that none runs behind a box. All wires of one
producer share these cells: they carry the same value.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mixpert_py.graph.graph import Edge

if TYPE_CHECKING:
    from networkx import DiGraph

BOX_HEIGHT = 46.0
LAYER_GAP = 60.0
GAP = 24.0
MAX_IN_LAYER = 5
SWEEPS = 12
MAX_STEPS = 200_000  # ten megabytes of SVG, a second of work
# Where wires are at a box, in halves of its width from its middle: those that lead down leave from
# one place below and come in side by side above, those that lead up the other way round.
LEAVES = {False: -0.4, True: 0.7}
ENTERS = {False: (-0.85, 0.4), True: (-0.1, 0.85)}
MAX_BESIDE = 14.0  # between wires that come in
WIRE_WEIGHT = 8.0  # against 1 of a box: wires are straight where that costs little

Point = tuple[float, float]
# Cells are boxes, by their position, and from there on the cells of wires.
Rows = list[list[int]]
Neighbours = Mapping[int, Sequence[int]]


class TooLargeError(Exception):
    """The wires would be too long for a picture that can be read, or even opened."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of boxes and wires, from (0, 0) at the left and top.

    corners: left and top of each box. wires: the points of each edge but self-loops, from producer
    to consumer, to be joined by curves that are vertical there. upward: the edges drawn upwards.
    """

    corners: tuple[Point, ...]
    wires: dict[Edge, tuple[Point, ...]]
    upward: frozenset[Edge]
    width: float
    height: float


def layout(widths: Sequence[float], edges: Sequence[Edge]) -> Layout:
    """Place at least one box, of these widths and BOX_HEIGHT.

    No two boxes overlap. Equal arguments give equal layouts. Raises TooLargeError if the wires
    cross more than MAX_STEPS layers in all.
    """
    proper = [edge for edge in edges if edge[0] != edge[1]]
    layer = _layers(_downward(len(widths), proper))
    if sum(abs(layer[one] - layer[other]) for one, other in proper) > MAX_STEPS:
        raise TooLargeError
    rows: Rows = [[] for _ in range(max(layer) + 1)]
    for box, its in enumerate(layer):
        rows[its].append(box)
    routes = _routes(proper, layer, rows)
    top = {cell: at * (BOX_HEIGHT + LAYER_GAP) for at, row in enumerate(rows) for cell in row}
    segments = {pair for route in routes.values() for pair in pairwise(route)}
    above, below = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for one, other in sorted(segments):
        upper, lower = sorted((one, other), key=top.__getitem__)
        above[lower].append(upper)
        below[upper].append(lower)

    _order(rows, above, below)
    half = dict(enumerate(width / 2 for width in widths))
    x = _centres(rows, half, above, below)
    upward = frozenset(edge for edge in proper if layer[edge[0]] > layer[edge[1]])
    entries = _entries(routes, upward, x, half)
    return Layout(
        tuple((x[box] - half[box], top[box]) for box in half),
        {
            edge: _points(route, edge in upward, entries[edge], x, top, half)
            for edge, route in routes.items()
        },
        upward,
        max(x[cell] + half.get(cell, 0.0) for cell in x),
        len(rows) * (BOX_HEIGHT + LAYER_GAP) - LAYER_GAP,
    )


def _downward(count: int, edges: Iterable[Edge]) -> "DiGraph[int]":
    """The graph with edges inside a cycle turned into source order, so that no cycle is left."""
    import networkx

    whole: DiGraph[int] = networkx.DiGraph(edges)
    whole.add_nodes_from(range(count))
    cycle = networkx.condensation(whole).graph["mapping"]
    downward: DiGraph[int] = networkx.DiGraph()
    downward.add_nodes_from(range(count))
    downward.add_edges_from(
        (min(e), max(e)) if cycle[e[0]] == cycle[e[1]] else e for e in whole.edges
    )
    return downward


def _layers(downward: "DiGraph[int]") -> list[int]:
    """The longest path from above to each box, or the next layer with room for it."""
    import networkx

    layer = [0] * len(downward)
    taken: dict[int, int] = defaultdict(int)
    for box in networkx.lexicographical_topological_sort(downward):
        layer[box] = max((layer[upper] + 1 for upper in downward.predecessors(box)), default=0)
        while taken[layer[box]] == MAX_IN_LAYER:
            layer[box] += 1
        taken[layer[box]] += 1
    return layer


def _routes(edges: Iterable[Edge], layer: Sequence[int], rows: Rows) -> dict[Edge, tuple[int, ...]]:
    """The cells of each edge, from its producer to its consumer; new cells are put into `rows`."""
    cells: dict[tuple[int, int, int], int] = {}
    routes = {}
    for producer, consumer in edges:
        step = 1 if layer[producer] < layer[consumer] else -1
        route = [producer]
        for its in range(layer[producer] + step, layer[consumer], step):
            wire = (producer, step, its)
            if wire not in cells:
                cells[wire] = len(layer) + len(cells)
                rows[its].append(cells[wire])
            route.append(cells[wire])
        routes[producer, consumer] = (*route, consumer)
    return routes


def _order(rows: Rows, above: Neighbours, below: Neighbours) -> None:
    """Sort each row by the mean place of its neighbours, down and up by turns."""
    place = {cell: float(at) for row in rows for at, cell in enumerate(row)}
    for sweep in range(SWEEPS):
        near, turn = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in turn:
            row.sort(key={cell: _mean(cell, near, place) for cell in row}.__getitem__)
            place.update((cell, float(at)) for at, cell in enumerate(row))


def _centres(
    rows: Rows, half: Mapping[int, float], above: Neighbours, below: Neighbours
) -> dict[int, float]:
    """The x of each cell: near the mean of its neighbours, in the order and with room between."""
    x = dict.fromkeys((cell for row in rows for cell in row), 0.0)
    for sweep in range(SWEEPS):
        near, turn = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in turn:
            _spread(row, [_mean(cell, near, x) for cell in row], half, x)
    left = min(x[cell] - half.get(cell, 0.0) for cell in x)
    return {cell: its - left for cell, its in x.items()}


def _spread(
    row: Sequence[int], targets: Sequence[float], half: Mapping[int, float], x: dict[int, float]
) -> None:
    """Place a row where the weighted squares of distances to the wanted places sum to least.

    Less the room that cells need, places need only not decrease: neighbours that would are pooled.
    """
    room = [0.0]
    for one, other in pairwise(row):
        room.append(room[-1] + half.get(one, 0.0) + GAP + half.get(other, 0.0))
    pools: list[tuple[float, float, int]] = []  # mean, weight, cells
    for cell, target, offset in zip(row, targets, room, strict=True):
        mean, weight, size = target - offset, 1.0 if cell in half else WIRE_WEIGHT, 1
        while pools and pools[-1][0] > mean:
            left, left_weight, left_size = pools.pop()
            mean = (left * left_weight + mean * weight) / (left_weight + weight)
            weight += left_weight
            size += left_size
        pools.append((mean, weight, size))
    means = [mean for mean, _, size in pools for _ in range(size)]
    x.update(zip(row, map(sum, zip(means, room, strict=True)), strict=True))


def _mean(cell: int, near: Neighbours, place: Mapping[int, float]) -> float:
    neighbours = near.get(cell)
    if not neighbours:
        return place[cell]
    return sum(place[other] for other in neighbours) / len(neighbours)


def _entries(
    routes: Mapping[Edge, Sequence[int]],
    upward: Collection[Edge],
    x: Mapping[int, float],
    half: Mapping[int, float],
) -> dict[Edge, float]:
    """The x at which each edge comes into its consumer: side by side, in the order of the wires."""
    beside: dict[tuple[int, bool], list[Edge]] = defaultdict(list)
    for edge in routes:
        beside[edge[1], edge in upward].append(edge)
    entries: dict[Edge, float] = {}
    for (consumer, is_upward), edges in beside.items():
        left, right = (x[consumer] + part * half[consumer] for part in ENTERS[is_upward])
        step = min(MAX_BESIDE, (right - left) / len(edges))
        first = (left + right - step * (len(edges) - 1)) / 2
        edges.sort(key=lambda edge: (x[routes[edge][-2]], edge))
        entries |= {edge: first + step * at for at, edge in enumerate(edges)}
    return entries


def _points(
    route: Sequence[int],
    is_upward: bool,
    entry: float,
    x: Mapping[int, float],
    top: Mapping[int, float],
    half: Mapping[int, float],
) -> tuple[Point, ...]:
    """The points of a wire: out of the producer, straight through its cells, into the consumer."""
    producer, *between, consumer = route
    enters, leaves = (BOX_HEIGHT, 0.0) if is_upward else (0.0, BOX_HEIGHT)
    points = [(x[producer] + LEAVES[is_upward] * half[producer], top[producer] + leaves)]
    for cell in between:
        points += [(x[cell], top[cell] + enters), (x[cell], top[cell] + leaves)]
    return (*points, (entry, top[consumer] + enters))
