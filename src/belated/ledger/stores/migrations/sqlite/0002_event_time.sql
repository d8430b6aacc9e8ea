-- Since this version a reward may happen before it is handed in. In the events of earlier versions both
-- are null: a reward was received when it happened, and a window had no grace.
alter table events add column received integer;  -- of a reward, if that is not its time
alter table events add column closes integer;    -- of a decision: the end of its window with grace
alter table parked add column received integer;
