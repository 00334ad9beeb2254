"""What a program says of its own blocks: metadata of requests, and annotations of live blocks.

PyTorch 2.14 records an event "annotate" when the program names a block that is live already. The
name becomes a part of the block's site, for its whole life. A name that is one of the categories
decides the block's category.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.snapshots.entries import Events, are_rows, notes_of
from gmlake.snapshots.model import UNKNOWN, DeviceSnapshot, name_ranges
from gmlake.snapshots.peaks import BEFORE
from gmlake.snapshots.sites import Site
from gmlake.trace.layout import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST: Final = 300
_NAMES: Final = {name: number for number, name in enumerate(CATEGORIES) if number != UNKNOWN}


def category_of(text: str) -> int:
    """Return the category that a text names, as "activation" or "optimizer_state"; else UNKNOWN."""
    return _NAMES.get(text.strip().lower().replace("_", " "), UNKNOWN)


def apply_annotations(seen: DeviceSnapshot, events: Events, sites: dict[int, Site]) -> None:
    """Give annotated blocks sites of their own, and blocks the categories that texts name.

    events: those of the device in the file. sites: by their numbers; new ones are added.
    """
    texts = _texts(seen, events)
    told = _told_by_sites(seen, sites)
    numbers = {site: number for number, site in sites.items()} if texts else {}
    start = seen.trace.start_blocks
    place = {number: index for index, number in enumerate(start["id"].tolist())} if texts else {}
    for block, text in texts.items():
        if category_of(text) != UNKNOWN:
            told[block] = category_of(text)
            continue
        old = sites.get(int(seen.lives.site[block]), Site())
        site = replace(old, scope=" · ".join(filter(None, (old.scope, text))))
        number = numbers.setdefault(site, max(sites, default=0) + 1)
        sites[number] = site
        seen.lives.site[block] = number
        born = int(seen.lives.born[block])
        if born >= 0:
            seen.event_sites[born] = number
        elif block in place:
            seen.start_sites[place[block]] = number
    if (told != UNKNOWN).any():
        seen.told_categories = told
    if texts:
        name_ranges(seen)


def _told_by_sites(seen: DeviceSnapshot, sites: dict[int, Site]) -> NDArray[np.int8]:
    """Return for each block the category that the metadata of its request names."""
    told = np.full(len(seen.categories), UNKNOWN, np.int8)
    for number, site in sites.items():
        category = category_of(site.scope)
        if category != UNKNOWN:
            told[seen.lives.site == number] = category
    return told


def _texts(seen: DeviceSnapshot, events: Events) -> dict[int, str]:
    """Return the last annotation of each block that has one, by its id."""
    notes = notes_of(events)
    if not notes:
        return {}
    behind = np.cumsum(are_rows(events))
    row_of = np.append(np.flatnonzero(seen.events["kind"] != Kind.MARK), BEFORE)
    lives = seen.lives
    wanted = np.array([address for _, address, _ in notes], np.uint64)
    blocks: dict[int, list[tuple[int, int]]] = {}
    found = np.flatnonzero(np.isin(lives.address, wanted) & (lives.size_bytes > 0))
    for block in found[np.argsort(lives.born[found], kind="stable")].tolist():
        birth = int(lives.born[block]), block
        blocks.setdefault(int(lives.address[block]), []).append(birth)
    texts = {}
    for event, address, text in notes:
        row = int(row_of[int(behind[event]) - 1])
        births = blocks.get(address, [])
        place = bisect_right(births, (row, len(lives.born))) - 1
        if place >= 0 and lives.died[births[place][1]] > row:
            texts[births[place][1]] = text[:_LONGEST]
    return texts
