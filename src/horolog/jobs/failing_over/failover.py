"""`horolog.jobs.failover`: groups continue in another cluster without losing a record."""

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import SparkSession

from horolog.errors import Misconfigured
from horolog.jobs.failing_over import planning
from horolog.jobs.failing_over.applying import Applied, check_cluster, commit, unproven
from horolog.jobs.failing_over.looking import check_same_cluster, look
from horolog.jobs.failing_over.planning import Cautions, FailoverPlan
from horolog.jobs.failing_over.recorded import Recorded
from horolog.jobs.failing_over.recording import Recording, record_once
from horolog.jobs.selection import client_of
from horolog.jobs.state import JobState
from horolog.sources import java_patterns
from horolog.sources.location import Location

MARGIN_MS = 60_000
"""Added to what was measured: clocks of two clusters differ, and producers may stamp twice."""
LIVE_MS = 30_000
_RECORDED, _PLAN = "recorded", "plan"


def failover(spark: SparkSession, *, state: str | os.PathLike[str]) -> "Failover":
    """The three steps of a failover, around one state directory.

        steps = jobs.failover(spark, state="failover")
        steps.record(source="east:9092", groups=["shop"])     # again and again
        steps.plan(target="west:9092")                        # once east is gone
        steps.apply(target="west:9092")

    See `horolog.jobs.failing_over` for what is lost when: nothing, if no record takes longer to
    the source's log than the longest that was recorded, plus the margin.
    """
    return Failover(spark, state)


