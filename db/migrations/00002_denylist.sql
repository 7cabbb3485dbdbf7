-- The denylist: counts of denials, blocks, and every change of a block.
--
-- Owner: denylist. The tables ip_denial_count, ip_block and ip_group_block and
-- their first columns are those of cork-cache-n-queue, so an operator's SQL
-- works as written there:
--
--   UPDATE queue.ip_block SET blocked_until = NOW() WHERE ip = '203.0.113.7';
--   DELETE FROM queue.ip_group_block WHERE ip_group = '203.0.113.0/24';
--
-- Rules for everything here:
--
--   * The row of denylist_checkpoint is the mutex of the projection: counts
--     and checkpoint change only in a transaction that has locked it.
--   * Every change of a block, whoever makes it, writes a row to block_change
--     through triggers. Whoever changes blocks holds lock_blocks() until the end
--     of the transaction, so versions become visible in their order. An
--     operator's open transaction that has changed a block therefore holds up
--     all other changes of blocks: commit soon.
--   * The service says what it does in settings of its transaction:
--       ccnq.writer   projector: because of denials; not worth a NOTIFY
--                     request: for an operator who asked the service
--                     replay: a block of an old event, which makes no change
--                     anything else: an operator's own SQL
--     All but the last write the columns version and changed themselves.
--       ccnq.forgive  on: a lift that also forgives what was counted
--       ccnq.now      the time to act at; unset means the database's clock
--   * Addresses and ranges are texts in one form only (address_text).

-- +goose Up

-- The time to act at.
CREATE FUNCTION denylist_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(nullif(current_setting('ccnq.now', true), '')::timestamptz, clock_timestamp())
$$;

-- The one text of an address: lower case, the longest run of zeros as ::
-- (RFC 5952), IPv6 without dots. host() writes ::102:304 as ::1.2.3.4. An
-- IPv4-mapped address has no text, as it is the IPv4 address.
-- +goose StatementBegin
CREATE FUNCTION address_text(p_address inet) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    v_text text := host(p_address);
    v_low  bigint;
BEGIN
    IF v_text LIKE '::ffff:%.%' THEN
        RETURN '';
    ELSIF v_text LIKE '::%.%' THEN
        v_low := host(p_address)::inet - '::'::inet;
        RETURN '::' || CASE WHEN v_low > 65535 THEN to_hex(v_low >> 16) || ':' ELSE '' END
                    || to_hex(v_low & 65535);
    END IF;
    RETURN v_text;
END $$;
-- +goose StatementEnd

-- How often an address was denied on a day (UTC).
CREATE TABLE ip_denial_count (
    ip        text COLLATE "C" NOT NULL,
    -- The range that the address was first denied in on that day.
    ip_group  text COLLATE "C" NOT NULL,
    day       date             NOT NULL,
    count     bigint           NOT NULL,
    -- Places of the first and the last of these events in the stream.
    first_seq bigint           NOT NULL DEFAULT 0,
    last_seq  bigint           NOT NULL DEFAULT 0,
    -- Denial 1, 2, 4, 8, … as one JSON object each: at, reason, path, edge.
    samples   text[]           NOT NULL DEFAULT '{}',
    CONSTRAINT ip_denial_count_pkey PRIMARY KEY (ip, day),
    CONSTRAINT ip_denial_count_count_positive CHECK (count > 0)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.2
);
-- For the addresses of a range on a day, and for pruning.
CREATE INDEX ip_denial_count_day ON ip_denial_count (day, ip_group);

-- Versions of changes, of both tables of blocks.
CREATE SEQUENCE block_version AS bigint;

