"""A slow and obvious twin of ``OpenDecisions``: a dict of objects that is looked through."""

from bisect import bisect_left

from belated.ledger.pending import Open


class OpenDecisions:
    def __init__(self, ages):
        self.all: dict[bytes, Open] = {}
        self.ages = ages

    def add(self, id, row, time, due, closes):
        self.all[id] = Open(row, time, due, closes, None, False)

    def get(self, id):
        return self.all.get(id)

    def close(self, id):
        del self.all[id]

    def hold(self, id, reward):
        self.all[id] = self.all[id]._replace(held=reward)

    def mark_late(self, id):
        self.all[id] = self.all[id]._replace(late=True)

    def _ends(self):
        return {id: o.closes or o.due for id, o in self.all.items() if o.due is not None}

    def due(self, now):
        return {id for id, end in self._ends().items() if end < now}

    def first_due(self):
        return min(self._ends().values(), default=None)

    def by_age(self, now):
        counts = [0] * (len(self.ages) + 1)
        for decision in self.all.values():
            if decision.held is None:
                age = now // 1_000_000 - decision.time // 1_000_000
                counts[bisect_left(self.ages, age)] += 1
        return counts
