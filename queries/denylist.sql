-- name: Enter :exec
-- Begins a transaction of the service: what it does (ccnq.writer), whether a
-- lift forgives, and the time to act at, empty for the clock of the database.
-- Without scans, tables are read by index, key by key: a batch has too many keys
-- for the planner to see that this is faster, and statistics know nothing yet of
-- a day that has just begun. A generic plan takes an array for ten keys.
SELECT set_config('ccnq.writer', @writer::text, true),
       set_config('ccnq.forgive', @forgive::text, true),
       set_config('ccnq.now', @now::text, true),
       set_config('enable_seqscan', @scan::text, true),
       set_config('enable_bitmapscan', @scan::text, true),
       set_config('plan_cache_mode', CASE @scan::text WHEN 'on' THEN 'auto' ELSE 'force_generic_plan' END, true);

-- name: Now :one
SELECT denylist_now()::timestamptz;

-- name: LockBlocks :exec
SELECT lock_blocks();

-- name: LockCheckpoint :one
SELECT created, seq FROM denylist_checkpoint FOR UPDATE;

-- name: Leads :one
-- A statement after LockCheckpoint, so that it sees who took over meanwhile.
SELECT EXISTS (SELECT FROM denylist_leader WHERE epoch = @epoch AND until > denylist_now());

-- name: Lead :one
-- No row means that another holder leads.
INSERT INTO denylist_leader AS l (holder, epoch, until)
VALUES (@holder::text, 1, denylist_now() + @ttl::interval)
ON CONFLICT (one) DO UPDATE
SET holder = excluded.holder, until = excluded.until,
    epoch = l.epoch + CASE WHEN l.holder = excluded.holder THEN 0 ELSE 1 END
WHERE l.holder = excluded.holder OR l.until <= denylist_now()
RETURNING epoch;

-- name: Resign :execrows
UPDATE denylist_leader SET until = denylist_now() WHERE epoch = @epoch AND until > denylist_now();

-- name: GetCheckpoint :one
SELECT created, seq FROM denylist_checkpoint;

-- name: MoveCheckpoint :exec
UPDATE denylist_checkpoint SET created = @created::timestamptz, seq = @seq;

-- name: OutboxPositions :many
SELECT outbox_id, last_seq FROM outbox_position WHERE outbox_id = ANY (@ids::text[]);

-- name: SavePositions :exec
INSERT INTO outbox_position (outbox_id, last_seq, seen)
SELECT unnest(@ids::text[]), unnest(@seqs::bigint[]), unnest(@seens::timestamptz[])
ON CONFLICT (outbox_id) DO UPDATE SET last_seq = excluded.last_seq, seen = excluded.seen;

-- name: Quarantine :exec
INSERT INTO event_quarantine (created, seq, subject, why, payload, at)
SELECT @created::timestamptz, unnest(@seqs::bigint[]), unnest(@subjects::text[]), unnest(@whys::text[]),
       unnest(@payloads::bytea[]), unnest(@ats::timestamptz[])
ON CONFLICT DO NOTHING;

-- name: DenialDays :many
-- What a batch needs of its addresses: the days that it counts, and the
-- exceeded ones in their windows. Place is that of the address, from 1. OFFSET
-- makes the planner look for one address after the other, and only the primary
-- key fits a comparison of rows: by the index on the day it would read all that
-- was counted on it.
SELECT n.place::integer AS place, d.day, d.count, d.ip_group
FROM (SELECT unnest(@ips::text[]) AS ip, generate_subscripts(@ips::text[], 1) AS place) AS n,
     LATERAL (SELECT c.day, c.count, c.ip_group FROM ip_denial_count c
              WHERE c.ip = n.ip AND (c.ip, c.day) >= (n.ip, @first::date) AND (c.ip, c.day) <= (n.ip, @last::date)
                AND (c.day >= @counted::date OR c.count >= @threshold::bigint)
              OFFSET 0) AS d;

-- name: RangeAddresses :many
-- How many addresses of a range have a count for a day, up to a limit. Place is
-- that of the range and the day, from 1.
SELECT r.place::integer AS place,
       (SELECT count(*) FROM (
            SELECT FROM ip_denial_count c WHERE c.day = r.day AND c.ip_group = r.ip_group LIMIT @most::integer
        ) AS few)::integer AS addresses
