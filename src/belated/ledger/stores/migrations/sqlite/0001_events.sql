-- The log. One writer at a time, so the order of seq is the order of commits.
create table events (
    seq integer primary key,
    tx integer not null,     -- the first seq of the transaction
    kind integer not null,
    bandit text not null,
    id blob not null,        -- of the decision; empty where there is none
    time integer not null,   -- microseconds since 1970
    value real,              -- the reward
    due integer,             -- when the window of a decision closes
    body blob not null
) strict;
create index events_id on events (id);
create index events_rare on events (kind, seq) where kind >= 7;

-- What a caller named its request, so that a retry gets the same decision.
create table requests (
    bandit text not null,
    request text not null,
    id blob not null,
    digest blob not null,
    primary key (bandit, request)
) strict, without rowid;

-- Whom a decision concerns, so that it can be erased.
create table subjects (
    bandit text not null,
    subject text not null,
    id blob not null,
    primary key (bandit, subject, id)
) strict, without rowid;

-- Rewards that came before their decision was visible.
create table parked (
    id blob primary key,
    time integer not null,
    value real not null
) strict, without rowid;

create table ledger (identity text not null) strict;
