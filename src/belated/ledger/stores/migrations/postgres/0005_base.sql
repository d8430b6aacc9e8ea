-- Since this version the oldest events can be compacted into a base, where the log then begins.
-- One row; nothing was dropped where digest is empty. The numbers (seq) of events after the last of
-- an earlier version have no gaps; version 0.1 left some.
create table base (
    tx bigint not null,       -- place of the last event that was dropped
    seq bigint not null,
    last_id bytea not null,   -- the greatest id among the decisions that were dropped
    digest text not null,     -- of body
    body bytea not null,
    earlier_tx bigint not null,  -- place of the last event of an earlier version
    earlier_seq bigint not null
);
insert into base values (0, 0, '', '', '', 0, 0);
update base set (earlier_tx, earlier_seq) = (e.tx, e.seq)
from (select tx, seq from events order by tx desc, seq desc limit 1) as e;

-- The arrays of the bandits of a base, in pieces.
create table base_content (
    base text not null,       -- its digest
    bandit text not null,
    piece bigint not null,
    content bytea not null,
    primary key (base, bandit, piece)
);

-- Events before the base that stay at hand: API keys, and all about decisions that were open.
create table carried (
    base text not null,
    tx bigint not null,
    seq bigint not null,
    kind smallint not null,
    bandit text not null,
    id bytea not null,
    time bigint not null,
    value double precision,
    due bigint,
    body bytea not null,
    received bigint,
    closes bigint,
    combine text,
    primary key (base, tx, seq)
);
create index carried_id on carried (id);