FROM (SELECT unnest(@groups::text[]) AS ip_group, unnest(@days::date[]) AS day,
             generate_subscripts(@groups::text[], 1) AS place) AS r;

-- name: InsertCounts :copyfrom
INSERT INTO ip_denial_count (ip, ip_group, day, count, first_seq, last_seq, samples)
VALUES (@ip, @ip_group, @day, @count, @first_seq, @last_seq, @samples);

-- name: AddToCounts :execrows
-- The samples of a row are lines of one text.
UPDATE ip_denial_count AS c
SET count = c.count + n.count, last_seq = n.last_seq,
    samples = CASE WHEN n.samples = '' THEN c.samples
                   ELSE c.samples || string_to_array(n.samples, E'\n') END
FROM (SELECT unnest(@ips::text[]) AS ip, unnest(@days::date[]) AS day, unnest(@counts::bigint[]) AS count,
             unnest(@last_seqs::bigint[]) AS last_seq, unnest(@samples::text[]) AS samples) AS n
WHERE c.ip = n.ip AND c.day = n.day;

-- name: ForgiveIP :execrows
DELETE FROM ip_denial_count WHERE ip = @ip;

-- name: ForgiveRange :execrows
DELETE FROM ip_denial_count WHERE ip::inet <<= (@target::text)::cidr;

-- name: DaysOfIP :many
SELECT ip, ip_group, day, count, first_seq, last_seq, samples
FROM ip_denial_count WHERE ip = @ip ORDER BY day DESC LIMIT @most;

-- name: DaysOfRange :many
SELECT ip, ip_group, day, count, first_seq, last_seq, (samples[1:@samples::integer])::text[] AS samples
FROM ip_denial_count
WHERE ip_group = @ip_group AND day BETWEEN @first::date AND @last::date AND ip <> @but
ORDER BY day DESC, ip LIMIT @most;

-- name: IPBlocks :many
-- Each scope has a table of its own, so queries on blocks are there twice.
SELECT ip AS target, blocked_until, since, reason, by, version
FROM ip_block WHERE ip = ANY (@targets::text[]);

-- name: RangeBlocks :many
SELECT ip_group AS target, blocked_until, since, reason, by, version
FROM ip_group_block WHERE ip_group = ANY (@targets::text[]);

-- name: InsertIPBlocks :many
-- A version of 0 draws the next.
INSERT INTO ip_block (ip, blocked_until, since, reason, by, version, changed)
SELECT n.target, n.blocked_until, n.since, n.reason, n.by,
       CASE WHEN n.version = 0 THEN nextval('block_version') ELSE n.version END, n.changed
FROM (SELECT unnest(@targets::text[]) AS target, unnest(@ends::timestamptz[]) AS blocked_until,
             unnest(@sinces::timestamptz[]) AS since, unnest(@reasons::text[]) AS reason, unnest(@bys::text[]) AS by,
             unnest(@versions::bigint[]) AS version, unnest(@changed::timestamptz[]) AS changed) AS n
RETURNING version;

-- name: InsertRangeBlocks :many
-- A version of 0 draws the next.
INSERT INTO ip_group_block (ip_group, blocked_until, since, reason, by, version, changed)
SELECT n.target, n.blocked_until, n.since, n.reason, n.by,
       CASE WHEN n.version = 0 THEN nextval('block_version') ELSE n.version END, n.changed
FROM (SELECT unnest(@targets::text[]) AS target, unnest(@ends::timestamptz[]) AS blocked_until,
             unnest(@sinces::timestamptz[]) AS since, unnest(@reasons::text[]) AS reason, unnest(@bys::text[]) AS by,
             unnest(@versions::bigint[]) AS version, unnest(@changed::timestamptz[]) AS changed) AS n
RETURNING version;

-- name: UpdateIPBlocks :many
UPDATE ip_block AS b
SET blocked_until = n.blocked_until, since = n.since, reason = n.reason, by = n.by,
    version = CASE WHEN n.version = 0 THEN nextval('block_version') ELSE n.version END, changed = n.changed
