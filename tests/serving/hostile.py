"""A trained model over data that is out to harm whoever shows it."""

import random
from pathlib import Path

import pyarrow as pa

from rankformer import Interactions, Rankformer, evaluate

FIRST_ITEM = 2**60  # JavaScript's own numbers cannot tell these ids apart
TITLES = [
    "<script>window.harmed = true</script>",
    '<img src="x" onerror="window.harmed = true">',
    "\"quotes\" & 'more' &amp; </script><svg onload=window.harmed=true>",
    "😀 Smile 👩‍🚀",
    "ספר מימין לשמאל",
    "Long " + "endlessly" * 60,
    "A plain title with many words that go on and on " * 8,
    None,
    "   ",
]
USERS = ["anna", "a/b?c=d&e#f%20g", "<b>bold</b>", "née 😀", *(f"user-{number}" for number in range(20))]


def write_hostile_run(folder: Path) -> Path:
    """A small trained model over that data."""
    draw = random.Random(0)
    pairs = {(u, i) for u in range(len(USERS)) for i in range(36) if draw.random() < (0.9 if u % 2 == i % 2 else 0.15)}
    titles = [TITLES[i] if i < len(TITLES) else f"Book {i}" for i in range(36)]
    columns = zip(*((USERS[u], FIRST_ITEM + i, titles[i]) for u, i in sorted(pairs)), strict=True)
    table = pa.table(dict(zip(("user", "item", "title"), map(pa.array, columns), strict=True)))
    parts = Interactions.from_arrow(table, user="user", item="item", title="title", name="hostile").split(
        by="random", parts=(0.7, 0.1, 0.2), seed=0
    )
    model = Rankformer(embedding_dim=8, num_layers=2, epochs=8, validate_every=2, seed=0)
    model.fit(parts.train, valid=parts.valid)
    # Known is what was fitted and nothing more, so that a copied history gives the user's own list.
    model.save(folder, data={"name": TITLES[0]}, evaluation=evaluate(model, parts.test), known=parts.train)
    return folder
