-- name: Admit :many
-- Decides for a batch of requests with distinct ids.
SELECT * FROM admit(
    p_ids => @ids::uuid[],
    p_groups => @groups::text[],
    p_edges => @edges::text[],
    p_modes => @modes::text[],
    p_max_served => @max_served::integer,
    p_max_pending => @max_pending::integer,
    p_lease => sqlc.narg('lease')::interval,
    p_stale => @stale::interval,
    p_skip => @skip::boolean,
    p_now => sqlc.narg('now')::timestamptz
);

-- name: DatabaseTime :one
-- The time that leases are measured by.
SELECT clock_timestamp()::timestamptz AS now;

-- name: EdgeStatus :many
-- Takes one part of the status of an edge.
SELECT * FROM edge_status(
    p_edge => @edge::text,
    p_epoch => @epoch::bigint,
    p_lease => @lease::interval,
    p_stale => sqlc.narg('stale')::interval,
    p_part => @part::integer,
    p_parts => @parts::integer,
    p_waiting => @waiting::uuid[],
    p_active => @active::uuid[],
    p_max_served => @max_served::integer,
    p_now => sqlc.narg('now')::timestamptz
);

-- name: ExpirePending :many
-- Takes waiting requests back.
SELECT * FROM expire_pending(
    p_ids => @ids::uuid[],
    p_groups => @groups::text[],
    p_edges => @edges::text[],
    p_max_served => @max_served::integer,
    p_lease => sqlc.narg('lease')::interval,
    p_skip => @skip::boolean,
    p_now => sqlc.narg('now')::timestamptz
);

-- name: PromoteWaiting :many
-- Promotes wherever there is room.
SELECT * FROM promote_waiting(
    p_max_served => @max_served::integer,
    p_now => sqlc.narg('now')::timestamptz
);

-- name: PruneIdleGroups :one
-- Forgets groups that have been empty for long.
SELECT prune_idle_groups(
    p_idle => @idle::interval,
    p_now => sqlc.narg('now')::timestamptz
);

-- name: QueueTotals :one
-- Sums over all groups.
SELECT coalesce(sum(active_count), 0)::bigint AS active,
       coalesce(sum(pending_count), 0)::bigint AS waiting,
       count(*) AS groups
FROM group_state;

-- name: ReclaimDeadEdges :many
-- Frees what belongs to edges without a live lease.
SELECT * FROM reclaim_dead_edges(
    p_max_served => @max_served::integer,
    p_now => sqlc.narg('now')::timestamptz
);

-- name: ReconcileStale :many
-- Frees what is abandoned and corrects counts.
SELECT * FROM reconcile_stale(
    p_max_served => @max_served::integer,
    p_stale => @stale::interval,
    p_lease => @lease::interval,
    p_now => sqlc.narg('now')::timestamptz
);

-- name: ReleaseAndPromote :many
-- Removes requests and promotes.
SELECT * FROM release_and_promote(
    p_ids => @ids::uuid[],
    p_groups => @groups::text[],
    p_edges => @edges::text[],
    p_max_served => @max_served::integer,
    p_lease => sqlc.narg('lease')::interval,
    p_skip => @skip::boolean,
    p_now => sqlc.narg('now')::timestamptz
);
