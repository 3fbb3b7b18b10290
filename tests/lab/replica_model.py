"""The log of a replica as a list: who wrote each offset, and in which leader epoch."""

from collections.abc import Sequence

from horolog.storage import EpochStart


class Model:
    """A log as a list: in which epoch, and by which leader, each offset was written."""

    def __init__(self, records: Sequence[tuple[int, str]] = ()) -> None:
        self.records = list(records)

    def append(self, epoch: int, leader: str, count: int) -> None:
        self.records += [(epoch, leader)] * count

    @property
    def epochs(self) -> list[EpochStart]:
        starts: dict[int, int] = {}
        for offset, (epoch, _) in enumerate(self.records):
            starts.setdefault(epoch, offset)
        return [EpochStart(*each) for each in starts.items()]

    def end_of(self, epoch: int, leads_in: int) -> tuple[int, int]:
        """The leader's answer, as Apache Kafka's cache of leader epochs gives it."""
        starts = self.epochs
        if not starts or starts[-1].epoch != leads_in:
            starts.append(EpochStart(leads_in, len(self.records)))
        later = [each for each in starts if each.epoch > epoch]
        upto = [each for each in starts if each.epoch <= epoch]
        end = later[0].start_offset if later else len(self.records)
        return (upto[-1].epoch if upto else epoch), end