-- Blocks of addresses, in force or over.
CREATE TABLE ip_block (
    ip            text COLLATE "C" NOT NULL,
    blocked_until timestamptz      NOT NULL,
    since         timestamptz      NOT NULL DEFAULT clock_timestamp(),
    reason        text             NOT NULL DEFAULT '',
    by            text             NOT NULL DEFAULT '',
    -- Set by the trigger: the last change, and its time.
    version       bigint           NOT NULL DEFAULT 0,
    changed       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ip_block_pkey PRIMARY KEY (ip),
    CONSTRAINT ip_block_ip_canonical CHECK (ip = address_text(ip::inet)),
    -- Years of more than four digits do not fit into RFC 3339.
    CONSTRAINT ip_block_blocked_until_bounded CHECK (blocked_until BETWEEN '0001-01-01 UTC' AND '9999-12-31 UTC'),
    CONSTRAINT ip_block_since_bounded CHECK (since BETWEEN '0001-01-01 UTC' AND '9999-12-31 UTC'),
    CONSTRAINT ip_block_words_short CHECK (octet_length(reason) <= 256 AND octet_length(by) <= 256)
);

-- Blocks of ranges, in force or over.
CREATE TABLE ip_group_block (
    ip_group      text COLLATE "C" NOT NULL,
    blocked_until timestamptz      NOT NULL,
    since         timestamptz      NOT NULL DEFAULT clock_timestamp(),
    reason        text             NOT NULL DEFAULT '',
    by            text             NOT NULL DEFAULT '',
    version       bigint           NOT NULL DEFAULT 0,
    changed       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ip_group_block_pkey PRIMARY KEY (ip_group),
    CONSTRAINT ip_group_block_ip_group_canonical
        CHECK (ip_group = address_text(ip_group::cidr) || '/' || masklen(ip_group::cidr)),
    CONSTRAINT ip_group_block_blocked_until_bounded CHECK (blocked_until BETWEEN '0001-01-01 UTC' AND '9999-12-31 UTC'),
    CONSTRAINT ip_group_block_since_bounded CHECK (since BETWEEN '0001-01-01 UTC' AND '9999-12-31 UTC'),
    CONSTRAINT ip_group_block_words_short CHECK (octet_length(reason) <= 256 AND octet_length(by) <= 256)
);
-- For blocks that are over long ago, and those in force that must be published
-- again.
CREATE INDEX ip_block_blocked_until ON ip_block (blocked_until);
CREATE INDEX ip_group_block_blocked_until ON ip_group_block (blocked_until);

-- Every change of a block, in order, until it is published and old.
CREATE TABLE block_change (
    version       bigint      NOT NULL,
    kind          text        NOT NULL,
    scope         text        NOT NULL,
    target        text        NOT NULL,
    blocked_until timestamptz NOT NULL,
    since         timestamptz NOT NULL,
    reason        text        NOT NULL,
    by            text        NOT NULL,
    -- Of a lift: whether the denials before it still count.
    keep_counts   boolean     NOT NULL,
    at            timestamptz NOT NULL,
    CONSTRAINT block_change_pkey PRIMARY KEY (version),
    CONSTRAINT block_change_kind_known CHECK (kind IN ('blocked', 'unblocked')),
    CONSTRAINT block_change_scope_known CHECK (scope IN ('ip', 'range'))
);

-- Up to which version changes have been published. One row.
CREATE TABLE block_publication (
    one     boolean NOT NULL DEFAULT true,
    version bigint  NOT NULL,
    CONSTRAINT block_publication_pkey PRIMARY KEY (one),
    CONSTRAINT block_publication_one CHECK (one)
);
INSERT INTO block_publication (version) VALUES (0);

-- How far the stream has been applied, and which stream. One row.
CREATE TABLE denylist_checkpoint (
    one     boolean NOT NULL DEFAULT true,
    -- When the stream was made; null before the first.
    created timestamptz,
    seq     bigint  NOT NULL,
    CONSTRAINT denylist_checkpoint_pkey PRIMARY KEY (one),
    CONSTRAINT denylist_checkpoint_one CHECK (one)
) WITH (fillfactor = 10);
INSERT INTO denylist_checkpoint (seq) VALUES (0);

