"""The page at /, in a real browser, against the real service and a model whose data is out to harm it."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import httpx
import pytest
from playwright.sync_api import expect

from rankformer.runs.saved import load_run
from rankformer.serving.page import page_response
from rankformer.serving.settings import ServiceSettings, Tokens

from .browser import (
    PHONE,
    Visits,
    contrasts_of,
    headless_chromium,
    move,
    required_chromium,
    rows_of,
    served,
    settled,
    tab_to,
)
from .hostile import FIRST_ITEM, TITLES, USERS, write_hostile_run
from .runs import write_blend, write_run, write_shop

TOKEN = "a-token-of-enough-letters"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_hostile_run(tmp_path_factory.mktemp("page") / "run")


@pytest.fixture(scope="module")
def recommender(run):
    return load_run(run).recommender


@pytest.fixture(scope="module")
def address(run):
    with served(run) as (address, _):
        yield address


@pytest.fixture(scope="module")
def browser():
    with headless_chromium(required_chromium()) as browser:
        yield browser


@pytest.fixture
def visit(browser, address):
    visits = Visits(browser, address)
    yield visits
    visits.leave()


def name_of(title, item_id):
    return title if title and title.strip() else str(item_id)


def expected(recommendations, item="item_id"):
    rows = recommendations.to_dicts()
    return [(name_of(row["title"], row[item]), pytest.approx(row["score"], rel=1e-5)) for row in rows]


def history_of(recommender, user):
    of_user = recommender.history.users == recommender.user_ids.index_of([user])[0]
    return set(recommender.history.items[of_user])


def find_user(page, text):
    field = page.get_by_label("Find a user by id")
    field.fill(text)
    expect(page.get_by_role("option").first).to_have_text(re.compile(f"^{re.escape(text)}"))
    field.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Recommended for {text}")


def pick_item(page, text):
    page.get_by_label("Pick items this user likes").fill(text)
    page.get_by_role("option").filter(has_text=text).first.click()


class Attributes(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += attrs


def test_the_document_is_whole_and_its_policy_names_exactly_its_script_and_style():
    page = page_response()
    text = bytes(page.body).decode()
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    for tag in ("script", "style"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    attributes = Attributes(text).found
    assert not [name for name, _ in attributes if name.startswith("on") or name in ("style", "src", "srcset", "action")]
    assert all(value.startswith(("#", "data:")) for name, value in attributes if name == "href")


def test_loads_in_silence_and_offers_users(visit):
    page = visit()
    expect(page.get_by_text("Choose a user to begin")).to_be_visible()
    page.get_by_role("button", name="anna").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Recommended for anna")


def test_a_user_that_is_found_gets_the_list_of_the_recommender(visit, recommender):
    page = visit()
    for user in USERS[:4]:
        find_user(page, user)
        assert rows_of(page) == expected(recommender.recommend([user], 10))
        assert page.locator(".results .rank").all_text_contents() == [str(rank) for rank in range(1, 11)]
        history = page.get_by_role("list", name="History").get_by_role("listitem")
        expect(history).to_have_count(min(12, len(history_of(recommender, user))))


def test_length_and_seen_items_follow_the_controls_and_the_address(visit, recommender):
    page = visit("#user=anna")
    page.get_by_label("Show").select_option("20")
    expect(page.locator(".results .row")).to_have_count(len(recommender.recommend(["anna"], 20)))
    page.get_by_label("Include seen").check()
    expect(page.locator(".results .row")).to_have_count(20)
    assert rows_of(page) == expected(recommender.recommend(["anna"], 20, include_seen=True))
    listed = {str(row["item_id"]) for row in recommender.recommend(["anna"], 20, include_seen=True).to_dicts()}
    fresh = {str(row["item_id"]) for row in recommender.recommend(["anna"], 36).to_dicts()}
    expect(page.locator(".results .tag")).to_have_count(len(listed - fresh))
    assert page.evaluate("location.hash") == "#user=anna&k=20&seen=1"
    page.reload()
    assert rows_of(page) == expected(recommender.recommend(["anna"], 20, include_seen=True))


@pytest.mark.parametrize("picks", [(), (FIRST_ITEM, FIRST_ITEM + 12)])
def test_the_reasons_on_show_add_up_to_the_score(visit, recommender, picks):
    page = visit(f"#new-user={','.join(map(str, picks))}" if picks else "#user=anna")
    page.locator(".results .row").nth(2).click()
    lines = page.locator(".reasons tbody data")
    reasons = len(picks) or len(history_of(recommender, "anna"))
    assert reasons == 2 or reasons > 9
    for shown in (min(reasons, 9), reasons):  # eight and one line for the rest, until all are asked for
        expect(lines).to_have_count(shown + 2)  # and the global and the user contribution
        score = float(page.locator(".reasons tfoot data").get_attribute("value"))
        assert sum(lines.evaluate_all("lines => lines.map(line => Number(line.value))")) == pytest.approx(
            score, abs=1e-4
        )
        assert score == pytest.approx(rows_of(page)[2][1], rel=1e-5)
        if shown < reasons:
            page.locator(".detail .link", has_text="Show all").click()
    page.get_by_role("button", name="Close the details").click()
    expect(page.locator(".detail")).to_have_count(0)


def test_a_new_user_grows_and_shrinks_and_the_list_follows(visit, recommender):
    page = visit("#new-user=")
    expect(page.get_by_text("Nothing picked yet: these are the most popular items.")).to_be_visible()
    assert rows_of(page) == expected(recommender.recommend_histories({0: []}, 10))
    history = []
    for number in (12, 13):
        pick_item(page, f"Book {number}")
        history.append(FIRST_ITEM + number)
        assert rows_of(page) == expected(recommender.recommend_histories({0: history}, 10))
        expect(page.get_by_role("list", name="Picked items")).to_contain_text(f"Book {number}")
        expect(page.locator(".moved").first).to_be_visible()
    page.get_by_role("button", name="Remove Book 12").click()
    assert rows_of(page) == expected(recommender.recommend_histories({0: history[1:]}, 10))
    page.locator(".results .pick").first.click()
    expect(page.get_by_role("list", name="Picked items").get_by_role("listitem")).to_have_count(2)


def test_a_copied_history_gives_the_users_own_list(visit):
    page = visit("#user=anna")
    own = rows_of(page)
    page.get_by_role("button", name="Copy to the new user").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Recommended for the new user")
    expect(page.locator(".pick").first).to_be_visible()
    assert [name for name, _ in rows_of(page)] == [name for name, _ in own]
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Recommended for anna")


def test_an_answer_that_comes_too_late_is_dropped(visit, recommender):
    late = []

    def hold_the_first(page):
        page.route("**/recommend:session", lambda route: late.append(route) if not late else route.continue_())

    page = visit(f"#new-user={FIRST_ITEM + 12}", before=hold_the_first, reduced_motion="reduce")
    expect(page.locator(".skeleton").first).to_be_visible()
    assert page.evaluate("document.getAnimations().length") == 0
    pick_item(page, "Book 13")
    expect(page.locator(".results .row")).to_have_count(10)
    late[0].fulfill(json={"items": [], "unknown_items": [], "fallback": False})
    history = {0: [FIRST_ITEM + 12, FIRST_ITEM + 13]}
    assert rows_of(page) == expected(recommender.recommend_histories(history, 10))


def test_unknown_items_of_an_address_are_skipped_and_named(visit):
    page = visit(f"#new-user={FIRST_ITEM + 12},no-such-item")
    expect(page.locator(".note")).to_have_text("Unknown to the model and skipped: no-such-item.")
    expect(page.locator(".results .row")).to_have_count(10)


def test_similar_items_are_those_of_the_recommender_and_lead_on(visit, recommender):
    page = visit(f"#user=anna&item={FIRST_ITEM + 12}")
    rows = ".detail .ranked .row-line"
    expect(page.locator(rows)).to_have_count(8)
    similar = recommender.similar_items(FIRST_ITEM + 12, 8)
    assert rows_of(page, rows) == expected(similar, "similar_item_id")
    page.locator(f"{rows} .row").first.click()
    expect(page.locator("#detail-name")).to_have_text(expected(similar, "similar_item_id")[0][0])


def test_the_model_card_holds_metrics_protocol_settings_and_the_curve(visit, run):
    page = visit("#model")
    kept = load_run(run)
    for name, value in kept.metrics.items():
        tile = page.locator(".tile").filter(has=page.get_by_text(name, exact=True))
        expect(tile.locator("data")).to_have_text(f"{value:.4f}")
    validations = [event for event in kept.log if event["event"] == "validation"]
    expect(page.locator(".curve .dot")).to_have_count(len(validations))
    best = max(event[kept.settings["metric"]] for event in validations)
    expect(page.get_by_role("img")).to_have_attribute("aria-label", re.compile(f"best {best:.4f} at epoch"))
    for name in ("embedding dim", "mask", "split hash", "torch"):
        expect(page.locator("dt", has_text=name).first).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"rankformer on {TITLES[0]}")


def test_a_blend_shows_its_members_and_which_of_them_do_without_new_users(browser, tmp_path):
    with served(write_blend(tmp_path / "blend")) as (address, _):
        visits = Visits(browser, address)
        page = visits("#model")
        section = page.locator("section", has=page.get_by_role("heading", name="Members of the blend")).last
        expect(section.locator("tbody tr")).to_have_text(["graph0.750.30000.20001.5", "table0.250.20000.30001.5"])
        expect(page.get_by_text("Left out: ease (too large).")).to_be_visible()
        page = visits("#new-user=i1")
        expect(page.get_by_text("Without table, which cannot score new users.")).to_be_visible()
        visits.leave()


def test_titles_and_ids_are_shown_as_they_are_and_never_run(visit):
    page = visit(f"#user={'%3Cb%3Ebold%3C%2Fb%3E'}&k=50&seen=1&item={FIRST_ITEM}")
    names = [name for name, _ in rows_of(page)]
    assert {title for title in TITLES if title and title.strip()} <= set(names)
    assert {str(FIRST_ITEM + 7), str(FIRST_ITEM + 8)} <= set(names)
    expect(page.locator("#detail-name")).to_have_text(TITLES[0])
    expect(page.get_by_role("heading", level=1)).to_have_text("Recommended for <b>bold</b>")
    move(page, "new-user=")
    for title in TITLES[:3]:
        pick_item(page, title[:30])
    expect(page.get_by_role("list", name="Picked items").get_by_role("listitem")).to_have_count(3)
    assert page.locator("#lists :is(img, script, b, svg)").count() == 0


def refusal(status, code, **headers):
    body = {"error": {"code": code, "message": "because of <b>this</b>"}}
    return lambda route: route.fulfill(status=status, json=body, headers=headers)


def test_failures_are_explained_and_trying_again_helps(visit, recommender):
    page = visit("#user=anna", before=lambda page: page.route("**/v1/recommend/*", refusal(500, "internal"), times=1))
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The service failed")
    expect(alert).to_contain_text("Because of <b>this</b>.")
    alert.get_by_role("button", name="Try again").click()
    assert rows_of(page) == expected(recommender.recommend(["anna"], 10))
    page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    page.get_by_label("Show").select_option("5")
    expect(alert).to_contain_text("The service does not answer")
    page.unroute_all()
    busy = refusal(429, "too_many_requests", **{"Retry-After": "1"})
    page.route("**/v1/recommend/*", busy, times=1)
    alert.get_by_role("button", name="Try again").click()
    expect(alert).to_contain_text("The service is busy")
    expect(page.locator(".results .row")).to_have_count(5)  # by itself, a second later


def test_a_user_the_model_was_not_fitted_on_gets_what_is_popular_and_is_told(visit, tmp_path):
    run = write_run(tmp_path / "run")  # its last user has no interaction
    with served(run) as (address, _):
        page = settled(visit("#user=u999", at=address))
        expect(page.locator(".results .note")).to_contain_text("The model was fitted on no interaction of this user")
        assert rows_of(page) == expected(load_run(run).recommender.recommend(["u999"], 10))
        expect(page.locator("#history")).to_contain_text("The model was given no interaction of this user.")
        page.locator(".results .row").first.click()
        expect(page.locator(".detail")).to_contain_text("fitted on no interaction of this user")
        find_user(page, "u998")
        expect(page.locator(".results .note")).to_have_count(0)


def test_an_unknown_user_is_named_and_another_can_be_found(visit):
    page = visit("#user=nobody")
    expect(page.get_by_role("alert")).to_contain_text("No such user")
    expect(page.get_by_role("alert")).to_contain_text("nobody")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    find_user(page, "user-7")
    expect(page.locator(".results .row")).to_have_count(10)


def test_a_swap_to_a_model_that_can_do_less_is_noticed(visit, run, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(run)
    with served(link, Tokens(admin=TOKEN)) as (address, _):
        page = settled(visit("#user=anna", at=address))
        link.unlink()
        link.symlink_to(write_run(tmp_path / "less", fold_in=False))
        answer = httpx.post(f"{address}v1/admin/reload", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)
        assert answer.status_code == 200
        find_user(page, "u7")
        expect(page.locator("#badge")).to_have_text("toy on clicks")
        page.locator(".results .row").first.click()
        expect(page.locator(".detail")).to_contain_text("there are no reasons to give")
        expect(page.locator(".detail .ranked .row")).to_have_count(8)
        expect(page.get_by_role("button", name="new user")).to_have_count(0)
        page.get_by_role("link", name="New user").click()
        expect(page.locator(".results")).to_contain_text("Not something this model can do")


def test_a_guarded_service_is_asked_with_a_token_that_stays_in_memory(visit, run):
    with served(run, Tokens(access=TOKEN)) as (address, _):
        page = visit("#user=anna", at=address)
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Bearer token").fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("did not accept that token")
        dialog.get_by_label("Bearer token").fill(TOKEN)
        dialog.get_by_role("button", name="Use token").click()
        expect(page.locator(".results .row")).to_have_count(10)
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        assert TOKEN not in page.content()
        page.reload()
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_role("alert").get_by_role("button", name="Enter token").click()
        expect(dialog).to_be_visible()


def test_everything_can_be_reached_by_keyboard(visit):
    page = settled(visit())
    press = page.keyboard.press
    tab_to(page, "#user-input")
    page.keyboard.type("user-1")
    expect(page.get_by_role("option", selected=True)).to_contain_text("user-1")
    press("ArrowDown")
    expect(page.get_by_role("option", selected=True)).to_contain_text("user-10")
    press("Escape")
    expect(page.get_by_role("option")).to_have_count(0)
    press("ArrowDown")
    expect(page.get_by_role("option", selected=True)).to_contain_text("user-1")
    press("ArrowUp")
    press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Recommended for user-19")
    settled(page)
    tab_to(page, ".results .row")
    press("ArrowDown")
    press("ArrowDown")
    press("Enter")
    expect(page.locator("#detail-name")).to_be_focused()
    expect(page.locator(".reasons tfoot")).to_be_visible()
    tab_to(page, ".reason-name")
    press("Escape")
    expect(page.locator(".results .row").nth(2)).to_be_focused()


@pytest.mark.parametrize("width", [375, 320])
def test_a_phone_never_scrolls_sideways(visit, width):
    everything = ",".join(str(FIRST_ITEM + number) for number in range(9))
    page = visit(f"#user=anna&k=50&seen=1&item={FIRST_ITEM + 5}", viewport={**PHONE, "width": width})
    expect(page.locator(".results li .detail .reasons")).to_be_visible()
    for fragment in (f"new-user={everything}", "user=nobody", "model", ""):
        assert settled(page).evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, page.url
        move(page, fragment)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_in_light_and_dark(visit, scheme):
    page = settled(visit(color_scheme=scheme))
    for fragment in (f"user=anna&seen=1&item={FIRST_ITEM}", f"new-user={FIRST_ITEM}", "user=nobody", "model"):
        paper, contrasts = contrasts_of(move(page, fragment))
        assert (paper < 0.05) == (scheme == "dark")
        assert len(contrasts) > 10
        assert [entry for entry in contrasts if entry[0] < 4.5] == []


def test_attributes_are_shown_and_the_filter_follows_the_address(visit, tmp_path):
    shop = write_shop(tmp_path / "shop")
    recommender = load_run(shop).recommender
    with served(shop) as (address, _):
        page = visit("#user=u1&k=20&seen=1", at=address)
        expect(page.locator(".results .row")).to_have_count(20)
        first = recommender.recommend(["u1"], 20, include_seen=True).to_dicts()[0]
        expect(page.locator(".results .row").first.locator(".attributes")).to_contain_text(f"brand {first['brand']}")
        field = page.get_by_label("Only items where")
        field.fill("brand = 'b1' and price < 10")
        field.press("Enter")
        expected_rows = recommender.recommend(["u1"], 20, include_seen=True, where="brand = 'b1' and price < 10")
        expect(page.locator(".results .row")).to_have_count(len(expected_rows))
        assert rows_of(page) == expected(expected_rows)
        page.reload()
        assert rows_of(page) == expected(expected_rows)
        field.fill("tags contains '<b>red</b>'")
        field.press("Enter")
        expect(page.locator(".results .attributes").first).to_contain_text("<b>red</b>")  # text, not markup
        field.fill("colour = 1")
        field.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("no column 'colour' at position 1")
        field.fill("cold")
        field.press("Enter")
        expect(page.locator(".results .row")).to_have_count(2)
        expect(page.locator(".results .tag")).to_have_text(["new item", "new item"])
        page.get_by_role("button", name="Clear").click()
        expect(page.locator(".results .row")).to_have_count(20)
        assert "where" not in page.evaluate("location.hash")
        phone = visit("#user=u1&where=cold&item=new-1", at=address, viewport=PHONE)
        expect(phone.locator(".detail")).to_contain_text("Nobody has this item yet")
        expect(phone.locator(".results .row")).to_have_count(2)
        assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_rules_and_lists_of_ids_filter_too(visit, tmp_path):
    shop = write_shop(tmp_path / "shop")
    recommender = load_run(shop).recommender
    with served(shop) as (address, _):
        page = settled(visit("#user=u1", at=address))
        page.get_by_text("More filters").click()
        rules = {"at_most": {"brand": 2}, "boost": {"price > 20": 1.5}, "block": ["i1", "i2"]}
        page.get_by_label("At most N per attribute").fill("2:brand")
        page.get_by_label("Boost, or bury below 0").fill("1.5:price > 20")
        page.get_by_label("Without these ids").fill("i1; i2")
        page.get_by_role("button", name="Apply").click()
        wanted = recommender.recommend(["u1"], 10, include_cold=True, **rules)
        assert len(wanted) == 8
        expect(page.locator(".results .row")).to_have_count(8)
        assert rows_of(page) == expected(wanted)
        page.reload()  # the address holds them
        assert rows_of(page) == expected(wanted)
        move(page, "new-user=i5,i9&allow=i1%3Bi3&block=i3")
        assert rows_of(page) == expected(recommender.recommend_histories({0: ["i5", "i9"]}, 10, allow=["i1"]))
        page.get_by_role("button", name="Clear").last.click()
        expect(page.locator(".results .row")).to_have_count(10)


def test_clicks_of_the_moment_change_the_list_of_a_known_user(visit, recommender):
    page = visit("#user=anna")
    before = rows_of(page)
    known = [recommender.item_ids.ids[int(item)].as_py() for item in sorted(history_of(recommender, "anna"))]
    fresh = next(item for item in (FIRST_ITEM + number for number in range(12, 36)) if item not in known)
    title = f"Book {fresh - FIRST_ITEM}"
    page.get_by_label("Add a click of this moment").fill(title)
    with page.expect_request("**/v1/recommend:session") as asked:
        page.get_by_role("option").filter(has_text=title).first.click()
    body = asked.value.post_data_json
    assert (body["user"], body["history"]) == ("anna", [fresh])  # so that weights and long histories count
    wanted = expected(recommender.recommend_histories({"anna": [fresh]}, 10, extend=True))
    expect(page.locator(".results .note")).to_contain_text("With these clicks")
    assert rows_of(page) == wanted
    assert title not in [name for name, _ in wanted]
    expect(page.get_by_role("list", name="Clicks of this moment")).to_contain_text(title)
    assert page.evaluate("location.hash") == f"#user=anna&clicks={fresh}"
    page.locator(".results .row").first.click()  # explained with the click
    expect(page.locator(".reasons tfoot data")).to_have_attribute("value", re.compile("."))
    score = float(page.locator(".reasons tfoot data").get_attribute("value"))
    assert score == pytest.approx(wanted[0][1], abs=1e-4)
    page.locator(".results .pick").first.click()
    expect(page.get_by_role("list", name="Clicks of this moment").get_by_role("listitem")).to_have_count(2)
    page.get_by_role("button", name="Clear").first.click()
    expect(page.locator(".results .note")).to_have_count(0)
    assert rows_of(page) == before
    find_user(page, "user-7")
    assert "clicks" not in page.evaluate("location.hash")


def test_clicks_of_a_user_without_interactions(visit, tmp_path):
    run = write_run(tmp_path / "run")  # its last user has no interaction
    with served(run) as (address, _):
        page = visit("#user=u999&clicks=i3,i4", at=address)
        assert rows_of(page) == expected(load_run(run).recommender.recommend_histories({0: ["i3", "i4"]}, 10))
        expect(page.locator(".results .note")).to_contain_text("With these clicks")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two runs over the same ids, the second unable to score new users, and a service for both."""
    folder = tmp_path_factory.mktemp("two")
    runs = [write_run(folder / "one"), write_run(folder / "two", seed=1, fold_in=False)]
    with served(runs[0], settings=ServiceSettings(compare=runs[1])) as (address, _):
        yield address, [load_run(run).recommender for run in runs]