FROM (SELECT unnest(@targets::text[]) AS target, unnest(@ends::timestamptz[]) AS blocked_until,
             unnest(@sinces::timestamptz[]) AS since, unnest(@reasons::text[]) AS reason, unnest(@bys::text[]) AS by,
             unnest(@versions::bigint[]) AS version, unnest(@changed::timestamptz[]) AS changed) AS n
WHERE b.ip = n.target
RETURNING b.version;

-- name: UpdateRangeBlocks :many
UPDATE ip_group_block AS b
SET blocked_until = n.blocked_until, since = n.since, reason = n.reason, by = n.by,
    version = CASE WHEN n.version = 0 THEN nextval('block_version') ELSE n.version END, changed = n.changed
FROM (SELECT unnest(@targets::text[]) AS target, unnest(@ends::timestamptz[]) AS blocked_until,
             unnest(@sinces::timestamptz[]) AS since, unnest(@reasons::text[]) AS reason, unnest(@bys::text[]) AS by,
             unnest(@versions::bigint[]) AS version, unnest(@changed::timestamptz[]) AS changed) AS n
WHERE b.ip_group = n.target
RETURNING b.version;

-- name: PageIPBlocks :many
SELECT ip AS target, blocked_until, since, reason, by, version
FROM ip_block WHERE ip > @after AND blocked_until > @in_force_at
ORDER BY ip LIMIT @most;

-- name: PageRangeBlocks :many
SELECT ip_group AS target, blocked_until, since, reason, by, version
FROM ip_group_block WHERE ip_group > @after AND blocked_until > @in_force_at
ORDER BY ip_group LIMIT @most;

-- name: RenewIPBlocks :execrows
UPDATE ip_block AS b SET changed = denylist_now(), version = nextval('block_version')
FROM (SELECT i.ip FROM ip_block i WHERE i.blocked_until > denylist_now() AND i.changed < @before LIMIT @most) AS old
WHERE b.ip = old.ip;

-- name: RenewRangeBlocks :execrows
UPDATE ip_group_block AS b SET changed = denylist_now(), version = nextval('block_version')
FROM (SELECT i.ip_group FROM ip_group_block i WHERE i.blocked_until > denylist_now() AND i.changed < @before LIMIT @most) AS old
WHERE b.ip_group = old.ip_group;

-- name: ListChanges :many
SELECT * FROM block_change WHERE version > @after ORDER BY version LIMIT @most;

-- name: NoteLift :one
-- A lift that forgave without a block in force: a change without a row.
INSERT INTO block_change
SELECT nextval('block_version'), 'unblocked', @scope::text, @target::text, denylist_now(), denylist_now(),
       @reason::text, @by::text, false, denylist_now()
RETURNING version;

-- name: SetPublished :exec
UPDATE block_publication SET version = greatest(version, @version::bigint);

-- name: LastVersion :one
-- The last version that was drawn. The caller has locked the blocks.
SELECT coalesce(pg_sequence_last_value('block_version'::regclass), 0)::bigint;

-- name: SetVersion :exec
SELECT setval('block_version', @version::bigint);

-- name: Newest :one
-- The version of the newest change, and how far they are published.
SELECT greatest(p.version, (SELECT max(version) FROM block_change))::bigint AS newest, p.version AS published
FROM block_publication AS p;

-- name: CountBlocks :one
SELECT (SELECT count(*) FROM ip_block i WHERE i.blocked_until > @at::timestamptz) AS ips,
       (SELECT count(*) FROM ip_group_block g WHERE g.blocked_until > @at::timestamptz) AS ranges;

-- name: PruneCounts :execrows
-- A bounded piece, like the others that prune.
DELETE FROM ip_denial_count AS c
USING (SELECT o.ip, o.day FROM ip_denial_count o WHERE o.day < @oldest::date ORDER BY o.day LIMIT @most) AS old
WHERE c.ip = old.ip AND c.day = old.day;

-- name: PruneIPBlocks :execrows
DELETE FROM ip_block AS b
USING (SELECT i.ip FROM ip_block i WHERE i.blocked_until <= @old ORDER BY i.blocked_until LIMIT @most) AS gone
WHERE b.ip = gone.ip AND b.blocked_until <= @old;

