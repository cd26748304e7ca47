"""Published datasets as they are unpacked, each in a tiny sample of its real form."""

import gzip

import pytest

from rankformer.data import DataSource, Interactions
from rankformer.errors import DataError

TESTED = {"published layouts": ("source", "pyarrow", "recbole movielens yelp amazon")}


def raw_pairs(log):
    table = log.to_arrow()
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def write(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "-").replace("_dot_", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def titles_of(log):
    return dict(zip(log.item_ids.ids.to_pylist(), log.item_titles.to_pylist(), strict=True))


def load(folder, **options):
    return DataSource(source=folder, **options).load_log()


def test_recbole_with_one_file_and_titles(tmp_path):
    log = load(
        write(
            tmp_path,
            ml_dot_inter="user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\t10\t4\t5.0\n2\t20\t3\t6.0\n",
            ml_dot_item='item_id:token\tmovie_title:token_seq\tgenre:token_seq\n10\tToy "Story"\tA B\n30\tHeat\tC\n',
            other_dot_item="item_id:token\tmovie_title:token_seq\n10\tWrong\n",
        )
    )
    assert raw_pairs(log) == [(1, 10), (2, 20)]
    assert (log.weights.tolist(), log.times.tolist()) == ([4, 3], [5, 6])
    assert titles_of(log) == {10: 'Toy "Story"', 20: None}
    assert not DataSource(source=tmp_path).comes_split


def test_recbole_that_is_already_split(tmp_path):
    rows = {"train": "1\t10\n2\t20\n", "valid": "1\t20\n", "test": "2\t10\n"}
    for part, text in rows.items():
        write(tmp_path, **{f"ml_dot_{part}_dot_inter": "user_id:token\titem_id:token\n" + text})
    parts = DataSource(source=tmp_path).load()
    assert [raw_pairs(part) for part in parts] == [[(1, 10), (2, 20)], [(1, 20)], [(2, 10)]]
    assert DataSource(source=tmp_path).comes_split
    write(tmp_path, other_dot_inter="user_id:token\titem_id:token\n1\t2\n")
    with pytest.raises(DataError, match=r"has 4 files of interactions .*name one of them"):
        DataSource(source=tmp_path).load()


def test_movielens_100k(tmp_path):
    log = load(
        write(
            tmp_path,
            u_dot_data="196\t242\t3\t881250949\n186\t302\t3\t891717742\n",
            u_dot_item="242|Kolya (1996)|24-Jan-1997||x\n302|Misérables, Les (1995)|01-Jan-1997||x\n".encode("latin-1"),
            u_dot_user="1|24|M|technician|85711\n",
        )
    )
    assert raw_pairs(log) == [(196, 242), (186, 302)]
    assert log.times.tolist() == [881250949, 891717742]
    assert titles_of(log) == {242: "Kolya (1996)", 302: "Misérables, Les (1995)"}


@pytest.mark.parametrize("whole", [True, False])
def test_movielens_1m(tmp_path, whole):
    folder = write(
        tmp_path,
        ratings_dot_dat="1::1193::5::978300760\n2::661::3::978302109\n",
        movies_dot_dat='1193::"One Flew" Over (1975)::Drama\n661::Misérables (1996)::Animation\n'.encode("latin-1"),
        users_dot_dat="1::F::1::10::48067\n",
    )
    log = load(folder if whole else folder / "ratings.dat")
    assert raw_pairs(log) == [(1, 1193), (2, 661)]
    assert (log.weights.tolist(), log.times.tolist()) == ([5, 3], [978300760, 978302109])
    assert titles_of(log) == {661: "Misérables (1996)", 1193: '"One Flew" Over (1975)'}


def test_movielens_20m_and_later(tmp_path):
    log = load(
        write(
            tmp_path,
            ratings_dot_csv="userId,movieId,rating,timestamp\n1,2,3.5,1112486027\n2,29,4,1112484676\n",
            movies_dot_csv='movieId,title,genres\n2,"Jumanji, the game (1995)",Adventure\n29,City (1995),Sci-Fi\n',
            tags_dot_csv="userId,movieId,tag,timestamp\n18,4141,Mark Waters,1240597180\n",
        )
    )
    assert raw_pairs(log) == [(1, 2), (2, 29)]
    assert titles_of(log) == {2: "Jumanji, the game (1995)", 29: "City (1995)"}


def test_amazon_reviews_of_2018_and_2023(tmp_path):
    old = '{"reviewerID": "A2SUAM1J3GNN3B", "asin": "0000013714", "overall": 5.0, "unixReviewTime": 1252800000}\n'
    new = '{"user_id": "AGKHLEW2", "asin": "B01CUPMQZE", "parent_asin": "B00YQ6X8EO", "rating": 4.0, "timestamp": 15}\n'
    meta = '{"main_category": "Beauty", "title": "Spray", "parent_asin": "B00YQ6X8EO", "price": null}\n'
    write(tmp_path, Books_dot_json_dot_gz=gzip.compress(old.encode()), Beauty_dot_jsonl=new)
    log = load(tmp_path / "Books.json.gz", format="amazon")
    assert raw_pairs(log) == [("A2SUAM1J3GNN3B", "0000013714")]
    assert (log.weights.tolist(), log.times.tolist()) == ([5], [1252800000])
    write(tmp_path, meta_Beauty_dot_jsonl=meta)
    log = load(tmp_path / "Beauty.jsonl", format="amazon")
    assert raw_pairs(log) == [("AGKHLEW2", "B00YQ6X8EO")]
    assert titles_of(log) == {"B00YQ6X8EO": "Spray"}


@pytest.mark.parametrize(
    "text",
    [
        "A2SUAM1J3GNN3B,0000013714,5.0,1252800000\n",
        "0000013714,A2SUAM1J3GNN3B,5.0,1252800000\n",
        "user_id,parent_asin,rating,timestamp\nA2SUAM1J3GNN3B,0000013714,5.0,1252800000\n",
    ],
)
def test_amazon_ratings_in_every_order_of_columns(tmp_path, text):
    log = load(write(tmp_path, Books_dot_csv=text) / "Books.csv", format="amazon")
    assert raw_pairs(log) == [("A2SUAM1J3GNN3B", "0000013714")]
    assert (log.weights.tolist(), log.times.tolist()) == ([5], [1252800000])


def test_yelp(tmp_path):
    review = (
        '{"review_id": "r", "user_id": "mh_-eMZ6K5RLWhZyISBhwA", "business_id": "XQfwVwDr-v0ZS3_CbbE5Xw", '
        '"stars": 3.0, "useful": 0, "text": "If you decide", "date": "2018-07-07 22:09:11"}\n'
    )
    business = '{"business_id": "XQfwVwDr-v0ZS3_CbbE5Xw", "name": "Turning Point", "stars": 3.0}\n'
    folder = write(
        tmp_path,
        yelp_academic_dataset_review_dot_json=review,
        yelp_academic_dataset_business_dot_json=business,
        yelp_academic_dataset_user_dot_json='{"user_id": "x", "name": "Ann"}\n',
    )
    for source in (folder, folder / "yelp_academic_dataset_review.json"):
        log = load(source)
        assert raw_pairs(log) == [("mh_-eMZ6K5RLWhZyISBhwA", "XQfwVwDr-v0ZS3_CbbE5Xw")]
        assert (log.weights.tolist(), log.times.tolist()) == ([3], [1_531_001_351_000_000])
        assert titles_of(log) == {"XQfwVwDr-v0ZS3_CbbE5Xw": "Turning Point"}


def test_a_layout_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"is not movielens: expected u\.data, ratings\.dat, ratings\.csv"):
        load(write(tmp_path, x_dot_csv="user,item\n1,2\n"), format="movielens")


def test_columns_that_are_named_come_first(tmp_path):
    write(tmp_path, u_dot_data="196\t242\t3\t881250949\n")
    assert Interactions.read(tmp_path / "u.data", time="").times is None


def test_somebody_elses_ratings_are_read_as_they_are(tmp_path):
    write(tmp_path, ratings_dot_csv="user,item\n1,2\n")
    assert raw_pairs(load(tmp_path)) == [(1, 2)]