class Failover:
    """A state directory, which one step at a time uses; copy it to where the survivor is.

    Only `apply` needs no session.
    """

    def __init__(self, spark: SparkSession | None, state: str | os.PathLike[str]) -> None:
        self._spark = spark
        self._path = state

    def record(
        self,
        *,
        source: str | os.PathLike[str],
        groups: Sequence[str] = (),
        groups_pattern: str | None = None,
        topics: str | Iterable[str] | None = None,
        topics_pattern: str | None = None,
        settings: Mapping[str, str] | None = None,
        live_ms: int = LIVE_MS,
    ) -> Recording:
        """Record until when groups have read, and how long records take, while the source lives.

        It reads what was appended since the recording before it, and a stretch of the log from
        where a group is that has committed something since.

        Args:
            source: the cluster that the groups read.
            groups: their names.
            groups_pattern: or those whose whole name matches a regular expression of Java's, if
                they have committed offsets of the topics.
            topics: of those that they have committed offsets of; all without any.
            topics_pattern: or those whose whole name matches a regular expression of Java's.
            settings: of the client.
            live_ms: how long to measure what is appended, where the log keeps one time only; 0
                for not at all.

        Raises:
            Misconfigured: an argument is wrong, or the state is of another cluster.
            HorologError: the cluster cannot be read.
        """
        location = Location.parse(source)
        _check_groups(groups, groups_pattern)
        if not groups and groups_pattern is None:
            raise Misconfigured("give the groups to record: --groups A,B or --groups-pattern RE")
        names = topics.split(",") if isinstance(topics, str) else topics or ()
        given = [name.strip() for name in names if name.strip()]
        with self._state() as state:
            recorded = _read(state)
            looked = look(location, settings or {}, groups, groups_pattern, given, topics_pattern)
            if recorded is None:
                recorded = Recorded(looked.cluster_id, str(location))
            check_same_cluster(recorded, looked, location)
            found = record_once(self._session, location, settings or {}, looked, recorded, live_ms)
            state.write(_RECORDED, recorded.to_json())
        return found

    def plan(
        self,
        *,
        target: str | os.PathLike[str],
        groups: Sequence[str] = (),
        groups_pattern: str | None = None,
        settings: Mapping[str, str] | None = None,
        margin_ms: int = MARGIN_MS,
        bound_ms: int | None = None,
        same_partitions: bool = False,
        ignore_odd_times: bool = False,
    ) -> FailoverPlan:
        """Plan where groups start on the survivor; the source is not asked.

        Args:
            target: the survivor.
            groups: the names of some that were recorded; all without any.
            groups_pattern: or a regular expression of Java's for whole names.
            settings: of the client.
            margin_ms: added to every bound.
            bound_ms: instead of the largest that was recorded.
            same_partitions: both clusters have the same partitions, and producers that put a
                record into the one of the same number: less is read again.
            ignore_odd_times: let records without a time, or with one in another unit, be lost.

        Raises:
            Misconfigured: nothing was recorded, or the target is the source.
            HorologError: the survivor cannot be read.
        """
        for name, given in (("margin", margin_ms), ("bound", bound_ms)):
            if given is not None and given < 0:
                raise Misconfigured(f"{name} is {given} ms; it is not below zero")
        with self._state() as state:
            recorded = _read(state)
            if recorded is None:
                raise Misconfigured(f"{state.path} holds no recording: run failover record first")
            chosen = _chosen(recorded.groups, groups, groups_pattern, "was never recorded")
            cautions = Cautions(margin_ms, bound_ms, same_partitions, ignore_odd_times)
            found = planning.plan(
                self._session,
                recorded,
                Location.parse(target, "target"),
                settings or {},
                cautions,
                uuid.uuid4().hex,
                chosen,
            )
            state.write(_PLAN, found.to_json())
        return found

    def apply(
        self,
        *,
        target: str | os.PathLike[str],
        groups: Sequence[str] = (),
        groups_pattern: str | None = None,
        settings: Mapping[str, str] | None = None,
        dry_run: bool = False,
        overwrite: bool = False,
        accept_unproven: bool = False,
    ) -> list[Applied]:
        """Commit the plan, group by group; a group that was committed is left alone.

        A run that was killed is run again. Groups that have members are refused, as brokers
        refuse commits of others for them.

        Args:
            target: the survivor.
            groups: the names of some that were planned; all without any.
            groups_pattern: or a regular expression of Java's for whole names.
            settings: of the client.
            dry_run: commit nothing.
            overwrite: commit for groups, too, that have committed other offsets at the survivor,
                or have been committed by this plan before.
            accept_unproven: commit for groups, too, of which records could be missing.

        Raises:
            Misconfigured: there is no plan, it is of another cluster, or without such groups.
            HorologError: the survivor cannot be reached.
        """
        with self._state() as state:
            document = state.read(_PLAN)
            if document is None:
                raise Misconfigured(f"{state.path} holds no plan: run failover plan first")
            found = FailoverPlan.from_json(document)
            offsets = found.offsets()
            planned = {each.group for each in found.starts}
            chosen = _chosen(planned, groups, groups_pattern, "is not in the plan")
            done = {each for each in chosen if not overwrite and _key(found, each) in state.done}
            refused = [] if accept_unproven else unproven(found, chosen - done)
            left = chosen - done - {each.group for each in refused}
            applied = [*(Applied(each, 0, 0) for each in sorted(done)), *refused]
            with client_of(Location.parse(target, "target"), settings or {}) as client:
                check_cluster(client, found)
                missing = {group: offsets[group] for group in left if group in offsets}
                for each in commit(client, missing, dry_run=dry_run, overwrite=overwrite):
                    if each.error is None and not dry_run:
                        state.record([(_key(found, each.group), {"offsets": each.offsets})])
                    applied.append(each)
        return sorted(applied, key=lambda each: each.group)

    @property
    def _session(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    def _state(self) -> JobState:
        return JobState(self._path, "failover", {})


def _key(plan: FailoverPlan, group: str) -> str:
    return f"{plan.id}/{group}"


def _check_groups(groups: Sequence[str], pattern: str | None) -> None:
    if groups and pattern is not None:
        raise Misconfigured("give groups or groups-pattern, not both")


def _chosen(
    known: Iterable[str], groups: Sequence[str], pattern: str | None, not_: str
) -> set[str]:
    """Those of the groups that are chosen.

    Raises:
        Misconfigured: one that is named is not among them, or none matches the pattern.
    """
    _check_groups(groups, pattern)
    known = set(known)
    if pattern is not None:
        matches = java_patterns.compiled(pattern).fullmatch
        found = {each for each in known if matches(each)}
        if not found:
            raise Misconfigured(f"no group that matches {pattern} {not_}")
        return found
    for each in groups:
        if each not in known:
            raise Misconfigured(f"group {each} {not_}")
    return set(groups) or known


def _read(state: JobState) -> Recorded | None:
    document = state.read(_RECORDED)
    return None if document is None else Recorded.from_json(document)
