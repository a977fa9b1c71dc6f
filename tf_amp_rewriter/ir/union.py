"""A union-find over integers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class UnionFind:
    """Disjoint sets of 0, 1, ... `len(parents) - 1`; the least member represents a set."""

    parents: list[int]

    @classmethod
    def of_size(cls, size: int) -> UnionFind:
        """Returns `size` sets of one member each."""
        return cls(list(range(size)))

    def add(self) -> int:
        """Returns a new member, alone in its set."""
        self.parents.append(len(self.parents))
        return len(self.parents) - 1

    def find(self, member: int) -> int:
        """Returns the representative of `member`'s set."""
        parents = self.parents
        while parents[member] != member:
            parents[member] = parents[parents[member]]
            member = parents[member]
        return member

    def union(self, left: int, right: int) -> None:
        """Makes the sets of `left` and `right` one."""
        left, right = self.find(left), self.find(right)
        if left != right:
            self.parents[max(left, right)] = min(left, right)
