-- The admission queue: lock_groups tells of every group that it did not lock,
-- and creates groups in the order of bytes whatever the database's collation.
--
-- Owner: queue-coordinator. The rules of 00001_queue.sql hold here too.

-- +goose Up

-- Locks the groups and returns those that could not be locked, which happens
-- with p_skip only. p_create makes rows for groups that have none.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION lock_groups(p_groups text[], p_create boolean, p_skip boolean)
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
            SELECT DISTINCT u.ip_group COLLATE "C" AS key
            FROM unnest(p_groups) AS u(ip_group)
            WHERE NOT EXISTS (SELECT FROM group_state g WHERE g.ip_group = u.ip_group)
            ORDER BY key
            ON CONFLICT (ip_group) DO NOTHING;
        END IF;
        v_locked := ARRAY(
            SELECT g.ip_group FROM group_state g
            WHERE g.ip_group = ANY (p_groups)
            FOR UPDATE SKIP LOCKED);
        IF p_create THEN
            -- Also one that existed for INSERT and has been deleted since: it
            -- has no row now, and whoever asks again makes one.
            RETURN ARRAY(SELECT unnest(p_groups) EXCEPT SELECT unnest(v_locked));
        END IF;
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

-- +goose Down
-- What stands before this file works with the function as it is.
SELECT;