-- name: PruneRangeBlocks :execrows
DELETE FROM ip_group_block AS b
USING (SELECT i.ip_group FROM ip_group_block i WHERE i.blocked_until <= @old ORDER BY i.blocked_until LIMIT @most) AS gone
WHERE b.ip_group = gone.ip_group AND b.blocked_until <= @old;

-- name: PruneChanges :execrows
DELETE FROM block_change AS c
USING (SELECT o.version FROM block_change o WHERE o.version <= (SELECT p.version FROM block_publication p)
       ORDER BY o.version LIMIT @most) AS published
WHERE c.version = published.version AND c.at <= @old;

-- name: PrunePositions :execrows
DELETE FROM outbox_position WHERE seen < @old;

-- name: PruneQuarantine :execrows
DELETE FROM event_quarantine AS e
WHERE e.at <= @old
   OR (e.created, e.seq) IN (SELECT q.created, q.seq FROM event_quarantine q ORDER BY q.at DESC, q.seq DESC OFFSET @most);

-- name: ClearRebuild :exec
TRUNCATE rebuild, rebuild_denial_count, rebuild_outbox_position, rebuild_block;

-- name: MarkRebuild :exec
INSERT INTO rebuild (epoch) VALUES (@epoch);

-- name: Rebuilding :one
SELECT EXISTS (SELECT FROM rebuild WHERE epoch = @epoch);

-- name: RebuildPositions :many
SELECT outbox_id, last_seq FROM rebuild_outbox_position WHERE outbox_id = ANY (@ids::text[]);

-- name: RebuildSavePositions :exec
INSERT INTO rebuild_outbox_position (outbox_id, last_seq, seen)
SELECT unnest(@ids::text[]), unnest(@seqs::bigint[]), unnest(@seens::timestamptz[])
ON CONFLICT (outbox_id) DO UPDATE SET last_seq = excluded.last_seq, seen = excluded.seen;

-- name: RebuildDays :many
SELECT n.place::integer AS place, d.day, d.count, d.ip_group
FROM (SELECT unnest(@ips::text[]) AS ip, generate_subscripts(@ips::text[], 1) AS place) AS n,
     LATERAL (SELECT c.day, c.count, c.ip_group FROM rebuild_denial_count c
              WHERE c.ip = n.ip AND (c.ip, c.day) >= (n.ip, @first::date) AND (c.ip, c.day) <= (n.ip, @last::date)
              OFFSET 0) AS d;

-- name: RebuildCountDenials :exec
INSERT INTO rebuild_denial_count AS c (ip, ip_group, day, count, first_seq, last_seq, samples)
SELECT unnest(@ips::text[]), unnest(@groups::text[]), unnest(@days::date[]), unnest(@counts::bigint[]),
       unnest(@first_seqs::bigint[]), unnest(@last_seqs::bigint[]),
       string_to_array(unnest(@samples::text[]), E'\n')
ON CONFLICT (ip, day) DO UPDATE
SET count = c.count + excluded.count, last_seq = excluded.last_seq, samples = c.samples || excluded.samples;

-- name: RebuildForgiveIP :exec
DELETE FROM rebuild_denial_count WHERE ip = @ip;

-- name: RebuildForgiveRange :exec
DELETE FROM rebuild_denial_count WHERE ip::inet <<= (@target::text)::cidr;

-- name: RebuildBlock :execrows
-- Unless the same or a later change of the target was replayed.
INSERT INTO rebuild_block AS b (scope, target, blocked_until, since, reason, by, version, changed)
VALUES (@scope, @target, @blocked_until, @since, @reason, @by, @version, @changed)
ON CONFLICT (scope, target) DO UPDATE
SET blocked_until = excluded.blocked_until, since = excluded.since, reason = excluded.reason, by = excluded.by,
    version = excluded.version, changed = excluded.changed
WHERE b.version < excluded.version;

-- name: RebuildNewest :one
SELECT coalesce(max(version), 0)::bigint FROM rebuild_block;

