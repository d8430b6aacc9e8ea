"""Times as people write them: texts of digits are numbers, but for the eight of a date."""

import pytest

from belated.core.times import DAY, EPOCH, SECOND, microseconds, moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1795131447", 1_795_131_447 * SECOND),
        ("1795131447.25", 1_795_131_447 * SECOND + SECOND // 4),
        ("1795131447250", 1_795_131_447 * SECOND + SECOND // 4),  # milliseconds
        ("1795131447250000", 1_795_131_447 * SECOND + SECOND // 4),
        # what ISO 8601 could be made to say, with the 0 after eight digits for a T: in 1790
        ("1790123100112", 1_790_123_100_112 * 1000),
        ("20260331", 20_543 * DAY),
        ("2026-03-31", 20_543 * DAY),
        ("20260331T060000", 20_543 * DAY + DAY // 4),
    ],
)
def test_a_text_of_digits_is_a_number_and_eight_are_a_date(text, expected):
    assert microseconds("--until", text) == expected


@pytest.mark.parametrize("text", ["99999999", "1795131447s", "-5", "1.795e9", "", "nan"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match=f"--until = '{text}': expected an ISO time such as"):
        microseconds("--until", text)


def test_a_moment_names_its_zone_so_it_is_no_text_of_digits():
    assert moment("at", 0.0) == microseconds("at", EPOCH) == 0
    with pytest.raises(ValueError, match="at = '1795131447': expected"):
        moment("at", "1795131447")
