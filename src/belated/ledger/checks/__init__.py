"""Checks that every ledger must pass: for ours, and for yours.

``check_ledger`` runs everything and raises ``AssertionError`` at the first violation; its message
says what a store must do and what it did instead. ``LEDGER_CHECKS`` lists the single checks. Each
gets a function that makes an empty ledger.

>>> from belated.ledger.stores.memory import MemoryLedger
>>> check_ledger(MemoryLedger)
"""

from belated.ledger.checks.log_checks import (
    check_approval,
    check_batches,
    check_follow_is_exact,
    check_log_keeps_everything,
    check_many,
    check_requests,
    check_stale_memory,
)
from belated.ledger.checks.reward_checks import (
    check_endings,
    check_event_time,
    check_guardrails,
    check_invalid_rewards,
    check_one_batch,
    check_rewards,
    check_several_rewards,
    check_zeros_have_no_sign,
)
from belated.ledger.checks.trials import NewLedger
from belated.ledger.checks.upkeep_checks import (
    check_compaction,
    check_forgetting,
    check_parked_pages,
    check_parking,
    check_retention,
)

LEDGER_CHECKS = (
    check_log_keeps_everything,
    check_follow_is_exact,
    check_rewards,
    check_event_time,
    check_several_rewards,
    check_guardrails,
    check_zeros_have_no_sign,
    check_one_batch,
    check_endings,
    check_parking,
    check_parked_pages,
    check_requests,
    check_invalid_rewards,
    check_stale_memory,
    check_approval,
    check_forgetting,
    check_many,
    check_batches,
    check_retention,
    check_compaction,
)


def check_ledger(new: NewLedger) -> None:
    """Run every check, each on an empty ledger that ``new`` makes."""
    for check in LEDGER_CHECKS:
        check(new)
