-- The admission queue: who holds a place and who waits, for every coordinator.
--
-- Owner: queue-coordinator. Names of tables, columns and the six functions
-- try_admit, enqueue_if_room, release_and_promote, expire_pending,
-- reconcile_stale and prune_idle_groups are those of cork-cache-n-queue, so an
-- operator's SQL works as written there.
--
-- Rules for every function here:
--
--   * Arrays go in, rows come out: one call serves a whole batch.
--   * Locks are taken in the order edge_lease, group_state, requests; rows of
--     group_state all at once, by ip_group in the order of bytes. A function
--     that does not wait (SKIP LOCKED) may take them in any order.
--   * A row of group_state is the mutex of its group: nothing of a group
--     changes without it, and what it protects is read by a statement that
--     begins after the lock.
--   * Whatever frees a place promotes in the same call.
--   * p_now is the time to act at; null means the database's clock.
--   * Waiting is bounded by the caller's lock_timeout and statement_timeout.
--   * Functions of the request path fix their plans: always by index, planned
--     once for each session. Tables that fill and empty within seconds mislead
--     the planner, and planning for each call costs more than the call.

-- +goose Up

-- One row for each group seen lately. The counts are those of the rows in
-- active_request and pending_request; reconcile_stale corrects them should
-- somebody have edited the tables by hand. Rows are updated all the time and
-- no updated column is indexed, so half-empty pages keep updates in place.
CREATE UNLOGGED TABLE group_state (
    ip_group         text COLLATE "C"  NOT NULL,
    active_count     integer           NOT NULL DEFAULT 0,
    pending_count    integer           NOT NULL DEFAULT 0,
    -- The last change of a count.
    last_active      timestamptz       NOT NULL DEFAULT clock_timestamp(),
    -- When the group last freed a place or became full; null before that.
    turned           timestamptz,
    -- Moving average of the time between two places that free while the group
    -- is full, in milliseconds; 0 before the first.
    free_interval_ms double precision  NOT NULL DEFAULT 0,
    CONSTRAINT group_state_pkey PRIMARY KEY (ip_group),
    CONSTRAINT group_state_active_count_not_negative CHECK (active_count >= 0),
    CONSTRAINT group_state_pending_count_not_negative CHECK (pending_count >= 0),
    CONSTRAINT group_state_free_interval_ms_not_negative CHECK (free_interval_ms >= 0)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Requests that hold a place.
CREATE UNLOGGED TABLE active_request (
    request_id uuid             NOT NULL,
    -- Since when the request holds its place.
    created    timestamptz      NOT NULL DEFAULT clock_timestamp(),
    ip_group   text COLLATE "C" NOT NULL,
    edge_id    text COLLATE "C" NOT NULL,
    CONSTRAINT active_request_pkey PRIMARY KEY (request_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- For the reject path, which looks for old rows of one group.
CREATE INDEX active_request_ip_group ON active_request (ip_group, created);
-- For status and reclaim.
CREATE INDEX active_request_edge_id ON active_request (edge_id);

-- Requests that wait. Seq is drawn under the group's lock, so within a group
-- it is the order of arrival.
CREATE UNLOGGED TABLE pending_request (
    request_id uuid             NOT NULL,
    created    timestamptz      NOT NULL DEFAULT clock_timestamp(),
    seq        bigint           GENERATED ALWAYS AS IDENTITY,
    ip_group   text COLLATE "C" NOT NULL,
    edge_id    text COLLATE "C" NOT NULL,
    CONSTRAINT pending_request_pkey PRIMARY KEY (request_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX pending_request_ip_group ON pending_request (ip_group, seq);
CREATE INDEX pending_request_edge_id ON pending_request (edge_id);

-- Edges that are alive, or were until expires.
CREATE UNLOGGED TABLE edge_lease (
    edge_id text COLLATE "C" NOT NULL,
    expires timestamptz      NOT NULL,
    -- How long a message renews it for.
    lease   interval         NOT NULL,
    -- The greatest epoch of a status.
    epoch   bigint           NOT NULL DEFAULT 0,
    CONSTRAINT edge_lease_pkey PRIMARY KEY (edge_id),
    CONSTRAINT edge_lease_lease_positive CHECK (lease > interval '0')
) WITH (fillfactor = 50);

-- The row type that the functions return. The table itself stays empty.
--
--   admitted, queued, rejected, foreign   what admit decided for request_id
--   pending, active, gone                 what expire_pending found
--   listed_promoted, unknown              what edge_status found
--   busy        the group is locked by somebody else, nothing was done
--   promoted    request_id of edge_id waited and holds a place now
--   freed       request_id was removed by a sweep or a status
--   corrected   the counts of ip_group were wrong
--
-- Columns that do not apply are empty or zero.
CREATE UNLOGGED TABLE queue_event (
    outcome     text    NOT NULL,
    request_id  uuid    NOT NULL,
    ip_group    text    NOT NULL,
    edge_id     text    NOT NULL,
    full_for_ms integer NOT NULL,
    CONSTRAINT queue_event_stays_empty CHECK (false)
);

-- Locks the groups and returns those that could not be locked, which happens
-- with p_skip only. p_create makes rows for groups that have none.
-- +goose StatementBegin
CREATE FUNCTION lock_groups(p_groups text[], p_create boolean, p_skip boolean)
RETURNS text[] LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_locked text[];
BEGIN
    IF p_skip THEN
        IF p_create THEN
            -- ON CONFLICT would wait for a row that somebody changes: leave
            -- those that exist out of it.
            INSERT INTO group_state (ip_group)
            SELECT DISTINCT u.ip_group
            FROM unnest(p_groups) AS u(ip_group)
            WHERE NOT EXISTS (SELECT FROM group_state g WHERE g.ip_group = u.ip_group)
            ORDER BY u.ip_group
            ON CONFLICT (ip_group) DO NOTHING;
        END IF;
        v_locked := ARRAY(
            SELECT g.ip_group FROM group_state g
            WHERE g.ip_group = ANY (p_groups)
            FOR UPDATE SKIP LOCKED);
        RETURN ARRAY(
            SELECT g.ip_group FROM group_state g WHERE g.ip_group = ANY (p_groups)
            EXCEPT SELECT unnest(v_locked));
    ELSIF p_create THEN
        -- DO UPDATE locks the row even though WHERE then leaves it unchanged.
        INSERT INTO group_state AS g (ip_group)
        SELECT DISTINCT u.ip_group COLLATE "C" AS key
        FROM unnest(p_groups) AS u(ip_group)
        ORDER BY key
        ON CONFLICT (ip_group) DO UPDATE SET last_active = g.last_active WHERE false;
    ELSE
        PERFORM FROM group_state g
        WHERE g.ip_group = ANY (p_groups)
        ORDER BY g.ip_group
        FOR UPDATE;
    END IF;
    RETURN '{}';
END $$;
-- +goose StatementEnd

-- Renews the leases of edges that sent a message, and makes those that are
-- missing (p_lease long). A lease that was renewed within a tenth of its
-- length is left alone, and one that somebody else has locked too: he renews
-- it, or has found it expired.
-- +goose StatementBegin
CREATE FUNCTION renew_leases(p_edges text[], p_lease interval, p_now timestamptz)
RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_edges text[];
BEGIN
    v_edges := ARRAY(
        SELECT u.edge_id FROM (SELECT DISTINCT unnest(p_edges)) AS u(edge_id)
        WHERE NOT EXISTS (
            SELECT FROM edge_lease l
            WHERE l.edge_id = u.edge_id AND l.expires > p_now + 0.9 * l.lease));
    IF v_edges = '{}' THEN
        RETURN;
    END IF;
    UPDATE edge_lease l SET expires = greatest(l.expires, p_now + l.lease)
    FROM (SELECT e.edge_id FROM edge_lease e
          WHERE e.edge_id = ANY (v_edges) FOR UPDATE SKIP LOCKED) AS mine
    WHERE l.edge_id = mine.edge_id;
    INSERT INTO edge_lease (edge_id, expires, lease)
    SELECT u.edge_id, p_now + p_lease, p_lease
    FROM unnest(v_edges) AS u(edge_id)
    WHERE NOT EXISTS (SELECT FROM edge_lease l WHERE l.edge_id = u.edge_id)
    ORDER BY u.edge_id COLLATE "C"
    ON CONFLICT (edge_id) DO NOTHING;
END $$;
-- +goose StatementEnd

-- Promotes whoever waited longest in each of the groups, which the caller has
-- locked, while there is room.
-- +goose StatementBegin
CREATE FUNCTION promote(p_groups text[], p_max_served integer, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    WITH head AS (
        SELECT p.request_id, p.seq
        FROM group_state g
        CROSS JOIN LATERAL (
            SELECT w.request_id, w.seq FROM pending_request w
            WHERE w.ip_group = g.ip_group
            ORDER BY w.seq LIMIT p_max_served - g.active_count) AS p
        WHERE g.ip_group = ANY (p_groups)
          AND g.pending_count > 0 AND g.active_count < p_max_served
    ), leave AS (
        DELETE FROM pending_request p USING head h
        WHERE p.request_id = h.request_id
        RETURNING p.request_id, p.ip_group, p.edge_id, p.seq
    ), enter AS (
        INSERT INTO active_request (request_id, ip_group, edge_id, created)
        SELECT l.request_id, l.ip_group, l.edge_id, p_now FROM leave l
    ), counted AS (
        UPDATE group_state g
        SET active_count = g.active_count + n.moved,
            pending_count = greatest(g.pending_count - n.moved, 0),
            last_active = p_now
        FROM (SELECT l.ip_group, count(*)::integer AS moved FROM leave l GROUP BY l.ip_group) AS n
        WHERE g.ip_group = n.ip_group
    )
    SELECT 'promoted'::text, l.request_id, l.ip_group, l.edge_id, 0 FROM leave l ORDER BY l.seq;
END $$;
-- +goose StatementEnd

-- Admits requests that are new while their group has room and nobody waits, in
-- the order of the arrays. The caller has locked the groups. Returns the ids
-- that were admitted.
-- +goose StatementBegin
CREATE FUNCTION try_admit(
    p_ids uuid[], p_groups text[], p_edges text[], p_max_served integer, p_now timestamptz)
RETURNS SETOF uuid LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    WITH fresh AS (
        SELECT i.request_id, i.ip_group, i.edge_id,
               row_number() OVER (PARTITION BY i.ip_group ORDER BY i.ord) AS place
        FROM unnest(p_ids, p_groups, p_edges) WITH ORDINALITY AS i(request_id, ip_group, edge_id, ord)
        WHERE NOT EXISTS (SELECT FROM active_request a WHERE a.request_id = i.request_id)
          AND NOT EXISTS (SELECT FROM pending_request p WHERE p.request_id = i.request_id)
    ), enter AS (
        INSERT INTO active_request (request_id, ip_group, edge_id, created)
        SELECT f.request_id, f.ip_group, f.edge_id, p_now
        FROM fresh f JOIN group_state g ON g.ip_group = f.ip_group
        WHERE g.pending_count = 0 AND f.place <= p_max_served - g.active_count
        ON CONFLICT DO NOTHING
        RETURNING request_id, ip_group
    ), counted AS (
        UPDATE group_state g
        SET active_count = g.active_count + n.entered,
            last_active = p_now,
            turned = CASE WHEN g.active_count + n.entered >= p_max_served THEN p_now ELSE g.turned END
        FROM (SELECT e.ip_group, count(*)::integer AS entered FROM enter e GROUP BY e.ip_group) AS n
        WHERE g.ip_group = n.ip_group
    )
    SELECT e.request_id FROM enter e;
END $$;
-- +goose StatementEnd

-- Puts requests that are new in line while the line has room, in the order of
-- the arrays. The caller has locked the groups. Returns the ids that wait now.
-- +goose StatementBegin
CREATE FUNCTION enqueue_if_room(
    p_ids uuid[], p_groups text[], p_edges text[], p_max_pending integer, p_now timestamptz)
RETURNS SETOF uuid LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    WITH fresh AS (
        SELECT i.request_id, i.ip_group, i.edge_id, i.ord,
               row_number() OVER (PARTITION BY i.ip_group ORDER BY i.ord) AS place
        FROM unnest(p_ids, p_groups, p_edges) WITH ORDINALITY AS i(request_id, ip_group, edge_id, ord)
        WHERE NOT EXISTS (SELECT FROM active_request a WHERE a.request_id = i.request_id)
          AND NOT EXISTS (SELECT FROM pending_request p WHERE p.request_id = i.request_id)
    ), enter AS (
        INSERT INTO pending_request (request_id, ip_group, edge_id, created)
        SELECT f.request_id, f.ip_group, f.edge_id, p_now
        FROM fresh f JOIN group_state g ON g.ip_group = f.ip_group
        WHERE f.place <= p_max_pending - g.pending_count
        ORDER BY f.ord
        ON CONFLICT DO NOTHING
        RETURNING request_id, ip_group
    ), counted AS (
        UPDATE group_state g
        SET pending_count = g.pending_count + n.entered, last_active = p_now
        FROM (SELECT e.ip_group, count(*)::integer AS entered FROM enter e GROUP BY e.ip_group) AS n
        WHERE g.ip_group = n.ip_group
    )
    SELECT e.request_id FROM enter e;
END $$;
-- +goose StatementEnd

-- Makes requests active that their edge asserts to be so, whatever the limit.
-- The caller has locked the groups.
-- +goose StatementBegin
CREATE FUNCTION assert_held(
    p_ids uuid[], p_groups text[], p_edges text[], p_max_served integer, p_now timestamptz)
RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    WITH leave AS (
        DELETE FROM pending_request p
        USING unnest(p_ids, p_groups, p_edges) AS i(request_id, ip_group, edge_id)
        WHERE p.request_id = i.request_id AND p.ip_group = i.ip_group AND p.edge_id = i.edge_id
        RETURNING p.request_id, p.ip_group
    ), enter AS (
        INSERT INTO active_request (request_id, ip_group, edge_id, created)
        SELECT i.request_id, i.ip_group, i.edge_id, p_now
        FROM unnest(p_ids, p_groups, p_edges) AS i(request_id, ip_group, edge_id)
        WHERE NOT EXISTS (  -- another's, whom DELETE left alone
            SELECT FROM pending_request p WHERE p.request_id = i.request_id
            AND (p.ip_group, p.edge_id) <> (i.ip_group, i.edge_id))
        ON CONFLICT DO NOTHING
        RETURNING ip_group
    )
    UPDATE group_state g
    SET active_count = g.active_count + n.entered,
        pending_count = greatest(g.pending_count - n.left_line, 0),
        last_active = p_now,
        turned = CASE WHEN g.active_count < p_max_served AND g.active_count + n.entered >= p_max_served
                      THEN p_now ELSE g.turned END
    FROM (SELECT m.ip_group, sum(m.entered)::integer AS entered, sum(m.left_line)::integer AS left_line
          FROM (SELECT e.ip_group, 1 AS entered, 0 AS left_line FROM enter e
                UNION ALL SELECT l.ip_group, 0, 1 FROM leave l) AS m
          GROUP BY m.ip_group) AS n
    WHERE g.ip_group = n.ip_group;
END $$;
-- +goose StatementEnd

-- Removes requests, active or waiting, that belong to the edge and group
-- given, and promotes. Others are left alone. Returns promoted, and busy for
-- items that p_skip left out. A null p_lease renews no lease.
-- +goose StatementBegin
CREATE FUNCTION release_and_promote(
    p_ids uuid[], p_groups text[], p_edges text[],
    p_max_served integer, p_lease interval, p_skip boolean, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_busy  text[];
    v_waits text[];
    v_now   timestamptz;
BEGIN
    IF p_lease IS NOT NULL THEN
        PERFORM renew_leases(p_edges, p_lease, coalesce(p_now, clock_timestamp()));
    END IF;
    v_busy := lock_groups(p_groups, false, p_skip);
    v_now := coalesce(p_now, clock_timestamp());
    IF v_busy <> '{}' THEN
        RETURN QUERY
        SELECT 'busy'::text, i.request_id, i.ip_group, ''::text, 0
        FROM unnest(p_ids, p_groups) AS i(request_id, ip_group)
        WHERE i.ip_group = ANY (v_busy);
    END IF;
    WITH item AS (
        SELECT i.* FROM unnest(p_ids, p_groups, p_edges) AS i(request_id, ip_group, edge_id)
        WHERE v_busy = '{}' OR i.ip_group <> ALL (v_busy)
    ), left_place AS (
        DELETE FROM active_request r USING item i
        WHERE r.request_id = i.request_id AND r.ip_group = i.ip_group AND r.edge_id = i.edge_id
        RETURNING r.ip_group
    ), left_line AS (
        DELETE FROM pending_request r USING item i
        WHERE r.request_id = i.request_id AND r.ip_group = i.ip_group AND r.edge_id = i.edge_id
        RETURNING r.ip_group
    ), n AS (
        SELECT m.ip_group, sum(m.active)::integer AS active, sum(m.pending)::integer AS pending
        FROM (SELECT l.ip_group, 1 AS active, 0 AS pending FROM left_place l
              UNION ALL SELECT l.ip_group, 0, 1 FROM left_line l) AS m
        GROUP BY m.ip_group
    ), counted AS (
        UPDATE group_state g
        SET active_count = greatest(g.active_count - n.active, 0),
            pending_count = greatest(g.pending_count - n.pending, 0),
            last_active = v_now,
            turned = v_now,
            -- Moves by a quarter towards the interval just seen, which is
            -- bounded to a second so that a quiet spell is soon forgotten.
            free_interval_ms = CASE
                WHEN g.active_count < p_max_served OR g.turned IS NULL THEN g.free_interval_ms
                ELSE g.free_interval_ms
                     + CASE WHEN g.free_interval_ms = 0 THEN 1 ELSE 0.25 END
                     * (least(1000, greatest(0, extract(epoch FROM v_now - g.turned) * 1000)
                                    / (n.active + n.pending))::double precision - g.free_interval_ms) END
        FROM n
        WHERE g.ip_group = n.ip_group
        RETURNING g.ip_group, g.pending_count > 0 AND g.active_count < p_max_served AS waits
    )
    SELECT array_agg(c.ip_group) INTO v_waits FROM counted c WHERE c.waits;
    IF v_waits IS NOT NULL THEN
        RETURN QUERY SELECT * FROM promote(v_waits, p_max_served, v_now);
    END IF;
END $$;
-- +goose StatementEnd

-- Frees active requests of the groups, which the caller has locked, that are
-- older than p_stale and whose edge has no live lease. Returns freed and
-- promoted.
-- +goose StatementBegin
CREATE FUNCTION reclaim_stale(
    p_groups text[], p_max_served integer, p_stale interval, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_ids    uuid[];
    v_groups text[];
    v_edges  text[];
BEGIN
    SELECT array_agg(a.request_id), array_agg(a.ip_group), array_agg(a.edge_id)
    INTO v_ids, v_groups, v_edges
    FROM active_request a
    WHERE a.ip_group = ANY (p_groups) AND a.created < p_now - p_stale
      AND NOT EXISTS (SELECT FROM edge_lease l WHERE l.edge_id = a.edge_id AND l.expires > p_now);
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 'freed'::text, f.request_id, f.ip_group, f.edge_id, 0
    FROM unnest(v_ids, v_groups, v_edges) AS f(request_id, ip_group, edge_id);
    RETURN QUERY
    SELECT * FROM release_and_promote(v_ids, v_groups, v_edges, p_max_served, NULL, false, p_now);
END $$;
-- +goose StatementEnd

-- Decides for a batch of requests with distinct ids: try_admit, else
-- enqueue_if_room, else reclaim what is stale in the group and try again, else
-- rejected. p_modes has wait, nowait or held for each. Returns one row for
-- each item, and promoted and freed of a reclaim. A null p_lease renews no
-- lease.
-- +goose StatementBegin
CREATE FUNCTION admit(
    p_ids uuid[], p_groups text[], p_edges text[], p_modes text[],
    p_max_served integer, p_max_pending integer, p_lease interval, p_stale interval,
    p_skip boolean, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_busy        text[];
    v_full        text[];
    v_wait_ids    uuid[];
    v_wait_groups text[];
    v_wait_edges  text[];
    v_now         timestamptz;
    v_count       bigint;
BEGIN
    IF p_lease IS NOT NULL THEN
        PERFORM renew_leases(p_edges, p_lease, coalesce(p_now, clock_timestamp()));
    END IF;
    v_busy := lock_groups(p_groups, true, p_skip);
    v_now := coalesce(p_now, clock_timestamp());
    IF v_busy <> '{}' THEN
        RETURN QUERY
        SELECT 'busy'::text, i.request_id, i.ip_group, ''::text, 0
        FROM unnest(p_ids, p_groups) AS i(request_id, ip_group)
        WHERE i.ip_group = ANY (v_busy);
        SELECT coalesce(array_agg(i.request_id ORDER BY i.ord), '{}'), array_agg(i.ip_group ORDER BY i.ord),
               array_agg(i.edge_id ORDER BY i.ord), array_agg(i.mode ORDER BY i.ord)
        INTO p_ids, p_groups, p_edges, p_modes
        FROM unnest(p_ids, p_groups, p_edges, p_modes)
             WITH ORDINALITY AS i(request_id, ip_group, edge_id, mode, ord)
        WHERE i.ip_group <> ALL (v_busy);
        IF p_ids = '{}' THEN
            RETURN;
        END IF;
    END IF;

    IF 'held' = ANY (p_modes) THEN
        PERFORM assert_held(array_agg(i.request_id), array_agg(i.ip_group), array_agg(i.edge_id),
                            p_max_served, v_now)
        FROM unnest(p_ids, p_groups, p_edges, p_modes) AS i(request_id, ip_group, edge_id, mode)
        WHERE i.mode = 'held';
    END IF;

    SELECT count(*) INTO v_count FROM try_admit(p_ids, p_groups, p_edges, p_max_served, v_now);
    IF v_count = cardinality(p_ids) THEN  -- the common case
        RETURN QUERY SELECT 'admitted'::text, i.request_id, ''::text, ''::text, 0
                     FROM unnest(p_ids) AS i(request_id);
        RETURN;
    END IF;

    v_wait_ids := p_ids;
    v_wait_groups := p_groups;
    v_wait_edges := p_edges;
    IF 'wait' <> ANY (p_modes) THEN
        SELECT array_agg(i.request_id ORDER BY i.ord), array_agg(i.ip_group ORDER BY i.ord),
               array_agg(i.edge_id ORDER BY i.ord)
        INTO v_wait_ids, v_wait_groups, v_wait_edges
        FROM unnest(p_ids, p_groups, p_edges, p_modes)
             WITH ORDINALITY AS i(request_id, ip_group, edge_id, mode, ord)
        WHERE i.mode = 'wait';
    END IF;
    PERFORM FROM enqueue_if_room(v_wait_ids, v_wait_groups, v_wait_edges, p_max_pending, v_now);

    v_full := ARRAY(
        SELECT DISTINCT i.ip_group FROM unnest(p_ids, p_groups) AS i(request_id, ip_group)
        WHERE NOT EXISTS (SELECT FROM active_request a WHERE a.request_id = i.request_id)
          AND NOT EXISTS (SELECT FROM pending_request p WHERE p.request_id = i.request_id));
    IF v_full <> '{}' THEN
        RETURN QUERY SELECT * FROM reclaim_stale(v_full, p_max_served, p_stale, v_now);
        IF FOUND THEN
            -- Also for those whose id was another's until now.
            IF 'held' = ANY (p_modes) THEN
                PERFORM assert_held(array_agg(i.request_id), array_agg(i.ip_group), array_agg(i.edge_id),
                                    p_max_served, v_now)
                FROM unnest(p_ids, p_groups, p_edges, p_modes) AS i(request_id, ip_group, edge_id, mode)
                WHERE i.mode = 'held';
            END IF;
            PERFORM FROM try_admit(p_ids, p_groups, p_edges, p_max_served, v_now);
            PERFORM FROM enqueue_if_room(v_wait_ids, v_wait_groups, v_wait_edges, p_max_pending, v_now);
        END IF;
    END IF;

    RETURN QUERY
    SELECT CASE WHEN a.ip_group = i.ip_group AND a.edge_id = i.edge_id THEN 'admitted'
                WHEN p.ip_group = i.ip_group AND p.edge_id = i.edge_id THEN 'queued'
                WHEN a.ip_group IS NULL AND p.ip_group IS NULL THEN 'rejected'
                ELSE 'foreign' END,
           i.request_id, ''::text, ''::text,
           -- Half of the time in which a place is expected to free: the
           -- average interval or, if the group has been stuck for longer, as
           -- long again. Whole milliseconds up to 100.
           CASE WHEN a.ip_group IS NULL AND p.ip_group IS NULL
                THEN floor(least(100, greatest(g.free_interval_ms,
                     coalesce(extract(epoch FROM v_now - g.turned) * 1000, 0)) / 2))::integer
                ELSE 0 END
    FROM unnest(p_ids, p_groups, p_edges) AS i(request_id, ip_group, edge_id)
    JOIN group_state g ON g.ip_group = i.ip_group
    LEFT JOIN active_request a ON a.request_id = i.request_id
    LEFT JOIN pending_request p ON p.request_id = i.request_id;
END $$;
-- +goose StatementEnd

-- Takes waiting requests back: pending if it waited and no longer does, active
-- if it holds a place and keeps it, else gone. Also returns promoted, and busy
-- for items that p_skip left out. A null p_lease renews no lease.
-- +goose StatementBegin
CREATE FUNCTION expire_pending(
    p_ids uuid[], p_groups text[], p_edges text[],
    p_max_served integer, p_lease interval, p_skip boolean, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_busy   text[];
    v_ids    uuid[];
    v_groups text[];
    v_edges  text[];
BEGIN
    IF p_lease IS NOT NULL THEN
        PERFORM renew_leases(p_edges, p_lease, coalesce(p_now, clock_timestamp()));
    END IF;
    v_busy := lock_groups(p_groups, false, p_skip);
    RETURN QUERY
    SELECT CASE WHEN i.ip_group = ANY (v_busy) THEN 'busy'
                WHEN a.request_id IS NOT NULL THEN 'active'
                WHEN p.request_id IS NOT NULL THEN 'pending'
                ELSE 'gone' END,
           i.request_id, ''::text, ''::text, 0
    FROM unnest(p_ids, p_groups, p_edges) AS i(request_id, ip_group, edge_id)
    LEFT JOIN active_request a ON a.request_id = i.request_id
         AND a.ip_group = i.ip_group AND a.edge_id = i.edge_id
    LEFT JOIN pending_request p ON p.request_id = i.request_id
         AND p.ip_group = i.ip_group AND p.edge_id = i.edge_id;
    SELECT array_agg(p.request_id), array_agg(p.ip_group), array_agg(p.edge_id)
    INTO v_ids, v_groups, v_edges
    FROM unnest(p_ids, p_groups, p_edges) AS i(request_id, ip_group, edge_id)
    JOIN pending_request p ON p.request_id = i.request_id
         AND p.ip_group = i.ip_group AND p.edge_id = i.edge_id
    WHERE i.ip_group <> ALL (v_busy);
    IF v_ids IS NOT NULL THEN
        RETURN QUERY
        SELECT * FROM release_and_promote(v_ids, v_groups, v_edges, p_max_served, NULL, false, p_now);
    END IF;
END $$;
-- +goose StatementEnd

-- One part of an edge's status: renews its lease, compares its lists with the
-- tables, and frees what is older than p_stale and not listed (not if the
-- epoch is older than one seen before; null p_stale frees nothing). Returns
-- listed_promoted and unknown, and freed and promoted. Groups that somebody
-- else has locked are left to the next status.
-- +goose StatementBegin
CREATE FUNCTION edge_status(
    p_edge text, p_epoch bigint, p_lease interval, p_stale interval, p_part integer, p_parts integer,
    p_waiting uuid[], p_active uuid[], p_max_served integer, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_epoch  bigint;
    v_busy   text[];
    v_ids    uuid[];
    v_groups text[];
    v_edges  text[];
BEGIN
    INSERT INTO edge_lease AS l (edge_id, expires, lease, epoch)
    VALUES (p_edge, v_now + p_lease, p_lease, p_epoch)
    ON CONFLICT (edge_id) DO UPDATE
    SET expires = excluded.expires, lease = excluded.lease, epoch = greatest(l.epoch, excluded.epoch)
    RETURNING l.epoch INTO v_epoch;

    RETURN QUERY
    SELECT CASE WHEN a.request_id IS NULL THEN 'unknown' ELSE 'listed_promoted' END,
           i.request_id, ''::text, ''::text, 0
    FROM (SELECT w.request_id, true AS waits FROM unnest(p_waiting) AS w(request_id)
          UNION ALL SELECT h.request_id, false FROM unnest(p_active) AS h(request_id)) AS i
    LEFT JOIN active_request a ON a.request_id = i.request_id AND a.edge_id = p_edge
    LEFT JOIN pending_request p ON p.request_id = i.request_id AND p.edge_id = p_edge
    WHERE CASE WHEN i.waits THEN p.request_id IS NULL ELSE a.request_id IS NULL END;

    IF p_stale IS NULL OR v_epoch > p_epoch THEN
        RETURN;
    END IF;
    v_ids := ARRAY(
        SELECT r.request_id
        FROM (SELECT a.request_id, a.created FROM active_request a WHERE a.edge_id = p_edge
              UNION ALL
              SELECT p.request_id, p.created FROM pending_request p WHERE p.edge_id = p_edge) AS r
        WHERE r.created < v_now - p_stale
          AND get_byte(uuid_send(r.request_id), 15) % p_parts = p_part
        EXCEPT (SELECT unnest(p_waiting) UNION ALL SELECT unnest(p_active)));
    IF v_ids = '{}' THEN
        RETURN;
    END IF;
    v_groups := ARRAY(
        SELECT a.ip_group FROM active_request a WHERE a.request_id = ANY (v_ids)
        UNION SELECT p.ip_group FROM pending_request p WHERE p.request_id = ANY (v_ids));
    v_busy := lock_groups(v_groups, false, true);
    -- Read again: somebody else may have freed some before the locks were there.
    SELECT array_agg(r.request_id), array_agg(r.ip_group), array_agg(p_edge)
    INTO v_ids, v_groups, v_edges
    FROM (SELECT a.request_id, a.ip_group FROM active_request a
          WHERE a.request_id = ANY (v_ids) AND a.edge_id = p_edge
          UNION ALL
          SELECT p.request_id, p.ip_group FROM pending_request p
          WHERE p.request_id = ANY (v_ids) AND p.edge_id = p_edge) AS r
    WHERE r.ip_group <> ALL (v_busy);
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 'freed'::text, f.request_id, f.ip_group, p_edge, 0
    FROM unnest(v_ids, v_groups) AS f(request_id, ip_group);
    RETURN QUERY
    SELECT * FROM release_and_promote(v_ids, v_groups, v_edges, p_max_served, NULL, false, v_now);
END $$;
-- +goose StatementEnd

-- Frees everything of edges whose lease has expired and forgets those of which
-- nothing is left. Returns freed and promoted. Edges and groups that somebody
-- else has locked are left to the next call.
-- +goose StatementBegin
CREATE FUNCTION reclaim_dead_edges(p_max_served integer, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_dead   text[];
    v_busy   text[];
    v_ids    uuid[];
    v_groups text[];
    v_edges  text[];
BEGIN
    v_dead := ARRAY(
        SELECT l.edge_id FROM edge_lease l WHERE l.expires <= v_now FOR UPDATE SKIP LOCKED);
    IF v_dead = '{}' THEN
        RETURN;
    END IF;
    v_busy := lock_groups(ARRAY(
        SELECT a.ip_group FROM active_request a WHERE a.edge_id = ANY (v_dead)
        UNION SELECT p.ip_group FROM pending_request p WHERE p.edge_id = ANY (v_dead)), false, true);
    SELECT coalesce(array_agg(r.request_id), '{}'), array_agg(r.ip_group), array_agg(r.edge_id)
    INTO v_ids, v_groups, v_edges
    FROM (SELECT a.request_id, a.ip_group, a.edge_id FROM active_request a WHERE a.edge_id = ANY (v_dead)
          UNION ALL
          SELECT p.request_id, p.ip_group, p.edge_id FROM pending_request p WHERE p.edge_id = ANY (v_dead)) AS r
    WHERE r.ip_group <> ALL (v_busy);
    IF v_ids <> '{}' THEN
        RETURN QUERY
        SELECT 'freed'::text, f.request_id, f.ip_group, f.edge_id, 0
        FROM unnest(v_ids, v_groups, v_edges) AS f(request_id, ip_group, edge_id);
        RETURN QUERY
        SELECT * FROM release_and_promote(v_ids, v_groups, v_edges, p_max_served, NULL, false, v_now);
    END IF;
    DELETE FROM edge_lease l
    WHERE l.edge_id = ANY (v_dead)
      AND NOT EXISTS (SELECT FROM active_request a WHERE a.edge_id = l.edge_id)
      AND NOT EXISTS (SELECT FROM pending_request p WHERE p.edge_id = l.edge_id);
END $$;
-- +goose StatementEnd

-- Promotes wherever there is room and somebody waits, as after a limit was
-- raised. Groups that somebody else has locked are left to the next call.
-- +goose StatementBegin
CREATE FUNCTION promote_waiting(p_max_served integer, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_groups text[];
BEGIN
    v_groups := ARRAY(
        SELECT g.ip_group FROM group_state g
        WHERE g.pending_count > 0 AND g.active_count < p_max_served
        FOR UPDATE SKIP LOCKED);
    RETURN QUERY SELECT * FROM promote(v_groups, p_max_served, coalesce(p_now, clock_timestamp()));
END $$;
-- +goose StatementEnd

-- The sweep behind everything else: frees active requests that are older than
-- p_stale and whose edge has no live lease, corrects counts that differ from
-- the rows, and gives edges that have rows but no lease a lease of p_lease, so
-- that reclaim_dead_edges will find them. Returns freed, corrected and
-- promoted. Groups that somebody else has locked are left to the next call.
-- +goose StatementBegin
CREATE FUNCTION reconcile_stale(
    p_max_served integer, p_stale interval, p_lease interval, p_now timestamptz)
RETURNS SETOF queue_event LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_busy   text[];
    v_groups text[];
BEGIN
    v_groups := ARRAY(
        SELECT DISTINCT a.ip_group FROM active_request a
        WHERE a.created < v_now - p_stale
          AND NOT EXISTS (SELECT FROM edge_lease l WHERE l.edge_id = a.edge_id AND l.expires > v_now));
    IF v_groups <> '{}' THEN
        v_busy := lock_groups(v_groups, true, true);
        RETURN QUERY SELECT * FROM reclaim_stale(
            ARRAY(SELECT u.ip_group FROM unnest(v_groups) AS u(ip_group) WHERE u.ip_group <> ALL (v_busy)),
            p_max_served, p_stale, v_now);
    END IF;

    v_groups := ARRAY(
        SELECT coalesce(g.ip_group, n.ip_group)
        FROM group_state g
        FULL JOIN (
            SELECT r.ip_group, sum(r.active) AS active, sum(r.pending) AS pending
            FROM (SELECT a.ip_group, 1 AS active, 0 AS pending FROM active_request a
                  UNION ALL SELECT p.ip_group, 0, 1 FROM pending_request p) AS r
            GROUP BY r.ip_group) AS n ON n.ip_group = g.ip_group
        WHERE (g.active_count, g.pending_count)
              IS DISTINCT FROM (coalesce(n.active, 0), coalesce(n.pending, 0)));
    IF v_groups <> '{}' THEN
        -- Count again under the locks: the counts above were taken while
        -- others were at work.
        v_busy := lock_groups(v_groups, true, true);
        RETURN QUERY
        WITH n AS (
            SELECT u.ip_group,
                   (SELECT count(*)::integer FROM active_request a WHERE a.ip_group = u.ip_group) AS active,
                   (SELECT count(*)::integer FROM pending_request p WHERE p.ip_group = u.ip_group) AS pending
            FROM unnest(v_groups) AS u(ip_group) WHERE u.ip_group <> ALL (v_busy)
        ), counted AS (
            UPDATE group_state g
            SET active_count = n.active, pending_count = n.pending, last_active = v_now
            FROM n
            WHERE g.ip_group = n.ip_group
              AND (g.active_count, g.pending_count) IS DISTINCT FROM (n.active, n.pending)
            RETURNING g.ip_group
        )
        SELECT 'corrected'::text, '00000000-0000-0000-0000-000000000000'::uuid, c.ip_group, ''::text, 0
        FROM counted c;
        RETURN QUERY SELECT * FROM promote(
            ARRAY(SELECT u.ip_group FROM unnest(v_groups) AS u(ip_group) WHERE u.ip_group <> ALL (v_busy)),
            p_max_served, v_now);
    END IF;

    -- Last, although leases come first in the order of locks: a lease that is
    -- new waits for nobody.
    INSERT INTO edge_lease (edge_id, expires, lease)
    SELECT r.edge_id, v_now + p_lease, p_lease
    FROM (SELECT a.edge_id FROM active_request a UNION SELECT p.edge_id FROM pending_request p) AS r
    WHERE NOT EXISTS (SELECT FROM edge_lease l WHERE l.edge_id = r.edge_id)
    ON CONFLICT (edge_id) DO NOTHING;
END $$;
-- +goose StatementEnd

-- Deletes groups that have had nobody for longer than p_idle, and returns how
-- many. A group that somebody has locked is not idle.
-- +goose StatementBegin
CREATE FUNCTION prune_idle_groups(p_idle interval, p_now timestamptz)
RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_groups text[];
    v_pruned bigint;
BEGIN
    v_groups := ARRAY(
        SELECT g.ip_group FROM group_state g
        WHERE g.active_count = 0 AND g.pending_count = 0 AND g.last_active < v_now - p_idle
        FOR UPDATE SKIP LOCKED);
    -- The rows are checked again under the locks.
    DELETE FROM group_state g
    WHERE g.ip_group = ANY (v_groups)
      AND g.active_count = 0 AND g.pending_count = 0 AND g.last_active < v_now - p_idle
      AND NOT EXISTS (SELECT FROM active_request a WHERE a.ip_group = g.ip_group)
      AND NOT EXISTS (SELECT FROM pending_request p WHERE p.ip_group = g.ip_group);
    GET DIAGNOSTICS v_pruned = ROW_COUNT;
    RETURN v_pruned;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION prune_idle_groups, reconcile_stale, promote_waiting, reclaim_dead_edges, edge_status,
    expire_pending, admit, reclaim_stale, release_and_promote, assert_held, enqueue_if_room, try_admit,
    promote, renew_leases, lock_groups;
DROP TABLE queue_event, edge_lease, pending_request, active_request, group_state;
