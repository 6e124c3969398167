"""What `make test` leaves to `make test-long`: more seeds, stores and kinds of what its quicker tests hold as well.

A test that is asked for by its file or its id runs, whatever stands here.
"""

from __future__ import annotations

from typing import Final

import pytest

#: Ids of tests, without those of a parameter all of its cases.
LEFT_OUT: Final = (
    "tests/backing/chaos/test_chaos.py::test_a_tormented_server_serves_what_the_database_has[notify]",
    "tests/backing/test_deadlines.py::test_two_servers_agree_with_the_model_at_every_moment[notify-1]",
    "tests/backing/test_deadlines.py::test_two_servers_agree_with_the_model_at_every_moment[notify-2]",
    "tests/backing/test_large_writes.py::test_a_large_commit_of_what_is_loaded_stops_nobody[sqlite]",
    "tests/backing/test_large_writes.py::test_a_large_commit_that_nobody_reads_stops_nobody_and_is_not_read[sqlite]",
    "tests/backing/test_large_writes.py::test_many_rows_are_put_through_in_slices_and_all_or_none[sqlite]",
    "tests/backing/test_twip.py::test_a_database_that_is_restarted_loses_nothing[slot]",
    "tests/bench/compare/test_compare.py::test_the_quick_run_is_right_with_whatever_is_installed[9]",
    "tests/bench/test_feed.py::test_a_rule_that_is_left_out_shows",
    "tests/bench/test_scale.py::test_pauses_are_noted_and_the_collector_is_as_it_was",
    "tests/bench/test_scale.py::test_the_same_points_make_the_same_picture",
    "tests/cluster/test_moves_steps.py::test_what_is_killed_at_a_step_comes_back_and_nothing_is_lost",
    "tests/cluster_faults/test_chaos.py::test_a_tormented_cluster_shows_sessions_their_writes_and_is_exact_afterwards[2]",
    "tests/cluster_faults/test_upgrades.py::test_servers_are_upgraded_one_after_the_other_and_no_read_is_wrong",
    "tests/disk/test_beyond.py::test_answers_are_exact_over_evictions_restarts_and_kills[1]",
    "tests/freshness/test_freshness.py::test_a_session_sees_its_own_writes_at_the_other_server[notify]",
    "tests/gateway/test_watches.py::test_readers_that_come_and_go_show_what_a_scan_shows[2]",
    "tests/groups/test_exactness.py::test_answers_are_exact_at_the_tokens_vector[4]",
    "tests/groups/test_exactness.py::test_answers_are_exact_at_the_tokens_vector[5]",
    "tests/groups/test_exactness.py::test_answers_are_exact_at_the_tokens_vector[6]",
    "tests/groups/test_exactness.py::test_answers_are_exact_at_the_tokens_vector[7]",
    "tests/lake/test_bounds.py::test_a_merge_has_a_bounded_number_of_rows_in_memory_however_few_values_the_key_begins_with[2]",
    "tests/lake/test_bounds.py::test_a_merge_has_a_bounded_number_of_rows_in_memory_however_few_values_the_key_begins_with[7]",
    "tests/lake/test_bounds.py::test_expire_makes_room_on_a_full_disk[closed]",
    "tests/lake/test_columns.py::test_columns_come_and_go_at_each_stage[s3]",
    "tests/lake/test_faults.py::test_after_a_fault_the_lake_equals_a_replay_of_what_it_acknowledged[0]",
    "tests/lake/test_kinds.py::test_every_freshness_equals_a_replay[postgres]",
    "tests/lake/test_kinds.py::test_every_freshness_equals_a_replay[sqlite]",
    "tests/lake/test_ranges.py::test_a_merge_writes_what_an_update_touches_and_readers_read_what_they_need[s3]",
    "tests/lake/test_ranges.py::test_few_rows_become_a_delta_and_many_are_brought_into_the_files[s3]",
    "tests/lake/test_replay.py::test_every_freshness_equals_a_replay_of_the_acknowledged_uploads[0]",
    "tests/lake/test_verify.py::test_faults_of_a_catalog_elsewhere_are_found[s3-a delta that is lost]",
    "tests/lake/test_verify.py::test_faults_of_a_catalog_elsewhere_are_found[s3-a file that the catalog lost]",
    "tests/lake/test_verify.py::test_faults_of_a_catalog_elsewhere_are_found[s3-ids that are given again]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[bench]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[demo]",
    "tests/peer/test_exports.py::test_answers_from_exported_rows_are_those_of_their_tokens[3]",
    "tests/peer/test_failures.py::test_answers_are_those_of_their_tokens_while_feeds_break_and_rings_are_short[1]",
    "tests/peer/test_failures.py::test_commits_that_are_told_in_parts_are_seen_as_a_whole[1]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_however_many_puts_begin_at_once[puts-at-once-False-settings0]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_however_many_puts_begin_at_once[puts-beside-watches-True-settings2]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[batches-at-once]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[calls-unfinished]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[rows-unread]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[watches-unread]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[l-None]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[m-0]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[n-None]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[r-None]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[w-0]",
    "tests/spark/test_contributions.py::test_contributions_combine_as_in_the_engine[max]",
    "tests/spark/test_contributions.py::test_contributions_combine_as_in_the_engine[sum]",
    "tests/spark/test_narrowing.py::test_a_filter_leaves_the_next_scan_alone[false]",
    "tests/spark/test_narrowing.py::test_options_narrow_what_is_read[false]",
    "tests/spark/test_plan.py::test_random_joins_give_what_the_model_gives[6]",
    "tests/spark/test_plan.py::test_random_joins_give_what_the_model_gives[7]",
    "tests/spark/test_plan.py::test_random_joins_give_what_the_model_gives[8]",
    "tests/spark/test_plan.py::test_random_joins_give_what_the_model_gives[9]",
    "tests/spark/test_plan.py::test_random_joins_over_records_give_what_the_model_gives[5]",
    "tests/views/test_classes.py::test_a_class_in_postgres_while_the_server_dies[index]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[count_of_selection]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[max]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[selection]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[sum_of_join]",
    "tests/workers/test_behind.py::test_what_is_written_at_one_worker_is_read_at_all_and_outlives_them[postgres-native]",
    "tests/workers/test_behind.py::test_what_is_written_at_one_worker_is_read_at_all_and_outlives_them[sqlite-grpcio]",
)


def add_options(parser: pytest.Parser) -> None:
    """Add the two choices of the Makefile."""
    group = parser.getgroup("pequod")
    group.addoption("--short", action="store_true", help="leave out the tests that tests/left_out.py lists")
    group.addoption("--long", action="store_true", help="run only the tests that tests/left_out.py lists")


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take from `items` what the options leave out.

    Raises:
        pytest.UsageError: A listed id is that of no test.
    """
    short, long = config.getoption("short"), config.getoption("long")
    if not short and not long:
        return
    listed = [item for item in items if _is_left_out(item.nodeid)]
    found = {name for item in listed for name in (item.nodeid, item.nodeid.partition("[")[0])}
    if unknown := [name for name in LEFT_OUT if name not in found]:
        raise pytest.UsageError(f"tests/left_out.py lists what is no test: {', '.join(unknown)}")
    out = [item for item in items if _is_left_out(item.nodeid) is short]
    items[:] = [item for item in items if _is_left_out(item.nodeid) is not short]
    config.hook.pytest_deselected(items=out)


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.partition("[")[0] in LEFT_OUT
