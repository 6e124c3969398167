"""Functions in PostgreSQL by which a reader of a table waits for a token.

    SELECT pequod_views.wait_for('karma', 'pq1.AZ86YcIBpbTYAw', 5);

A token's bytes are a version, then for each database four bytes of its name, its timeline and a position, the last two
as varints (pequod/freshness.py). A view has reached a token if each of its parts has, in every history of the token, a
position that is not below the token's.
"""

from __future__ import annotations

from typing import Final

_ENTRIES: Final = """
CREATE OR REPLACE FUNCTION pequod_views.token_entries(token text)
RETURNS TABLE (history text, place numeric) LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    encoded text := translate(substr(token, 5), '-_', '+/');
    data bytea;
    at int := 1;
    byte int;
    shift numeric;
    number numeric;
    timeline numeric;
BEGIN
    IF left(token, 4) <> 'pq1.' THEN
        RAISE EXCEPTION 'tokens start with pq1.' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    data := decode(encoded || repeat('=', (4 - length(encoded) % 4) % 4), 'base64');
    WHILE at < length(data) LOOP
        history := encode(substr(data, at + 1, 4), 'hex');
        at := at + 4;
        FOR part IN 1..2 LOOP
            number := 0;
            shift := 1;
            LOOP
                byte := get_byte(data, at);
                at := at + 1;
                number := number + (byte & 127) * shift;
                shift := shift * 128;
                EXIT WHEN byte < 128;
            END LOOP;
            IF part = 1 THEN
                timeline := number;
            END IF;
        END LOOP;
        history := history || '.' || timeline;
        place := number;
        RETURN NEXT;
    END LOOP;
END $$"""

_HAS_REACHED: Final = """
CREATE OR REPLACE FUNCTION pequod_views.has_reached(view_name text, wanted text)
RETURNS boolean LANGUAGE sql VOLATILE STRICT AS $$
    SELECT count(*) > 0 AND bool_and(
        part.server_id <> '' AND NOT EXISTS (
            SELECT FROM pequod_views.token_entries(wanted) AS asked
            WHERE NOT EXISTS (
                SELECT FROM pequod_views.token_entries(nullif(part.token, '')) AS had
                WHERE had.history = asked.history AND had.place >= asked.place
            )
        )
    )
    FROM pequod_views.parts AS part WHERE part.view = view_name
$$"""

# READ COMMITTED, the default, takes a new snapshot for each statement of the loop. A function hears no notification
# before its transaction ends, so it looks: often at first, since most waits are for a write of a moment ago.
_WAIT_FOR: Final = """
CREATE OR REPLACE FUNCTION pequod_views.wait_for(view_name text, wanted text, wait_s double precision DEFAULT 1)
RETURNS boolean LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT AS $$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    IF view_name IS NULL OR wanted IS NULL OR wait_s IS NULL THEN
        RAISE EXCEPTION 'wait_for takes no NULL: %', CASE
            WHEN view_name IS NULL THEN 'the name of the view is NULL'
            WHEN wanted IS NULL THEN 'the token is NULL'
            ELSE 'the number of seconds is NULL' END
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF wait_s = 'NaN' OR wait_s >= 1e9 THEN
        RAISE EXCEPTION 'wait_for waits less than 1e9 seconds, not %', wait_s
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    BEGIN
        PERFORM pequod_views.token_entries(wanted);
    EXCEPTION WHEN data_exception THEN
        RAISE EXCEPTION '% is no token: %', quote_literal(left(wanted, 100)), SQLERRM
            USING ERRCODE = 'invalid_parameter_value';
    END;
    IF NOT EXISTS (SELECT FROM pequod_views.parts WHERE view = view_name) THEN
        RAISE EXCEPTION 'no view % is installed here', quote_literal(view_name)
            USING ERRCODE = 'undefined_object', HINT = 'SELECT DISTINCT view FROM pequod_views.parts';
    END IF;
    WHILE NOT pequod_views.has_reached(view_name, wanted) LOOP
        IF clock_timestamp() >= began + make_interval(secs => wait_s) THEN
            RETURN false;
        END IF;
        PERFORM pg_sleep(CASE WHEN clock_timestamp() < began + interval '100 ms' THEN 0.002 ELSE 0.02 END);
    END LOOP;
    RETURN true;
END $$"""

FUNCTIONS: Final = (_ENTRIES.strip(), _HAS_REACHED.strip(), _WAIT_FOR.strip())
FUNCTIONS_REMOVAL: Final = tuple(
    f"DROP FUNCTION IF EXISTS pequod_views.{name}" for name in ("wait_for", "has_reached", "token_entries")
)
