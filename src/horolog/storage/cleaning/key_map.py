"""Latest offset of each key of a log, in a table of fixed size: 24 bytes for each key.

A key is stored as 128 bits of a hash under a secret. Each pass has a new secret, so that no
producer can send a key with the hash of another one.
"""

import secrets
from typing import Final

import numpy as np

from horolog.record import cleaning
from horolog.record.cleaning import CleaningVerdict, Keys, UInt64Array

LOAD_FACTOR: Final = 0.9
"""Share of slots in use: the default of `log.cleaner.io.buffer.load.factor`."""
_SLOTS_A_KEY: Final = 2  # where few keys can come: then most are found at once


class KeyMap:
    """Table of keys. It is filled from the dirty part of a log, then judges each record."""

    def __init__(self, memory_bytes: int, load_factor: float = LOAD_FACTOR) -> None:
        """Create an empty table.

        Args:
            memory_bytes: that it may take; it takes them as it fills.
            load_factor: the share of its slots that is used, above 0 and at most 1.
        """
        self._slots = max(1, memory_bytes // cleaning.SLOT_BYTES)
        self._capacity = max(1, min(self._slots, int(self._slots * load_factor)))
        self.clear(self._slots)

    def clear(self, most_keys: int) -> None:
        """Remove all keys, and choose a new secret.

        Args:
            most_keys: that will be put. A table that is not larger than they need stays in the
                processor's caches: one of 128 MiB costs a page fault for nearly each of few keys.
        """
        slots = min(self._slots, _SLOTS_A_KEY * max(1, most_keys))
        self._table = cleaning.new_table(slots)
        self._room = self._capacity
        self.secret: UInt64Array = np.frombuffer(secrets.token_bytes(16), np.uint64).copy()
        self.end_offset = 0
        """Records from this offset on are not in the map."""

    def __len__(self) -> int:
        return self._capacity - self._room

    @property
    def capacity(self) -> int:
        """Number of keys that fit."""
        return self._capacity

    def put(self, keys: Keys, from_offset: int = 0) -> int:
        """Store the latest offset of each key.

        Args:
            keys: of records in the order of their offsets, behind those that were put before.
            from_offset: records before that are passed, and those without a key are.

        Returns:
            How many records, from the first on, were noted or passed. Where they are not all, the
            next one has no room, and the map is full.
        """
        noted, self._room = cleaning.note_offsets(self._table, keys, from_offset, self._room)
        return noted

    def judge(
        self, keys: Keys, *, keeps_tombstones: bool, keeps_keyless: bool = False
    ) -> CleaningVerdict:
        """Return the records that remain (`record.cleaning.judge`)."""
        return cleaning.judge(
            self._table,
            keys,
            self.end_offset,
            keeps_tombstones=keeps_tombstones,
            keeps_keyless=keeps_keyless,
        )
