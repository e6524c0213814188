"""Renders only what a frame writes: the rows that changed, and what is visible of them.

For a partial update, Textual's compositor renders every widget between the topmost and the lowest
changed row, with all of its rows: also hidden frames and unchanged areas. `FrameCompositor` puts
the same pieces together, from front to back, and stops as soon as nothing is missing. Full updates
are Textual's. It does not know which widgets have changed; `screens.base_screen` uses it.
"""

from itertools import pairwise

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

PiecesByColumn = dict[int, Strip | None]
"""The pieces of one row of the screen, by the column at which each begins; in order."""


class FrameCompositor(Compositor):
    """The compositor of Textual 8.2, with cheaper partial updates."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """What changed since the last frame; None for nothing."""
        regions = self._dirty_regions.copy()
        self._dirty_regions.clear()
        if not regions:
            return None
        spans = list(self._regions_to_spans(regions))
        chops = self._render_spans(spans)
        return ChopsUpdate(chops, spans, [row[1:] for row in self.cuts])

    def _render_spans(self, spans: list[tuple[int, int, int]]) -> list[PiecesByColumn]:
        """The rows of the screen; of those in `spans` (row, first column, column behind the last)
        every piece that reaches into the span, all others without a strip."""
        cuts = self.cuts
        chops: list[PiecesByColumn] = [{} for _ in cuts]
        missing: dict[int, set[int]] = {}
        for y, first, end in spans:
            chops[y] = dict.fromkeys(cuts[y][:-1])
            columns = {x for x, right in pairwise(cuts[y]) if x < end and right > first}
            missing[y] = missing.get(y, set()) | columns
        for widget, (region, clip) in self.visible_widgets.items():
            if not missing:
                break
            self._take_pieces(widget, region, region.intersection(clip), chops, missing)
        return chops

    def _take_pieces(
        self,
        widget: Widget,
        region: Region,
        shown: Region,
        chops: list[PiecesByColumn],
        missing: dict[int, set[int]],
    ) -> None:
        """Fill in what a widget shows of the pieces that nothing before it has covered.

        region: of the widget on the screen. shown: the part of it that is not clipped. missing: by
        row, the columns of the pieces that are wanted still; what is found is taken out.
        """
        left, right = shown.column_span
        rows = {
            y
            for y in shown.line_range
            if y in missing and any(left <= x < right for x in missing[y])
        }
        if not rows:
            return
        first, last = min(rows), max(rows)
        crop = Region(left - region.x, first - region.y, shown.width, last + 1 - first)
        for y, strip in zip(range(first, last + 1), widget.render_lines(crop), strict=False):
            if y not in rows:
                continue
            columns = [x for x in self.cuts[y] if left <= x <= right]
            pieces = strip.divide([x - left for x in columns[1:]])
            for x, piece in zip(columns, pieces, strict=False):
                if x in missing[y]:
                    chops[y][x] = piece
                    missing[y].remove(x)
            if not missing[y]:
                del missing[y]
