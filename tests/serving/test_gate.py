import pytest

from rankformer.serving.gate import IdConvertor, escaped_path
from rankformer.serving.settings import ServiceSettings, Tokens

from .clients import asking

ACCESS, ADMIN = "access-token-0123456789", "admin-token-0123456789"


@pytest.mark.parametrize("segments", [["a/b"], ["%2F", "%"], ["%25", "é☃", "a b"], ["..", "."], ["a%2Fb/c"]])
def test_a_segment_comes_out_as_it_was_meant(segments):
    from urllib.parse import quote

    raw = "/".join(["", *(quote(segment, safe="") for segment in segments)]).encode()
    path = escaped_path({"raw_path": raw, "path": "ignored"})
    assert [IdConvertor().convert(part) for part in path.split("/")[1:]] == segments
    assert path == "/".join(["", *map(IdConvertor().to_string, segments)])


@pytest.fixture(scope="module")
def guarded(run_folder):
    with asking(run_folder, ServiceSettings(allowed_hosts=("never.used",)), Tokens(ACCESS, ADMIN)) as client:
        yield client


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "path", ["/v1/recommend/u1", "/v1/model", "/v1/users", "/v1/no-such-thing", "/v1", "/%76%31/model"]
)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer(ADMIN),
        bearer(""),
        bearer(ACCESS[:-1]),
        bearer(ACCESS + "x"),
        {"Authorization": ACCESS},
        {"Authorization": f"Basic {ACCESS}"},
        {"Authorization": "Bearer é".encode("latin-1")},
    ],
)
def test_without_the_token_nothing_under_v1_answers(guarded, path, headers):
    answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert ACCESS not in answer.text


def test_with_the_token_it_does(guarded):
    assert guarded.get("/v1/recommend/u1", headers=bearer(ACCESS)).status_code == 200
    assert guarded.get("/v1/recommend/u1", headers={"authorization": f"bearer {ACCESS}"}).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/openapi.json"])
def test_what_holds_no_data_is_open(guarded, path):
    assert guarded.get(path).status_code == 200


def test_reloading_takes_the_admin_token_and_no_other(guarded):
    assert guarded.post("/v1/admin/reload", headers=bearer(ACCESS)).status_code == 401
    assert guarded.post("/v1/admin/reload").status_code == 401
    assert guarded.post("/v1/admin/reload", headers=bearer(ADMIN)).status_code == 200


def test_without_an_admin_token_there_is_no_reloading(client):
    answer = client.post("/v1/admin/reload", headers=bearer(""))
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "admin_disabled"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "0.0.0.0"])
def test_an_open_service_does_not_answer_to_foreign_names(client, host):
    answer = client.get("/v1/model", headers={"Host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]"])
def test_it_answers_to_the_names_of_this_machine(client, host):
    assert client.get("/v1/model", headers={"Host": host}).status_code == 200


def test_further_names_can_be_allowed_and_a_token_makes_them_needless(run_folder, guarded):
    with asking(run_folder, ServiceSettings(allowed_hosts=("Shop.Example",))) as client:
        assert client.get("/v1/model", headers={"Host": "shop.example:443"}).status_code == 200
    assert guarded.get("/v1/model", headers={**bearer(ACCESS), "Host": "any.example"}).status_code == 200


def test_the_description_tells_where_tokens_are_needed(client, guarded):
    with_token, without = (one.get("/openapi.json").json()["paths"] for one in (guarded, client))
    assert with_token["/v1/model"]["get"]["security"] == [{"token": []}]
    assert "security" not in without["/v1/model"]["get"]
    assert without["/v1/admin/reload"]["post"]["security"] == [{"admin_token": []}]
