-- Since this version a decision may have several rewards, which are combined.
alter table events add column combine text;  -- of a decision: how; null: it has one reward
alter table parked add column event_id text not null default '';
