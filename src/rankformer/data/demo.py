"""Invented readers and books with tastes that we planted, so that the best possible ranking is known.

Each book belongs to one genre; each reader likes one to three genres. Reader u has book i with probability p_ui,
each interaction drawn independently:

    p_ui = min(0.95, 24 * (0.94 * taste_u(genre of i) + 0.06 / 12) * fraction of i in its genre)

so ranking by p_ui is the best that any method can do on average. Only raw generator bits and the four basic
operations are used, which give the same data on every machine.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts

NUM_USERS, NUM_ITEMS = 900, 400
DEMO_SEED = 7

# genre -> six openings and six endings, which make 36 titles
GENRES: dict[str, tuple[str, str]] = {
    "sea": ("Salt,Tide,Harbour,Lantern,Anchor,Gull", "Watch,Letters,Crossing,Song,Ledger,Morning"),
    "baking": ("Rye,Butter,Cardamom,Sourdough,Almond,Plum", "Sundays,Oven,Kitchen,Lessons,Table,Crumbs"),
    "mountain": ("Glacier,Ridge,Granite,Summit,Avalanche,North Face", "Warning,Verdict,Rope,Silence,Pursuit,Descent"),
    "robot": ("Copper,Clockwork,Seventh,Patient,Rusted,Borrowed", "Automaton,Circuit,Android,Engine,Signal,Machine"),
    "garden": ("Fern,Orchard,Bramble,Foxglove,Willow,Beehive", "Almanac,Path,Summer,Gate,Notebook,Secrets"),
    "detective": ("Missing,Crooked,Midnight,Silent,Second,Velvet", "Witness,Alibi,Suspect,Inspector,Clue,Motive"),
    "dragon": ("Ember,Scaled,Winged,Ashen,Last,Sleeping", "Dragon,Hoard,Throne,Rider,Oath,Egg"),
    "music": ("Broken,Quiet,Twelfth,Blue,Wandering,Unfinished", "Cello,Chorus,Encore,Quartet,Waltz,Refrain"),
    "history": ("Roman,Forgotten,Paper,Bronze,Merchant,Silk", "Empire,Roads,Siege,Archive,Dynasty,Treaty"),
    "space": ("Distant,Ninth,Lonely,Spiral,Frozen,Outer", "Orbit,Comet,Station,Moon,Telescope,Voyage"),
    "football": ("Extra,Muddy,Golden,Away,Penalty,Final", "Season,Boots,Whistle,Captain,Terrace,Replay"),
    "ghost": ("Hollow,Cold,Whispering,Locked,Grey,Unlit", "Stairs,Manor,Mirror,Visitor,Attic,Candle"),
}

FIRST_NAMES = (
    *("mira", "otto", "lena", "ravi", "ines", "tomo", "asha", "bram", "cleo", "dario", "elin", "femi", "gita", "hugo"),
    *("iris", "jonas", "kaya", "luca", "maeve", "nils", "olga", "pavel", "quinn", "rosa", "sami", "tess", "umar"),
    *("vera", "wim", "xenia", "yara", "zeno", "anouk", "bela", "ciro", "dina", "emil", "freya", "goran", "hana"),
)

_SIZE = 24.0
_TASTE_FRACTION = 0.94
_HIGHEST = 0.95
_TASTE_WEIGHTS = ((1.0,), (0.6, 0.4), (0.5, 0.3, 0.2))


def demo_parts(seed: int = DEMO_SEED) -> Parts:
    """Return the demo's train, valid and test parts, split 7:1:2 at random."""
    return demo_log(seed).split(seed=seed)


def demo_log(seed: int = DEMO_SEED) -> Interactions:
    """Return all interactions of the demo, ordered by reader, with book titles that name the genre."""
    probabilities, order = _draw_tastes(seed)
    drawn = _uniforms(seed, stream=1, shape=probabilities.shape) < probabilities
    users, items = (index.astype(np.int32) for index in np.nonzero(drawn))
    return Interactions(
        users,
        items,
        IdMap(pa.array([f"{FIRST_NAMES[u % len(FIRST_NAMES)]}-{u + 1:03d}" for u in range(NUM_USERS)])),
        IdMap(pa.array([f"book-{i + 1:03d}" for i in range(NUM_ITEMS)])),
        item_titles=pa.array([_title(number) for number in order.tolist()]),
        name="demo",
    )


def demo_oracle_scores(seed: int = DEMO_SEED) -> NDArray[np.float64]:
    """Return p_ui, (users, items): the probability that each interaction exists, in the order of the id maps."""
    return _draw_tastes(seed)[0].copy()


def _uniforms(seed: int, stream: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    # 53 of the 64 raw bits, which numpy keeps the same in all versions, unlike the methods of Generator.
    bits = np.random.PCG64(np.random.SeedSequence([seed, stream])).random_raw(shape)
    numbers: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def _title(number: int) -> str:
    """Return the title and genre of a book, genres taking turns and each genre's titles mixed."""
    turn, which = divmod(number, len(GENRES))
    genre, words = list(GENRES.items())[which]
    openings, endings = (part.split(",") for part in words)
    return f"{openings[turn % 6]} {endings[(turn + turn // 6) % 6]} ({genre})"


@lru_cache(maxsize=4)
def _draw_tastes(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return p_ui and, for each item index, the number of its book."""
    order = np.argsort(_uniforms(seed, stream=2, shape=(NUM_ITEMS,)), kind="stable")
    rank_in_genre, genre_of_book = np.divmod(np.arange(NUM_ITEMS), len(GENRES))
    popularity = 1.0 / (rank_in_genre + 6.0)
    fraction = popularity / np.bincount(genre_of_book, weights=popularity)[genre_of_book]
    affinity = _TASTE_FRACTION * _draw_affinities(seed) + (1.0 - _TASTE_FRACTION) / len(GENRES)
    by_book: NDArray[Any] = np.minimum(_HIGHEST, _SIZE * affinity[:, genre_of_book] * fraction)
    return by_book[:, order], order


def _draw_affinities(seed: int) -> NDArray[np.float64]:
    """Return (users, genres): how a reader's taste is divided over genres, each row adding up to 1."""
    # Some genres have more followers than others, so that popularity alone is worth something.
    following = np.cumsum(1.0 / (np.arange(len(GENRES)) + 4.0))
    affinities = np.zeros((NUM_USERS, len(GENRES)))
    for user, draws in enumerate(_uniforms(seed, stream=3, shape=(NUM_USERS, 4))):
        genres = np.searchsorted(following, draws[1:] * following[-1], side="right")
        for genre, weight in zip(genres, _TASTE_WEIGHTS[int(draws[0] * 3)], strict=False):
            affinities[user, genre] += weight  # a genre drawn twice simply counts more
    return affinities
