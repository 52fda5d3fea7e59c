"""Where the time goes, before and after: one bar each, a piece for every operator."""

from collections.abc import Iterator, Mapping, Sequence

from mixpert_py.tuner.report.html import EMPTY, Html, el
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import Row, number, quantity, time_unit
from mixpert_py.tuner.report.unit import Unit

WIDTH, HEIGHT = 760, 128
LEFT, RIGHT = 64, 752
THICK = 36
WIDE_ENOUGH = 20.0  # for the operator's number inside


def bars(record: Record, rows: Sequence[Row], colors: Mapping[str, int]) -> Html:
    """Both bars on one scale. What no product took is grey; unknown times leave a bar empty."""
    unit = time_unit(record)
    before = [(row, row.entry.time_before or 0.0, row.entry.before) for row in rows]
    after = [(row, row.time_after or 0.0, row.level) for row in rows]
    ends = (record.time_before, record.time_before if record.reverted else record.time_after)
    longest = max(*(end or 0.0 for end in ends), _sum(before), _sum(after))
    if not longest:
        return EMPTY
    parts: list[Html] = []
    for y, name, pieces, total in ((8, "before", before, ends[0]), (70, "after", after, ends[1])):
        parts.append(el("text", name, x=LEFT - 8, y=y + 23, text_anchor="end"))
        scale = (RIGHT - LEFT) / longest
        parts += _bar(pieces, total, y, scale, colors, unit)
    title = el("title", "Time of every product before and after")
    return el("svg", title, *parts, class_="bars", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="group")


def _sum(pieces: list[tuple[Row, float, str]]) -> float:
    return sum(time for _, time, _ in pieces)


def _bar(
    pieces: list[tuple[Row, float, str]],
    total: float | None,
    y: int,
    scale: float,
    colors: Mapping[str, int],
    unit: Unit,
) -> Iterator[Html]:
    x = float(LEFT)
    for row, time, level in pieces:
        width = time * scale
        if width > 0:
            said = f"{row.number} {row.entry.expression}: {quantity(time, unit)}, {level}"
            box = el("rect", x=x, y=y, width=width, height=THICK, class_=f"level-{colors[level]}")
            inside = EMPTY
            if width >= WIDE_ENOUGH:
                inside = el(
                    "text", str(row.number), x=x + width / 2, y=y + 23, text_anchor="middle"
                )
            yield el(
                "a",
                el("title", said),
                box,
                inside,
                href=f"#op-{row.number}",
                data_op=row.number,
                aria_label=said,
            )
        x += width
    rest = (total or 0.0) - _sum(pieces)
    # The products' times are sums of rounded ones: a sliver is no rest.
    if rest * scale > 1:
        said = f"outside of products: {quantity(rest, unit)}"
        yield el(
            "g",
            el("title", said),
            el("rect", x=x, y=y, width=rest * scale, height=THICK, class_="rest"),
        )
        x += rest * scale
    if total is not None:
        name = f"{number(total, unit)} {unit.name}"
        fits = x + 8 + 7 * len(name) < RIGHT
        yield el(
            "text",
            name,
            x=x + 8 if fits else RIGHT,
            y=y + 23 if fits else y + THICK + 15,
            text_anchor="start" if fits else "end",
            class_="total",
        )
