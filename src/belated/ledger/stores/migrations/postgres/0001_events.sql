-- The log. tx is the number of the transaction (plus tx_offset, see below), seq orders the events
-- of one. Several writers may commit at once, in another order than that of seq.
create sequence event_seq;
create table events (
    tx bigint not null,
    seq bigint not null,
    kind smallint not null,
    bandit text not null,
    id bytea not null,       -- of the decision; empty where there is none
    time bigint not null,    -- microseconds since 1970
    value double precision,  -- the reward
    due bigint,              -- when the window of a decision closes
    body bytea not null,
    primary key (tx, seq)
);
create index events_id on events (id) where id <> '';
create index events_rare on events (kind, tx, seq) where kind >= 7;

-- What two writers at once might both write, each unaware of the other: the same decision (0), a
-- reward (1) and a cancellation (3), or an expiry (2) and a cancellation.
create unique index one_decision on events (id) where kind = 0 and id <> '';
create unique index one_reward_or_cancellation on events (id) where kind in (1, 3) and id <> '';
create unique index one_expiry_or_cancellation on events (id) where kind in (2, 3) and id <> '';

-- What a caller named its request, so that a retry gets the same decision.
create table requests (
    bandit text not null,
    request text not null,
    id bytea not null,
    digest bytea not null,
    primary key (bandit, request)
);

-- Whom a decision concerns, so that it can be erased.
create table subjects (
    bandit text not null,
    subject text not null,
    id bytea not null,
    primary key (bandit, subject, id)
);

-- Rewards that came before their decision was visible.
create table parked (
    id bytea primary key,
    time bigint not null,
    value double precision not null
);

-- One row. Transaction numbers start again when a dump is restored into another server; tx_offset
-- then lifts the new ones above the old.
create table ledger (
    identity text not null,
    version integer not null,
    tx_offset bigint not null
);
