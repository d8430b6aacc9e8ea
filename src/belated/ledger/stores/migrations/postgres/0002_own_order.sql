-- Version 0.1 numbered transactions by PostgreSQL's own ids, and its readers waited for every older
-- transaction of the server. Since this version the log has an order of its own, see end_of_log.
-- A process of version 0.1 that still runs fails at its next statement, because these are gone.
alter table ledger drop column tx_offset;
drop sequence event_seq;

-- Waits until it is the caller's turn to write, and returns the place of the last event in the log
-- (0, 0 where it is empty). The turn ends with the caller's transaction. The function is volatile,
-- so its query sees everything that was committed before the turn began.
create function end_of_log(out tx bigint, out seq bigint) language plpgsql volatile as $$
begin
    perform pg_advisory_xact_lock('ledger'::regclass::oid::bigint);
    select e.tx, e.seq into tx, seq from events e order by e.tx desc, e.seq desc limit 1;
    tx := coalesce(tx, 0);
    seq := coalesce(seq, 0);
end
$$;