-- Who may write the projection, until when. One row.
CREATE TABLE denylist_leader (
    one    boolean     NOT NULL DEFAULT true,
    holder text        NOT NULL,
    epoch  bigint      NOT NULL,
    until  timestamptz NOT NULL,
    CONSTRAINT denylist_leader_pkey PRIMARY KEY (one),
    CONSTRAINT denylist_leader_one CHECK (one)
) WITH (fillfactor = 10);

-- The last applied event of each outbox.
CREATE TABLE outbox_position (
    outbox_id text COLLATE "C" NOT NULL,
    last_seq  bigint           NOT NULL,
    -- When the stream received it.
    seen      timestamptz      NOT NULL,
    CONSTRAINT outbox_position_pkey PRIMARY KEY (outbox_id)
) WITH (fillfactor = 50);

-- Messages of the stream that could not be understood.
CREATE TABLE event_quarantine (
    -- The stream, and the place in it.
    created timestamptz NOT NULL,
    seq     bigint      NOT NULL,
    subject text        NOT NULL,
    why     text        NOT NULL,
    -- The first 64 KiB.
    payload bytea       NOT NULL,
    at      timestamptz NOT NULL,
    CONSTRAINT event_quarantine_pkey PRIMARY KEY (created, seq)
);
CREATE INDEX event_quarantine_at ON event_quarantine (at);

-- A rebuild that has begun, aside of what is in force. A crash of the database
-- empties all of it at once; then the rebuild begins anew.
CREATE UNLOGGED TABLE rebuild (
    epoch bigint NOT NULL
);
CREATE UNLOGGED TABLE rebuild_denial_count (LIKE ip_denial_count INCLUDING ALL);
CREATE UNLOGGED TABLE rebuild_outbox_position (LIKE outbox_position INCLUDING ALL);
CREATE UNLOGGED TABLE rebuild_block (
    scope         text             NOT NULL,
    target        text COLLATE "C" NOT NULL,
    blocked_until timestamptz      NOT NULL,
    since         timestamptz      NOT NULL,
    reason        text             NOT NULL,
    by            text             NOT NULL,
    version       bigint           NOT NULL,
    changed       timestamptz      NOT NULL,
    CONSTRAINT rebuild_block_pkey PRIMARY KEY (scope, target)
);

-- Who an operator's own SQL is: the session's user and program.
CREATE FUNCTION sql_user() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT left(session_user || coalesce(' (' || nullif(current_setting('application_name'), '') || ')', ''), 128)
$$;

-- Waits until nobody else changes blocks, and keeps others from it until the
-- end of the transaction.
-- +goose StatementBegin
CREATE FUNCTION lock_blocks() RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('ccnq.blocks.' || current_schema(), 0));
END $$;
-- +goose StatementEnd

-- Before each statement that changes blocks.
-- +goose StatementBegin
CREATE FUNCTION block_enter() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM lock_blocks();
    IF TG_OP = 'TRUNCATE' THEN
        EXECUTE format('DELETE FROM %I', TG_TABLE_NAME);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Before each row that an operator's own SQL makes or changes: its version, and
-- who did it.
-- +goose StatementBegin
CREATE FUNCTION block_stamp() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW IS NOT DISTINCT FROM OLD THEN
        RETURN NEW;
    END IF;
    NEW.version := nextval('block_version');
    NEW.changed := denylist_now();
    NEW.by := sql_user();
    IF TG_OP = 'UPDATE' THEN
        IF NEW.reason = OLD.reason THEN
            NEW.reason := 'SQL';
        END IF;
        IF NEW.since = OLD.since AND OLD.blocked_until <= NEW.changed AND NEW.blocked_until > NEW.changed THEN
            NEW.since := NEW.changed;
        END IF;
    ELSIF NEW.reason = '' THEN
        NEW.reason := 'SQL';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- After each statement: the rows of block_change. The arguments are the scope
-- and the name of the key.
-- +goose StatementBegin
CREATE FUNCTION block_record() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    v_writer text := coalesce(current_setting('ccnq.writer', true), '');
    v_keep   boolean := coalesce(current_setting('ccnq.forgive', true), '') <> 'on';
    v_now    timestamptz := denylist_now();
