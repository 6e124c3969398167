"""What `make test` leaves to `make test-long`: more seeds, stores and kinds of what its quicker tests hold as well.

A test that is asked for by its file or its id runs, whatever stands here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

#: Ids of tests: without those of a parameter all of its cases, and with `[10..19]` ten of them.
_LEFT_OUT: Final = (
    "tests/backing/chaos/test_chaos.py::test_a_tormented_server_serves_what_the_database_has[notify]",
    "tests/backing/chaos/test_chaos.py::test_a_tormented_server_serves_what_the_database_has[sqlite]",
    "tests/backing/test_conditions.py::test_one_of_many_takes_a_key_and_no_swap_is_lost[notify]",
    "tests/backing/test_deadlines.py::test_conditions_adds_and_transactions_go_by_deadlines_that_another_server_has_set[notify]",
    "tests/backing/test_deadlines.py::test_forgotten_rows_leave_no_deadline_and_loaded_ones_take_little[notify]",
    "tests/backing/test_deadlines.py::test_two_servers_agree_with_the_model_at_every_moment[notify-1]",
    "tests/backing/test_deadlines.py::test_two_servers_agree_with_the_model_at_every_moment[notify-2]",
    "tests/backing/test_deadlines.py::test_two_servers_agree_with_the_model_at_every_moment[slot-1]",
    "tests/backing/test_deadlines.py::test_two_servers_agree_with_the_model_at_every_moment[slot-2]",
    "tests/backing/test_deadlines.py::test_two_servers_agree_with_the_model_at_every_moment[sqlite-1]",
    "tests/backing/test_deadlines.py::test_two_servers_agree_with_the_model_at_every_moment[sqlite-2]",
    "tests/backing/test_generic.py::test_any_bytes_are_keys_and_values_and_sort_as_bytes[notify]",
    "tests/backing/test_large_writes.py::test_a_large_commit_of_what_is_loaded_stops_nobody[sqlite]",
    "tests/backing/test_large_writes.py::test_a_large_commit_that_nobody_reads_stops_nobody_and_is_not_read[sqlite]",
    "tests/backing/test_large_writes.py::test_many_rows_are_put_through_in_slices_and_all_or_none[sqlite]",
    "tests/backing/test_levels_after_failover.py::test_a_token_holds_up_to_the_fork_and_is_lost_beyond_it[notify]",
    "tests/backing/test_levels_of_databases.py::test_a_session_reads_its_writes_and_never_goes_back_between_servers[notify]",
    "tests/backing/test_levels_of_databases.py::test_a_token_of_a_writers_own_connection_is_waited_for_at_every_server[notify]",
    "tests/backing/test_levels_of_databases.py::test_the_latest_and_the_youngest_are_what_is_committed[notify]",
    "tests/backing/test_removals.py::test_a_removal_says_what_the_database_found[notify-compute]",
    "tests/backing/test_removals.py::test_a_removal_says_what_the_database_found[notify-home]",
    "tests/backing/test_removals.py::test_a_removed_range_has_no_rows_in_the_database[notify-compute]",
    "tests/backing/test_removals.py::test_a_removed_range_has_no_rows_in_the_database[notify-home]",
    "tests/backing/test_searches.py::test_reads_by_fields_equal_what_is_committed_to_postgresql[notify]",
    "tests/backing/test_searches.py::test_reads_by_fields_equal_what_is_committed_to_sqlite[3..5]",
    "tests/backing/test_transactions.py::test_racing_transfers_by_adds_at_two_servers_keep_the_sum[notify]",
    "tests/backing/test_transactions.py::test_transfers_of_racing_writers_at_two_servers_keep_the_sum[notify]",
    "tests/backing/test_twip.py::test_a_database_that_is_restarted_loses_nothing[slot]",
    "tests/backing/test_twip.py::test_a_thousand_absent_source_ranges_are_two_round_trips[notify]",
    "tests/bench/compare/test_compare.py::test_the_quick_run_is_right_with_whatever_is_installed[8]",
    "tests/bench/compare/test_compare.py::test_the_quick_run_is_right_with_whatever_is_installed[9]",
    "tests/bench/compare/test_compare.py::test_the_quick_run_is_right_with_whatever_is_installed[ycsb]",
    "tests/bench/test_feed.py::test_a_rule_that_is_left_out_shows",
    "tests/bench/test_indexes.py::test_an_index_that_lost_an_entry_ends_it",
    "tests/bench/test_scale.py::test_every_size_is_measured_and_drawn",
    "tests/bench/test_scale.py::test_pauses_are_noted_and_the_collector_is_as_it_was",
    "tests/bench/test_scale.py::test_the_same_points_make_the_same_picture",
    "tests/bench/test_views.py::test_a_hot_view_is_measured_before_and_after_its_split",
    "tests/bench/test_wire.py::test_each_call_of_each_place_is_measured_once",
    "tests/client/test_sessions_beside.py::test_sessions_over_two_servers_beside_postgresql_never_miss_their_writes[notify]",
    "tests/cluster/test_moved_ids.py::test_what_was_done_before_or_while_its_range_moved_is_not_done_again_at_the_new_home[folder-nothing]",
    "tests/cluster/test_moved_ids.py::test_what_was_done_before_or_while_its_range_moved_is_not_done_again_at_the_new_home[sqlite-postgres]",
    "tests/cluster/test_moves_killed.py::test_a_move_loses_nothing_when_something_is_killed_in_the_middle[command]",
    "tests/cluster/test_moves_killed.py::test_a_move_loses_nothing_when_something_is_killed_in_the_middle[h2]",
    "tests/cluster/test_moves_steps.py::test_what_is_killed_at_a_step_comes_back_and_nothing_is_lost",
    "tests/cluster/test_through_servers.py::test_a_compute_follows_servers_through_their_stops_and_ends",
    "tests/cluster/test_through_servers.py::test_a_server_that_is_cut_off_from_etcd_is_left_and_a_follower_that_is_goes_on",
    "tests/cluster/test_through_servers.py::test_an_etcd_that_is_lost_is_put_right_by_a_follower_too",
    "tests/cluster/test_through_servers.py::test_followers_of_followers_and_circles_watch_etcd",
    "tests/cluster/test_through_servers.py::test_what_an_operator_asks_of_a_follower_stands_through_changes",
    "tests/cluster_client/test_sender.py::test_writes_are_applied_in_the_order_of_sending[40..99]",
    "tests/cluster_faults/test_chaos.py::test_a_tormented_cluster_shows_sessions_their_writes_and_is_exact_afterwards[2]",
    "tests/cluster_faults/test_compose.py::test_the_setup_makes_tables_feeds_and_map_once",
    "tests/cluster_faults/test_upgrades.py::test_servers_are_upgraded_one_after_the_other_and_no_read_is_wrong",
    "tests/disk/test_beyond.py::test_answers_are_exact_over_evictions_restarts_and_kills[1]",
    "tests/disk/test_beyond.py::test_answers_are_exact_over_evictions_restarts_and_kills[2]",
    "tests/disk/test_kills.py::test_ten_kills_lose_nothing_that_was_acknowledged[grpcio]",
    "tests/disk/test_opening.py::test_no_damage_is_hidden[20..49]",
    "tests/disk/test_tools.py::test_a_damaged_folder_is_repaired_and_keeps_all_that_can_be_read[10..19]",
    "tests/engine/test_exactness.py::test_random_walks_agree[rest]",
    "tests/engine/test_exactness.py::test_random_walks_over_fields_of_several_sources_agree[rest]",
    "tests/engine/test_exactness.py::test_random_walks_over_records_agree[rest]",
    "tests/engine/test_exactness.py::test_random_walks_over_records_of_a_database_agree[rest]",
    "tests/engine/test_exactness.py::test_random_walks_over_records_that_a_database_is_searched_for_agree[rest]",
    "tests/engine/test_exactness.py::test_random_walks_with_a_database_agree[rest]",
    "tests/engine/test_exactness.py::test_random_walks_with_backfills_agree[rest]",
    "tests/engine/test_exactness.py::test_random_walks_with_replacements_agree[rest]",
    "tests/engine/test_numerals.py::test_joins_see_each_number_as_a_model_of_decimals_does[2..3]",
    "tests/freshness/test_freshness.py::test_a_session_sees_its_own_writes_at_the_other_server[notify]",
    "tests/freshness/test_freshness.py::test_a_session_sees_its_own_writes_at_the_other_server[sqlite]",
    "tests/freshness/test_freshness.py::test_the_same_run_without_tokens_misses_writes[sqlite]",
    "tests/gateway/test_watches.py::test_readers_that_come_and_go_show_what_a_scan_shows[2]",
    "tests/groups/test_exactness.py::test_answers_are_exact_at_the_tokens_vector[4..7]",
    "tests/lake/test_bounds.py::test_a_merge_has_a_bounded_number_of_rows_in_memory_however_few_values_the_key_begins_with[2]",
    "tests/lake/test_bounds.py::test_a_merge_has_a_bounded_number_of_rows_in_memory_however_few_values_the_key_begins_with[5000]",
    "tests/lake/test_bounds.py::test_a_merge_has_a_bounded_number_of_rows_in_memory_however_few_values_the_key_begins_with[7]",
    "tests/lake/test_bounds.py::test_expire_makes_room_on_a_full_disk[closed]",
    "tests/lake/test_columns.py::test_columns_come_and_go_at_each_stage[postgres]",
    "tests/lake/test_columns.py::test_columns_come_and_go_at_each_stage[s3]",
    "tests/lake/test_faults.py::test_after_a_fault_the_lake_equals_a_replay_of_what_it_acknowledged[0]",
    "tests/lake/test_fence.py::test_a_step_of_a_worker_that_was_taken_for_dead_is_done_again[merge-postgres]",
    "tests/lake/test_fence.py::test_a_step_of_a_worker_that_was_taken_for_dead_is_done_again[remap-postgres]",
    "tests/lake/test_fence.py::test_a_step_of_a_worker_that_was_taken_for_dead_is_done_again[sort-postgres]",
    "tests/lake/test_fence.py::test_an_upload_whose_files_a_sweep_deleted_is_refused_and_taken_when_it_is_sent_again[postgres]",
    "tests/lake/test_kinds.py::test_a_snapshot_keeps_its_files_and_the_past_is_kept_until_it_expires[postgres]",
    "tests/lake/test_kinds.py::test_a_snapshot_keeps_its_files_and_the_past_is_kept_until_it_expires[sqlite]",
    "tests/lake/test_kinds.py::test_every_freshness_equals_a_replay[postgres]",
    "tests/lake/test_kinds.py::test_every_freshness_equals_a_replay[sqlite]",
    "tests/lake/test_kinds.py::test_two_workers_share_steps_and_one_that_ended_leaves_its_own[postgres]",
    "tests/lake/test_leases.py::test_what_a_lease_names_stays_until_it_ends[postgres]",
    "tests/lake/test_ranges.py::test_a_merge_writes_what_an_update_touches_and_readers_read_what_they_need[postgres]",
    "tests/lake/test_ranges.py::test_a_merge_writes_what_an_update_touches_and_readers_read_what_they_need[s3]",
    "tests/lake/test_ranges.py::test_a_walk_of_updates_and_deaths_equals_a_dictionary[1]",
    "tests/lake/test_ranges.py::test_few_rows_become_a_delta_and_many_are_brought_into_the_files[postgres]",
    "tests/lake/test_ranges.py::test_few_rows_become_a_delta_and_many_are_brought_into_the_files[s3]",
    "tests/lake/test_replay.py::test_every_freshness_equals_a_replay_of_the_acknowledged_uploads[0]",
    "tests/lake/test_replay.py::test_every_freshness_equals_a_replay_of_the_acknowledged_uploads[2]",
    "tests/lake/test_staging.py::test_files_of_several_tasks_become_one_scu_and_pass_all_stages[postgres]",
    "tests/linearizable/test_linearizable.py::test_reads_of_any_state_at_such_servers_are_found",
    "tests/linearizable/test_linearizable.py::test_reads_of_the_latest_wait_for_servers_that_are_told_late",
    "tests/native/test_rest_ids.py::test_what_is_left_is_answered_and_remembered_as_in_python[150..299]",
    "tests/once/test_batches.py::test_a_batch_that_comes_again_in_any_way_is_done_once[100..199]",
    "tests/spark/test_lake_killed.py::test_drivers_and_tasks_are_killed_and_each_row_arrives_once",
    "tests/lake/test_verify.py::test_faults_of_a_catalog_elsewhere_are_found[s3-a delta that is lost]",
    "tests/lake/test_verify.py::test_faults_of_a_catalog_elsewhere_are_found[s3-a file that the catalog lost]",
    "tests/lake/test_verify.py::test_faults_of_a_catalog_elsewhere_are_found[s3-ids that are given again]",
    "tests/native/test_rest_ids.py::test_what_is_left_is_answered_and_remembered_as_in_python[75..149]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[bench]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[cassandra]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[demo]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[files]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[jwt]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[lake-postgres]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[otel]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[redis]",
    "tests/packaging/test_extras.py::test_an_extra_alone_does_what_it_is_for[shell]",
    "tests/peer/test_exactness.py::test_answers_of_two_computes_are_those_of_their_tokens[2..3]",
    "tests/peer/test_exports.py::test_answers_from_exported_rows_are_those_of_their_tokens[2]",
    "tests/peer/test_exports.py::test_answers_from_exported_rows_are_those_of_their_tokens[3]",
    "tests/peer/test_failures.py::test_answers_are_those_of_their_tokens_while_feeds_break_and_rings_are_short[1]",
    "tests/peer/test_failures.py::test_commits_that_are_told_in_parts_are_seen_as_a_whole[1]",
    "tests/peer/test_failures.py::test_commits_that_are_told_in_parts_are_seen_as_a_whole[2]",
    "tests/peer/test_postgres.py::test_a_home_that_dies_is_replaced_by_one_with_a_feed_of_its_own[notify]",
    "tests/peer/test_relays.py::test_answers_behind_relays_are_those_of_their_tokens_while_feeds_break[1]",
    "tests/peer/test_relays.py::test_relays_that_are_killed_and_stopped_only_make_what_is_behind_them_late",
    "tests/peer/test_relays.py::test_servers_that_are_behind_each_other_go_back_to_the_home",
    "tests/server/test_held.py::test_refused_calls_are_not_held[tricks1]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_however_many_puts_begin_at_once[puts-at-once-False-settings0]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_however_many_puts_begin_at_once[puts-beside-watches-True-settings2]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_however_many_puts_begin_at_once[puts-beside-watches-True-settings3]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_with_much_of_it_for_messages_and_all_else_taken_by_data",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[batches-at-once]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[batches-unfinished]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[batches-unread]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[calls-at-once]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[calls-unfinished]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[rows-unread]",
    "tests/server/test_held.py::test_the_process_keeps_the_limit_whatever_clients_leave[watches-unread]",
    "tests/server/test_reused.py::test_what_joins_and_rows_were_there_before_changes_no_answer[2..3]",
    "tests/simulation/test_clusters.py::test_a_copy_without_the_last_changes_is_found",
    "tests/simulation/test_clusters.py::test_a_move_that_does_not_wait_for_the_servers_is_found",
    "tests/simulation/test_peers.py::test_a_home_that_resumes_a_feed_although_changes_are_missing_is_found",
    "tests/simulation/test_peers.py::test_a_release_of_what_is_loaded_again_is_found",
    "tests/simulation/test_relays.py::test_servers_that_stay_behind_each_other_are_found",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[g-None]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[l-None]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[m-0]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[n-None]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[r-None]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[v-None]",
    "tests/spark/test_backfill.py::test_what_spark_loads_while_others_write_is_exact[w-0]",
    "tests/spark/test_backfilled_records.py::test_random_joins_over_records_are_backfilled[1]",
    "tests/spark/test_backfilled_records.py::test_random_joins_over_records_are_backfilled[2]",
    "tests/spark/test_backfilled_records.py::test_random_joins_over_records_are_backfilled[3]",
    "tests/spark/test_contributions.py::test_contributions_combine_as_in_the_engine[count]",
    "tests/spark/test_batches.py::test_whatever_the_limits_and_restarts_each_key_s_changes_come_once_and_in_order[1..2]",
    "tests/spark/test_connect.py::test_a_client_of_spark_connect_reads_writes_looks_up_and_streams",
    "tests/spark/test_contributions.py::test_contributions_combine_as_in_the_engine[max]",
    "tests/spark/test_contributions.py::test_contributions_combine_as_in_the_engine[min]",
    "tests/spark/test_contributions.py::test_contributions_combine_as_in_the_engine[sum]",
    "tests/spark/test_lake_writer.py::test_operations_of_rows_and_of_streams_go_from_lake_to_lake",
    "tests/spark/test_loads.py::test_all_rows_and_contexts_are_loaded[30..59]",
    "tests/spark/test_narrowing.py::test_a_filter_leaves_the_next_scan_alone[false]",
    "tests/spark/test_narrowing.py::test_a_filter_of_what_is_cached_leaves_it_whole[false]",
    "tests/spark/test_narrowing.py::test_options_narrow_what_is_read[false]",
    "tests/spark/test_narrowing.py::test_scans_of_a_view_leave_each_other_alone[false]",
    "tests/spark/test_narrowing.py::test_scans_of_one_query_leave_each_other_alone[false]",
    "tests/spark/test_plan.py::test_random_joins_give_what_the_model_gives[3..9]",
    "tests/spark/test_plan.py::test_random_joins_over_records_give_what_the_model_gives[2..5]",
    "tests/spark/test_plan.py::test_random_joins_that_keep_rows_give_what_the_model_gives[2..3]",
    "tests/spark/test_plan.py::test_twip_and_newp_from_parquet_give_what_the_engine_gives[newp]",
    "tests/spark/test_replay.py::test_what_servers_hold_after_a_replay_is_what_the_joins_make_of_it[newp-options1-kinds1]",
    "tests/spark/test_twip.py::test_the_same_seed_gives_the_same_rows_however_partitioned",
    "tests/spark/test_verify.py::test_joins_over_records_are_verified",
    "tests/views/chaos/test_views_chaos.py::test_tables_are_equal_to_scans_after_kills[sqlite]",
    "tests/views/test_classes.py::test_a_class_in_postgres_while_the_server_dies[index]",
    "tests/views/test_classes.py::test_a_class_in_postgres_while_the_server_dies[sum]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[count_of_join]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[count_of_selection]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[join_with_count]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[max]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[max_of_join]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[projection]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[selection]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[selection_and_projection]",
    "tests/views/test_classes.py::test_a_class_in_sqlite[sum_of_join]",
    "tests/watching/test_watching.py::test_the_judge_finds[leave_out_a_change-reliable]",
    "tests/workers/test_behind.py::test_what_is_written_at_one_worker_is_read_at_all_and_outlives_them[postgres-native]",
    "tests/workers/test_behind.py::test_what_is_written_at_one_worker_is_read_at_all_and_outlives_them[sqlite-grpcio]",
    "tests/workers/test_behind.py::test_what_is_written_at_one_worker_is_read_at_all_and_outlives_them[sqlite-native]",
)


def _written_out(name: str) -> list[str]:
    """Return the ids of a row: several of one with a range."""
    if (found := re.search(r"\[(\d+)\.\.(\d+)\]$", name)) is None:
        return [name]
    return [f"{name[: found.start()]}[{number}]" for number in range(int(found[1]), int(found[2]) + 1)]


LEFT_OUT: Final = frozenset(one for name in _LEFT_OUT for one in _written_out(name))


def add_options(parser: pytest.Parser) -> None:
    """Add the two choices of the Makefile."""
    group = parser.getgroup("pequod")
    group.addoption("--short", action="store_true", help="leave out the tests that tests/left_out.py lists")
    group.addoption("--long", action="store_true", help="run only the tests that tests/left_out.py lists")


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take from `items` what the options leave out.

    Raises:
        pytest.UsageError: A listed id is that of no test: its file is not there, or was collected whole without it.
    """
    short, long = config.getoption("short"), config.getoption("long")
    if not short and not long:
        return
    if unknown := _unknown(config, items):
        raise pytest.UsageError(f"tests/left_out.py lists what is no test: {', '.join(unknown)}")
    out = [item for item in items if _is_left_out(item.nodeid) is short]
    items[:] = [item for item in items if _is_left_out(item.nodeid) is not short]
    config.hook.pytest_deselected(items=out)


def _unknown(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    # Of a file some tests of which were asked for by their ids, the others were not collected.
    asked = {argument.partition("::")[0] for argument in config.args if "::" in argument}
    cut = {Path(config.invocation_params.dir, file).resolve() for file in asked}
    found = {name for item in items for name in (item.nodeid, item.nodeid.partition("[")[0])}
    collected = {item.nodeid.partition("::")[0] for item in items if item.path not in cut}
    files = {name: name.partition("::")[0] for name in LEFT_OUT if name not in found}
    unknown = (name for name, file in files.items() if file in collected or not (config.rootpath / file).exists())
    return sorted(unknown)


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.partition("[")[0] in LEFT_OUT