def test_two_models_side_by_side_and_what_differs_is_marked(visit, two):
    address, recommenders = two
    page = settled(visit("#user=u1", at=address))
    expect(page.locator(".pair")).to_have_count(0)
    page.get_by_label("Compare").check()
    lists = [
        page.get_by_role("list", name=name, exact=True)
        for name in ("Recommendations", "Recommendations of the other model")
    ]
    expect(lists[1].locator(".row")).to_have_count(10)
    answers = [recommender.recommend(["u1"], 10) for recommender in recommenders]
    columns = ".pair section:nth-child({}) .row-line"
    for number, answer in enumerate(answers, start=1):
        assert rows_of(page, columns.format(number)) == expected(answer)
    ids = [[row["item_id"] for row in answer.to_dicts()] for answer in answers]
    for mine, others, shown in ((*ids, lists[0]), (*ids[::-1], lists[1])):
        missing = len(set(mine) - set(others))
        assert 0 < missing < 10
        expect(shown.locator(".moved.new")).to_have_text(["only here"] * missing)
        moved = [item for item in mine if item in others and mine.index(item) != others.index(item)]
        expect(shown.locator(".moved:not(.new)")).to_have_count(len(moved))
    common = len(set(ids[0]) & set(ids[1]))
    expect(page.locator(".difference")).to_contain_text(f"{common} of 10 items in both lists")
    lists[1].locator(".row").first.click()
    expect(page.locator(".detail .eyebrow")).to_have_text("For u1, by toy")
    expect(page.locator(".detail")).to_contain_text("there are no reasons to give")  # of the second model
    similar = recommenders[1].similar_items(ids[1][0], 8)
    assert rows_of(page, ".detail .ranked .row-line") == expected(similar, "similar_item_id")
    lists[0].locator(".row").first.click()
    expect(page.locator(".reasons tfoot")).to_be_visible()  # of the first
    assert "compare=1" in page.evaluate("location.hash")
    move(page, "new-user=i1&compare=1")
    expect(page.locator(".pair section").first.locator(".row")).to_have_count(10)
    expect(page.locator(".pair section").last).to_contain_text("Not something this model can do")


def test_the_model_cards_of_both(visit, two):
    page = visit("#model", at=two[0])
    expect(page.get_by_role("heading", level=1)).to_have_text(["toy on clicks", "toy on clicks"])
    section = page.locator("section", has=page.get_by_role("heading", name="Side by side")).last
    expect(section.locator("tbody tr").last).to_have_text("ndcg@200.25000.25000.0000")
    versions = section.locator("tbody tr").nth(1).locator("td").all_text_contents()
    assert len(set(versions[:2])) == 2


@pytest.mark.parametrize("width", [375, 320])
def test_a_phone_shows_both_lists_beside_each_other(visit, two, width):
    page = settled(visit("#user=u1&compare=1&item=i1&of=other", at=two[0], viewport={**PHONE, "width": width}))
    left, right = (page.locator(".pair section").nth(number).bounding_box() for number in range(2))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    for fragment in ("new-user=i1&compare=1", "model"):
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, page.url
        move(page, fragment)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