BEGIN
    IF v_writer = 'replay' THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        EXECUTE format($q$
            INSERT INTO block_change
            SELECT version, 'blocked', %L, %I, blocked_until, since, reason, by, false, $1
            FROM new_rows $q$, TG_ARGV[0], TG_ARGV[1])
        USING v_now;
    ELSIF TG_OP = 'UPDATE' THEN
        -- A row that has a new key is one that ended and one that began.
        EXECUTE format($q$
            INSERT INTO block_change
            SELECT n.version, u.kind, %1$L, n.%2$I, n.blocked_until, n.since, n.reason, n.by,
                   u.kind = 'unblocked' AND $2, $1
            FROM new_rows n LEFT JOIN old_rows o ON o.%2$I = n.%2$I,
                 LATERAL (SELECT CASE WHEN n.blocked_until < o.blocked_until AND n.blocked_until <= $1
                                      THEN 'unblocked' ELSE 'blocked' END) AS u(kind)
            WHERE n.version IS DISTINCT FROM o.version
            UNION ALL
            SELECT nextval('block_version'), 'unblocked', %1$L, o.%2$I, $1, o.since, o.reason, n.by, $2, $1
            FROM old_rows o,
                 LATERAL (SELECT max(by) FROM new_rows) AS n(by)
            WHERE o.blocked_until > $1
              AND NOT EXISTS (SELECT FROM new_rows r WHERE r.%2$I = o.%2$I) $q$, TG_ARGV[0], TG_ARGV[1])
        USING v_now, v_keep;
    ELSE
        EXECUTE format($q$
            INSERT INTO block_change
            SELECT nextval('block_version'), 'unblocked', %L, %I, $1, since, 'SQL',
                   sql_user(), $2, $1
            FROM old_rows
            WHERE blocked_until > $1 $q$, TG_ARGV[0], TG_ARGV[1])
        USING v_now, v_keep;
    END IF;
    IF v_writer <> 'projector' THEN
        NOTIFY ccnq_denylist;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER a_enter BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON ip_block
    FOR EACH STATEMENT EXECUTE FUNCTION block_enter();
CREATE TRIGGER b_stamp BEFORE INSERT OR UPDATE ON ip_block
    FOR EACH ROW WHEN (coalesce(current_setting('ccnq.writer', true), '') NOT IN ('projector', 'request', 'replay'))
    EXECUTE FUNCTION block_stamp();
CREATE TRIGGER c_insert AFTER INSERT ON ip_block REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION block_record('ip', 'ip');
CREATE TRIGGER c_update AFTER UPDATE ON ip_block REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION block_record('ip', 'ip');
CREATE TRIGGER c_delete AFTER DELETE ON ip_block REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION block_record('ip', 'ip');

CREATE TRIGGER a_enter BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON ip_group_block
    FOR EACH STATEMENT EXECUTE FUNCTION block_enter();
CREATE TRIGGER b_stamp BEFORE INSERT OR UPDATE ON ip_group_block
    FOR EACH ROW WHEN (coalesce(current_setting('ccnq.writer', true), '') NOT IN ('projector', 'request', 'replay'))
    EXECUTE FUNCTION block_stamp();
CREATE TRIGGER c_insert AFTER INSERT ON ip_group_block REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION block_record('range', 'ip_group');
CREATE TRIGGER c_update AFTER UPDATE ON ip_group_block REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION block_record('range', 'ip_group');
CREATE TRIGGER c_delete AFTER DELETE ON ip_group_block REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION block_record('range', 'ip_group');

-- +goose Down
DROP TABLE rebuild_block, rebuild_outbox_position, rebuild_denial_count, rebuild, event_quarantine,
    outbox_position, denylist_leader, denylist_checkpoint, block_publication, block_change,
    ip_group_block, ip_block, ip_denial_count;
DROP FUNCTION block_record, block_stamp, block_enter, lock_blocks, sql_user, address_text, denylist_now;
DROP SEQUENCE block_version;