-- name: RebuildLostCounts :exec
DELETE FROM ip_denial_count c
WHERE NOT EXISTS (SELECT FROM rebuild_denial_count r WHERE r.ip = c.ip AND r.day = c.day);

-- name: RebuildCounts :exec
INSERT INTO ip_denial_count AS c (ip, ip_group, day, count, first_seq, last_seq, samples)
SELECT r.ip, r.ip_group, r.day, r.count, r.first_seq, r.last_seq, r.samples
FROM rebuild_denial_count r LEFT JOIN ip_denial_count o ON o.ip = r.ip AND o.day = r.day
WHERE o.ip IS NULL
   OR (o.ip_group, o.count, o.first_seq, o.last_seq, o.samples)
      IS DISTINCT FROM (r.ip_group, r.count, r.first_seq, r.last_seq, r.samples)
ON CONFLICT (ip, day) DO UPDATE
SET ip_group = excluded.ip_group, count = excluded.count, first_seq = excluded.first_seq,
    last_seq = excluded.last_seq, samples = excluded.samples;

-- name: RebuildPositionsSwap :exec
-- Positions of outboxes whose events have left the stream are kept.
INSERT INTO outbox_position (outbox_id, last_seq, seen)
SELECT outbox_id, last_seq, seen FROM rebuild_outbox_position
ON CONFLICT (outbox_id) DO UPDATE SET last_seq = excluded.last_seq, seen = excluded.seen;

-- name: RebuildIPBlocks :many
-- Every block of an address that is in force in either place and differs, as
-- it is to be: as rebuilt, or ended now. Blocks with unpublished changes are
-- left out.
SELECT coalesce(o.ip, r.target)::text AS target,
       (o.ip IS NOT NULL)::boolean AS existed, coalesce(o.version, 0)::bigint AS old_version,
       coalesce(r.blocked_until, denylist_now())::timestamptz AS blocked_until,
       coalesce(r.since, o.since)::timestamptz AS since,
       coalesce(r.reason, 'rebuild')::text AS reason, coalesce(r.by, 'denylist')::text AS by,
       coalesce(r.version, 0)::bigint AS version, coalesce(r.changed, denylist_now())::timestamptz AS changed
FROM (SELECT * FROM rebuild_block b WHERE b.scope = 'ip' AND b.blocked_until > denylist_now()) AS r
FULL JOIN (SELECT * FROM ip_block i) AS o ON o.ip = r.target
WHERE (r.target IS NOT NULL OR o.blocked_until > denylist_now())
  AND (r.version > coalesce(o.version, 0) OR o.blocked_until IS DISTINCT FROM r.blocked_until)
  AND NOT EXISTS (SELECT FROM block_change c
                  WHERE c.version > (SELECT p.version FROM block_publication p)
                    AND c.scope = 'ip' AND c.target = coalesce(o.ip, r.target));

-- name: RebuildRangeBlocks :many
-- The same for ranges.
SELECT coalesce(o.ip_group, r.target)::text AS target,
       (o.ip_group IS NOT NULL)::boolean AS existed, coalesce(o.version, 0)::bigint AS old_version,
       coalesce(r.blocked_until, denylist_now())::timestamptz AS blocked_until,
       coalesce(r.since, o.since)::timestamptz AS since,
       coalesce(r.reason, 'rebuild')::text AS reason, coalesce(r.by, 'denylist')::text AS by,
       coalesce(r.version, 0)::bigint AS version, coalesce(r.changed, denylist_now())::timestamptz AS changed
FROM (SELECT * FROM rebuild_block b WHERE b.scope = 'range' AND b.blocked_until > denylist_now()) AS r
FULL JOIN (SELECT * FROM ip_group_block i) AS o ON o.ip_group = r.target
WHERE (r.target IS NOT NULL OR o.blocked_until > denylist_now())
  AND (r.version > coalesce(o.version, 0) OR o.blocked_until IS DISTINCT FROM r.blocked_until)
  AND NOT EXISTS (SELECT FROM block_change c
                  WHERE c.version > (SELECT p.version FROM block_publication p)
                    AND c.scope = 'range' AND c.target = coalesce(o.ip_group, r.target));
