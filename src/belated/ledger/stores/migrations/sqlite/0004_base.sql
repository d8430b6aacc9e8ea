-- Since this version the oldest events can be compacted into a base, where the log then begins.
-- One row; nothing was dropped where digest is empty.
create table base (
    tx integer not null,      -- place of the last event that was dropped
    seq integer not null,
    last_id blob not null,    -- the greatest id among the decisions that were dropped
    digest text not null,     -- of body
    body blob not null
) strict;
insert into base values (0, 0, x'', '', x'');

-- The arrays of the bandits of a base, in pieces.
create table base_content (
    base text not null,       -- its digest
    bandit text not null,
    piece integer not null,
    content blob not null,
    primary key (base, bandit, piece)
) strict;

-- Events before the base that stay at hand: API keys, and all about decisions that were open.
create table carried (
    base text not null,
    seq integer not null,
    tx integer not null,
    kind integer not null,
    bandit text not null,
    id blob not null,
    time integer not null,
    value real,
    due integer,
    body blob not null,
    received integer,
    closes integer,
    combine text,
    primary key (base, seq)
) strict;
create index carried_id on carried (id);
