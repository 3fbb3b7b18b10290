"""Lookup of the stretch that contains each of many offsets."""

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


def stretch_of(starts: Int64Array, offsets: Int64Array) -> npt.NDArray[np.intp]:
    """Return the number of the last start at or before each offset; -1 before the first.

    Args:
        starts: starts of the stretches, in order.
        offsets: any offsets; ordered ones, as in an undamaged log, are looked up fastest.
    """
    if not (offsets[1:] >= offsets[:-1]).all():
        return np.searchsorted(starts, offsets, side="right") - 1
    # Stretches are fewer than offsets: look each of them up, not each offset.
    begins = np.searchsorted(offsets, starts)
    lengths = np.diff(begins, prepend=0, append=len(offsets))
    return np.repeat(np.arange(-1, len(starts), dtype=np.intp), lengths)
